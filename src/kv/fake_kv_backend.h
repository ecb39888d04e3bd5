// For tests of KV bookkeeping: a back-end of f32 pages in host memory and canonical layout, which counts uploads and
// can refuse allocations. Operations that have nothing to do with pages abort.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>

#include "backend/backend.h"

namespace godwit {

class FakeKvBackend final : public Backend {
 public:
  int allocations_left = std::numeric_limits<int>::max();
  int uploads = 0;
  int moves = 0;

  std::string name() const override { return "fake"; }
  std::string description() const override { return "pages in host memory, for tests"; }
  int threads() const override { return 1; }
  bool supports(DType) const override { return false; }
  size_t memory_bytes() const override { return 0; }

  Result<Buffer> allocate(size_t bytes) override {
    if (allocations_left-- <= 0) return errorf(ErrorCode::kExhausted, "the test refuses {} bytes", bytes);
    return Buffer{std::shared_ptr<std::byte>(new std::byte[bytes], [](std::byte* p) { delete[] p; }), bytes};
  }
  Result<Buffer> import_host(std::shared_ptr<const void>, std::span<const std::byte>) override { absent(); }
  void upload(std::byte* to, std::span<const std::byte> from) override {
    ++uploads;
    std::memcpy(to, from.data(), from.size());
  }
  void download(std::span<std::byte> to, const std::byte* from) override { std::memcpy(to.data(), from, to.size()); }
  void synchronize() override {}
  bool can_pack(const Tensor&) const override { return false; }
  void pack(Tensor, Tensor) override { absent(); }
  void unpack(Tensor, Tensor) override { absent(); }

  void kv_write(const KvWriteArgs& args) override {
    const size_t bytes = row_bytes(args.format);
    for (size_t i = 0; i < args.slots.size(); ++i) {
      std::memcpy(key(args.format, args.slab, args.slots[i]), args.k.data + i * bytes, bytes);
      std::memcpy(value(args.format, args.slab, args.slots[i]), args.v.data + i * bytes, bytes);
    }
  }
  void kv_read(const KvReadArgs&) override { absent(); }
  void kv_seal(const KvSealArgs&) override { absent(); }
  void kv_copy_page(const KvFormat& format, std::byte* slab, PageId from, PageId to) override {
    std::memcpy(slab + to * format.page_bytes(), slab + from * format.page_bytes(), format.page_bytes());
  }
  void kv_move(const KvFormat& format, std::byte* slab, const std::byte* from, std::span<const KvMove> list) override {
    GODWIT_CHECK(from == slab);
    moves += static_cast<int>(list.size());
    for (const KvMove& move : list) {
      std::memcpy(key(format, slab, move.to), key(format, slab, move.from), row_bytes(format));
      std::memcpy(value(format, slab, move.to), value(format, slab, move.from), row_bytes(format));
    }
  }
  void kv_export(const KvFormat& format, const std::byte* slab, PageId page, std::span<std::byte> canonical) override {
    std::memcpy(canonical.data(), slab + page * format.page_bytes(), format.page_bytes());
  }
  void kv_import(const KvFormat&, std::byte*, PageId, std::span<const std::byte>) override { absent(); }

  void embed(Tensor, Tensor, float, Tensor) override { absent(); }
  void gather_rows(Tensor, Tensor, Tensor) override { absent(); }
  void rms_norm(Tensor, Tensor, float, Tensor) override { absent(); }
  void rope(const RopeArgs&) override { absent(); }
  void gated(Activation, Tensor, Tensor, Tensor) override { absent(); }
  void add(Tensor, Tensor) override { absent(); }
  void softcap(Tensor, float) override { absent(); }
  void matmul(const MatmulArgs&) override { absent(); }
  void matmul_all(std::span<const MatmulArgs>) override { absent(); }
  void gated_matmul(const GatedMatmulArgs&) override { absent(); }
  void route(const RouteArgs&) override { absent(); }
  void expert_matmul(const ExpertMatmulArgs&) override { absent(); }
  void combine_experts(Tensor, Tensor, Tensor) override { absent(); }
  void attention(const AttentionArgs&) override { absent(); }
  void finish_attention(const FinishAttentionArgs&) override { absent(); }
  void merge_partials(const AttnPartial&, const AttnPartial&) override { absent(); }
  void observe(const ObserveArgs&) override { absent(); }

 private:
  [[noreturn]] static void absent() { check_failed(__FILE__, __LINE__, "only page operations", {}); }
  static size_t row_bytes(const KvFormat& format) {
    return dtype_bytes(format.dtype, static_cast<size_t>(format.head_dim));
  }
  static std::byte* key(const KvFormat& format, std::byte* slab, KvSlot slot) {
    return slab + page_index(slot.page) * format.page_bytes() + slot.slot * row_bytes(format);
  }
  static std::byte* value(const KvFormat& format, std::byte* slab, KvSlot slot) {
    return key(format, slab, slot) + format.k_bytes();
  }
};

}  // namespace godwit
