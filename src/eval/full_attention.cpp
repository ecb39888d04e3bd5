#include "eval/full_attention.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/result.h"
#include "eval/mass_watch.h"
#include "io/atomic_file.h"

namespace godwit {
namespace {

static_assert(std::endian::native == std::endian::little);

using Matrix = std::vector<std::vector<float>>;

constexpr int64_t kMost = 1 << 26;  // of either side of a matrix

nlohmann::json size_of(const Matrix& matrix) {
  return {matrix.size(), matrix.empty() ? 0 : matrix.front().size()};
}

Status write_matrix(AtomicFile& file, const Matrix& matrix) {
  for (const std::vector<float>& row : matrix) {
    GODWIT_CHECK(row.size() == matrix.front().size());
    GODWIT_TRY(file.write(std::as_bytes(std::span(row))));
  }
  return {};
}

Result<Matrix> read_matrix(std::ifstream& file, const JsonObject& header, const char* name) {
  GODWIT_ASSIGN(const auto size, header.get<std::vector<int64_t>>(name));
  if (size.size() != 2 || size[0] < 0 || size[0] > kMost || size[1] < 0 || size[1] > kMost ||
      (size[1] == 0) != (size[0] == 0))
    return errorf(ErrorCode::kBadData, "{}: {} makes no sense; remove the file", header.label(), name);
  Matrix matrix;
  for (int64_t i = 0; i < size[0]; ++i) {
    std::vector<float>& row = matrix.emplace_back(static_cast<size_t>(size[1]));
    file.read(reinterpret_cast<char*>(row.data()), static_cast<std::streamsize>(row.size() * sizeof(float)));
    if (!file) return errorf(ErrorCode::kBadData, "{}: is cut off; remove the file", header.label());
  }
  return matrix;
}

}  // namespace

Result<FullAttention> run_full_attention(const Engine& full, const RecallSample& sample, std::stop_token stop) {
  FullAttention made;
  if (sample.continuation.empty()) return made;
  Session session = full.start();
  GODWIT_TRY(session.append(sample.context));
  GODWIT_TRY(session.prefill({}, stop));
  const KvSequence& cache = SessionProbe::cache(session);
  MassWatch watch(cache);
  SessionProbe::watch(session, &watch);
  GODWIT_TRY(session.read(
      sample.continuation,
      [&](std::span<const float> logits) { made.logits.emplace_back(logits.begin(), logits.end()); }, stop));
  GODWIT_TRY(watch.totals().status());
  for (int layer = 0; layer < cache.shape().layers; ++layer)
    for (int head = 0; head < cache.shape().kv_heads; ++head) made.mass.push_back(watch.totals().of(layer, head).mass);
  return made;
}

Status write_full_attention(const std::string& path, const std::string& key, const FullAttention& made) {
  const std::string header =
      nlohmann::json{{"key", key}, {"logits", size_of(made.logits)}, {"mass", size_of(made.mass)}}.dump() + "\n";
  GODWIT_ASSIGN(AtomicFile file, AtomicFile::create(path));
  GODWIT_TRY(file.write(std::as_bytes(std::span(header))));
  GODWIT_TRY(write_matrix(file, made.logits));
  GODWIT_TRY(write_matrix(file, made.mass));
  return file.commit();
}

Result<std::optional<FullAttention>> read_full_attention(const std::string& path, const std::string& key) {
  std::ifstream file(path, std::ios::binary);
  if (!file && errno == ENOENT) return std::optional<FullAttention>();
  std::string line;
  if (!file || !std::getline(file, line))
    return errorf(ErrorCode::kIo, "{}: cannot be read: {}", path, std::strerror(errno));
  GODWIT_ASSIGN(const nlohmann::json json, parse_json(line, path, {.max_bytes = size_t{1} << 20}));
  GODWIT_ASSIGN(const JsonObject header, JsonObject::of(json, path));
  GODWIT_ASSIGN(const std::string held, header.get<std::string>("key"));
  if (held != key) return errorf(ErrorCode::kBadData, "{}: is of another text or model; remove the file", path);
  FullAttention made;
  GODWIT_ASSIGN(made.logits, read_matrix(file, header, "logits"));
  GODWIT_ASSIGN(made.mass, read_matrix(file, header, "mass"));
  return std::optional(std::move(made));
}

}  // namespace godwit
