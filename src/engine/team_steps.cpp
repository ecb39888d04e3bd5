// Steps over ranks: what rank 0 asks for and the others do.
#include <algorithm>
#include <cstring>
#include <set>

#include "dist/stopwatch.h"
#include "engine/team.h"

namespace godwit {
namespace {

// Lists may be empty, and memcpy() wants addresses even then.
void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

Status Team::step(Phase phase, std::span<Part> parts, const OnLogits& on_logits) {
  std::lock_guard lock(ranks_.mutex);
  std::vector<RankPart> told;
  std::vector<TokenId> tokens;
  const auto spread =
      std::count_if(parts.begin(), parts.end(), [&](const Part& part) { return degree(part.sequence) > 1; });
  std::set<uint64_t> known;
  for (const Part& part : parts) {
    GODWIT_CHECK(known.insert(part.sequence).second, "a step has two parts of one sequence");
    const int32_t end = part.begin + static_cast<int32_t>(part.tokens.size());
    const int together = std::max(1, static_cast<int>(spread));
    told.push_back({part.sequence, part.begin, end, part.first_logits,
                    static_cast<uint32_t>(mode_of(part.begin, end, degree(part.sequence), together)),
                    part.prompt_ends ? 1u : 0u, static_cast<uint32_t>(told.size())});
    tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
  }
  const std::span<const std::byte> first = std::as_bytes(std::span(told)), second = std::as_bytes(std::span(tokens));
  std::vector<std::byte> extra(first.begin(), first.end());
  extra.insert(extra.end(), second.begin(), second.end());
  GODWIT_TRY(tell(
      {.verb = RankVerb::kStep, .parts = static_cast<uint32_t>(told.size()), .phase = static_cast<uint32_t>(phase)},
      extra));
  std::vector<Status> outcomes;
  GODWIT_TRY(compute(phase, told, tokens, outcomes));
  for (size_t i = 0; i < parts.size(); ++i) parts[i].outcome = outcomes[i];
  GODWIT_TRY(take_logits(told, on_logits));
  for (const Status& outcome : outcomes) GODWIT_TRY(outcome);
  return {};
}

// Every rank comes to the same: whoever looks or lacks memory tells the others.
Status Team::compute(Phase phase, std::vector<RankPart>& parts, std::vector<TokenId>& tokens,
                     std::vector<Status>& outcomes) {
  const auto lacks = [](const Status& status) { return !status && status.error().code == ErrorCode::kExhausted; };
  outcomes.assign(parts.size(), {});
  auto next = tokens.begin();
  for (size_t i = 0; i < parts.size();) {
    const RankPart& part = parts[i];
    const ptrdiff_t count = part.end - part.begin;
    Status& outcome = outcomes[part.index] = begin_part(part);
    if (!outcome && !lacks(outcome)) return outcome;
    if (outcome) {
      next += count, ++i;
    } else {
      next = tokens.erase(next, next + count);
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  if (parts.empty()) return {};
  GODWIT_TRY(forward(phase, parts, tokens));
  for (const RankPart& part : parts) {
    KvRetention* retention = sequences_.at(part.sequence).retention.get();
    if (retention == nullptr) continue;
    Status& outcome = outcomes[part.index] = retention->finish(part.end - part.begin, part.prompt_ends != 0);
    if (!outcome && !lacks(outcome)) return outcome;
  }
  return {};
}

// Room for the part, after the look of its retention that may be due: no look may see room that was reserved, and has
// nothing in it yet.
Status Team::begin_part(const RankPart& part) {
  const Member& member = sequences_.at(part.sequence);
  if (KvRetention* retention = member.retention.get()) {
    if (member.sequence->next_position() > part.begin) member.sequence->truncate(part.begin);
    GODWIT_TRY(retention->prepare(part.end - part.begin));
  }
  return make_room(part);
}

Status Team::forward(Phase phase, std::span<const RankPart> parts, std::span<const TokenId> tokens) {
  std::vector<dist::RingPart> ring;
  for (const RankPart& part : parts) {
    const Member& member = sequences_.at(part.sequence);
    const auto mode = member.compact() ? dist::RingMode::kPassQ : static_cast<dist::RingMode>(part.mode);
    last_mode_ = mode;
    (phase == Phase::kPrefill ? last_prefill_ : last_decode_) = member.degree;
    ring.push_back({member.sequence, {part.begin, part.end}, mode, member.first, member.degree, member.compact()});
  }
  const dist::Stopwatch watch;
  const double waited_s = ranks_.transport.waited_s();
  const dist::RingTimes times = ring_->times();
  ring_->begin(ring, shares_);
  std::vector<TokenId> own;
  std::vector<AttentionSegment> segments;
  WatchedAttention attention(*ring_);
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto first_row = static_cast<int64_t>(own.size());
    std::vector<int32_t> positions;
    for (const dist::Stretch& run : ring_->rows(i, ranks_.transport.rank())) {
      const auto row = static_cast<int32_t>(own.size());
      segments.push_back({.row_begin = row, .row_end = row + run.size(), .first_position = run.begin});
      const auto from = tokens.begin() + (run.begin - parts[i].begin);
      own.insert(own.end(), from, from + run.size());
      for (int32_t position = run.begin; position < run.end; ++position) positions.push_back(position);
    }
    if (KvRetention* retention = sequences_.at(parts[i].sequence).retention.get();
        retention != nullptr && retention->observes()) {
      retention->computes(std::move(positions));
      attention.watches.push_back({retention, first_row, static_cast<int64_t>(own.size())});
    }
    tokens = tokens.subspan(static_cast<size_t>(parts[i].end - parts[i].begin));
  }
  const PlannedSegments group{nullptr, segments};
  engine_.model->forward(*engine_.workspace,
                         {.tokens = own, .groups = {&group, 1}, .phase = phase, .attention = &attention});
  GODWIT_TRY(ring_->status());
  if (tells_speeds(phase, parts)) {
    // As long as this rank's rows took, whoever computed them.
    const double busy_s = watch.seconds() - (ranks_.transport.waited_s() - waited_s) -
                          (ring_->times().stolen_s - times.stolen_s) + (ring_->times().relieved_s - times.relieved_s);
    std::vector<int64_t> busy_ns;
    GODWIT_TRY(dist::gather_busy(ranks_.transport, static_cast<int64_t>(busy_s * 1e9), busy_ns));
    speeds_ = dist::next_speeds(speeds_, ring_->row_counts(), busy_ns);
    shares_ = dist::shares_for(speeds_, shares_);
  } else if (ring_->reads_shared()) {
    GODWIT_TRY(ranks_.transport.barrier());
  }
  ring_->end();
  for (const RankPart& part : parts) {  // room for more was reserved with what it seals
    KvSequence& sequence = *sequences_.at(part.sequence).sequence;
    if (sequence.next_position() == part.end) sequence.settle();
  }
  return {};
}

void Team::WatchedAttention::attend(const LayerCall& call) {
  ring.attend(call);
  for (const Watch& watch : watches) {
    AttentionArgs args;
    args.q = call.q.slice(watch.row_begin, watch.row_end);
    args.scale = call.scale;
    args.softcap = call.softcap;
    args.window = call.window;
    args.partial.lse = call.partial.lse.slice(watch.row_begin, watch.row_end);
    watch.by->attended(call.layer, args);
  }
}

// Whether rows of all ranks in a step cost the same, so that times can be compared: a part is all theirs, and long.
bool Team::tells_speeds(Phase phase, std::span<const RankPart> parts) const {
  if (phase != Phase::kPrefill || !engine_.options.rank_options.balance) return false;
  const Member& first = sequences_.at(parts[0].sequence);
  const auto likewise = [&](const RankPart& part) {
    const Member& member = sequences_.at(part.sequence);
    return member.degree > 1 && member.degree == first.degree &&
           (member.degree == size() || member.first == first.first);
  };
  const std::vector<int32_t>& rows = ring_->row_counts();
  return *std::max_element(rows.begin(), rows.end()) >= dist::kTellingRows &&
         std::all_of(parts.begin(), parts.end(), likewise);
}

Status Team::each_logits(std::span<const RankPart> parts,
                         const std::function<Status(std::span<const Wanted>)>& each) const {
  std::vector<Wanted> wanted;
  std::vector<int32_t> rows(static_cast<size_t>(size()));
  for (size_t i = 0; i < parts.size(); ++i) {
    for (int rank = 0; rank < size(); ++rank) {
      int32_t& row = rows[static_cast<size_t>(rank)];
      for (const dist::Stretch& run : ring_->rows(i, rank))
        for (int32_t at = run.begin; at < run.end; ++at, ++row)
          if (at - parts[i].begin >= parts[i].first_logits) wanted.push_back({i, at - parts[i].begin, rank, row});
    }
  }
  // Within a part in order; of many parts with a row each, all of one rank together.
  std::sort(wanted.begin(), wanted.end(), [&](const Wanted& a, const Wanted& b) {
    const auto key = [&](const Wanted& w) {
      return std::tuple(w.step_row - parts[w.part].first_logits, w.rank, w.part);
    };
    return key(a) < key(b);
  });
  const auto most = static_cast<size_t>(engine_.workspace->max_logit_rows());
  for (size_t begin = 0; begin < wanted.size();) {
    size_t end = begin + 1;
    while (end < wanted.size() && end - begin < most && wanted[end].rank == wanted[begin].rank) ++end;
    GODWIT_TRY(each(std::span(wanted).subspan(begin, end - begin)));
    begin = end;
  }
  return {};
}

std::span<const float> Team::own_logits(std::span<const Wanted> wanted) {
  std::vector<int32_t> rows;
  for (const Wanted& one : wanted) rows.push_back(one.row);
  logits_.resize(rows.size() * static_cast<size_t>(engine_.model->config().vocab_size));
  const Tensor device = engine_.model->logits(*engine_.workspace, rows);
  engine_.backend->download(std::as_writable_bytes(std::span(logits_)), device.data);
  return logits_;
}

Status Team::send_logits(std::span<const RankPart> parts) {
  return each_logits(parts, [&](std::span<const Wanted> rows) -> Status {
    if (rows[0].rank != ranks_.transport.rank()) return {};
    const std::span<const std::byte> bytes = std::as_bytes(own_logits(rows));
    copy_bytes(frame_.payload(bytes.size()).data(), bytes.data(), bytes.size());
    std::vector<dist::Transport::Pending> pending;
    const int leader = 0;
    ranks_.transport.send({&leader, 1}, frame_, dist::FrameKind::kLogits, bytes.size(), pending);
    return ranks_.transport.wait(pending);
  });
}

Status Team::take_logits(std::span<const RankPart> parts, const OnLogits& on_logits) {
  const auto vocab = static_cast<size_t>(engine_.model->config().vocab_size);
  return each_logits(parts, [&](std::span<const Wanted> rows) -> Status {
    std::span<const float> values;
    if (rows[0].rank == 0) {
      values = own_logits(rows);
    } else {
      const size_t bytes = rows.size() * vocab * sizeof(float);
      std::vector<dist::Transport::Pending> pending;
      ranks_.transport.receive(rows[0].rank, frame_, dist::FrameKind::kLogits, bytes, pending);
      GODWIT_TRY(ranks_.transport.wait(pending));
      logits_.resize(rows.size() * vocab);
      copy_bytes(logits_.data(), frame_.payload(bytes).data(), bytes);
      values = logits_;
    }
    for (size_t i = 0; i < rows.size(); ++i)
      on_logits(parts[rows[i].part].index, rows[i].step_row, values.subspan(i * vocab, vocab));
    return {};
  });
}

// --- the others

Status Team::obey(const RankCommand& command, std::span<const std::byte> extra) {
  auto known = [&](uint64_t id) -> Status {
    if (sequences_.contains(id)) return {};
    return errorf(ErrorCode::kBadData, "rank 0 speaks of a sequence {} that is not", id);
  };
  auto possible = [&](int32_t degree) -> Status {
    if (degree >= 1 && degree <= size()) return {};
    return errorf(ErrorCode::kBadData, "rank 0 wants a sequence on {} of {} ranks", degree, size());
  };
  // Memory that is short is rank 0's to tell; all else ends this rank.
  auto unless_short = [&](const Status& status) {
    return !status && status.error().code == ErrorCode::kExhausted && this->status() ? Status() : status;
  };
  switch (command.verb) {
    case RankVerb::kCreate: {
      GODWIT_ASSIGN(const auto rules, rules_from(extra));
      auto sequence = make_share(command.sequence, size());
      Member& made = add(command.sequence, *sequence, first_of(command.sequence), size());
      keep_to(made, rules);
      made.owned = std::move(sequence);
      return {};
    }
    case RankVerb::kFork: {
      GODWIT_TRY(known(command.sequence));
      const Member& from = sequences_.at(command.sequence);
      auto sequence = from.sequence->fork();
      Member& made = copy(from, command.other, *sequence);
      made.owned = std::move(sequence);
      return {};
    }
    case RankVerb::kCreateFrom: {
      GODWIT_TRY(known(command.sequence));
      GODWIT_ASSIGN(const auto rules, rules_from(extra));
      const Member& from = sequences_.at(command.sequence);
      auto sequence = from.sequence->fork();
      Member& made = copy_beginning(from, command.other, *sequence, command.end, rules);
      made.owned = std::move(sequence);
      return {};
    }
    case RankVerb::kAllow:
      // Rank 0 has heard of a refusal and tells its user.
      (void)ranks_.agree(make_policies(std::string_view(reinterpret_cast<const char*>(extra.data()), extra.size())));
      return status();
    case RankVerb::kTruncate:
      GODWIT_TRY(known(command.sequence));
      forget(sequences_.at(command.sequence), command.end);
      return {};
    case RankVerb::kShare:
      GODWIT_TRY(known(command.sequence));
      GODWIT_TRY(possible(command.degree));
      return unless_short(reshare(sequences_.at(command.sequence), command.degree));
    case RankVerb::kUse:
      GODWIT_TRY(known(command.sequence));
      return gather_use(*sequences_.at(command.sequence).sequence).map([](const auto&) {});
    case RankVerb::kDrop:
      GODWIT_TRY(known(command.sequence));
      sequences_.erase(command.sequence);
      return {};
    case RankVerb::kReserve:
      GODWIT_TRY(known(command.sequence));
      return unless_short(make_room({.sequence = command.sequence, .end = command.end}));
    case RankVerb::kAskRoom: {
      std::vector<uint64_t> droppable(extra.size() / sizeof(uint64_t));
      copy_bytes(droppable.data(), extra.data(), droppable.size() * sizeof(uint64_t));
      for (uint64_t id : droppable) GODWIT_TRY(known(id));
      GODWIT_TRY(possible(command.degree));
      return unless_short(ranks_.agree(check_room({command.end, command.entries, command.degree}, droppable)));
    }
    case RankVerb::kStep: {
      const size_t parts_bytes = command.parts * sizeof(RankPart);
      if (extra.size() < parts_bytes)
        return errorf(ErrorCode::kBadData, "rank 0 tells of a step of {} parts in {} bytes", command.parts,
                      extra.size());
      std::vector<RankPart> parts(command.parts);
      std::vector<TokenId> tokens((extra.size() - parts_bytes) / sizeof(TokenId));
      copy_bytes(parts.data(), extra.data(), parts_bytes);
      copy_bytes(tokens.data(), extra.data() + parts_bytes, tokens.size() * sizeof(TokenId));
      size_t wanted = 0;
      for (const RankPart& part : parts) {
        GODWIT_TRY(known(part.sequence));
        if (part.index >= parts.size())
          return errorf(ErrorCode::kBadData, "rank 0 tells of part {} of {}", part.index, parts.size());
        wanted += static_cast<size_t>(part.end - part.begin);
      }
      if (wanted != tokens.size())
        return errorf(ErrorCode::kBadData, "rank 0 tells of {} tokens and sends {}", wanted, tokens.size());
      std::vector<Status> outcomes;  // rank 0's to tell
      GODWIT_TRY(compute(static_cast<Phase>(command.phase), parts, tokens, outcomes));
      return send_logits(parts);
    }
    case RankVerb::kReport: {
      const RankReport own = own_report();
      std::vector<std::byte> all;
      return ranks_.transport.all_gather(dist::FrameKind::kReply, std::as_bytes(std::span(&own, 1)), all);
    }
    default:
      return errorf(ErrorCode::kBadData, "rank 0 gives a command {} that does not exist",
                    static_cast<uint32_t>(command.verb));
  }
}

}  // namespace godwit
