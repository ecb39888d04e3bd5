#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "backend/backend.h"

namespace godwit {
namespace {

std::unique_ptr<Backend> guarded() {
  auto backend = make_guarded_backend({2, ""});
  EXPECT_TRUE(backend.has_value());
  return std::move(*backend);
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// Reads the first byte where the optimiser cannot see it.
int peek(const Buffer& buffer) {
  return static_cast<int>(*static_cast<volatile std::byte*>(buffer.data()));
}
void poke(const Buffer& buffer) {
  *static_cast<volatile std::byte*>(buffer.data()) = std::byte{1};
}

using GuardedBackendDeathTest = ::testing::Test;

TEST(GuardedBackendDeathTest, TouchingMemoryOutsideAnOperationDies) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto backend = guarded();
  EXPECT_EQ(backend->name(), "guarded");
  const Buffer buffer = *backend->allocate(100);
  EXPECT_DEATH(peek(buffer), "");
  EXPECT_DEATH(poke(buffer), "");
  const std::vector<float> host(10, 1.0f);
  backend->upload(buffer.data(), bytes_of(host));  // closes again behind itself
  EXPECT_DEATH(peek(buffer), "");
  const Buffer imported = *backend->import_host(nullptr, bytes_of(host));
  EXPECT_NE(imported.data(), reinterpret_cast<const std::byte*>(host.data()));
  EXPECT_DEATH(peek(imported), "");
}

TEST(GuardedBackendTest, BytesComeAndGo) {
  const auto backend = guarded();
  std::vector<int> sent(5000), got(5000);
  std::iota(sent.begin(), sent.end(), 0);
  const Buffer a = *backend->import_host(nullptr, bytes_of(sent)), b = *backend->allocate(bytes_of(sent).size());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
  backend->download(std::as_writable_bytes(std::span(got)), a.data());
  EXPECT_EQ(got, sent);
  backend->upload(b.data(), bytes_of(got));
  std::ranges::fill(got, 0);
  backend->download(std::as_writable_bytes(std::span(got)), b.data());
  EXPECT_EQ(got, sent);
}

TEST(GuardedBackendTest, FreshMemoryIsNotZeroAndFreedMemoryIsReused) {
  const auto backend = guarded();
  const Buffer keep = *backend->allocate(1);
  std::byte* first = nullptr;
  for (int round = 0; round < 3; ++round) {
    const Buffer block = *backend->allocate(10000);
    if (round == 0) first = block.data();
    EXPECT_EQ(block.data(), first);
    std::vector<std::byte> bytes(10000);
    backend->download(bytes, block.data());
    for (std::byte byte : bytes) ASSERT_EQ(byte, std::byte{0xff});
    backend->upload(block.data(), std::vector<std::byte>(10000));
  }
}

TEST(GuardedBackendTest, ABufferMayOutliveItsBackend) {
  Buffer buffer;
  {
    const auto backend = guarded();
    buffer = *backend->allocate(1000);
  }
  buffer = {};
}

TEST(GuardedBackendTest, TooMuchIsAnError) {
  const auto buffer = guarded()->allocate(size_t{1} << 60);
  ASSERT_FALSE(buffer.has_value());
  EXPECT_EQ(buffer.error().code, ErrorCode::kExhausted);
}

TEST(GuardedBackendTest, AttentionRunsInside) {
  const KvFormat format{DType::kF16, 16, 16};
  auto run = [&](Backend& backend) {
    auto upload = [&](const std::vector<float>& values) { return *backend.import_host(nullptr, bytes_of(values)); };
    std::vector<float> values(3 * 2 * 16);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 3;
    const Buffer kv = upload(values), slab = *backend.allocate(2 * format.page_bytes());
    const std::vector<KvSlot> slots = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {0, 2}, {1, 2}};
    const Tensor rows(kv.data(), DType::kF32, {3, 2, 16});
    backend.kv_write({format, slab.data(), slots, rows, rows});
    const std::vector<int32_t> host_positions = {0, 1, 2};
    const Buffer positions = *backend.import_host(nullptr, bytes_of(host_positions));
    const Buffer out = *backend.allocate(values.size() * 4), lse = *backend.allocate(6 * 4);
    const AttentionPlan plan{{{0, 3, 0, 0, 1}, {0, 3, 1, 1, 2}}, {{0, 0, 0, 3, kNoAux}, {1, 0, 0, 3, kNoAux}}};
    AttentionArgs args;
    args.format = format;
    args.slab = slab.data();
    args.plan = &plan;
    args.q = rows;
    args.positions = Tensor(positions.data(), DType::kI32, {3});
    args.kv_heads = 2;
    args.partial = {Tensor(out.data(), DType::kF32, {3, 2, 16}), Tensor(lse.data(), DType::kF32, {3, 2})};
    backend.attention(args);
    backend.download(std::as_writable_bytes(std::span(values)), out.data());
    return values;
  };
  const auto cpu = make_cpu_backend({2, ""});
  ASSERT_TRUE(cpu.has_value());
  // `import_host` of the CPU back-end shares the vector's memory, which run() keeps alive.
  EXPECT_EQ(run(*guarded()), run(**cpu));
}

}  // namespace
}  // namespace godwit
