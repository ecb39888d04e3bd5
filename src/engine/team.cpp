#include "engine/team.h"

#include <algorithm>
#include <cstring>

namespace godwit {

Result<std::unique_ptr<Team>> Team::make(Engine::Impl& engine, Ranks::Impl& ranks, uint32_t id) {
  const RankOptions& options = engine.options.rank_options;
  const ModelConfig& config = engine.model->config();
  dist::TransportOptions& transport = ranks.transport.options();
  transport.timeout_s = options.timeout_s;
  transport.latency_s = options.link_latency_s;
  transport.bytes_per_second = options.link_bytes_per_second;

  // All that the numbers depend on, and nothing else: not threads, for one.
  const std::string machine = engine.backend->description();
  GODWIT_TRY(ranks.agree_on(fmt::format(
      "{}; {} layers of {}+{} heads of {}, width {}, {} tokens, {} bytes; KV {}; context {}",
      machine.substr(0, machine.rfind(',')), config.layers.size(), config.heads, config.kv_heads, config.head_dim,
      config.dim, config.vocab_size, engine.weight_bytes, engine.options.kv_codec, engine.memory.context_tokens)));
  std::unique_ptr<Team> team(new Team(engine, ranks, id));
  auto ring = dist::RingAttention::create(
      ranks.transport, *engine.pool, {config.heads, config.kv_heads, config.head_dim, engine.options.prefill_chunk},
      {.overlap = options.overlap, .exact = options.exact});
  GODWIT_TRY(ranks.agree(ring ? Status() : tl::unexpected(ring.error())));
  team->ring_ = std::move(*ring);
  GODWIT_ASSIGN(team->costs_, dist::measure_costs(ranks.transport, *team->ring_));
  return team;
}

Team::~Team() {
  if (leads()) (void)tell({.verb = RankVerb::kClose});
}

int32_t Team::step_tokens() const {
  return ring_->shards().step_tokens(engine_.options.prefill_chunk);
}

// Ranks keep whole segments, so that together they have the pages that one would.
uint64_t Team::kv_bytes(const KvSequence& sequence) const {
  const KvFormat& format = engine_.pool->format();
  const auto pages = static_cast<uint64_t>((sequence.next_position() + format.page_tokens - 1) / format.page_tokens);
  return pages * static_cast<uint64_t>(sequence.shape().layers * sequence.shape().kv_heads) * format.page_bytes();
}

std::string Team::description() const {
  return fmt::format("{} over {}", dist::ring_mode_name(last_mode_), ranks_.transport.link_name());
}

Status Team::tell(RankCommand command, std::span<const std::byte> extra) {
  command.engine = id_;
  return ranks_.tell(command, extra);
}

// --- sequences

uint64_t Team::create(KvSequence& sequence) {
  std::lock_guard lock(ranks_.mutex);
  sequences_[++last_sequence_] = &sequence;
  (void)tell({.verb = RankVerb::kCreate, .sequence = last_sequence_});  // a failure shows in the first step
  return last_sequence_;
}

uint64_t Team::fork(uint64_t sequence, KvSequence& copy) {
  std::lock_guard lock(ranks_.mutex);
  sequences_[++last_sequence_] = &copy;
  (void)tell({.verb = RankVerb::kFork, .sequence = sequence, .other = last_sequence_});
  return last_sequence_;
}

void Team::truncate(uint64_t sequence, int32_t end_position) {
  std::lock_guard lock(ranks_.mutex);
  (void)tell({.verb = RankVerb::kTruncate, .sequence = sequence, .end = end_position});
}

void Team::drop(uint64_t sequence) {
  std::lock_guard lock(ranks_.mutex);
  sequences_.erase(sequence);
  (void)tell({.verb = RankVerb::kDrop, .sequence = sequence});
}

// --- steps

Status Team::step(const Step& step, const OnLogits& on_logits) {
  std::lock_guard lock(ranks_.mutex);
  RankCommand command;
  command.verb = RankVerb::kStep;
  command.engine = id_;
  command.sequence = step.sequence;
  command.begin = step.begin;
  command.end = step.begin + static_cast<int32_t>(step.tokens.size());
  command.first_logits = step.first_logits;
  command.phase = static_cast<uint32_t>(step.phase);
  last_mode_ = mode_of(command.begin, command.end);
  command.mode = static_cast<uint32_t>(last_mode_);
  GODWIT_TRY(ranks_.tell(command, std::as_bytes(step.tokens)));
  GODWIT_TRY(compute(command, step.tokens));
  return take_logits(command, on_logits);
}

// All ranks get room for what they keep, or none does.
Status Team::make_room(KvSequence& sequence, dist::Stretch step) {
  Status mine;
  for (const dist::Stretch& kept : ring_->shards().kept(ranks_.transport.rank(), step)) {
    const KvOutcome outcome = sequence.append(kept.size(), kept.begin);
    if (outcome) continue;
    mine =
        errorf(ErrorCode::kExhausted,
               "the KV memory is full: {} of {} are in use and this step of {} tokens lacks {} pages; free a session, "
               "shorten the context, raise the KV budget or take more ranks",
               bytes_text(engine_.pool->bytes_in_use()), bytes_text(engine_.pool->budget_bytes()), step.size(),
               outcome.missing_pages);
    break;
  }
  Status all = ranks_.agree(mine);
  if (!all) {
    sequence.truncate(step.begin);
    return all;
  }
  (void)sequence.append(0, step.end);
  return {};
}

Status Team::compute(const RankCommand& command, std::span<const TokenId> tokens) {
  KvSequence& sequence = *sequences_.at(command.sequence);
  const dist::Stretch step{command.begin, command.end};
  GODWIT_TRY(make_room(sequence, step));
  ring_->begin(sequence, step, static_cast<dist::RingMode>(command.mode));
  std::vector<TokenId> own;
  std::vector<AttentionSegment> segments;
  for (const dist::Stretch& run : ring_->rows(ranks_.transport.rank())) {
    const auto row = static_cast<int32_t>(own.size());
    segments.push_back({.row_begin = row, .row_end = row + run.size(), .first_position = run.begin});
    const auto from = tokens.begin() + (run.begin - step.begin);
    own.insert(own.end(), from, from + run.size());
  }
  const PlannedSegments group{nullptr, segments};
  engine_.model->forward(
      *engine_.workspace,
      {.tokens = own, .groups = {&group, 1}, .phase = static_cast<Phase>(command.phase), .attention = ring_.get()});
  return ring_->status();
}

Status Team::each_logits(const RankCommand& command,
                         const std::function<Status(int, int32_t, int32_t, int32_t)>& each) const {
  struct Part {
    dist::Stretch run;
    int rank;
    int32_t row;
  };
  std::vector<Part> parts;
  for (int rank = 0; rank < size(); ++rank) {
    int32_t row = 0;
    for (const dist::Stretch& run : ring_->rows(rank)) {
      parts.push_back({run, rank, row});
      row += run.size();
    }
  }
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.run.begin < b.run.begin; });
  const int32_t first = command.begin + command.first_logits, most = engine_.workspace->max_logit_rows();
  for (const Part& part : parts)
    for (int32_t at = std::max(part.run.begin, first); at < part.run.end; at += most)
      GODWIT_TRY(
          each(part.rank, part.row + at - part.run.begin, at - command.begin, std::min(most, part.run.end - at)));
  return {};
}

