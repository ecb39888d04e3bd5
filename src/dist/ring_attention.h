// Exact attention of one step over all ranks, layer by layer. What each rank computes and keeps: shard.h.
//
// A layer: every rank encodes the K and V of its rows in the cache's format and sends them to the ranks that keep them.
// Then either K and V travel or queries do.
//
// pass-KV: segments go from their keepers to all ranks with rows, in the order of positions, a *round* of some of each
// rank at a time; while a round is walked, the next one is under way into the other half of the buffers, and with the
// last round the next layer's first. What was there before the step is walked before anybody waits for what is new.
// A row's walk goes on from segment to segment (AttentionArgs::state), as on one rank. Every rank sends what it keeps N
// - 1 times, which are the bytes of a ring, in one hop. A cache of one round is an all-gather. Ranks that share memory
// (shared_memory.h) tell where the pages are instead and read them there, and if all do, new K and V are written there,
// too, and a layer is two walks, over what was there before the step and over what is new (ring_shared.cpp), of which
// ranks that are ahead compute blocks for those that are behind (work_board.h). Whoever has attended must then wait for
// the others before a page of it is freed or written again: see reads_shared().
//
// pass-Q: queries go to the ranks that keep something they see; each walks its segments and returns their states as
// soon as they are there; the row's rank takes them together in order. The same with one token is decoding. Where not
// `exact`, a rank returns one state for all its segments: fewer bytes by as many times, and no longer the bits of one
// rank.
//
// Where the format seals pages (kv_format.h), new K and V travel as open pages, and each rank seals those it keeps when
// their turn comes, by position: the bytes are those of one rank. Pages of a step that are there in both forms travel
// in both, and each row reads the form that it would read on one rank.
//
// A sequence that has dropped slots is *compact*: each rank has what is left of its segments in pages without gaps, one
// list per head, with positions beside them. Queries travel then, and a rank returns one state.
//
// A step may be of several sequences, each with its own mode. Within a layer, new K and V of all go to their keepers in
// one message per pair of ranks; then sequences whose K and V travel follow one another; and then all whose queries
// travel go together: one message of queries and one of states per pair of ranks, whatever their number.
//
// Every rank calls begin() and then attend() for each layer, with the same parts. A failing transport makes
// attend() return at once, with numbers that mean nothing; status() says why. Thread-safety: one thread at a time.
#pragma once

#include <functional>

#include "attn/layer_attention.h"
#include "dist/ring_cost.h"
#include "dist/shard.h"
#include "dist/shared_memory.h"
#include "dist/transport.h"
#include "dist/work_board.h"
#include "kv/sequence.h"

namespace godwit::dist {

struct RingShape {
  int heads = 0, kv_heads = 0, head_dim = 0;
  int max_rows = 0;  // of a rank in a step
  int layers = 1;
};

struct RingOptions {
  bool overlap = true;  // the next round, also the next layer's first, travels while one is walked
  bool exact = true;
  bool steal = true;  // ranks of one host compute blocks of each other's rows
  // A walk of so many multiply-adds is offered to others; shorter ones are over before it would pay.
  int64_t least_offer = int64_t{1} << 28;
  bool leaves_rows = false;  // for tests: this rank computes no block that it offers
};

// Seconds of attend(), added up over layers and steps.
struct RingTimes {
  double attention_s = 0;
  double exposed_s = 0;  // waiting for messages, or for others to return rows
  double merge_s = 0;
  double total_s = 0;     // with the copies into and out of frames
  double stolen_s = 0;    // attention for other ranks: in total_s as far as it was done within attend()
  double relieved_s = 0;  // attention of other ranks for this one, as long as it would have taken here
  uint64_t layers = 0;
  uint64_t rows = 0;  // of this rank, once for all layers
};

// One sequence's part of a step. The sequence has room for what this rank keeps of it already.
struct RingPart {
  const KvSequence* sequence = nullptr;
  Stretch step;
  RingMode mode = RingMode::kPassKv;
  int first = 0, degree = 0;  // see Shards
  bool compact = false;
};

// Pages of segments of one layer, head by head, in some slabs.
struct SegmentPages {
  const std::byte* slab = nullptr;
  const std::byte* open_slab = nullptr;
  std::vector<PageRef> pages;  // [kv_heads, pages_per_head]
  size_t pages_per_head = 0;
  // Likewise, as rows see them that come too early to read the sealed form; empty: no page is there in both.
  std::vector<PageId> earlier = {};
};

// In which forms rows of a step read a page of the sequence; a format that does not seal has the first only.
struct PageForms {
  bool sealed = true, open = false;
};
PageForms page_forms(const KvFormat& format, Stretch step, int32_t page);

class RingAttention final : public LayerAttention {
 public:
  // Pages that a rank's pool needs behind its own, where others' pages of a round are put; by the formats of layers.
  static size_t spare_pages(int ranks, int kv_heads, std::span<const KvFormat> formats);
  // On every rank.
  static Result<std::unique_ptr<RingAttention>> create(Transport& transport, KvPool& pool, const RingShape& shape,
                                                       const RingOptions& options, SharedView shared = {});

