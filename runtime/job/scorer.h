// Log-probs of given token ids under a model: the forward pass of training, without a gradient.
#ifndef LOCKSTEP_RUNTIME_JOB_SCORER_H_
#define LOCKSTEP_RUNTIME_JOB_SCORER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/kernels/matmul_backend.h"
#include "runtime/device/tensor.h"

namespace lockstep::job {

// One thread at a time.
class Scorer {
 public:
  // `dtype` is kF32 or kBf16. Errors: what LoadModel says.
  static absl::StatusOr<std::unique_ptr<Scorer>> Load(const std::string& model_path, DType dtype, int num_threads,
                                                      model::MatMulChoice matmul = model::MatMulChoice::kAuto);
  virtual ~Scorer() = default;

  // [ids - 1]: log-prob of each id but the first given those before it, at temperature 1. InvalidArgument: no ids, an
  // id outside the vocabulary, more ids than the context holds.
  virtual absl::StatusOr<std::vector<float>> LogProbs(absl::Span<const int32_t> ids) = 0;
};

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_SCORER_H_
