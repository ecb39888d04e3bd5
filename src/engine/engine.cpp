#include <algorithm>
#include <bit>
#include <thread>

#include "base/thread_pool.h"
#include "dist/frame.h"
#include "dist/mpi_link.h"
#include "engine/builtin_model.h"
#include "engine/engine_impl.h"
#include "engine/open.h"
#include "engine/team.h"
#include "kv/codec.h"
#include "kv/codec_tables.h"
#include "text/tool_calls.h"
#include <godwit/engine.h>

namespace godwit {
namespace {

constexpr int kMostLogitRows = 64;
constexpr double kLoadSeconds = 600;  // how long other ranks may take to load a model

Status check_options(const EngineOptions& o) {
  if (o.prefill_chunk < 1 || o.prefill_chunk > 65536)
    return errorf(ErrorCode::kInvalidArgument, "a prefill chunk of {} tokens makes no sense: give 1 to 65536",
                  o.prefill_chunk);
  if (o.context_tokens < 0)
    return errorf(ErrorCode::kInvalidArgument, "a context of {} tokens makes no sense", o.context_tokens);
  if (o.kv_policy.empty() && !(o.kv_budget.empty() && o.kv_trigger.empty()))
    return errorf(ErrorCode::kInvalidArgument,
                  "a KV {} without a KV policy does nothing; name one, 'godwit methods' lists them",
                  o.kv_budget.empty() ? "trigger" : "budget");
  return {};
}

// As many threads as were asked for and can run at once: more would take turns, which is slower than fewer. With
// several ranks on a host, each has its share of the cores, or fewer where mpirun has bound it to fewer.
Result<CpuOptions> cpu_options(const EngineOptions& o, bool one_of_many) {
  GODWIT_TRY(check_threads(o.threads));
  const Machine machine = read_machine();
  int threads = machine.best_threads();
  if (o.threads > 0) {
    threads = std::min(o.threads, machine.usable());
  } else if (one_of_many) {
    const int here = static_cast<int>(machine.cpus.size());
    const int everywhere = std::max(here, static_cast<int>(std::thread::hardware_concurrency()));
    threads = std::clamp(threads * everywhere / here / dist::mpi_local_size(), 1, threads);
  }
  return CpuOptions{.threads = threads, .simd = o.simd};
}

Result<std::unique_ptr<Backend>> make_backend(const EngineOptions& o, bool one_of_many) {
  GODWIT_ASSIGN(const CpuOptions cpu, cpu_options(o, one_of_many));
  return make_cpu_backend(cpu);
}

// A number that nearly any other weights would not have, from the ends of each tensor that can be read.
uint32_t sample_weights(const ModelSource& source) {
  uint64_t sum = 0;
  for (const std::string& name : source.tensor_names()) {
    const auto pieces = source.tensor(name);
    if (!pieces) continue;
    for (const TensorEntry* piece : *pieces) {
      const size_t count = std::min<size_t>(64, piece->bytes.size());
      sum = std::rotl(sum, 1) ^ dist::checksum(piece->bytes.first(count)) ^
            std::rotl(dist::checksum(piece->bytes.last(count)), 32);
    }
  }
  return static_cast<uint32_t>(sum ^ sum >> 32);
}

// Whether other ranks of the host may read the pages where they lie. Those of several slabs travel in messages.
bool shares_pool(const EngineOptions& o, std::span<const KvFormat> formats) {
  const bool one_slab =
      !formats[0].seals && std::vector(formats.size(), formats[0]) == std::vector(formats.begin(), formats.end());
  return one_slab && o.rank_options.share_memory && o.rank_options.link_bytes_per_second <= 0;
}

// For each spare page of a slab: itself, and its part of the messages of two rounds, all in and one out.
uint64_t travelling_bytes(std::span<const KvFormat> formats) {
  uint64_t bytes = 0, largest = 0;
  for (auto at = formats.begin(); at != formats.end(); ++at) {
    largest = std::max<uint64_t>(largest, at->page_bytes());
    if (std::find(formats.begin(), at, *at) == at) bytes += at->page_bytes();
  }
  const uint64_t open = formats[0].seals ? formats[0].open_format().page_bytes() : 0;
  return bytes + open + 2 * (largest + open);
}

}  // namespace

Engine::Impl::Impl() = default;
Engine::Impl::~Impl() = default;

int32_t Engine::Impl::step_tokens() const {
  // What a policy drops must not depend on the number of ranks.
  if (retention && retention->by_pieces()) return options.prefill_chunk;
  return team ? team->step_tokens() : options.prefill_chunk;
}

Status Engine::Impl::load_model() {
  auto source = options.model.empty() ? open_builtin_model() : ModelSource::open(options.model);
  if (!source) return tl::unexpected(std::move(source).error());
  return load(*source);
}

Status Engine::Impl::gather_team() {
  Ranks::Impl& job = options.ranks->impl();
  std::lock_guard lock(job.mutex);
  EngineOptions theirs = options;
  theirs.context_tokens = static_cast<int>(memory.context_tokens);  // what depends on length must not depend on memory
  job.transport.options().timeout_s = std::max(options.rank_options.timeout_s, kLoadSeconds);
  const uint32_t id = ++job.last_engine;
  const std::string text = rank_options_text(theirs);
  GODWIT_TRY(job.tell({.verb = RankVerb::kOpen, .engine = id}, std::as_bytes(std::span(text))));
  GODWIT_TRY(job.agree({}));
  GODWIT_ASSIGN(team, Team::make(*this, job, id));
  return {};
}

Result<std::unique_ptr<Engine::Impl>> Engine::Impl::open_follower(std::string_view text, Ranks::Impl& job,
                                                                  uint32_t id) {
  auto impl = std::make_unique<Impl>();
  job.transport.options().timeout_s = kLoadSeconds;
  auto open = [&]() -> Status {
    GODWIT_ASSIGN(impl->options, rank_options_from(text));
    GODWIT_ASSIGN(impl->backend, make_backend(impl->options, true));
    impl->rank_count = job.transport.size();
    return impl->load_model();
  };
  GODWIT_TRY(job.agree(open()));
  GODWIT_ASSIGN(impl->team, Team::make(*impl, job, id));
  return impl;
}

Status Engine::Impl::load(const ModelSource& source) {
  const ModelConfig& config = source.config();
  label = source.label();
  weight_bytes = source.weight_bytes();
  if (rank_count > 1) weight_sample = sample_weights(source);
  const KvShape shape{static_cast<int>(config.layers.size()), config.kv_heads};
  GODWIT_ASSIGN(std::vector<KvFormat> formats, make_kv_formats(options.kv_codec, config.head_dim, shape.layers));
  const KvFormat& format = formats[0];
  GODWIT_ASSIGN(prefill_planner, make_prefill_planner(options.prefill));
  GODWIT_ASSIGN(decode_planner, make_decode_planner(options.decode));
  GODWIT_ASSIGN(repair_planner, make_decode_planner("dense"));
  if (const int every = decode_planner->repair_every(); every > 0) {
    if (every > options.prefill_chunk)
      return errorf(
          ErrorCode::kInvalidArgument,
          "decode method '{}' repairs {} tokens at once, and a step has at most {}; give a smaller repair or a "
          "larger prefill chunk",
          options.decode, every, options.prefill_chunk);
    if (format.seals)
      return errorf(ErrorCode::kInvalidArgument,
                    "decode method '{}' computes tokens again, and KV codec '{}' may have sealed pages since; give "
                    "repair=0 or a codec without open tokens",
                    options.decode, options.kv_codec);
    if (!options.kv_policy.empty())
      return errorf(ErrorCode::kInvalidArgument,
                    "decode method '{}' computes tokens again, which KV policy '{}' may have dropped entries for; give "
                    "repair=0 or no policy",
                    options.decode, options.kv_policy);
  }
  GODWIT_TRY(check_codec_tables(format, shape, options.kv_codec));
  if (!options.kv_policy.empty()) {
    GODWIT_ASSIGN(retention, KvRetentionRules::make({.policy = options.kv_policy,
                                                     .budget = options.kv_budget,
                                                     .trigger = options.kv_trigger,
                                                     .prefill_chunk = options.prefill_chunk,
                                                     .equal_pages = formats == std::vector(formats.size(), format)},
                                                    shape, format, config.heads));
    if (retention->format.demotes && options.prefill != "dense")
      return errorf(ErrorCode::kInvalidArgument,
                    "prefill method '{}' finds pages by position, and KV policy '{}' puts entries in another order; "
                    "give dense",
                    options.prefill, options.kv_policy);
    if (rank_count > 1) GODWIT_TRY(check_over_ranks(retention->method, format, rank_count));
    for (KvFormat& each : formats) each.demotes = retention->format.demotes;
  }
  if (options.profile) backend = make_timed_backend(std::move(backend), seconds);
  const int logit_rows = std::min(options.prefill_chunk, kMostLogitRows);
  const int ranks_here = rank_count > 1 ? dist::mpi_local_size() : 1;
  const size_t spare = rank_count > 1 ? dist::RingAttention::spare_pages(rank_count, config.kv_heads, formats) : 0;
  const uint64_t ring_bytes =
      ranks_here == rank_count && shares_pool(options, formats) ? 0 : spare * travelling_bytes(formats);
  GODWIT_ASSIGN(
      memory, plan_memory({.memory_bytes = backend->memory_bytes(),
                           .ranks = rank_count,
                           .ranks_here = ranks_here,
                           .weight_bytes = weight_bytes,
                           .workspace_bytes = Workspace::bytes(config, options.prefill_chunk, logit_rows) + ring_bytes,
                           .context_tokens = options.context_tokens,
                           .kv_budget_bytes = options.kv_budget_bytes,
                           .chunk_tokens = options.prefill_chunk * rank_count,
                           .residence = retention ? retention->residence(shape) : KvResidence()},
                          config, formats, label));
  GODWIT_ASSIGN(vocabulary, load_vocabulary(source, options.chat_template, options.chat_template_name));
  if (vocabulary->tokenizer.vocab_size() > config.vocab_size)
    return errorf(ErrorCode::kBadData, "{}: the tokenizer knows {} tokens, but the model only {}", label,
                  vocabulary->tokenizer.vocab_size(), config.vocab_size);
  constraints.emplace(*vocabulary, static_cast<int>(config.vocab_size));
  GODWIT_ASSIGN(sampling, read_sampling_defaults(source));
  const LoadOptions load{.pack = !options.map_weights && ranks_here == 1, .progress = options.on_load};
  GODWIT_ASSIGN(model, Model::load(*backend, source, memory.context_tokens, load));
  GODWIT_TRY(create_pool(formats, spare));
  GODWIT_ASSIGN(workspace, Workspace::create(*backend, config, options.prefill_chunk, logit_rows));
  return {};
}

Status Engine::Impl::create_pool(std::span<const KvFormat> formats, size_t spare_pages) {
  KvPool::SlabMemory slab_memory;
  if (rank_count > 1 && shares_pool(options, formats))
    slab_memory = [&](size_t bytes) -> Result<Buffer> {
      GODWIT_ASSIGN(dist::SharedMemory shared, dist::SharedMemory::create(bytes));
      std::byte* at = shared.memory().get();
      GODWIT_ASSIGN(Buffer imported, backend->import_host(shared.memory(), {at, bytes}));
      if (imported.data() != at) return backend->allocate(bytes);  // not memory that others could read
      kv_memory = std::move(shared);
      return imported;
    };
  GODWIT_ASSIGN(pool, KvPool::create(*backend, formats, memory.kv_budget_bytes, slab_memory, spare_pages));
  return {};
}

Status Engine::Impl::go_alone() {
  if (pool->has_holders())
    return errorf(ErrorCode::kUnsupported, "sessions of this engine, or another service, are on the lost ranks, too");
  std::vector<KvFormat> formats;
  for (int layer = 0; layer < model->kv_shape().layers; ++layer) formats.push_back(pool->format(layer));
  GODWIT_ASSIGN(auto made, KvPool::create(*backend, formats, memory.kv_budget_bytes));
  if (kv_memory) kv_memory->give_back();  // a rank that hangs has it mapped for as long as it hangs
  team.reset();
  pool = std::move(made);
  kv_memory.reset();
  rank_count = 1;
  return {};
}

Result<Engine> Engine::open(const EngineOptions& options) {
  GODWIT_ASSIGN(auto backend, make_backend(options, options.ranks != nullptr));
  return open_engine(options, std::move(backend));
}

Result<Engine> open_engine(const EngineOptions& options, std::unique_ptr<Backend> backend) {
  GODWIT_TRY(check_options(options));
  auto impl = std::make_shared<Engine::Impl>();
  impl->options = options;
  impl->backend = std::move(backend);
  if (options.ranks) {
    GODWIT_TRY(check_rank_options(options));
    impl->rank_count = options.ranks->size();
  }
  GODWIT_TRY(impl->load_model());
  if (options.ranks) GODWIT_TRY(impl->gather_team());
  return Engine(std::move(impl));
}

EngineInfo Engine::info() const {
  std::lock_guard lock(impl_->mutex);
  const Impl& e = *impl_;
  EngineInfo info;
  info.model = e.label;
  info.family = e.model->config().family;
  info.backend = e.backend->description();
  info.threads = e.backend->threads();
  info.kv_codec = e.options.kv_codec;
  info.kv_policy = e.options.kv_policy;
  info.weight_bytes = e.weight_bytes;
  info.context_tokens = e.memory.context_tokens;
  info.prefill_chunk = e.options.prefill_chunk;
  info.kv_budget_bytes = e.pool->budget_bytes();
  info.kv_bytes_in_use = e.pool->bytes_in_use();
  info.kv_bytes_peak = e.pool->peak_bytes();
  info.kv_bytes_per_token = static_cast<double>(e.memory.kv_bytes_per_page_column) / e.pool->format().page_tokens;
  if (const auto style = tool_style_of(e.vocabulary->chat_source)) info.tool_format = name_of(style->format);
  info.vocab_size = static_cast<int>(e.model->config().vocab_size);
  info.ranks = e.rank_count;
  if (e.team) {
    info.prefill_ranks = e.team->last_degree(Phase::kPrefill);
    info.decode_ranks = e.team->last_degree(Phase::kDecode);
    info.ring = e.team->description();
  }
  info.matmul_seconds = e.seconds.matmul;
  info.attention_seconds = e.seconds.attention;
  info.other_seconds = e.seconds.other;
  return info;
}

Result<std::vector<TokenId>> Engine::tokenize(std::string_view text, TokenizeOptions options) const {
  return impl_->vocabulary->tokenizer.encode(
      text, {.add_bos = options.add_bos, .add_eos = false, .parse_special = options.parse_special});
}

std::string Engine::detokenize(std::span<const TokenId> tokens, bool keep_special) const {
  return impl_->vocabulary->tokenizer.decode(tokens, keep_special);
}

std::string_view Engine::token_bytes(TokenId token) const {
  return impl_->vocabulary->tokenizer.piece(token);
}

SamplingOptions Engine::recommended_sampling(const SamplingOptions& otherwise) const {
  return impl_->sampling.over(otherwise);
}

std::span<const TokenId> Engine::end_tokens() const {
  return impl_->vocabulary->end_tokens;
}

}  // namespace godwit
