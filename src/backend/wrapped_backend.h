// A Backend that does everything through another one and may add something around each operation. Whoever adds an
// operation to Backend forwards it here, once for all wrappers.
#pragma once

#include <memory>
#include <utility>

#include "backend/backend.h"

namespace godwit {

class WrappedBackend : public Backend {
 public:
  explicit WrappedBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::string name() const override { return inner_->name(); }
  std::string description() const override { return inner_->description(); }
  int threads() const override { return inner_->threads(); }
  bool supports(DType weight) const override { return inner_->supports(weight); }
  size_t memory_bytes() const override { return inner_->memory_bytes(); }

  Result<Buffer> allocate(size_t bytes) override { return inner_->allocate(bytes); }
  Result<Buffer> import_host(std::shared_ptr<const void> owner, std::span<const std::byte> bytes) override {
    return inner_->import_host(std::move(owner), bytes);
  }
  void upload(std::byte* to, std::span<const std::byte> from) override { run(&Backend::upload, to, from); }
  void download(std::span<std::byte> to, const std::byte* from) override { run(&Backend::download, to, from); }
  void synchronize() override { inner_->synchronize(); }
  bool can_pack(const Tensor& rows) const override { return inner_->can_pack(rows); }
  void pack(Tensor rows, Tensor packed) override { run(&Backend::pack, rows, packed); }
  void unpack(Tensor packed, Tensor rows) override { run(&Backend::unpack, packed, rows); }

  void embed(Tensor tokens, Tensor table, float scale, Tensor out) override {
    run(&Backend::embed, tokens, table, scale, out);
  }
  void gather_rows(Tensor x, Tensor rows, Tensor out) override { run(&Backend::gather_rows, x, rows, out); }
  void rms_norm(Tensor x, Tensor weight, float eps, Tensor out) override {
    run(&Backend::rms_norm, x, weight, eps, out);
  }
  void rope(const RopeArgs& args) override { run(&Backend::rope, args); }
  void gated(Activation kind, Tensor gate, Tensor up, Tensor out) override {
    run(&Backend::gated, kind, gate, up, out);
  }
  void add(Tensor x, Tensor y) override { run(&Backend::add, x, y); }
  void softcap(Tensor x, float cap) override { run(&Backend::softcap, x, cap); }
  void matmul(const MatmulArgs& args) override { run<Kind::kMatmul>(&Backend::matmul, args); }
  void matmul_all(std::span<const MatmulArgs> products) override { run<Kind::kMatmul>(&Backend::matmul_all, products); }
  void gated_matmul(const GatedMatmulArgs& args) override { run<Kind::kMatmul>(&Backend::gated_matmul, args); }

  void route(const RouteArgs& args) override { run(&Backend::route, args); }
  void expert_matmul(const ExpertMatmulArgs& args) override { run<Kind::kMatmul>(&Backend::expert_matmul, args); }
  void combine_experts(Tensor x, Tensor weights, Tensor out) override {
    run(&Backend::combine_experts, x, weights, out);
  }

  void kv_write(const KvWriteArgs& args) override { run(&Backend::kv_write, args); }
  void kv_read(const KvReadArgs& args) override { run(&Backend::kv_read, args); }
  void kv_seal(const KvSealArgs& args) override { run(&Backend::kv_seal, args); }
  void kv_copy_page(const KvFormat& format, std::byte* slab, PageId from, PageId to) override {
    run(&Backend::kv_copy_page, format, slab, from, to);
  }
  void kv_move(const KvFormat& format, std::byte* to, const std::byte* from, std::span<const KvMove> moves) override {
    run(&Backend::kv_move, format, to, from, moves);
  }
  void kv_export(const KvFormat& format, const std::byte* slab, PageId page, std::span<std::byte> canonical) override {
    run(&Backend::kv_export, format, slab, page, canonical);
  }
  void kv_import(const KvFormat& format, std::byte* slab, PageId page, std::span<const std::byte> canonical) override {
    run(&Backend::kv_import, format, slab, page, canonical);
  }
  void attention(const AttentionArgs& args) override { run<Kind::kAttention>(&Backend::attention, args); }
  void finish_attention(const FinishAttentionArgs& args) override {
    run<Kind::kAttention>(&Backend::finish_attention, args);
  }
  void merge_partials(const AttnPartial& into, const AttnPartial& from) override {
    run<Kind::kAttention>(&Backend::merge_partials, into, from);
  }
  void observe(const ObserveArgs& args) override { run(&Backend::observe, args); }

 protected:
  enum class Kind { kMatmul, kAttention, kOther };
  virtual void before() = 0;
  virtual void after(Kind kind) = 0;

 private:
  template <Kind kind = Kind::kOther, class... Parameters, class... Args>
  void run(void (Backend::*operation)(Parameters...), const Args&... args) {
    before();
    (inner_.get()->*operation)(args...);
    after(kind);
  }

  std::unique_ptr<Backend> inner_;
};

}  // namespace godwit
