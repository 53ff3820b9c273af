#include "tests/fuzz/exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  lockstep::formats::ExerciseSafetensors(data, num_bytes);
  return 0;
}
