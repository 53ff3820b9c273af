#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"
#include "runtime/formats/safetensors.h"

namespace lockstep::formats {
namespace {

absl::Status CheckSpecs(const std::string& path, const std::vector<SafetensorsSpec>& specs) {
  std::set<std::string> names;
  for (const SafetensorsSpec& spec : specs) {
    if (spec.name.empty() || spec.name == "__metadata__" || !names.insert(spec.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": the tensor name '", spec.name, "' is empty, reserved or given twice"));
    }
    for (const int64_t dim : spec.shape) {
      if (dim < 0) return absl::InvalidArgumentError(absl::StrCat(path, ": ", spec.name, " has a negative dimension"));
    }
  }
  return absl::OkStatus();
}

uint64_t BytesOf(const SafetensorsSpec& spec) {
  auto bytes = static_cast<uint64_t>(SafetensorsDTypeSize(spec.dtype));
  for (const int64_t dim : spec.shape) bytes *= static_cast<uint64_t>(dim);
  return bytes;
}

// Header JSON, padded so that the data behind it begins at a multiple of 8.
std::string HeaderOf(const std::vector<SafetensorsSpec>& specs, const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const SafetensorsSpec& spec : specs) {
    const uint64_t end = offset + BytesOf(spec);
    header[spec.name] = {
        {"dtype", SafetensorsDTypeName(spec.dtype)}, {"shape", spec.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

class SafetensorsWriter::TemporaryFile : public DurableFile {
 public:
  using DurableFile::DurableFile;
};

SafetensorsWriter::SafetensorsWriter() = default;
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter::~SafetensorsWriter() = default;

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path,
                                                            const std::vector<SafetensorsSpec>& specs,
                                                            const std::map<std::string, std::string>& metadata) {
  RETURN_IF_ERROR(CheckSpecs(path, specs));
  SafetensorsWriter writer;
  for (const SafetensorsSpec& spec : specs) writer.bytes_left_ += BytesOf(spec);
  writer.file_ = std::make_unique<TemporaryFile>(path);
  RETURN_IF_ERROR(writer.file_->Open());
  const std::string header = HeaderOf(specs, metadata);
  const uint64_t header_bytes = header.size();
  RETURN_IF_ERROR(writer.file_->Append(&header_bytes, sizeof(header_bytes)));
  RETURN_IF_ERROR(writer.file_->Append(header.data(), header.size()));
  return writer;
}

absl::Status SafetensorsWriter::Append(const void* data, size_t num_bytes) {
  if (num_bytes > bytes_left_) return absl::FailedPreconditionError("more tensor bytes than the header announced");
  bytes_left_ -= num_bytes;
  return file_->Append(data, num_bytes);
}

absl::Status SafetensorsWriter::Finish() {
  if (bytes_left_ != 0) {
    return absl::FailedPreconditionError(absl::StrCat(bytes_left_, " tensor bytes fewer than the header announced"));
  }
  return file_->Commit();
}

}  // namespace lockstep::formats