  ~RingAttention() { end(); }

  // The rows of a rank are those of the parts, one after the other. All ranks give the same shares. From begin() to
  // end(), which comes after the last wait of the step, a rank that waits works for others.
  void begin(std::span<const RingPart> parts, const Shares& shares = {});
  void end() { transport_.set_meanwhile({}); }
  void attend(const LayerCall& call) override;
  Status status() const { return transport_.status(); }
  // Whether ranks read each other's pages in this step: nobody may change them until all have done it.
  bool reads_shared() const;

  // Of sequences that all ranks take part in, from rank 0 on, with equal shares; and of a part.
  const Shards& shards() const { return shards_; }
  const std::vector<Stretch>& rows(size_t part, int rank) const { return parts_[part].rows[static_cast<size_t>(rank)]; }
  const std::vector<int32_t>& row_counts() const { return row_counts_; }  // by rank
  const RingTimes& times() const { return times_; }
  const RingShape& shape() const { return shape_; }
  const RingOptions& options() const { return options_; }
  const SharedView& shared() const { return shared_; }

  // Seconds of a walk of `rows` rows over one full segment, measured.
  Result<double> measure_segment(int rows);

 private:
  struct Span {  // rows [row_begin, row_end) at positions from `position` on
    int32_t row_begin = 0, row_end = 0, position = 0;
  };
  struct Piece {  // rows of one rank that one rank keeps
    size_t part = 0;
    int32_t row_begin = 0;  // among all of that rank
    Stretch positions;
    int keeper = 0;
  };
  struct Rows {  // queries to walk for
    Tensor q, positions;
    std::vector<Span> spans;
  };
  // Of one source rank's rows, those of one block of pass-Q.
  struct Block {
    int32_t row_begin = 0, row_end = 0;
    int32_t last_position = 0;
    int32_t size() const { return row_end - row_begin; }
  };

  struct Places {  // among what a rank tells of its pages: where the part's are, and how many a layer has
    size_t first = 0, of_layer = 0;
  };
  struct Part {
    RingPart what;
    Shards shards;
    std::vector<std::vector<Stretch>> rows;  // of each rank
    int32_t row_begin = 0;                   // of this rank, among those of all parts
    std::vector<int> readers;                // other ranks with rows
    std::vector<Places> places;              // of each keeper, where memory is shared
  };
  struct Half {  // of the double buffers
    Frame out, out_ids;
    std::vector<Frame> in;  // by keeper
    std::vector<Transport::Pending> pending;
  };
  struct PassQItem {  // rows of a part that are asked about together
    const Part* part = nullptr;
    int32_t index = 0, rows_per_block = 0;  // see block_of()
  };

  RingAttention(Transport& transport, KvPool& pool, const RingShape& shape, const RingOptions& options,
                SharedView shared);
  Status make_board();
  Status allocate();
  void attend_all(const LayerCall& call);
  LayerCall own_call(const LayerCall& call) const;  // with the rows of the part that is being attended to