std::span<const float> Team::own_logits(int32_t row, int32_t count) {
  std::vector<int32_t> rows;
  for (int32_t i = 0; i < count; ++i) rows.push_back(row + i);
  logits_.resize(static_cast<size_t>(count) * static_cast<size_t>(engine_.model->config().vocab_size));
  const Tensor device = engine_.model->logits(*engine_.workspace, rows);
  engine_.backend->download(std::as_writable_bytes(std::span(logits_)), device.data);
  return logits_;
}

Status Team::send_logits(const RankCommand& command) {
  return each_logits(command, [&](int rank, int32_t row, int32_t, int32_t count) -> Status {
    if (rank != ranks_.transport.rank()) return {};
    const std::span<const std::byte> bytes = std::as_bytes(own_logits(row, count));
    std::memcpy(frame_.payload(bytes.size()).data(), bytes.data(), bytes.size());
    std::vector<dist::Transport::Pending> pending;
    const int leader = 0;
    ranks_.transport.send({&leader, 1}, frame_, dist::FrameKind::kLogits, bytes.size(), pending);
    return ranks_.transport.wait(pending);
  });
}

Status Team::take_logits(const RankCommand& command, const OnLogits& on_logits) {
  const auto vocab = static_cast<size_t>(engine_.model->config().vocab_size);
  return each_logits(command, [&](int rank, int32_t row, int32_t step_row, int32_t count) -> Status {
    std::span<const float> values;
    if (rank == 0) {
      values = own_logits(row, count);
    } else {
      const size_t bytes = static_cast<size_t>(count) * vocab * sizeof(float);
      std::vector<dist::Transport::Pending> pending;
      ranks_.transport.receive(rank, frame_, dist::FrameKind::kLogits, bytes, pending);
      GODWIT_TRY(ranks_.transport.wait(pending));
      logits_.resize(static_cast<size_t>(count) * vocab);
      std::memcpy(logits_.data(), frame_.payload(bytes).data(), bytes);
      values = logits_;
    }
    for (int32_t i = 0; i < count; ++i) on_logits(step_row + i, values.subspan(static_cast<size_t>(i) * vocab, vocab));
    return {};
  });
}

