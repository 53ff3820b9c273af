#include "model/kernel_signature.h"

#include "model/kernels/cpu/matmul_kernels.h"

namespace lockstep::model {
namespace {

// Raise it when a kernel's arithmetic changes.
constexpr char kArithmetic[] = "own-1/";

}  // namespace

std::string KernelSignature(MatMulBackend backend) {
  std::string signature = kArithmetic + std::string(internal::KernelTargetName());
  if (backend == MatMulBackend::kOneDnn) signature += " " + OneDnnSignature();
  return signature;
}

}  // namespace lockstep::model
