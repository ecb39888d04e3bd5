// What a generation cost, for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <godwit/engine.h>

namespace godwit::cli {

nlohmann::json generation_json(const Engine& engine, const Session& session, const Generation& answer);
void print_stats(const Engine& engine, const Session& session, const Generation& answer);  // to stderr

}  // namespace godwit::cli
