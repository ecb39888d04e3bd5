// Files that verbs write at their end.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "io/atomic_file.h"

namespace godwit::cli {

// Made when a verb begins, so that a place that cannot be written is refused before the work; nothing appears there,
// and nothing is lost, until finish_output(). Nothing for an empty path.
Result<std::optional<AtomicFile>> begin_output(const std::string& path);
Status finish_output(std::optional<AtomicFile>& file, std::string_view text);

}  // namespace godwit::cli
