// What is asked of an OpenAI-compatible server, as JSON.
#pragma once

#include "eval/load/run.h"

namespace godwit::load {

std::string request_path(const RunOptions& options);
std::string request_body(const RunOptions& options, const std::string& prompt, int output_tokens, bool stream);

}  // namespace godwit::load
