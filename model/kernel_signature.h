// What the bits of a run depend on besides its inputs: the instruction set the kernels were compiled for and chosen at
// run time, and the version of their arithmetic. Two processes with equal signatures compute equal bits; a job with
// mixed ones is refused.
#ifndef LOCKSTEP_MODEL_KERNEL_SIGNATURE_H_
#define LOCKSTEP_MODEL_KERNEL_SIGNATURE_H_

#include <string>

namespace lockstep::model {

// e.g. "own-1/AVX3"
std::string KernelSignature();

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_KERNEL_SIGNATURE_H_
