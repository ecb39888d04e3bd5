#include "output.h"

#include "base/result.h"

namespace godwit::cli {

Result<std::optional<AtomicFile>> begin_output(const std::string& path) {
  if (path.empty()) return std::optional<AtomicFile>();
  GODWIT_ASSIGN(AtomicFile file, AtomicFile::create(path));
  return std::optional<AtomicFile>(std::move(file));
}

Status finish_output(std::optional<AtomicFile>& file, std::string_view text) {
  if (!file) return {};
  GODWIT_TRY(file->write(std::as_bytes(std::span(text))));
  return file->commit();
}

}  // namespace godwit::cli
