#include "eval/sweep.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>

#include "backend/backend.h"
#include "base/result.h"
#include "engine/probe.h"
#include "eval/divergence.h"
#include "eval/full_attention.h"
#include "eval/recall_sample.h"
#include "kv/policy.h"

namespace godwit {
namespace {

constexpr int kDecodedTokens = 16, kRepetitions = 3;  // the fastest counts

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Of the mass that lies on the text and its continuation, the part on entries that the cache of the text lacks.
double mass_lost(const FullAttention& truth, const Session& session) {
  const KvSequence& cache = SessionProbe::cache(session);
  double all = 0, lost = 0;
  for (size_t h = 0; h < truth.mass.size(); ++h) {
    const auto heads = static_cast<size_t>(cache.shape().kv_heads);
    const int layer = static_cast<int>(h / heads), head = static_cast<int>(h % heads);
    std::vector<bool> kept(static_cast<size_t>(cache.next_position()));
    for (size_t slot = 0; slot < cache.slots(layer, head); ++slot)
      kept[static_cast<size_t>(cache.position(layer, head, slot))] = true;
    for (size_t position = 0; position < truth.mass[h].size(); ++position) {
      const auto mass = static_cast<double>(truth.mass[h][position]);
      all += mass;
      if (position < kept.size() && !kept[position]) lost += mass;
    }
  }
  return all > 0 ? lost / all : 0;
}

Result<bool> is_right(Session& session, const RecallTurn& turn, bool generated, std::stop_token stop) {
  if (generated) {
    GenerateOptions options;
    options.max_tokens = static_cast<int>(turn.value.size());
    options.ignore_eos = true;
    GODWIT_ASSIGN(const Generation made, session.generate(options, {}, {}, std::move(stop)));
    return made.tokens == turn.value;
  }
  GODWIT_ASSIGN(auto scores, session.score(turn.value, {}, std::move(stop)));
  return std::all_of(scores.begin(), scores.end(), [](const TokenScore& s) { return s.is_top; });
}

Status answer(Session& session, const RecallTurn& turn, bool known, bool generated, std::stop_token stop,
              SweepRow& row) {
  GODWIT_TRY(session.append(turn.before));
  GODWIT_ASSIGN(const bool right, is_right(session, turn, generated, std::move(stop)));
  row.answers.push_back({turn.kind, turn.depth, known, right});
  return {};
}

Status compare(const Session& read, const RecallSample& sample, const FullAttention& truth, std::stop_token stop,
               SweepRow& row) {
  Session session = read.fork();
  DivergenceMean mean;
  size_t at = 0;
  GODWIT_TRY(session.read(
      sample.continuation, [&](std::span<const float> logits) { mean.add(truth.logits[at++], logits); },
      std::move(stop)));
  row.mean_kl = mean.mean_kl();
  row.same_top = mean.same_top();
  row.mass_lost = mass_lost(truth, read);
  return {};
}

Status generate(const Session& read, std::stop_token stop, SweepRow& row) {
  GenerateOptions options;
  options.max_tokens = kDecodedTokens + 1;
  options.ignore_eos = true;
  for (int i = 0; i < kRepetitions; ++i) {
    Session session = read.fork();
    GODWIT_ASSIGN(const Generation made, session.generate(options, {}, {}, stop));
    if (made.decode_seconds > 0)
      row.decode_per_second =
          std::max(row.decode_per_second, static_cast<double>(made.tokens.size() - 1) / made.decode_seconds);
  }
  return {};
}

// The first text of a row also gives everything that is not an answer.
Status measure(const Engine& engine, const RecallSample& sample, const FullAttention& truth,
               const SweepOptions& options, bool first, std::stop_token stop, SweepRow& row) {
  // What known and late questions share ends with the last whole chunk, so that each prompt is cut as if read alone.
  const auto chunk = static_cast<size_t>(engine.info().prefill_chunk);
  const size_t shared = sample.context.size() / chunk * chunk;
  const bool generated = options.engine.decode != "dense";
  auto start = std::chrono::steady_clock::now();
  Session base = engine.start();
  GODWIT_TRY(base.append(std::span(sample.context).first(shared)));
  GODWIT_TRY(base.prefill({}, stop, false));
  {
    Session read = base.fork();
    GODWIT_TRY(read.append(std::span(sample.context).subspan(shared)));
    GODWIT_TRY(read.prefill({}, stop));
    if (first) {
      row.prefill_per_second = static_cast<double>(sample.context.size()) / seconds_since(start);
      row.kv_bytes_per_token = static_cast<double>(read.kv_bytes()) / static_cast<double>(read.tokens().size());
      GODWIT_TRY(generate(read, stop, row));
      if (!sample.continuation.empty()) GODWIT_TRY(compare(read, sample, truth, stop, row));
    }
    for (const RecallTurn& turn : sample.questions) {
      if (!options.late) break;
      Session fork = read.fork();
      GODWIT_TRY(answer(fork, turn, false, generated, stop, row));
    }
  }
  for (const RecallTurn& turn : sample.questions) {
    if (!options.known) break;
    Session fork = base.fork();
    GODWIT_TRY(fork.append(std::span(sample.context).subspan(shared)));
    GODWIT_TRY(answer(fork, turn, true, generated, stop, row));
  }
  return {};
}

EngineOptions engine_options(const SweepOptions& options, const SweepMethod& method) {
  EngineOptions engine = options.engine;
  engine.kv_codec = method.codec;
  engine.kv_policy = method.policy;
  engine.kv_budget = method.budget;
  engine.kv_trigger = method.policy.empty() ? "" : method.trigger;
  if (engine.context_tokens == 0)
    engine.context_tokens = *std::max_element(options.lengths.begin(), options.lengths.end()) + 256;
  return engine;
}

uint64_t hash_of(std::string_view text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

// A text with its facts, and the model and the arithmetic that read it.
std::string text_key(const SweepOptions& o, const EngineInfo& info, uint64_t text, int length, int sample) {
  return fmt::format("{}/{}/{}/{}|{:016x}/{}/{}/{}/{}/{}", info.model, info.weight_bytes,
                     o.engine.simd.empty() ? cpu_simd_targets().front() : o.engine.simd, info.prefill_chunk, text,
                     length, fmt::join(o.kinds, "+"), o.facts, sample, o.seed);
}

std::string row_key(const SweepOptions& o, const std::string& text, const SweepMethod& m) {
  return fmt::format("{}|{}{}|{}|{}|{}|{}|{}|{}", text, o.known ? "k" : "", o.late ? "l" : "", o.engine.prefill,
                     o.engine.decode, m.codec, m.policy, m.budget, m.trigger);
}

struct Texts {
  std::string key;
  std::vector<RecallSample> samples;  // facts of all kinds share one, shots have their own
  FullAttention truth;                // of the first
};

// Full attention is taken from its file, where there is one.
Result<FullAttention> truth_of(const Engine& full, const RecallSample& sample, const SweepOptions& options,
                               const std::string& key, std::stop_token stop) {
  if (options.full_folder.empty()) return run_full_attention(full, sample, std::move(stop));
  const std::string path = fmt::format("{}/{:016x}.full", options.full_folder, hash_of(key));
  GODWIT_ASSIGN(std::optional<FullAttention> kept, read_full_attention(path, key));
  if (kept) return std::move(*kept);
  std::error_code error;
  std::filesystem::create_directories(options.full_folder, error);
  if (error) return errorf(ErrorCode::kIo, "{}: cannot be made: {}", options.full_folder, error.message());
  GODWIT_ASSIGN(FullAttention made, run_full_attention(full, sample, std::move(stop)));
  GODWIT_TRY(write_full_attention(path, key, made));
  return made;
}

Result<Texts> make_texts(const Engine& full, const std::vector<TokenId>& book, const SweepOptions& options, int length,
                         int number, std::string key, std::stop_token stop) {
  Texts texts{.key = std::move(key), .samples = {}, .truth = {}};
  RecallOptions recall;
  recall.length = length;
  recall.questions = options.facts;
  recall.question = RecallQuestion::kLate;
  recall.seed = options.seed + static_cast<uint64_t>(number);
  std::vector<std::string> facts = options.kinds;
  const bool shots = std::erase(facts, "shots") > 0;
  auto add = [&](std::vector<std::string> kinds, int count) -> Status {
    recall.kinds = std::move(kinds);
    recall.facts = count;
    GODWIT_ASSIGN(RecallSampleMaker maker, RecallSampleMaker::create(full, book, recall));
    GODWIT_ASSIGN(RecallSample sample, maker.make());
    texts.samples.push_back(std::move(sample));
    return {};
  };
  if (!facts.empty()) GODWIT_TRY(add(facts, options.facts));
  if (shots) GODWIT_TRY(add({"shots"}, 0));
  GODWIT_ASSIGN(texts.truth, truth_of(full, texts.samples.front(), options, texts.key, std::move(stop)));
  return texts;
}

double work_of(int length) {  // attention makes long texts dearer
  return length * (1 + length / 16384.0);
}

}  // namespace

std::string SweepMethod::name() const {
  std::string text = policy.empty() ? "full" : policy;
  if (codec != "f16") text += ", " + codec;
  return text;
}

Result<std::vector<SweepMethod>> sweep_methods(const std::vector<std::string>& policies,
                                               const std::vector<std::string>& budgets,
                                               const std::vector<std::string>& codecs, const std::string& trigger,
                                               bool only) {
  // Baselines at equal bytes; for what demotes that is what demotes at random.
  bool all_demote = !policies.empty();
  for (const std::string& spec : policies) {
    const auto chosen = choose_method("KV policy", all_kv_policies(), spec);
    all_demote = all_demote && chosen && chosen->row->demotes;
  }
  std::vector<std::string> wanted = {"streaming", "random"};
  if (all_demote) wanted = {"mikv:base=random"};
  const bool codecs_alone = policies == std::vector<std::string>{"none"};
  if (only || codecs_alone) wanted.clear();
  auto add = [&](const std::string& spec) {
    if (std::find(wanted.begin(), wanted.end(), spec) == wanted.end()) wanted.push_back(spec);
  };
  if (!codecs_alone)
    for (const std::string& spec : policies) add(spec);
  if (policies.empty())
    for (const KvPolicyRow* row : all_kv_policies())
      if (row->needs_budget && !row->demotes) add(std::string(row->info.name));
  std::vector<SweepMethod> methods;
  for (const std::string& codec : codecs) {
    if (!only || codecs_alone) methods.push_back({codec, "", "", ""});
    for (const std::string& spec : wanted) {
      GODWIT_ASSIGN(auto chosen, choose_method("KV policy", all_kv_policies(), spec));
      if (!chosen.row->needs_budget) methods.push_back({codec, spec, "", trigger});
      for (const std::string& budget : budgets)
        if (chosen.row->needs_budget) methods.push_back({codec, spec, budget, trigger});
    }
  }
  return methods;
}

Result<std::vector<SweepRow>> run_sweep(const SweepOptions& options, std::string_view text,
                                        const std::vector<SweepRow>& done,
                                        const std::function<Status(const SweepRow&)>& on_row,
                                        const std::function<void(double share, const SweepMethod& now)>& on_progress,
                                        std::stop_token stop) {
  if (options.methods.empty() || options.lengths.empty() || options.kinds.empty() || options.samples < 1 ||
      !(options.known || options.late))
    return errorf(ErrorCode::kInvalidArgument, "a sweep needs methods, lengths, kinds of facts, texts and questions");
  for (int length : options.lengths)
    if (length < 1) return errorf(ErrorCode::kInvalidArgument, "texts of {} tokens make no sense", length);
  std::map<std::string, const SweepRow*> finished;
  for (const SweepRow& row : done) finished[row.key] = &row;

  // Every method is opened before any runs: what makes no sense is refused at once.
  for (const SweepMethod& method : options.methods) GODWIT_TRY(Engine::open(engine_options(options, method)));
  EngineOptions dense = engine_options(options, {"f32", "", "", ""});
  dense.prefill = dense.decode = "dense";
  GODWIT_ASSIGN(const Engine full, Engine::open(dense));
  const EngineInfo info = full.info();
  GODWIT_ASSIGN(const std::vector<TokenId> book, full.tokenize(text, {.add_bos = false}));
  const uint64_t hash = hash_of(text);

  struct Job {
    int length, sample;
    const SweepMethod* method;
    std::string text, key;
  };
  std::vector<Job> jobs;
  double total = 0, worked = 0;
  for (int length : options.lengths) {
    for (int sample = 0; sample < options.samples; ++sample) {
      const std::string of_text = text_key(options, info, hash, length, sample);
      for (const SweepMethod& method : options.methods) {
        jobs.push_back({length, sample, &method, of_text, row_key(options, of_text, method)});
        if (finished.find(jobs.back().key) == finished.end()) total += work_of(length);
      }
    }
  }

  std::vector<SweepRow> rows;
  Texts texts;
  for (const Job& job : jobs) {
    if (auto found = finished.find(job.key); found != finished.end()) {
      rows.push_back(*found->second);
      continue;
    }
    if (on_progress) on_progress(worked / total, *job.method);
    if (texts.key != job.text) {
      GODWIT_ASSIGN(texts, make_texts(full, book, options, job.length, job.sample, job.text, stop));
    }
    const auto start = std::chrono::steady_clock::now();
    SweepRow row;
    row.key = job.key;
    row.method = *job.method;
    row.length = job.length, row.sample = job.sample;
    GODWIT_ASSIGN(const Engine engine, Engine::open(engine_options(options, *job.method)));
    for (size_t i = 0; i < texts.samples.size(); ++i)
      GODWIT_TRY(measure(engine, texts.samples[i], texts.truth, options, i == 0, stop, row));
    row.seconds = seconds_since(start);
    worked += work_of(job.length);
    if (on_row) GODWIT_TRY(on_row(row));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace godwit
