#include "engine/team.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "dist/stopwatch.h"

namespace godwit {

Result<std::unique_ptr<Team>> Team::make(Engine::Impl& engine, Ranks::Impl& ranks, uint32_t id) {
  const RankOptions& options = engine.options.rank_options;
  const ModelConfig& config = engine.model->config();
  dist::TransportOptions& transport = ranks.transport.options();
  transport.latency_s = options.link_latency_s;
  transport.bytes_per_second = options.link_bytes_per_second;

  // All that the numbers depend on, and nothing else: not threads, for one.
  const std::string machine = engine.backend->description();
  GODWIT_TRY(ranks.agree_on(
      fmt::format("{}; {} layers of {}+{} heads of {}, width {}, {} tokens, {} bytes like {:08x}; KV {}; context {}",
                  machine.substr(0, machine.rfind(',')), config.layers.size(), config.heads, config.kv_heads,
                  config.head_dim, config.dim, config.vocab_size, engine.weight_bytes, engine.weight_sample,
                  engine.options.kv_codec, engine.memory.context_tokens)));
  std::unique_ptr<Team> team(new Team(engine, ranks, id));
  if (engine.retention) team->policies_[engine.retention->written.policy] = engine.retention->method;
  GODWIT_ASSIGN(dist::SharedView shared, dist::share(ranks.transport, engine.kv_memory ? &*engine.kv_memory : nullptr,
                                                     engine.pool->format().page_bytes()));
  // A page of any rank must have a number among all ranks' pages.
  if (shared.stride / engine.pool->format().page_bytes() * static_cast<size_t>(ranks.transport.size()) >
      size_t{1} << kPageIndexBits)
    shared = {};
  auto ring = dist::RingAttention::create(
      ranks.transport, *engine.pool,
      {config.heads, config.kv_heads, config.head_dim, engine.options.prefill_chunk, engine.model->kv_shape().layers},
      {.overlap = options.overlap, .exact = options.exact, .steal = options.steal}, std::move(shared));
  GODWIT_TRY(ranks.agree(ring ? Status() : tl::unexpected(ring.error())));
  team->ring_ = std::move(*ring);
  GODWIT_ASSIGN(team->costs_, dist::measure_costs(ranks.transport, *team->ring_));
  GODWIT_TRY(team->measure_passes());
  transport.timeout_s = options.timeout_s;  // not before all ranks have read the weights
  team->open_ = true;
  return team;
}

Team::~Team() {
  if (!leads() || !open_) return;
  std::lock_guard lock(ranks_.mutex);
  (void)tell({.verb = RankVerb::kClose});
}

int32_t Team::step_tokens() const {
  return ring_->shards().step_tokens(engine_.options.prefill_chunk);
}

// Ranks keep whole segments, so that together they have the pages that one would.
uint64_t Team::kv_bytes(const KvSequence& sequence) const {
  const KvPool& pool = *engine_.pool;
  const KvFormat& format = pool.format();
  const auto next = static_cast<size_t>(sequence.next_position()), size = static_cast<size_t>(format.page_tokens);
  const size_t pages = (next + size - 1) / size;
  const size_t sealed = format.seals ? format.sealed_end(next) - format.sealed_begin() : 0;
  uint64_t bytes = 0;
  for (int layer = 0; layer < sequence.shape().layers; ++layer)
    bytes += sealed * pool.page_bytes(layer, false) + (pages - sealed) * pool.page_bytes(layer, format.seals);
  return bytes * static_cast<uint64_t>(sequence.shape().kv_heads);
}

std::string Team::description() const {
  bool shared = false;
  for (int owner = 1; owner < size(); ++owner) shared = shared || ring_->shared().reads(0, owner);
  return fmt::format("{} over {}{}", dist::ring_mode_name(last_mode_), ranks_.transport.link_name(),
                     shared ? " and shared memory" : "");
}

Status Team::tell(RankCommand command, std::span<const std::byte> extra) {
  command.engine = id_;
  return ranks_.tell(command, extra);
}

// --- sequences

Team::Member& Team::add(uint64_t id, KvSequence& sequence, int first, int degree) {
  Member& member = sequences_[id];
  member.sequence = &sequence;
  member.first = first;
  member.degree = degree;
  return member;
}

void Team::keep_to(Member& member, const std::shared_ptr<const KvRetentionRules>& rules) {
  if (rules) member.retention = std::make_unique<KvRetention>(rules, *member.sequence, &peers_);
}

Team::Member& Team::copy(const Member& from, uint64_t id, KvSequence& sequence) {
  Member& made = add(id, sequence, from.first, from.degree);
  made.wants = from.wants;
  if (from.retention) made.retention = std::make_unique<KvRetention>(*from.retention, sequence);
  from.shared_end = made.shared_end = sequence.next_position();
  return made;
}

Team::Member& Team::copy_beginning(const Member& from, uint64_t id, KvSequence& sequence, int32_t tokens,
                                   const std::shared_ptr<const KvRetentionRules>& rules) {
  GODWIT_CHECK(!from.compact());
  Member& made = add(id, sequence, from.first, from.degree);
  from.shared_end = sequence.next_position();
  sequence.truncate(tokens);
  made.shared_end = tokens;
  keep_to(made, rules);
  if (made.retention) made.retention->skip(tokens);
  return made;
}

int Team::first_of(uint64_t id) const {
  return static_cast<int>((id - 1) % static_cast<uint64_t>(size()));
}

std::unique_ptr<KvSequence> Team::make_share(uint64_t id, int degree) const {
  const dist::Shards shards(size(), engine_.pool->format().page_tokens, first_of(id), degree);
  return std::make_unique<KvSequence>(*engine_.pool, engine_.model->kv_shape(), shards.share(ranks_.transport.rank()));
}

uint64_t Team::create(KvSequence& sequence, const SequenceTerms& terms) {
  std::lock_guard lock(ranks_.mutex);
  ++last_sequence_;
  Member& made = add(last_sequence_, sequence, first_of(last_sequence_), size());
  made.wants = terms.ranks;
  keep_to(made, terms.rules);
  const std::string rules = rules_text(terms.rules.get());
  (void)tell({.verb = RankVerb::kCreate, .sequence = last_sequence_},
             std::as_bytes(std::span(rules)));  // a failure shows in the first step
  return last_sequence_;
}

uint64_t Team::fork(uint64_t sequence, KvSequence& copy) {
  std::lock_guard lock(ranks_.mutex);
  this->copy(sequences_.at(sequence), ++last_sequence_, copy);
  (void)tell({.verb = RankVerb::kFork, .sequence = sequence, .other = last_sequence_});
  return last_sequence_;
}

uint64_t Team::create_from(uint64_t sequence, int32_t tokens, KvSequence& copy, const SequenceTerms& terms) {
  std::lock_guard lock(ranks_.mutex);
  copy_beginning(sequences_.at(sequence), ++last_sequence_, copy, tokens, terms.rules).wants = terms.ranks;
  const std::string rules = rules_text(terms.rules.get());
  (void)tell({.verb = RankVerb::kCreateFrom, .sequence = sequence, .other = last_sequence_, .end = tokens},
             std::as_bytes(std::span(rules)));
  return last_sequence_;
}

void Team::forget(Member& member, int32_t end_position) {
  member.sequence->truncate(end_position);
  if (member.retention) member.retention->forget(end_position);
}

int32_t Team::shortest_exact(uint64_t sequence) const {
  const Member& member = sequences_.at(sequence);
  return std::max(member.sequence->shortest_exact(), member.retention ? member.retention->shortest_exact() : 0);
}

void Team::truncate(uint64_t sequence, int32_t end_position) {
  std::lock_guard lock(ranks_.mutex);
  forget(sequences_.at(sequence), end_position);
  (void)tell({.verb = RankVerb::kTruncate, .sequence = sequence, .end = end_position});
}

void Team::drop(uint64_t sequence) {
  std::lock_guard lock(ranks_.mutex);
  sequences_.erase(sequence);
  (void)tell({.verb = RankVerb::kDrop, .sequence = sequence});
}

Result<KvUse> Team::gather_use(const KvSequence& sequence) {
  const KvUse own{sequence.bytes(), kv_use(sequence).retained};
  std::vector<std::byte> all;
  GODWIT_TRY(ranks_.transport.all_gather(dist::FrameKind::kReply, std::as_bytes(std::span(&own, 1)), all));
  std::vector<KvUse> each(static_cast<size_t>(size()));
  std::memcpy(each.data(), all.data(), all.size());
  return std::accumulate(each.begin(), each.end(), KvUse{0, 0}, [](const KvUse& sum, const KvUse& one) {
    return KvUse{sum.bytes + one.bytes, sum.retained + one.retained};  // each a share of all tokens
  });
}

KvUse Team::use(uint64_t sequence) {
  const Member& member = sequences_.at(sequence);
  if (!member.compact()) return {kv_bytes(*member.sequence), 1};
  std::lock_guard lock(ranks_.mutex);
  if (!tell({.verb = RankVerb::kUse, .sequence = sequence})) return {0, 0};
  return gather_use(*member.sequence).value_or(KvUse{0, 0});
}

Status Team::Peers::gather(const Status& well, std::span<const std::byte> mine,
                           std::vector<std::vector<std::byte>>& all) {
  constexpr uint64_t kNotWell = UINT64_MAX;
  const uint64_t own = well ? mine.size() : kNotWell;
  const auto count = static_cast<size_t>(ranks.transport.size());
  std::vector<std::byte> bytes;
  GODWIT_TRY(ranks.transport.all_gather(dist::FrameKind::kReply, std::as_bytes(std::span(&own, 1)), bytes));
  std::vector<uint64_t> sizes(count);
  std::memcpy(sizes.data(), bytes.data(), bytes.size());
  // As long as the longest.
  const uint64_t most = *std::max_element(sizes.begin(), sizes.end());
  if (most == kNotWell) return ranks.agree(well);
  std::vector<std::byte> padded(mine.begin(), mine.end());
  padded.resize(most);
  GODWIT_TRY(ranks.transport.all_gather(dist::FrameKind::kReply, padded, bytes));
  all.clear();
  for (size_t rank = 0; rank < count; ++rank) {
    const auto begin = bytes.begin() + static_cast<ptrdiff_t>(rank * most);
    all.emplace_back(begin, begin + static_cast<ptrdiff_t>(sizes[rank]));
  }
  return {};
}

// --- memory

// A page that is half full and nobody else's has room, and with it none is sealed: ranks need not ask each other. Where
// entries were dropped, that is another page on every rank.
bool Team::may_lack_memory(const Member& member, int32_t end) const {
  const int32_t page_tokens = engine_.pool->format().page_tokens, next = member.sequence->next_position();
  const int32_t page_begin = next / page_tokens * page_tokens;
  const bool seals = engine_.pool->format().seals;
  return member.compact() || next == page_begin || end + (seals ? 1 : 0) > page_begin + page_tokens ||
         page_begin < member.shared_end;
}

// All ranks get room for what they keep, or none does. Room that was reserved is there.
Status Team::make_room(const RankPart& part) {
  const Member& member = sequences_.at(part.sequence);
  KvSequence& sequence = *member.sequence;
  const int32_t begin = sequence.next_position();
  if (part.end <= begin) return {};
  const bool asks = may_lack_memory(member, part.end);
  Status mine;
  if (const KvOutcome outcome = sequence.append(part.end - begin); !outcome)
    mine = errorf(ErrorCode::kExhausted,
                  "the KV memory is full: {} of {} are in use and this step of {} tokens lacks {} pages; free a "
                  "session, shorten the context, raise the KV budget or take more ranks",
                  bytes_text(engine_.pool->bytes_in_use()), bytes_text(engine_.pool->budget_bytes()), part.end - begin,
                  outcome.missing_pages);
  if (!asks) return mine;
  Status all = ranks_.agree(mine);
  if (!all) sequence.truncate(begin);
  return all;
}

Status Team::reserve(uint64_t sequence, int32_t tokens) {
  std::lock_guard lock(ranks_.mutex);
  const int32_t begin = sequences_.at(sequence).sequence->next_position();
  GODWIT_TRY(tell({.verb = RankVerb::kReserve, .sequence = sequence, .end = begin + tokens}));
  return make_room({.sequence = sequence, .begin = begin, .end = begin + tokens});
}

Status Team::check_room(const Room& room, std::span<const uint64_t> droppable) {
  const KvPool& pool = *engine_.pool;
  size_t free = pool.budget_bytes() - pool.bytes_in_use();
  for (uint64_t id : droppable) free += sequences_.at(id).sequence->exclusive_bytes();
  const size_t bytes = rank_bytes(room);
  if (bytes <= free) return {};
  return errorf(ErrorCode::kExhausted, "{} are free, and {} are wanted", bytes_text(free), bytes_text(bytes));
}

bool Team::has_room(const Room& room, std::span<const uint64_t> droppable) {
  std::lock_guard lock(ranks_.mutex);
  return tell({.verb = RankVerb::kAskRoom, .end = room.tokens, .entries = room.entries, .degree = room.degree},
              std::as_bytes(droppable)) &&
         ranks_.agree(check_room(room, droppable));
}

// --- reports

dist::RingMode Team::mode_of(int32_t begin, int32_t end, int degree, int together) const {
  const std::string& ring = engine_.options.rank_options.ring;
  return ring == "pass-kv"  ? dist::RingMode::kPassKv
         : ring == "pass-q" ? dist::RingMode::kPassQ
                            : predict(begin, end, degree, together).mode;
}

dist::RingPrediction Team::predict(int32_t begin, int32_t end, int degree, int together) const {
  return dist::predict(costs_, *ring_, shards_of(degree), engine_.pool->format(), {begin, end}, together);
}

dist::RingBytes Team::formula_bytes(int32_t begin, int32_t end, const dist::Shares& shares) const {
  const int layers = engine_.model->kv_shape().layers;
  const dist::Shards shards(size(), engine_.pool->format().page_tokens, 0, size(), shares);
  dist::RingBytes mean;
  for (int layer = 0; layer < layers; ++layer) {
    const dist::RingBytes one =
        dist::formula_bytes(*ring_, shards, engine_.pool->format(layer), {begin, end}, mode_of(begin, end));
    mean.slots += one.slots / layers, mean.pages += one.pages / layers;
    mean.queries += one.queries / layers, mean.states += one.states / layers;
  }
  return mean;
}

RankReport Team::own_report() const {
  const dist::Transport& transport = ranks_.transport;
  return {ring_->times(),
          dist::cpu_seconds(CLOCK_PROCESS_CPUTIME_ID),
          transport.waited_cpu_s(),
          transport.traffic(dist::FrameKind::kSlots),
          transport.traffic(dist::FrameKind::kPages),
          transport.traffic(dist::FrameKind::kQueries),
          transport.traffic(dist::FrameKind::kStates)};
}

Result<std::vector<RankReport>> Team::report() {
  std::lock_guard lock(ranks_.mutex);
  GODWIT_TRY(tell({.verb = RankVerb::kReport}));
  const RankReport own = own_report();
  std::vector<std::byte> all;
  GODWIT_TRY(ranks_.transport.all_gather(dist::FrameKind::kReply, std::as_bytes(std::span(&own, 1)), all));
  std::vector<RankReport> reports(static_cast<size_t>(size()));
  std::memcpy(reports.data(), all.data(), all.size());
  return reports;
}

}  // namespace godwit
