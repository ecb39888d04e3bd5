// godwit methods: what is built in.
#include <iostream>

#include <nlohmann/json.hpp>

#include "attn/plan.h"
#include "backend/backend.h"
#include "kv/codec.h"
#include "kv/policy.h"
#include "model/family.h"
#include "verbs.h"

namespace godwit::cli {
namespace {

nlohmann::json method_json(const MethodInfo& info) {
  nlohmann::json params = nlohmann::json::array();
  for (const MethodParam& p : info.params)
    params.push_back({{"name", p.name}, {"default", p.default_value}, {"help", p.help}});
  return {
      {"name", info.name}, {"description", info.description}, {"reference", info.reference}, {"parameters", params}};
}

template <class Row>
nlohmann::json table_json(std::span<const Row* const> rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const Row* row : rows) list.push_back(method_json(row->info));
  return list;
}

void print_methods(const char* title, const char* flag, const nlohmann::json& rows) {
  std::cout << title << " (" << flag << ")\n";
  for (const auto& row : rows) {
    std::cout << fmt::format("  {:<14} {}", row["name"].get<std::string>(), row["description"].get<std::string>());
    if (auto reference = row["reference"].get<std::string>(); !reference.empty()) std::cout << " [" << reference << "]";
    std::cout << "\n";
    for (const auto& p : row["parameters"])
      std::cout << fmt::format("    {}={}  {}\n", p["name"].get<std::string>(), p["default"].get<std::string>(),
                               p["help"].get<std::string>());
  }
}

Status run(bool json) {
  nlohmann::json report;
  report["kv_codecs"] = table_json(all_kv_codecs());
  report["kv_policies"] = table_json(all_kv_policies());
  for (size_t i = 0; i < all_kv_policies().size(); ++i) {
    report["kv_policies"][i]["needs_budget"] = all_kv_policies()[i]->needs_budget;
    report["kv_policies"][i]["demotes"] = all_kv_policies()[i]->demotes;
  }
  report["prefill"] = table_json(all_prefill_planners());
  report["decode"] = table_json(all_decode_planners());
  for (const ModelFamily* family : all_model_families())
    report["models"].push_back({{"name", family->name}, {"title", family->title}});
  for (const DTypeInfo& type : all_dtypes())
    if (type.dtype != DType::kI32) report["weight_types"].push_back(type.name);
  for (const std::string& target : cpu_simd_targets()) report["simd"].push_back(target);
  report["simd"].push_back("reference");
  if (json) {
    std::cout << report.dump(2) << "\n";
    return {};
  }
  print_methods("KV codecs", "--kv-codec", report["kv_codecs"]);
  print_methods("KV policies", "--kv-policy", report["kv_policies"]);
  print_methods("Prefill attention", "--prefill", report["prefill"]);
  print_methods("Decode attention", "--decode", report["decode"]);
  std::cout << "Model families\n";
  for (const auto& row : report["models"])
    std::cout << fmt::format("  {:<14} {}\n", row["name"].get<std::string>(), row["title"].get<std::string>());
  auto line = [](const nlohmann::json& names) {
    std::string text;
    for (const auto& name : names) text += " " + name.get<std::string>();
    return text;
  };
  std::cout << "Weight types\n " << line(report["weight_types"]) << "\nSIMD targets of this machine\n "
            << line(report["simd"]) << "\n";
  return {};
}

}  // namespace

void add_methods(Program& program) {
  CLI::App* verb = add_verb(program, "methods", "List the methods, models and types that are built in");
  verb->callback([&program] { program.run = [&program] { return run(program.json); }; });
}

}  // namespace godwit::cli
