#include "runtime/formats/safetensors.h"

#include <sys/stat.h>

#include <filesystem>

#include "runtime/base/file.h"
#include "tests/runtime/formats/gguf_builder.h"
#include "tests/testing/shared_files.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace lockstep::formats {
namespace {

using ::lockstep::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<SafetensorsFile> Parse(const std::string& bytes) {
  return SafetensorsFile::Parse(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), "x.safetensors");
}

std::string Bytes(const std::string& header, const std::string& data) {
  return Raw<uint64_t>(header.size()) + header + data;
}

constexpr char kHeader[] = R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},)"
                           R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}  )";

std::string SampleBytes() { return Bytes(kHeader, Raw<uint16_t>(0x3f80) + Raw<uint16_t>(0xc040) + RawFloats({5, 6})); }

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string bytes = SampleBytes();
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, Parse(bytes));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  std::vector<float> a(2), b(2);
  ASSERT_OK(ToFloat(*file.Find("a"), a.data()));
  ASSERT_OK(ToFloat(*file.Find("b"), b.data()));
  EXPECT_THAT(a, ElementsAre(1.0f, -3.0f));
  EXPECT_THAT(b, ElementsAre(5.0f, 6.0f));
  EXPECT_THAT(file.Find("b")->shape, ElementsAre(2, 1));
  EXPECT_EQ(file.Find("c"), nullptr);
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string bytes = SampleBytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    EXPECT_THAT(Parse(cut), StatusIs(kInvalid, HasSubstr("x.safetensors: not a usable"))) << size;
  }
}

TEST(Safetensors, RefusesBrokenHeaders) {
  struct Case {
    const char* header;
    const char* message;
  };
  const Case cases[] = {
      {"", "not a JSON object"},
      {"[]", "not a JSON object"},
      {" {}", "not a JSON object"},
      {"{", "not valid JSON"},
      {"{} x", "not valid JSON"},
      {R"({"t":1})", "exactly the fields"},
      {R"({"t":{"dtype":"F32","shape":[1]}})", "exactly the fields"},
      {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", "exactly the fields"},
      {R"({"t":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", "unknown dtype 'F31'"},
      {R"({"t":{"dtype":3,"shape":[1],"data_offsets":[0,4]}})", "dtype that is not a string"},
      {R"({"t":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", "no shape"},
      {R"({"t":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", "not a count"},
      {R"({"t":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "not a count"},
      {R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "its shape and dtype need 8"},
      {R"({"t":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})", "larger than the file"},
      {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "data_offsets"},
      {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "data_offsets"},
      {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", "data_offsets"},
      {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "ends at byte 8"},
      {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       "names a tensor twice"},
      {R"({"t":{"dtype":"F16","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "a field twice"},
      {R"({"t":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", "nested too deep"},
      {R"({"t":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})", "2 bytes at the end belong to no tensor"},
      {R"({"t":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}})", "hole before tensor 't'"},
      {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"u":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}})",
       "'u' overlaps"},
      {R"({"__metadata__":{"a":1},"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "__metadata__ 'a'"},
      {R"({"__metadata__":[],"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "__metadata__"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(Parse(Bytes(c.header, "1234")), StatusIs(kInvalid, HasSubstr(c.message))) << c.header;
  }
  const std::string claims = Raw<uint64_t>(100'000'001) + "{}";
  EXPECT_THAT(Parse(claims), StatusIs(kInvalid, HasSubstr("claims 100000001 bytes")));
  const std::string deep = std::string(100000, '[');
  EXPECT_THAT(Parse(Bytes("{\"t\":" + deep, "")), StatusIs(kInvalid, HasSubstr("not a usable")));
}

TEST(Safetensors, AcceptsScalarsAndEmptyTensors) {
  const std::string bytes = Bytes(
      R"({"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"e":{"dtype":"F32","shape":[0,7],"data_offsets":[8,8]}})",
      "12345678");
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, Parse(bytes));
  EXPECT_EQ(file.Find("s")->num_elements, 1);
  EXPECT_EQ(file.Find("e")->num_elements, 0);
  float unused = 0;
  EXPECT_THAT(ToFloat(*file.Find("s"), &unused), StatusIs(kInvalid, HasSubstr("'s' is stored as I64")));
}

