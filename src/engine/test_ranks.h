// For tests: an engine over several ranks, which are threads.
#pragma once

#include <thread>

#include "dist/local_link.h"
#include "engine/ranks_impl.h"
#include "engine/test_engine.h"

namespace godwit::engine_test {

// Runs `leader` on rank 0 while the others follow; what each of them said in the end.
inline std::vector<Status> with_ranks(int count, const std::function<void(std::shared_ptr<Ranks>)>& leader,
                                      dist::LocalFaults faults = {}) {
  auto links = dist::make_local_links(count, std::move(faults));
  std::vector<Status> said(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < links.size(); ++i)
    threads.emplace_back([&, i] {
      auto ranks = std::make_shared<Ranks>(std::make_unique<Ranks::Impl>(std::move(links[i])));
      said[i] = ranks->impl().transport.join();
      if (!said[i]) return;
      if (i == 0)
        leader(ranks);
      else
        said[i] = ranks->follow();
    });
  for (std::thread& thread : threads) thread.join();
  return said;
}

inline void expect_all_well(const std::vector<Status>& said) {
  for (const Status& status : said) EXPECT_TRUE(status.has_value()) << status.error().message;
}

inline EngineOptions over(std::shared_ptr<Ranks> ranks, EngineOptions options = options_for("qwen3")) {
  options.threads = 1;
  options.prefill_chunk = 128;
  options.rank_options.prefill_ranks = ranks->size();  // or short prompts would be one rank's
  options.ranks = std::move(ranks);
  return options;
}

}  // namespace godwit::engine_test
