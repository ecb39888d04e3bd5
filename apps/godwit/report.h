// What a generation cost, for people and for programs.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include <godwit/engine.h>

namespace godwit::cli {

// One JSON text; bytes that are no UTF-8 (a file name, say) become U+FFFD.
std::string json_text(const nlohmann::json& value, int indent = -1);

// "1.24 B", "30.2 M": how many, with three digits.
std::string count_text(uint64_t count);

// An error that says why the answer breaks off, where it does.
Status early_end(const Generation& answer);
// One line to stderr where the context's end ended the answer: that is a limit, not a failure.
void note_full_context(const Engine& engine, const Generation& answer);

nlohmann::json generation_json(const Engine& engine, const Session& session, const Generation& answer);
void print_stats(const Engine& engine, const Session& session, const Generation& answer);  // to stderr

}  // namespace godwit::cli
