#include "kv/policy.h"

namespace godwit {
namespace {

class ZipCache final : public KvPolicy {
 public:
  KvNeeds needs() const override { return {.queries = KvNeeds::Queries::kAll, .last_queries = 0, .use_factor = 0}; }
  // A slot is seen by its own token's query and all that come after.
  void score(const KvHeadView& head, std::span<float> scores) const override {
    for (size_t i = 0; i < head.slots(); ++i)
      scores[i] = head.mass[i] / static_cast<float>(head.next_position - head.positions[i]);
  }
};

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs&, const KvShape&) {
  return std::make_unique<ZipCache>();
}

}  // namespace

// Deviations: the paper samples a tenth of the queries, here all of them are looked at; it has 4 bits for the salient
// and 2 for the rest, here the salient keep f16 and the codec says what the rest gets.
extern const KvPolicyRow kv_policy_zipcache = {
    .info = {.name = "zipcache",
             .description =
                 "entries with little attention, by the queries that could see them, go to the codec's sealed pages",
             .reference = "He et al., ZipCache: Accurate and Efficient KV Cache Quantization with Salient Token "
                          "Identification, arXiv 2405.14256",
             .params = {}},
    .trigger = "chunk",
    .comparable_scores = true,
    .demotes = true,
    .make = make,
};

}  // namespace godwit
