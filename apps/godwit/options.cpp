#include "options.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "base/result.h"
#include "kv/budget.h"
#include "progress.h"
#include "verbs.h"

namespace godwit::cli {

const CLI::Validator kNotEmpty(
    [](const std::string& text) { return text.empty() ? std::string("it is empty") : std::string(); }, "");

const CLI::Validator kWholeNumber(
    [](const std::string& text) {
      errno = 0;
      const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
      if (digits) (void)std::strtoull(text.c_str(), nullptr, 10);
      return digits && errno == 0 ? std::string() : text + " is no number from 0 to 18446744073709551615";
    },
    "");

CLI::Validator real_between(double least, double most) {
  return {[least, most](const std::string& text) {
            char* end = nullptr;
            const double value = std::strtod(text.c_str(), &end);
            const bool fits = end != text.c_str() && *end == '\0' && value >= least && value <= most;
            return fits ? std::string() : fmt::format("{} is no number from {} to {}", text, least, most);
          },
          ""};
}

void add_kv_options(CLI::App& to, EngineOptions& options, std::string& kv_memory) {
  to.add_option("--kv-codec", options.kv_codec, "How K and V are stored; see 'godwit methods'")->capture_default_str();
  to.add_option("--kv-policy", options.kv_policy, "Which entries of the KV cache stay (default: all), NAME[:k=v,...]")
      ->check(kNotEmpty);
  to.add_option("--kv-budget", options.kv_budget,
                "How many stay: tokens (4096), a share (25%) or memory (64MiB), [:split=head|layer|all]")
      ->check(kNotEmpty);
  to.add_option("--kv-trigger", options.kv_trigger,
                "When the rest is dropped: prefill, chunk, or a number of tokens (default: the policy's own)")
      ->check(kNotEmpty);
  to.add_option("--kv-memory", kv_memory, "Hard limit of KV memory, e.g. 2GiB (default: from the machine's)");
  to.add_option("--prefill", options.prefill, "Attention planner of the prompt")->capture_default_str();
  to.add_option("--decode", options.decode, "Attention planner of generated tokens")->capture_default_str();
}

void add_map_weights(CLI::App& to, EngineOptions& options) {
  to.add_flag("--map-weights", options.map_weights,
              "Leave weights as the file has them, in memory that processes share: slower, the same answers");
}

void ModelFlags::add_model_to(CLI::App& group) {
  group.add_option("-m,--model", options.model, "GGUF file or Hugging Face folder (default: the built-in model)")
      ->check(kNotEmpty);
  group.add_option("-t,--threads", options.threads, "Threads (default: all cores)");
  group.add_option("--simd", options.simd, "SIMD target, or 'reference' (default: the machine's best)");
  add_map_weights(group, options);
  group.add_option("-c,--ctx", options.context_tokens,
                   "Longest context in tokens (default: the model's, or what fits)");
  group.add_option("--prefill-chunk", options.prefill_chunk, "Prompt tokens computed at once")->capture_default_str();
  group.add_option("--chat-template", chat_template_file, "Jinja file to use instead of the model's template")
      ->check(kNotEmpty);
}

void ModelFlags::add_to(CLI::App& verb) {
  auto* group = verb.add_option_group("model");
  add_model_to(*group);
  add_kv_options(*group, options, kv_memory);
  add_ranks_to(verb);
}

void ModelFlags::add_ranks_to(CLI::App& verb) {
  auto* group = ranks_group = verb.add_option_group("ranks (with mpirun)");
  RankOptions& ranks = options.rank_options;
  group->add_option("--ring", ranks.ring, "What travels between ranks: pass-kv, pass-q, or auto")
      ->capture_default_str();
  group
      ->add_option("--ranks", ranks.prefill_ranks,
                   "How many ranks read a prompt and keep its KV cache (default: what is predicted to be quickest)")
      ->check(CLI::PositiveNumber);
  group
      ->add_option("--decode-ranks", ranks.decode_ranks,
                   "How many ranks keep the KV cache while an answer is made (default: those of the prompt)")
      ->check(CLI::PositiveNumber);
  group->add_flag("!--no-overlap", ranks.overlap, "Let nothing travel while a rank computes");
  group->add_flag("!--no-balance", ranks.balance, "Let slow ranks compute as much of a prompt as quick ones");
  group->add_flag("!--inexact", ranks.exact, "Send less where queries travel; no longer the bits of one rank");
  group->add_flag("!--no-shared-memory", ranks.share_memory,
                  "Send keys and values in messages also between ranks of one host");
  group->add_flag("!--no-steal", ranks.steal, "Let ranks of one host take no rows of attention from each other");
  group->add_option("--rank-timeout", ranks.timeout_s, "Longest wait for another rank within a step, in seconds")
      ->capture_default_str();
  group->add_option("--link", link, "Slow the links down to MICROSECONDS,GIGABIT, e.g. 50,1");
}

Result<EngineOptions> ModelFlags::read() const {
  EngineOptions opened = options;
  if (!kv_memory.empty()) {
    GODWIT_ASSIGN(opened.kv_budget_bytes, parse_bytes(kv_memory));
  }
  opened.ranks = job_ranks();
  if (ranks_group != nullptr && std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr)
    for (const CLI::Option* option : ranks_group->get_options())
      if (option->count() > 0)
        return errorf(ErrorCode::kInvalidArgument, "{} does nothing without mpirun, which starts the ranks",
                      option->get_name());
  if (!link.empty()) {
    double microseconds = 0, gigabits = 0;
    char rest = 0;
    if (std::sscanf(link.c_str(), "%lf,%lf%c", &microseconds, &gigabits, &rest) != 2 || !(microseconds >= 0) ||
        !(gigabits > 0))
      return errorf(ErrorCode::kInvalidArgument, "--link {} is not MICROSECONDS,GIGABIT, e.g. 50,1", link);
    opened.rank_options.link_latency_s = microseconds * 1e-6;
    opened.rank_options.link_bytes_per_second = gigabits * 1e9 / 8;
  }
  if (!chat_template_file.empty()) {
    GODWIT_ASSIGN(opened.chat_template, read_input(chat_template_file));
    if (opened.chat_template.empty())
      return errorf(ErrorCode::kInvalidArgument, "{}: the chat template is empty", chat_template_file);
    opened.chat_template_name = chat_template_file;
  }
  return opened;
}

Result<Engine> ModelFlags::open() const {
  GODWIT_ASSIGN(EngineOptions opened, read());
  ProgressBar bar("load");
  opened.on_load = [&](double share) { bar.show(share); };
  return Engine::open(opened);
}

void GenerateFlags::add_to(CLI::App& verb) {
  group = verb.add_option_group("generation");
  SamplingOptions& s = options.sampling;
  group->add_option("-n,--max-tokens", options.max_tokens, "Most tokens to generate (default: until the model ends)");
  group->add_option("--temperature,--temp", s.temperature, "0 is greedy (default: the model's, or 0)");
  group->add_option("--top-k", s.top_k, "Keep the k most likely tokens; 0 keeps all (default: the model's, or 0)");
  group->add_option("--top-p", s.top_p,
                    "Keep the likeliest tokens of this total probability (default: the model's, or 1)");
  group->add_option("--min-p", s.min_p,
                    "Drop tokens less likely than this share of the likeliest (default: the model's, or 0)");
  group->add_option("--repetition-penalty", s.repetition_penalty,
                    "Above 1 discourages repeats (default: the model's, or 1)");
  group->add_option("--presence-penalty", s.presence_penalty, "Subtracted from tokens seen")->capture_default_str();
  group->add_option("--frequency-penalty", s.frequency_penalty, "Subtracted per occurrence")->capture_default_str();
  group->add_option("--penalty-window", s.penalty_window, "Last tokens that count as seen; -1: all")
      ->capture_default_str();
  group->add_option("--logit-bias", logit_bias, "ID=VALUE, added to that token's logit; may repeat");
  group->add_option("--seed", s.seed, "Same seed, same text")->capture_default_str()->check(kWholeNumber);
  group->add_option("--stop", options.stop, "Text that ends the answer; may repeat");
  group->add_option("--min-tokens", s.min_tokens, "No end before this many tokens")->capture_default_str();
  group->add_flag("--ignore-eos", options.ignore_eos, "The model's end token does not end the answer");
}

Result<GenerateOptions> GenerateFlags::read() const {
  GenerateOptions result = options;
  if (options.max_tokens < -1)
    return errorf(ErrorCode::kInvalidArgument, "--max-tokens {} makes no sense; -1 means until the model ends",
                  options.max_tokens);
  if (options.max_tokens >= 0 && options.sampling.min_tokens > options.max_tokens)
    return errorf(ErrorCode::kInvalidArgument, "--min-tokens {} is more than the {} that --max-tokens allows",
                  options.sampling.min_tokens, options.max_tokens);
  for (const std::string& text : logit_bias) {
    int id = 0;
    float value = 0;
    char rest = 0;
    if (std::sscanf(text.c_str(), "%d=%f%c", &id, &value, &rest) != 2)
      return errorf(ErrorCode::kInvalidArgument, "--logit-bias {} is not ID=VALUE", text);
    result.sampling.logit_bias.emplace_back(id, value);
  }
  return result;
}

void GenerateFlags::take_recommended(const Engine& engine, SamplingOptions& s) const {
  const SamplingOptions recommended = engine.recommended_sampling();
  auto take = [&](const char* option, auto& value, auto instead) {
    if (group->count(option) == 0) value = instead;
  };
  take("--temperature", s.temperature, recommended.temperature);
  take("--top-k", s.top_k, recommended.top_k);
  take("--top-p", s.top_p, recommended.top_p);
  take("--min-p", s.min_p, recommended.min_p);
  take("--repetition-penalty", s.repetition_penalty, recommended.repetition_penalty);
}

Result<uint64_t> parse_bytes(const std::string& text) {
  const uint64_t bytes = bytes_from_text(text);
  if (bytes == 0)
    return errorf(ErrorCode::kInvalidArgument, "'{}' is not an amount of memory; write it like 512MiB or 2GiB", text);
  return bytes;
}

Result<std::string> read_input(const std::string& path) {
  std::ostringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    if (std::cin.bad()) return errorf(ErrorCode::kIo, "stdin cannot be read");
    return std::move(text).str();
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return errorf(ErrorCode::kNotFound, "{}: cannot be opened: {}", path, std::strerror(errno));
  if (file.peek() == std::ifstream::traits_type::eof() && !file.eof())
    return errorf(ErrorCode::kIo, "{}: cannot be read; is it a folder?", path);
  file.clear();
  text << file.rdbuf();
  if (file.bad()) return errorf(ErrorCode::kIo, "{}: reading failed", path);
  return std::move(text).str();
}

}  // namespace godwit::cli
