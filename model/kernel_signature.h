// What the bits of a run depend on besides its inputs: the instruction set the kernels were compiled for and chosen at
// run time, the version of their arithmetic and, where oneDNN multiplies, its version and instruction set. Two
// processes with equal signatures compute equal bits; a job with mixed ones is refused.
#ifndef LOCKSTEP_MODEL_KERNEL_SIGNATURE_H_
#define LOCKSTEP_MODEL_KERNEL_SIGNATURE_H_

#include <string>

#include "model/kernels/matmul_backend.h"

namespace lockstep::model {

// e.g. "own-1/AVX3", or with oneDNN's products "own-1/AVX3 onednn-2.6.3/avx512_core_amx"
std::string KernelSignature(MatMulBackend backend = MatMulBackend::kOwn);

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_KERNEL_SIGNATURE_H_
