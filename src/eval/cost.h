// What a step of a model must at least compute and read, from its shape alone: the yardstick of `godwit bench
// --roofline`.
//
// Counted: 2 FLOP per weight of a matrix and row (of the experts that a row uses), one row of logits per step; 4 FLOP
// per dimension of a head and visible pair of query head and key; every weight once per step (the embedding only where
// it is the output matrix too, experts up to as many as the rows can choose); the K and V that the step's rows see,
// once. Not counted: norms, RoPE, activations, softmax, sampling, and the reading and writing of activations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/kv_format.h"
#include "model/source.h"

namespace godwit {

struct StepCost {
  double matmul_flops = 0, attention_flops = 0;
  double weight_bytes = 0, kv_bytes = 0;

  double flops() const { return matmul_flops + attention_flops; }
  double bytes() const { return weight_bytes + kv_bytes; }
  StepCost& operator+=(const StepCost& other);
};

class CostModel {
 public:
  static Result<CostModel> make(const ModelSource& source, std::vector<KvFormat> layers);
  static Result<CostModel> make(const ModelSource& source, const KvFormat& format);  // the same in every layer

  // Sums over tensors of the file.
  uint64_t parameters() const { return parameters_; }
  uint64_t bytes() const { return bytes_; }
  DType main_type() const { return main_type_; }  // of most parameters

  StepCost step(int64_t rows, int64_t depth) const;                     // `rows` tokens after `depth`, at once
  StepCost prompt(int64_t tokens, int64_t depth, int64_t chunk) const;  // in chunks
  StepCost generation(int64_t tokens, int64_t depth) const;             // one by one

 private:
  struct Weights {
    double elements = 0, bytes = 0;
  };
  ModelConfig config_;
  std::vector<KvFormat> kv_;          // of each layer
  Weights dense_, experts_, output_;  // experts_: all of them; dense_ counts bytes of vectors, too
  uint64_t parameters_ = 0, bytes_ = 0;
  DType main_type_ = DType::kF32;
};

}  // namespace godwit
