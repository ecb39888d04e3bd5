// How many threads an engine takes.
#include <gtest/gtest.h>

#include "base/machine.h"
#include "engine/test_engine.h"

namespace godwit {
namespace {

using namespace engine_test;

TEST(EngineThreads, AreAsAskedUpToWhatRunsAtOnce) {
  const Machine machine = read_machine();
  for (int asked : {0, 1, machine.usable(), machine.usable() + 1, 1024}) {
    EngineOptions options = options_for("qwen3");
    options.threads = asked;
    const EngineInfo info = open(options).info();
    EXPECT_EQ(info.threads, asked == 0 ? machine.best_threads() : std::min(asked, machine.usable())) << asked;
    EXPECT_NE(info.backend.find(fmt::format("{} thread", info.threads)), std::string::npos) << info.backend;
  }
}

}  // namespace
}  // namespace godwit
