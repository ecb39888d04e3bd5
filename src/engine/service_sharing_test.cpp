// Requests over one long prefix attend to it at once, and nobody can tell from their answers.
#include <atomic>

#include "backend/wrapped_backend.h"
#include "engine/open.h"
#include "engine/service_testing.h"

namespace godwit {
namespace {

using namespace engine_test;

struct Count {
  std::atomic<size_t> pages = 0;  // that single rows were given in attention, tile by tile
};

class CountingBackend final : public WrappedBackend {
 public:
  CountingBackend(std::unique_ptr<Backend> inner, Count& count) : WrappedBackend(std::move(inner)), count_(count) {}
  void attention(const AttentionArgs& args) override {
    for (const AttentionTile& tile : args.plan->tiles)
      if (tile.row_end - tile.row_begin <= 16) count_.pages += tile.page_end - tile.page_begin;
    WrappedBackend::attention(args);
  }

 private:
  void before() override {}
  void after(Kind) override {}
  Count& count_;
};

TEST(ServiceSharing, RequestsOverOnePrefixReadItOnce) {
  const auto book = prompt(1900);
  for (const char* codec : {"f16", "q4:last=64", "f32"}) {
    Count count;
    EngineOptions options = small_engine(512);
    options.kv_codec = codec;
    const Engine alone = open(options);
    auto backend = value_of(make_cpu_backend({.threads = 2, .simd = {}}));
    const Engine engine = value_of(open_engine(options, std::make_unique<CountingBackend>(std::move(backend), count)));
    auto service = serve(engine);
    Client client(*service);
    client.ask({.prompt = book, .options = greedy(1), .principal = {}}).get();  // which leaves its K and V
    const size_t before = count.pages;
    std::vector<std::future<Outcome>> futures;
    std::vector<std::vector<TokenId>> prompts;
    for (uint32_t i = 0; i < 8; ++i) {
      prompts.push_back(joined(i == 5 ? std::span(book).first(1100) : std::span(book), prompt(5 + i, i)));
      futures.push_back(client.ask({.prompt = prompts.back(), .options = greedy(40), .principal = {}}));
    }
    for (size_t i = 0; i < futures.size(); ++i)
      EXPECT_EQ(futures[i].get().tokens, cold(alone, prompts[i], 40)) << codec << ", request " << i;
    const size_t each = 2 * 39 * 8 * (1900 / 64);  // layers, tokens, requests, pages
    EXPECT_LT(count.pages - before, each * 7 / 10) << codec;
  }
}

}  // namespace
}  // namespace godwit
