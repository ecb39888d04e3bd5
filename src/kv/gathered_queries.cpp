#include "kv/gathered_queries.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace godwit {
namespace {

using Gathered = std::vector<std::vector<std::byte>>;

// Of [rows, …] floats of a device, row `row` goes to `to`.
void download_row(Backend& backend, const Tensor& from, size_t row, std::span<float> to) {
  backend.download(std::as_writable_bytes(to), from.data + row * from.row_stride_bytes);
}

// Everyone's numbers of the same rows, by rank.
template <class T>
Status gather_alike(KvPeers& peers, const std::vector<T>& mine, std::vector<std::vector<T>>& all) {
  Gathered bytes;
  GODWIT_TRY(peers.gather({}, std::as_bytes(std::span(mine)), bytes));
  all.assign(bytes.size(), std::vector<T>(mine.size()));
  for (size_t rank = 0; rank < bytes.size(); ++rank) {
    if (bytes[rank].size() != mine.size() * sizeof(T))
      return errorf(ErrorCode::kBadData, "rank {} told of {} bytes about queries, not of {}", rank, bytes[rank].size(),
                    mine.size() * sizeof(T));
    if (!mine.empty()) std::memcpy(all[rank].data(), bytes[rank].data(), bytes[rank].size());
  }
  return {};
}

}  // namespace

Status GatheredQueries::gather(Backend& backend, const Rows& mine, KvPeers& peers) {
  heads_ = mine.q.shape[1], dim_ = mine.q.shape[2];
  const auto heads = static_cast<size_t>(heads_), numbers = heads * static_cast<size_t>(dim_);
  // A row travels as its position, its queries and, if known, their lse.
  const size_t width = 1 + numbers + (mine.lse ? heads : 0);
  std::vector<float> told(mine.positions.size() * width);
  for (size_t row = 0; row < mine.positions.size(); ++row) {
    const std::span<float> line = std::span(told).subspan(row * width, width);
    const size_t at = mine.at.empty() ? row : static_cast<size_t>(mine.at[row]);
    line[0] = std::bit_cast<float>(mine.positions[row]);
    download_row(backend, mine.q, at, line.subspan(1, numbers));
    if (mine.lse) download_row(backend, mine.lse, at, line.subspan(1 + numbers));
  }
  Gathered all;
  GODWIT_TRY(peers.gather({}, std::as_bytes(std::span(told)), all));

  std::vector<std::pair<int32_t, const std::byte*>> lines;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].size() % (width * sizeof(float)) != 0)
      return errorf(ErrorCode::kBadData, "rank {} told of its queries what makes no sense", rank);
    for (size_t at = 0; at < all[rank].size(); at += width * sizeof(float)) {
      int32_t position = 0;
      std::memcpy(&position, all[rank].data() + at, sizeof(position));
      lines.push_back({position, all[rank].data() + at + sizeof(position)});
    }
  }
  std::sort(lines.begin(), lines.end());
  positions_.clear();
  std::vector<float> q(lines.size() * numbers), lse(mine.lse ? lines.size() * heads : 0);
  for (size_t row = 0; row < lines.size(); ++row) {
    const auto& [position, line] = lines[row];
    positions_.push_back(position);
    std::memcpy(q.data() + row * numbers, line, numbers * sizeof(float));
    if (mine.lse) std::memcpy(lse.data() + row * heads, line + numbers * sizeof(float), heads * sizeof(float));
  }
  if (positions_.size() > room_) GODWIT_TRY(peers.agree(make_room(backend)));
  room_ = std::max(room_, positions_.size());
  if (lines.empty()) return {};
  backend.upload(q_.data(), std::as_bytes(std::span(q)));
  backend.upload(row_positions_.data(), std::as_bytes(std::span(positions_)));
  if (mine.lse) backend.upload(this->lse().data, std::as_bytes(std::span(lse)));
  return {};
}

Status GatheredQueries::make_room(Backend& backend) {
  const size_t rows = positions_.size(), numbers = static_cast<size_t>(heads_ * dim_);
  GODWIT_TRY(ensure_bytes(backend, row_positions_, rows * sizeof(int32_t)));
  GODWIT_TRY(ensure_bytes(backend, q_, rows * numbers * sizeof(float)));
  GODWIT_TRY(ensure_bytes(backend, seen_, rows * static_cast<size_t>(heads_) * sizeof(int32_t)));
  return ensure_bytes(backend, partial_, rows * (numbers + static_cast<size_t>(heads_)) * sizeof(float));
}

Tensor GatheredQueries::lse() const {
  const auto rows = static_cast<int64_t>(positions_.size());
  return Tensor(partial_.data() + static_cast<size_t>(rows * heads_ * dim_) * sizeof(float), DType::kF32,
                {rows, heads_});
}

void GatheredQueries::fill(AttentionArgs& args) const {
  const auto rows = static_cast<int64_t>(positions_.size());
  args.q = Tensor(q_.data(), DType::kF32, {rows, heads_, dim_});
  args.positions = Tensor(row_positions_.data(), DType::kI32, {rows});
  args.partial = {Tensor(partial_.data(), DType::kF32, {rows, heads_, dim_}), lse()};
}

Status GatheredQueries::merge_lse(Backend& backend, KvPeers& peers) {
  std::vector<float> merged(positions_.size() * static_cast<size_t>(heads_));
  if (!merged.empty()) backend.download(std::as_writable_bytes(std::span(merged)), lse().data);
  std::vector<std::vector<float>> all;
  GODWIT_TRY(gather_alike(peers, merged, all));
  for (size_t i = 0; i < merged.size(); ++i) {
    float most = -HUGE_VALF;
    for (const auto& one : all) most = std::max(most, one[i]);
    merged[i] = most;
    if (most == -HUGE_VALF) continue;  // nobody sees anything
    double sum = 0;
    for (const auto& one : all) sum += std::exp(static_cast<double>(one[i]) - static_cast<double>(most));
    merged[i] = static_cast<float>(static_cast<double>(most) + std::log(sum));
  }
  if (!merged.empty()) backend.upload(lse().data, std::as_bytes(std::span(merged)));
  return {};
}

Result<Tensor> GatheredQueries::seen_elsewhere(const KvSequence& sequence, int layer, int32_t window, KvPeers& peers) {
  const int kv_heads = sequence.shape().kv_heads;
  std::vector<int32_t> seen(positions_.size() * static_cast<size_t>(kv_heads));
  for (int head = 0; head < kv_heads; ++head) {
    const auto before = [&](int32_t position) { return sequence.slots_before(layer, head, position); };
    for (size_t row = 0; row < positions_.size(); ++row) {
      const int32_t end = positions_[row] + 1;
      const size_t too_old = window > 0 && end > window ? before(end - window) : 0;
      seen[row * static_cast<size_t>(kv_heads) + static_cast<size_t>(head)] =
          static_cast<int32_t>(before(end) - too_old);
    }
  }
  std::vector<std::vector<int32_t>> all;
  GODWIT_TRY(gather_alike(peers, seen, all));
  for (size_t i = 0; i < seen.size(); ++i) {
    const int32_t own = seen[i];
    seen[i] = -own;
    for (const auto& one : all) seen[i] += one[i];
  }
  const Tensor tensor(seen_.data(), DType::kI32, {static_cast<int64_t>(positions_.size()), kv_heads});
  if (!seen.empty()) sequence.pool().backend().upload(tensor.data, std::as_bytes(std::span(seen)));
  return tensor;
}

}  // namespace godwit