  // Of the part that is being attended to.
  const Shards& own_shards() const { return now_->shards; }
  const Stretch& step() const { return now_->what.step; }
  const std::vector<Stretch>& rows(int rank) const { return now_->rows[static_cast<size_t>(rank)]; }
  const std::vector<Piece>& pieces(int rank) const { return pieces_[static_cast<size_t>(rank)]; }

  int me() const { return transport_.rank(); }
  int ranks() const { return shards_.ranks(); }
  const KvFormat& format(int layer) const { return pool_.format(layer); }
  size_t page_bytes(int layer) const { return pool_.page_bytes(layer, false); }
  size_t open_page_bytes() const { return pool_.format().seals ? pool_.page_bytes(0, true) : 0; }
  // Pages that have just been written; see send_new().
  KvFormat new_format(int layer) const { return format(layer).seals ? format(layer).open_format() : format(layer); }
  size_t kv_heads() const { return static_cast<size_t>(shape_.kv_heads); }
  size_t pages_of(int32_t tokens) const;
  std::vector<Span> spans_of(int rank, int32_t row_begin, int32_t row_end) const;
  int32_t first_segment(const LayerCall& call) const;  // that a row of the step may see
  int32_t end_segment() const { return shards_.segments(step().end); }
  int32_t segment_tokens_now(int32_t segment) const;  // that are there at the end of the step
  SegmentPages kept_segment(int layer, int32_t segment) const;
  PageForms forms_of(int32_t page) const { return page_forms(pool_.format(), step(), page); }
  int32_t first_page(int32_t segment) const { return segment * static_cast<int32_t>(kSegmentPages); }

  // New K and V of all parts to their keepers, who have them after meet().
  void send_new(const LayerCall& call);
  Status meet(const LayerCall& call);
  Status take_new(const LayerCall& call);
  void place_new(const LayerCall& call, int from, const std::byte* slab, PageId first_page);
  // Where this rank keeps K and V of positions of one segment: calls each(index, head, place).
  template <class Each>
  void each_place(int layer, Stretch positions, const Each& each) const;
  // Of this rank's pages, those that the step seals: complete before it, or only now.
  void seal(const LayerCall& call, bool complete_before);

  // pass-KV. A round is [begin, end) of segments.
  std::vector<Stretch> rounds_of(const LayerCall& call) const;
  bool is_old(Stretch round) const { return round.end <= shards_.segment_of(step().begin); }
  struct PageCount {  // of all heads, in either form
    size_t sealed = 0, open = 0;
  };
  PageCount pages_kept(int keeper, Stretch round) const;
  size_t bytes_of(const PageCount& count, int layer) const {
    return count.sealed * page_bytes(layer) + count.open * open_page_bytes();
  }
  void post_round(const LayerCall& call, Stretch round, size_t index);
  void post_first(const LayerCall& call, size_t index = 0);
  void post_ahead(const LayerCall& call, size_t index);
  SegmentPages foreign_segment(int layer, int32_t segment, Frame& frame, PageCount& taken);
  SegmentPages round_pages(int layer, Stretch round, Half& half);
  PageId among_all(PageId page, int keeper, int layer) const;
  size_t first_spare(int keeper) const {  // of those for what it keeps
    return static_cast<size_t>(keeper * round_segments_) * kSegmentPages * kv_heads();
  }
  Status pass_kv(const LayerCall& call, const std::vector<Stretch>& rounds);
  bool passes_kv(const Part& part) const { return part.what.mode != RingMode::kPassQ && !is_shared(part); }

  // pass-KV where all ranks share memory. Old and new are stages, which grow from layer to layer.
  bool is_shared(const Part& part) const { return part.what.mode != RingMode::kPassQ && shared_.everybody_reads_all(); }
  void post_places();
  PageId shared_page(int layer, int32_t segment, size_t head, size_t page);
  SegmentPages shared_segments(int layer, Stretch segments);
  Status write_shared(const LayerCall& call);
  Status walk_shared(const LayerCall& call, bool fresh);
  Stretch shared_stretch(const LayerCall& call, bool fresh) const;
  bool resumes_at(const LayerCall& call, bool fresh) const { return fresh && shared_stretch(call, false).size() > 0; }
  int32_t offered_rows(int32_t row_count) const;  // of a block
  Status walk_offered(const LayerCall& call, const OfferedWalk& walk);
  void walk_block(int owner, const OfferedWalk& walk, int32_t block);
  bool steal(uint32_t before_stage);
  static constexpr uint32_t stage_of(int layer, bool fresh) {
    return 2 * static_cast<uint32_t>(layer) + (fresh ? 2 : 1);
  }

