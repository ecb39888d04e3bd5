#include "eval/head_scores.h"

#include <algorithm>

#include "base/result.h"
#include "eval/mass_watch.h"
#include "eval/recall_sample.h"
#include "eval/repeats.h"

namespace godwit {
namespace {

constexpr int32_t kRowStep = 4;  // every so many queries are looked at: enough for a mean

HeadScores zeros(const KvShape& shape) {
  return HeadScores(static_cast<size_t>(shape.layers), std::vector<double>(static_cast<size_t>(shape.kv_heads), 0));
}

// Looks at single queries from position `first` on: what each gives to the copies of its token and to their successors.
class RepeatWatch final : public AttentionObserver {
 public:
  RepeatWatch(const KvSequence& cache, int32_t first, int32_t period)
      : cache_(cache), first_(first), period_(period), echo_(zeros(cache.shape())), induction_(echo_) {}

  void attended(int layer, const AttentionArgs& args) override {
    const int32_t rows = static_cast<int32_t>(args.q.shape[0]), begin = cache_.next_position() - rows;
    AttentionPlan plan;
    for (const AttentionTile& tile : args.plan->tiles) {
      for (int32_t row = tile.row_begin; row < tile.row_end; ++row) {
        if (begin + row < first_ || (begin + row) % kRowStep != 0) continue;
        AttentionTile one = tile;
        one.row_begin = row, one.row_end = row + 1;
        one.page_begin = static_cast<uint32_t>(plan.pages.size());
        plan.pages.insert(plan.pages.end(), args.plan->pages.begin() + tile.page_begin,
                          args.plan->pages.begin() + tile.page_end);
        one.page_end = static_cast<uint32_t>(plan.pages.size());
        plan.tiles.push_back(one);
      }
    }
    if (plan.tiles.empty()) return;
    AttentionArgs looked = args;
    looked.plan = &plan;
    auto stats = observe_plan(cache_.pool().backend(), looked, {}, scratch_);
    if (!stats) {
      status_ = tl::unexpected(std::move(stats).error());
      return;
    }
    const auto page_tokens = static_cast<size_t>(args.format.page_tokens);
    for (const AttentionTile& tile : plan.tiles) {
      const int32_t position = begin + tile.row_begin;
      auto mass_at = [&](int32_t p) {  // nothing was dropped: slots are positions
        const size_t page = tile.page_begin + static_cast<size_t>(p) / page_tokens;
        return static_cast<double>(stats->mass[page * page_tokens + static_cast<size_t>(p) % page_tokens]);
      };
      double& echo = echo_[static_cast<size_t>(layer)][static_cast<size_t>(tile.kv_head)];
      double& induction = induction_[static_cast<size_t>(layer)][static_cast<size_t>(tile.kv_head)];
      for (int32_t p = position - period_; p >= 0; p -= period_) {
        echo += mass_at(p);
        induction += mass_at(p + 1);
      }
    }
  }

  Status status() const { return status_; }
  HeadScores best() const {
    HeadScores scores = echo_;
    for (size_t layer = 0; layer < scores.size(); ++layer)
      for (size_t head = 0; head < scores[layer].size(); ++head)
        scores[layer][head] = std::max(scores[layer][head], induction_[layer][head]);
    return scores;
  }

 private:
  const KvSequence& cache_;
  int32_t first_, period_;
  HeadScores echo_, induction_;
  Buffer scratch_;
  Status status_;
};

Status add_fact(const Session& read, const RecallTurn& turn, std::stop_token stop, HeadScores& scores) {
  Session session = read.fork();
  GODWIT_TRY(session.append(turn.before));
  GODWIT_TRY(session.prefill({}, stop));
  const KvSequence& cache = SessionProbe::cache(session);
  MassWatch watch(cache);
  SessionProbe::watch(session, &watch);
  GODWIT_TRY(session.append(turn.value));
  GODWIT_TRY(session.prefill({}, std::move(stop)));
  SessionProbe::watch(session, nullptr);
  GODWIT_TRY(watch.totals().status());
  for (size_t layer = 0; layer < scores.size(); ++layer) {
    for (size_t head = 0; head < scores[layer].size(); ++head) {
      const auto& mass = watch.totals().of(static_cast<int>(layer), static_cast<int>(head)).mass;
      for (size_t p = turn.begin; p < turn.begin + turn.tokens; ++p)
        scores[layer][head] += static_cast<double>(mass[p]) / static_cast<double>(turn.value.size());
    }
  }
  return {};
}

}  // namespace

Result<HeadScores> scores_by_repeats(const Engine& engine, const RepeatOptions& options, std::stop_token stop) {
  if (options.tokens < 8 || options.copies < 2)
    return errorf(ErrorCode::kInvalidArgument,
                  "{} tokens, {} times, repeat nothing; give 8 tokens and 2 copies at least", options.tokens,
                  options.copies);
  Session session = engine.start();
  GODWIT_TRY(session.append(repeated_tokens(engine, options.tokens, options.copies, options.seed)));
  RepeatWatch watch(SessionProbe::cache(session), options.tokens * (options.copies - 1), options.tokens);
  SessionProbe::watch(session, &watch);
  GODWIT_TRY(session.prefill({}, std::move(stop)));
  SessionProbe::watch(session, nullptr);
  GODWIT_TRY(watch.status());
  return watch.best();
}

Result<HeadScores> scores_by_facts(const Engine& engine, std::string_view text, const FactScoreOptions& options,
                                   std::stop_token stop) {
  GODWIT_ASSIGN(std::vector<TokenId> book, engine.tokenize(text, {.add_bos = false}));
  RecallOptions recall;
  recall.kinds = {"number", "hex", "lives", "keeps"};
  recall.length = options.length;
  recall.facts = recall.questions = options.facts;
  recall.samples = options.samples;
  recall.question = RecallQuestion::kLate;
  recall.seed = options.seed;
  GODWIT_ASSIGN(RecallSampleMaker maker, RecallSampleMaker::create(engine, std::move(book), recall));
  HeadScores scores;
  for (int i = 0; i < options.samples; ++i) {
    GODWIT_ASSIGN(const RecallSample sample, maker.make());
    Session session = engine.start();
    GODWIT_TRY(session.append(sample.context));
    GODWIT_TRY(session.prefill({}, stop));
    if (scores.empty()) scores = zeros(SessionProbe::cache(session).shape());
    for (const RecallTurn& turn : sample.questions) GODWIT_TRY(add_fact(session, turn, stop, scores));
    if (options.on_progress) options.on_progress(i + 1, options.samples);
  }
  return scores;
}

HeadScores gates_from(const HeadScores& scores) {
  HeadScores gates = scores;
  double heads = 0;
  for (const auto& layer : scores) heads += static_cast<double>(layer.size());
  for (auto& layer : gates) {
    for (double& gate : layer) {
      double less = 0;
      for (const auto& others : scores)
        less += static_cast<double>(std::count_if(others.begin(), others.end(), [&](double x) { return x < gate; }));
      gate = less / heads;
    }
  }
  return gates;
}

}  // namespace godwit
