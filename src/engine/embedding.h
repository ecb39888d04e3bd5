// A text as one vector: the mean of what the last layer made of each of its tokens, scaled to length 1.
#pragma once

#include <vector>

#include "model/decoder.h"

namespace godwit {

class EmbeddingSum {
 public:
  // Adds rows [begin, end) of the model's last step, in order: sums do not depend on where steps part.
  void add(const Model& model, Workspace& workspace, Backend& backend, int32_t begin, int32_t end);
  std::vector<float> unit_mean() const;  // empty where nothing was added

 private:
  std::vector<double> sum_;
};

}  // namespace godwit
