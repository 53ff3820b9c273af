// Reads everything that a file of arbitrary bytes offers: what fuzzers and mutation tests run. It returns whether the
// file was accepted; a memory error or a CHECK is the failure.
#ifndef LOCKSTEP_TESTS_FUZZ_EXERCISE_H_
#define LOCKSTEP_TESTS_FUZZ_EXERCISE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/formats/gguf.h"
#include "runtime/formats/safetensors.h"

namespace lockstep::formats {

inline bool ExerciseGguf(const uint8_t* data, size_t num_bytes) {
  const auto file = GgufFile::Parse(data, num_bytes, "fuzz.gguf");
  if (!file.ok()) return false;
  for (const std::string& key : file->Keys()) {
    (void)file->GetString(key);
    (void)file->GetInt(key);
    (void)file->GetFloat(key);
    (void)file->GetBool(key);
    (void)file->GetStringArray(key);
    (void)file->GetIntArray(key);
    (void)file->GetFloatArray(key);
    (void)file->GetArraySize(key);
  }
  for (const GgufTensor& tensor : file->tensors()) {
    std::vector<float> values(static_cast<size_t>(tensor.num_elements));
    (void)ToFloat(tensor, values.data());
  }
  return true;
}

inline bool ExerciseSafetensors(const uint8_t* data, size_t num_bytes) {
  const auto file = SafetensorsFile::Parse(data, num_bytes, "fuzz.safetensors");
  if (!file.ok()) return false;
  size_t sum = 0;
  for (const SafetensorsTensor& tensor : file->tensors()) {
    std::vector<float> values(static_cast<size_t>(tensor.num_elements));
    (void)ToFloat(tensor, values.data());
    for (size_t i = 0; i < tensor.num_bytes; ++i) sum += tensor.data[i];
  }
  volatile size_t sink = sum;  // the reads above must happen
  (void)sink;
  return true;
}

}  // namespace lockstep::formats

#endif  // LOCKSTEP_TESTS_FUZZ_EXERCISE_H_
