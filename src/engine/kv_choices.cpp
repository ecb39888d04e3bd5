#include "engine/kv_choices.h"

#include <fmt/ranges.h>

namespace godwit {
namespace {

constexpr std::string_view kNone = "none";

std::string_view name_in(std::string_view spec) {
  return spec.substr(0, spec.find(':'));
}

}  // namespace

Result<KvChoices> KvChoices::make(Engine engine, const KvAllowance& allowed) {
  KvChoices choices(std::move(engine));
  for (const std::string& spec : allowed.policies) {
    Allowed& added = choices.policies_.emplace_back(Allowed{spec, {}});
    if (spec == kNone) continue;
    GODWIT_ASSIGN(added.method, make_kv_policy(spec, choices.engine_.shape));
    if (const Engine& e = choices.engine_; e.ranks > 1) GODWIT_TRY(check_over_ranks(added.method, e.format, e.ranks));
  }
  const auto limit = [&](const std::string& text, std::optional<Limit>& into) -> Status {
    if (text.empty()) return {};
    GODWIT_ASSIGN(const KvBudget budget, KvBudget::parse(text));
    GODWIT_TRY(budget.check_pages(choices.engine_.equal_pages));
    into = Limit{text, budget};
    return {};
  };
  GODWIT_TRY(limit(allowed.least_budget, choices.least_));
  GODWIT_TRY(limit(allowed.largest_budget, choices.largest_));
  if (allowed.policies.empty() && (choices.least_ || choices.largest_))
    return errorf(ErrorCode::kInvalidArgument,
                  "limits of KV budgets without KV policies that requests may choose do nothing; name some");
  if (choices.least_ && choices.largest_ && choices.least_->budget.is_more_than(choices.largest_->budget))
    return errorf(ErrorCode::kInvalidArgument, "the least KV budget, {}, is more than the largest, {}: none is between",
                  choices.least_->text, choices.largest_->text);
  return choices;
}

Result<KvChoices::Allowed> KvChoices::allowed(std::string_view policy) const {
  for (const Allowed& one : policies_)
    if (one.spec == policy || name_in(one.spec) == policy) return one;
  if (policies_.empty())
    return errorf(ErrorCode::kInvalidArgument, "requests may not choose a KV method here: leave 'kv' out");
  std::vector<std::string_view> names;
  for (const Allowed& one : policies_) names.push_back(name_in(one.spec));
  return errorf(ErrorCode::kInvalidArgument, "the KV policy '{}' may not be chosen here; there are {}",
                policy.substr(0, 128), fmt::join(names, ", "));
}

Status KvChoices::check_budget(const KvRetentionRules& rules, std::string_view text, size_t prompt_tokens) const {
  const auto slots = [&](const KvBudget& budget) {
    return budget.slots_per_head(static_cast<int32_t>(prompt_tokens), engine_.shape, engine_.format);
  };
  if (least_ && slots(rules.budget) < slots(least_->budget))
    return errorf(ErrorCode::kInvalidArgument, "a KV budget of {} is less than {}, the least for a prompt of {} tokens",
                  text, least_->text, prompt_tokens);
  if (largest_ && slots(rules.budget) > slots(largest_->budget))
    return errorf(ErrorCode::kInvalidArgument, "a KV budget of {} is more than {}, the most for a prompt of {} tokens",
                  text, largest_->text, prompt_tokens);
  return {};
}

Result<KvChoices::Chosen> KvChoices::choose(const std::optional<KvChoice>& choice, size_t prompt_tokens) const {
  if (!choice) return engine_.own;
  Chosen chosen{*choice, nullptr};
  GODWIT_ASSIGN(const Allowed policy, allowed(choice->policy.empty() ? kNone : choice->policy));
  if (policy.method.row == nullptr) {
    if (!choice->budget.empty() || !choice->trigger.empty())
      return errorf(ErrorCode::kInvalidArgument, "without a KV policy, a KV {} does nothing",
                    choice->budget.empty() ? "trigger" : "budget");
    chosen.text.policy.clear();
    return chosen;
  }
  if (!choice->trigger.empty() && choice->trigger != "prefill" && choice->trigger != "chunk")
    return errorf(ErrorCode::kInvalidArgument, "'{}' is no KV trigger that requests may choose; give prefill or chunk",
                  choice->trigger.substr(0, 128));
  GODWIT_ASSIGN(chosen.rules, KvRetentionRules::make(policy.method,
                                                     {.policy = policy.spec,
                                                      .budget = choice->budget,
                                                      .trigger = choice->trigger,
                                                      .prefill_chunk = engine_.prefill_chunk,
                                                      .equal_pages = engine_.equal_pages},
                                                     engine_.shape, engine_.format, engine_.q_heads));
  if (chosen.rules->method.row->demotes != engine_.format.demotes)
    return errorf(ErrorCode::kInvalidArgument,
                  "the KV policy '{}' cannot be chosen here: entries are {} here, and it {} them", policy.spec,
                  engine_.format.demotes ? "demoted" : "dropped", engine_.format.demotes ? "drops" : "demotes");
  if (!choice->budget.empty()) GODWIT_TRY(check_budget(*chosen.rules, choice->budget, prompt_tokens));
  return chosen;
}

}  // namespace godwit
