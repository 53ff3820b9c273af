// Whether a backend's products keep the bit rule of model/kernels/matmul.h on this machine, for the shapes of one
// model; and which backend a process therefore computes with.
//
// The own product is row-invariant by construction. oneDNN's is by observation: with AVX-512 and AMX one kernel serves
// every number of rows, with AVX2 it does not. So every process that computes with oneDNN first tries it out.
//
// Thread contract: pure but for the threads that a check starts and ends itself; call it from one thread.
#ifndef LOCKSTEP_MODEL_PRODUCT_CHECK_H_
#define LOCKSTEP_MODEL_PRODUCT_CHECK_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "model/kernels/matmul.h"
#include "model/model_config.h"

namespace lockstep::model {

// The products of one model: forward and, for the learner, transposed.
struct ProductShape {
  int64_t n = 0, k = 0;
};
std::vector<ProductShape> ProductShapes(const ModelConfig& config);

// A product to check; stands where MatMul does.
template <typename T>
using ProductFunction = absl::FunctionRef<void(Team&, Matrix<const T>, const PackedMatrix<T>&, Matrix<float>)>;

// Multiplies random rows alone, in company and by teams of several sizes, and compares bits. Below half a second for a
// model of 135M parameters. FailedPrecondition names the shape and the first row that differs.
template <typename T>
absl::Status CheckRowInvariance(MatMulBackend backend, absl::Span<const ProductShape> shapes,
                                ProductFunction<T> product);

// kOneDnn: that it can be used, and that rows are invariant for all shapes of the model. kOwn: always OK.
absl::Status CheckBackend(MatMulBackend backend, DType dtype, const ModelConfig& config);

// The backend to compute with. Where oneDNN is chosen and fails its check, a warning says why and the own product takes
// its place. One process of a job chooses, the others are told and only check.
MatMulBackend ChooseMatMulBackend(MatMulChoice choice, DType dtype, const ModelConfig& config);

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_PRODUCT_CHECK_H_
