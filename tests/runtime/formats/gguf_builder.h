// Builds small GGUF files in memory, right or deliberately wrong.
#ifndef LOCKSTEP_TESTS_RUNTIME_FORMATS_GGUF_BUILDER_H_
#define LOCKSTEP_TESTS_RUNTIME_FORMATS_GGUF_BUILDER_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace lockstep::formats {

template <typename T>
std::string Raw(T value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

inline std::string RawString(const std::string& text) { return Raw<uint64_t>(text.size()) + text; }

inline std::string RawFloats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

class GgufBuilder {
 public:
  enum Type : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

  GgufBuilder& Entry(const std::string& key, uint32_t type, const std::string& value) {
    entries_ += RawString(key) + Raw(type) + value;
    ++num_entries_;
    return *this;
  }
  GgufBuilder& String(const std::string& key, const std::string& value) {
    return Entry(key, kString, RawString(value));
  }
  GgufBuilder& U32(const std::string& key, uint32_t value) { return Entry(key, GgufBuilder::kU32, Raw(value)); }
  GgufBuilder& F32(const std::string& key, float value) { return Entry(key, GgufBuilder::kF32, Raw(value)); }
  GgufBuilder& Array(const std::string& key, uint32_t type, uint64_t count, const std::string& elements) {
    return Entry(key, kArray, Raw(type) + Raw(count) + elements);
  }

  // `shape` slowest first, as GgufTensor has it. `type` is the file's number.
  GgufBuilder& Tensor(const std::string& name, const std::vector<int64_t>& shape, uint32_t type,
                      const std::string& data) {
    infos_ += RawString(name) + Raw(static_cast<uint32_t>(shape.size()));
    for (auto dim = shape.rbegin(); dim != shape.rend(); ++dim) infos_ += Raw(*dim);
    infos_ += Raw(type) + Raw<uint64_t>(data_.size());
    data_ += data;
    data_.resize((data_.size() + 31) / 32 * 32, '\0');
    ++num_tensors_;
    return *this;
  }
  GgufBuilder& Floats(const std::string& name, const std::vector<int64_t>& shape, const std::vector<float>& values) {
    return Tensor(name, shape, 0, RawFloats(values));
  }

  std::string Build(uint32_t version = 3) const {
    std::string file = "GGUF" + Raw(version) + Raw(num_tensors_) + Raw(num_entries_) + entries_ + infos_;
    file.resize((file.size() + 31) / 32 * 32, '\0');
    return file + data_;
  }

 private:
  uint64_t num_entries_ = 0;
  uint64_t num_tensors_ = 0;
  std::string entries_, infos_, data_;
};

}  // namespace lockstep::formats

#endif  // LOCKSTEP_TESTS_RUNTIME_FORMATS_GGUF_BUILDER_H_