// --- reports

dist::RingMode Team::mode_of(int32_t begin, int32_t end) const {
  const std::string& ring = engine_.options.rank_options.ring;
  return ring == "pass-kv"  ? dist::RingMode::kPassKv
         : ring == "pass-q" ? dist::RingMode::kPassQ
                            : predict(begin, end).mode;
}

dist::RingPrediction Team::predict(int32_t begin, int32_t end) const {
  return dist::predict(costs_, *ring_, engine_.pool->format(), {begin, end});
}

dist::RingBytes Team::formula_bytes(int32_t begin, int32_t end) const {
  return dist::formula_bytes(*ring_, engine_.pool->format(), {begin, end}, mode_of(begin, end));
}

RankReport Team::own_report() const {
  const dist::Transport& transport = ranks_.transport;
  return {ring_->times(), transport.traffic(dist::FrameKind::kSlots), transport.traffic(dist::FrameKind::kPages),
          transport.traffic(dist::FrameKind::kQueries), transport.traffic(dist::FrameKind::kStates)};
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

// --- the others

Status Team::obey(const RankCommand& command, std::span<const std::byte> extra) {
  auto known = [&](uint64_t id) -> Result<KvSequence*> {
    const auto at = sequences_.find(id);
    if (at == sequences_.end()) return errorf(ErrorCode::kBadData, "rank 0 speaks of a sequence {} that is not", id);
    return at->second;
  };
  auto keep = [&](uint64_t id, std::unique_ptr<KvSequence> sequence) {
    sequences_[id] = sequence.get();
    owned_[id] = std::move(sequence);
  };
  if (command.verb == RankVerb::kCreate) {
    keep(command.sequence, std::make_unique<KvSequence>(*engine_.pool, engine_.model->kv_shape()));
    return {};
  }
  if (command.verb == RankVerb::kReport) {
    const RankReport own = own_report();
    std::vector<std::byte> all;
    return ranks_.transport.all_gather(dist::FrameKind::kReply, std::as_bytes(std::span(&own, 1)), all);
  }
  GODWIT_ASSIGN(KvSequence * sequence, known(command.sequence));
  switch (command.verb) {
    case RankVerb::kFork:
      keep(command.other, sequence->fork());
      return {};
    case RankVerb::kTruncate:
      sequence->truncate(command.end);
      return {};
    case RankVerb::kDrop:
      sequences_.erase(command.sequence);
      owned_.erase(command.sequence);
      return {};
    case RankVerb::kStep: {
      std::vector<TokenId> tokens(extra.size() / sizeof(TokenId));
      std::memcpy(tokens.data(), extra.data(), extra.size());
      if (Status status = compute(command, tokens); !status)
        // Memory that is short is rank 0's to tell; all else ends this rank.
        return status.error().code == ErrorCode::kExhausted && ranks_.transport.status() ? Status() : status;
      return send_logits(command);
    }
    default:
      return errorf(ErrorCode::kBadData, "rank 0 gives a command {} that does not exist",
                    static_cast<uint32_t>(command.verb));
  }
}

}  // namespace godwit
