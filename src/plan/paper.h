// For tests: the tables of "Context Parallelism for Scalable Million-Token Inference" (arXiv 2411.01783 v3) and the
// set-up they were measured with: Llama 3.1 405B, feed-forward weights in 8 bits, nodes of eight H100, TP8 in each,
// RDMA.
#pragma once

#include <vector>

#include "kv/codec.h"
#include "plan/plan.h"

namespace godwit::plan {

inline PlanRequest paper_request(int64_t new_tokens, int64_t cached_tokens, int tp, int cp) {
  PlanRequest request;
  request.model = plan_model(*find_shape("llama-3.1-405b"), 16, 8);
  request.device = *find_device("h100");
  request.link = *find_link("rdma-400");
  request.kv = *make_kv_format("bf16", request.model.config.head_dim);
  request.new_tokens = new_tokens;
  request.cached_tokens = cached_tokens;
  request.tp = tp;
  request.cp = cp;
  request.page_tokens = 1;  // the paper pads to equal lengths
  return request;
}

struct PaperTtft {
  int64_t tokens;
  int tp, cp;
  double seconds;
};
inline const std::vector<PaperTtft> kPaperPrefill = {
    {8000, 8, 1, 1.740},    {32000, 8, 1, 7.658},   {128000, 8, 1, 42.010}, {8000, 8, 2, 0.999},
    {32000, 8, 2, 4.015},   {128000, 8, 2, 21.042}, {128000, 8, 4, 10.950}, {128000, 8, 8, 5.850},
    {128000, 8, 16, 3.800}, {1000000, 8, 16, 77.0}};
inline const std::vector<PaperTtft> kPaperTensorPrefill = {{128000, 16, 1, 29.917}, {128000, 32, 1, 19.841}};
inline const std::vector<PaperTtft> kPaperDecode = {{128000, 8, 1, 46.26e-3},
                                                    {128000, 8, 2, 60.23e-3},
                                                    {128000, 8, 4, 71.31e-3},
                                                    {128000, 16, 1, 39.52e-3},
                                                    {128000, 32, 1, 47.3e-3}};

struct PaperModes {
  int64_t new_tokens;  // of 128000
  double pass_kv_s, pass_q_s;
};
inline const std::vector<PaperModes> kPaperModes = {
    {1280, 1.023, 0.899},     {3200, 1.110, 1.046},    {4160, 1.299, 1.280},  {6400, 1.306, 1.302},
    {12800, 2.081, 2.205},    {25600, 3.353, 3.617},   {38400, 4.629, 4.923}, {51200, 5.745, 6.218},
    {64000, 6.845, 7.368},    {76800, 7.890, 8.469},   {89600, 8.697, 9.667}, {102400, 10.106, 10.652},
    {115200, 11.136, 11.572}, {128000, 11.462, 12.361}};

}  // namespace godwit::plan