  // pass-Q
  bool exact() const { return options_.exact && !now_->what.compact; }  // one state per segment, not per rank
  Block block_of(int rank, int32_t index, int32_t rows_per_block) const;
  int32_t states_of(int keeper, const Block& block, int32_t first) const;  // that a rank returns for a block
  Status pass_q(const LayerCall& call);                                    // of all parts whose queries travel
  Status pass_q_batch(const LayerCall& call, std::span<const PassQItem> items);
  Status answer(const LayerCall& call, std::span<const PassQItem> items, int peer,
                std::vector<Transport::Pending>& sent);
  Status merge_own(const LayerCall& call, std::span<const PassQItem> items,
                   std::vector<Transport::Pending>& states_pending);
  Block look_at(const PassQItem& item, int rank);  // the rank's block of it, whose part is attended to from now on
  void walk_kept(const LayerCall& call, const Rows& rows, const Block& block, std::byte* states);
  Result<std::byte*> device(Buffer& buffer, size_t bytes);

  void walk(const LayerCall& call, const Rows& rows, Stretch segments, const SegmentPages& pages, Tensor state,
            bool resumes);
  void walk_compact(const LayerCall& call, const Rows& rows, Tensor state);
  void run_plan(const LayerCall& call, const Rows& rows, const std::byte* slab, const std::byte* open_slab,
                Tensor state, bool resumes);
  // Tiles for rows [begin, end), which read all pages in the same forms.
  void add_tiles(int32_t row_begin, int32_t row_end, const SegmentPages& pages, size_t sealed_end);
  void finish(const LayerCall& call, std::span<const Tensor> states, const AttnPartial& partial);
  std::byte* states() const { return board_ ? board_->states(me()) : state_.data(); }
  size_t state_bytes(int32_t row_count) const;
  Tensor state_tensor(std::byte* at, int32_t row_count) const;

  Transport& transport_;
  KvPool& pool_;
  Backend& backend_;
  const RingShape shape_;
  const RingOptions options_;
  const Shards shards_;
  const SharedView shared_;
  const int32_t round_segments_;  // of a keeper, at most
  const std::function<void()> poll_;

  std::vector<Part> parts_;
  std::vector<int32_t> row_counts_;
  std::vector<std::vector<Piece>> pieces_;  // of each rank, by keeper; not of shared parts
  std::vector<Stretch> sent_rows_;          // of this rank, likewise
  const Part* now_ = nullptr;

  Buffer outbox_, inbox_;  // pages of new tokens
  Buffer state_;           // of this rank's rows, unless they are on the board
  std::unique_ptr<WorkBoard> board_;
  uint16_t step_number_ = 0;
  bool meets_ = false;         // is still to be
  bool knows_places_ = false;  // of all pages that this step's walks read
  Buffer queries_, query_positions_, walked_, returned_;
  Half halves_[2];
  size_t half_ = 0;                     // of the next round
  bool posted_ = false;                 // it is under way, ...
  std::pair<int, int32_t> posted_for_;  // ... of this layer and its window
  static constexpr int32_t kUnknownWindow = -1;
  std::vector<int32_t> windows_;            // by layer, once there was a step
  bool tells_ = false;                      // whether this rank has rows of shared parts
  std::vector<int> tellers_;                // the other ranks that have
  std::vector<Frame> places_, written_in_;  // by rank
  Frame written_out_;
  std::vector<Transport::Pending> pending_places_, pending_written_;
  std::vector<Frame> new_out_, new_in_, queries_out_, queries_in_, states_in_, states_out_;  // by rank
  std::vector<Transport::Pending> new_pending_;
  AttentionPlan plan_;
  std::vector<KvSeal> seals_;
  RingTimes times_;
};

}  // namespace godwit::dist