TEST(SafetensorsWriter, RoundTrips) {
  const testing::TempDir dir;
  const std::string path = dir.File("w.safetensors");
  const std::vector<SafetensorsSpec> specs = {
      {"z", SafetensorsDType::kF32, {2, 2}}, {"a", SafetensorsDType::kI32, {3}}, {"none", SafetensorsDType::kF32, {0}}};
  const std::vector<float> z = {1, 2, 3, 4};
  const std::vector<int32_t> a = {7, 8, 9};
  ASSERT_OK_AND_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::Create(path, specs, {{"format", "pt"}}));
  ASSERT_OK(writer.Append(z.data(), 12));
  ASSERT_OK(writer.Append(z.data() + 3, 4));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THAT(writer.Finish(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("12 tensor bytes fewer")));
  ASSERT_OK(writer.Append(a.data(), 12));
  EXPECT_THAT(writer.Append(a.data(), 1), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("more")));
  ASSERT_OK(writer.Finish());

  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(path));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  std::vector<float> read(4);
  ASSERT_OK(ToFloat(*file.Find("z"), read.data()));
  EXPECT_EQ(read, z);
  EXPECT_EQ(std::memcmp(file.Find("a")->data, a.data(), 12), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.Find("z")->data) % 8, 0u);
}

TEST(SafetensorsWriter, LargeTensorsPassTheBuffer) {
  const testing::TempDir dir;
  const std::vector<float> values(3'000'000, 1.5f);
  ASSERT_OK_AND_ASSIGN(SafetensorsWriter writer,
                       SafetensorsWriter::Create(dir.File("w"), {{"t", SafetensorsDType::kF32, {3'000'000}}}));
  ASSERT_OK(writer.Append(values.data(), 100));
  ASSERT_OK(writer.Append(values.data(), values.size() * 4 - 200));
  ASSERT_OK(writer.Append(values.data(), 100));
  ASSERT_OK(writer.Finish());
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(dir.File("w")));
  std::vector<float> read(values.size());
  ASSERT_OK(ToFloat(*file.Find("t"), read.data()));
  EXPECT_EQ(read, values);
}

TEST(SafetensorsWriter, LeavesNothingBehindWhenDropped) {
  const testing::TempDir dir;
  {
    ASSERT_OK_AND_ASSIGN(SafetensorsWriter writer,
                         SafetensorsWriter::Create(dir.File("w"), {{"t", SafetensorsDType::kF32, {1}}}));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(SafetensorsWriter, RefusesBadSpecs) {
  const testing::TempDir dir;
  const auto create = [&](const std::vector<SafetensorsSpec>& specs) {
    return SafetensorsWriter::Create(dir.File("w"), specs).status();
  };
  const auto f32 = SafetensorsDType::kF32;
  EXPECT_THAT(create({{"a", f32, {1}}, {"a", f32, {1}}}), StatusIs(kInvalid, HasSubstr("twice")));
  EXPECT_THAT(create({{"", f32, {1}}}), StatusIs(kInvalid, HasSubstr("empty")));
  EXPECT_THAT(create({{"__metadata__", f32, {1}}}), StatusIs(kInvalid, HasSubstr("reserved")));
  EXPECT_THAT(create({{"a", f32, {-1}}}), StatusIs(kInvalid, HasSubstr("negative")));
  EXPECT_THAT(SafetensorsWriter::Create(dir.File("no/such/w"), {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no/such")));
}

TEST(Safetensors, ReadsTheGoldens) {
  LOCKSTEP_NEEDS_SHARED();
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file,
                       SafetensorsFile::Open(testing::SharedPath("goldens/models/qwen3/golden.safetensors")));
  EXPECT_THAT(file.Find("logits.3")->shape, ElementsAre(130, 320));
  EXPECT_EQ(file.Find("input_ids.0")->dtype, SafetensorsDType::kI32);
}

}  // namespace
}  // namespace lockstep::formats
