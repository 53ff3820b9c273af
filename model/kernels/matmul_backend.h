// Who multiplies matrices. Both answer to the rules of model/kernels/matmul.h; their bits differ.
//
//   kOwn     the project's own product, float32 fused multiply-adds on every machine. With bf16 weights it saves memory
//            and bandwidth, not arithmetic.
//   kOneDnn  oneDNN's products, with the bf16 instructions of the machine. Rows are row-invariant where oneDNN keeps to
//            one order of summation, which a process checks before it relies on it (model/product_check.h).
//
// Thread contract: pure functions, callable from any thread.
#ifndef LOCKSTEP_MODEL_KERNELS_MATMUL_BACKEND_H_
#define LOCKSTEP_MODEL_KERNELS_MATMUL_BACKEND_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "runtime/device/tensor.h"

namespace lockstep::model {

enum class MatMulBackend : uint8_t { kOwn, kOneDnn };

// What a user may ask for. kAuto looks at the machine's instructions alone, so equal machines choose alike.
enum class MatMulChoice : uint8_t { kAuto, kOneDnn, kOwn };

const char* MatMulBackendName(MatMulBackend backend);  // "own", "onednn"

// OK where kOneDnn can multiply by an [n, k] matrix of that type here: one packed layout must serve every number of
// rows. FailedPrecondition says what is missing.
absl::Status CheckOneDnn(DType dtype, int64_t n, int64_t k);

// Whether oneDNN's product of that type is taken for the faster one on this machine: bf16 with AMX, or on AMD cores,
// which retire vdpbf16ps at the full rate (by their makers' figures, not yet measured here). Intel's cores without AMX
// retire it at half the rate of a float32 fused multiply-add (81 against 168 GFLOP/s a core, measured), of which the
// own product reaches 145 to 150.
bool OneDnnIsFaster(DType dtype);

// What oneDNN's bits depend on: its version and the instruction set it chooses, e.g. "onednn-2.6.3/avx512_core_bf16".
std::string OneDnnSignature();

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_KERNELS_MATMUL_BACKEND_H_
