#include "runtime/formats/gguf.h"

#include <cmath>

#include "runtime/formats/half.h"
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

// The bytes must outlive the file.
absl::StatusOr<GgufFile> Parse(const std::string& bytes) {
  return GgufFile::Parse(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), "x.gguf");
}

GgufBuilder Sample() {
  GgufBuilder builder;
  builder.String("general.architecture", "llama").U32("size", 7).F32("half", 0.5f);
  builder.Array("words", GgufBuilder::kString, 2, RawString("a") + RawString("bc"));
  builder.Floats("m", {2, 3}, {1, 2, 3, 4, 5, 6}).Floats("v", {1}, {9});
  return builder;
}

TEST(Gguf, ReadsScalarsOfEveryType) {
  GgufBuilder b;
  b.Entry("u8", GgufBuilder::kU8, Raw<uint8_t>(200)).Entry("i8", GgufBuilder::kI8, Raw<int8_t>(-3));
  b.Entry("u16", GgufBuilder::kU16, Raw<uint16_t>(60000)).Entry("i16", GgufBuilder::kI16, Raw<int16_t>(-300));
  b.Entry("u32", GgufBuilder::kU32, Raw<uint32_t>(4000000000u)).Entry("i32", GgufBuilder::kI32, Raw<int32_t>(-70000));
  b.Entry("u64", GgufBuilder::kU64, Raw<uint64_t>(1ull << 40)).Entry("i64", GgufBuilder::kI64, Raw<int64_t>(-5));
  b.Entry("big", GgufBuilder::kU64, Raw<uint64_t>(1ull << 63));
  b.Entry("f32", GgufBuilder::kF32, Raw(0.25f)).Entry("f64", GgufBuilder::kF64, Raw(1e300));
  b.Entry("yes", GgufBuilder::kBool, Raw<uint8_t>(1)).Entry("odd", GgufBuilder::kBool, Raw<uint8_t>(2));
  const std::string bytes = b.String("s", "text").Build();
  ASSERT_OK_AND_ASSIGN(const GgufFile file, Parse(bytes));
  const std::pair<const char*, int64_t> expected[] = {{"u8", 200},        {"i8", -3},          {"u16", 60000},
                                                      {"i16", -300},      {"u32", 4000000000}, {"i32", -70000},
                                                      {"u64", 1ll << 40}, {"i64", -5}};
  for (const auto& [key, value] : expected) {
    ASSERT_OK_AND_ASSIGN(const int64_t read, file.GetInt(key));
    EXPECT_EQ(read, value) << key;
  }
  EXPECT_THAT(file.GetInt("big"), StatusIs(kInvalid, HasSubstr("big is uint64")));
  EXPECT_EQ(*file.GetFloat("f32"), 0.25);
  EXPECT_EQ(*file.GetFloat("f64"), 1e300);
  EXPECT_EQ(*file.GetBool("yes"), true);
  EXPECT_THAT(file.GetBool("odd"), StatusIs(kInvalid, HasSubstr("odd")));
  EXPECT_EQ(*file.GetString("s"), "text");
}

TEST(Gguf, ReadsArrays) {
  GgufBuilder b;
  b.Array("ints", GgufBuilder::kI32, 3, Raw<int32_t>(1) + Raw<int32_t>(-2) + Raw<int32_t>(3));
  b.Array("floats", GgufBuilder::kF32, 2, Raw(0.5f) + Raw(2.0f));
  b.Array("none", GgufBuilder::kString, 0, "");
  b.Array("nested", GgufBuilder::kArray, 1, Raw<uint32_t>(GgufBuilder::kU8) + Raw<uint64_t>(2) + "ab");
  b.Array("words", GgufBuilder::kString, 3, RawString("x") + RawString("") + RawString("yz"));
  const std::string bytes = b.Build();
  ASSERT_OK_AND_ASSIGN(const GgufFile file, Parse(bytes));
  EXPECT_THAT(*file.GetIntArray("ints"), ElementsAre(1, -2, 3));
  EXPECT_THAT(*file.GetFloatArray("floats"), ElementsAre(0.5, 2.0));
  EXPECT_THAT(*file.GetStringArray("words"), ElementsAre("x", "", "yz"));
  EXPECT_THAT(*file.GetStringArray("none"), ElementsAre());
  EXPECT_EQ(*file.GetArraySize("nested"), 1);
  EXPECT_THAT(file.GetIntArray("nested"), StatusIs(kInvalid, HasSubstr("nested is an array of array")));
}

TEST(Gguf, GettersNameKeyFileAndTypes) {
  const std::string bytes = Sample().Build();
  ASSERT_OK_AND_ASSIGN(const GgufFile file, Parse(bytes));
  EXPECT_THAT(file.GetInt("absent"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("x.gguf: metadata absent")));
  EXPECT_THAT(file.GetInt("half"), StatusIs(kInvalid, HasSubstr("half is float32, not an integer")));
  EXPECT_THAT(file.GetString("words"), StatusIs(kInvalid, HasSubstr("words is an array of string, not a single")));
  EXPECT_THAT(file.GetStringArray("size"), StatusIs(kInvalid, HasSubstr("size is uint32, not an array")));
}

TEST(Gguf, ReadsTensorsOfBothVersions) {
  for (const uint32_t version : {2u, 3u}) {
    const std::string bytes = Sample().Build(version);
    ASSERT_OK_AND_ASSIGN(const GgufFile file, Parse(bytes));
    EXPECT_EQ(file.version(), version);
    const GgufTensor* tensor = file.Find("m");
    ASSERT_NE(tensor, nullptr);
    EXPECT_THAT(tensor->shape, ElementsAre(2, 3));
    std::vector<float> values(6);
    ASSERT_OK(ToFloat(*tensor, values.data()));
    EXPECT_THAT(values, ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_EQ(file.Find("w"), nullptr);
  }
}

TEST(Gguf, DequantisesByTheFormulas) {
  const uint16_t half_scale = 0x3800;  // 0.5
  const uint16_t least = 0xbc00;       // -1
  std::string nibbles, bytes_of_q8;
  for (int i = 0; i < 16; ++i) nibbles += static_cast<char>(i | ((15 - i) << 4));
  for (int i = 0; i < 32; ++i) bytes_of_q8 += static_cast<char>(i - 16);
  GgufBuilder b;
  b.Tensor("q8", {32}, 8, Raw(half_scale) + bytes_of_q8);
  b.Tensor("q40", {32}, 2, Raw(half_scale) + nibbles);
  b.Tensor("q41", {32}, 3, Raw(half_scale) + Raw(least) + nibbles);
  b.Tensor("bf", {2}, 30, Raw<uint16_t>(0x3fc0) + Raw<uint16_t>(0xc000));
  b.Tensor("f16", {2}, 1, Raw<uint16_t>(0x3c00) + Raw<uint16_t>(0x0001));
  const std::string bytes = b.Build();
  ASSERT_OK_AND_ASSIGN(const GgufFile file, Parse(bytes));
  std::vector<float> q8(32), q40(32), q41(32), bf(2), f16(2);
  ASSERT_OK(ToFloat(*file.Find("q8"), q8.data()));
  ASSERT_OK(ToFloat(*file.Find("q40"), q40.data()));
  ASSERT_OK(ToFloat(*file.Find("q41"), q41.data()));
  ASSERT_OK(ToFloat(*file.Find("bf"), bf.data()));
  ASSERT_OK(ToFloat(*file.Find("f16"), f16.data()));
  for (int i = 0; i < 32; ++i) {
    const int nibble = i < 16 ? i : 31 - i;
    EXPECT_EQ(q8[i], 0.5f * static_cast<float>(i - 16));
    EXPECT_EQ(q40[i], 0.5f * static_cast<float>(nibble - 8));
    EXPECT_EQ(q41[i], 0.5f * static_cast<float>(nibble) - 1.0f);
  }
  EXPECT_THAT(bf, ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(f16, ElementsAre(1.0f, std::ldexp(1.0f, -24)));
}

TEST(Half, EveryFiniteValueFollowsTheDefinition) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint32_t exponent = (bits >> 10) & 31;
    const uint32_t mantissa = bits & 1023;
    const float value = HalfToFloat(static_cast<uint16_t>(bits));
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), mantissa != 0);
      EXPECT_EQ(std::isinf(value), mantissa == 0);
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
      EXPECT_EQ(std::abs(value), magnitude);
    }
    EXPECT_EQ(std::signbit(value), bits >= 0x8000);
  }
}

TEST(Gguf, RefusesEveryTruncation) {
  const std::string bytes = Sample().Build();
  const size_t end = bytes.size() - 28;  // the last tensor is one float and padding
  for (size_t size = 0; size < end; ++size) {
    const std::string cut = bytes.substr(0, size);
    EXPECT_THAT(Parse(cut), StatusIs(kInvalid, HasSubstr("x.gguf: not a usable GGUF file"))) << size;
  }
  const std::string whole = bytes.substr(0, end);
  EXPECT_OK(Parse(whole));
}

TEST(Gguf, RefusesBrokenHeaders) {
  EXPECT_THAT(Parse("GGUX" + Sample().Build().substr(4)), StatusIs(kInvalid, HasSubstr("begin with")));
  EXPECT_THAT(Parse(Sample().Build(1)), StatusIs(kInvalid, HasSubstr("version 1")));
  EXPECT_THAT(Parse(Sample().Build(0x03000000)), StatusIs(kInvalid, HasSubstr("big-endian")));
  std::string many_tensors = Sample().Build();
  many_tensors.replace(8, 8, Raw<uint64_t>(1ull << 62));
  EXPECT_THAT(Parse(many_tensors), StatusIs(kInvalid, HasSubstr("tensors")));
  std::string many_entries = Sample().Build();
  many_entries.replace(16, 8, Raw<uint64_t>(1ull << 62));
  EXPECT_THAT(Parse(many_entries), StatusIs(kInvalid, HasSubstr("metadata entries")));
}

TEST(Gguf, RefusesBrokenMetadata) {
  const auto with = [](uint32_t type, const std::string& value) {
    return GgufBuilder().Entry("k", type, value).Build();
  };
  EXPECT_THAT(Parse(with(13, "12345678")), StatusIs(kInvalid, HasSubstr("unknown type 13")));
  EXPECT_THAT(Parse(with(GgufBuilder::kString, Raw<uint64_t>(~0ull))), StatusIs(kInvalid, HasSubstr("ends inside")));
  for (const uint64_t count : {1ull << 20, 1ull << 61, ~0ull}) {
    for (const uint32_t type : {GgufBuilder::kU64, GgufBuilder::kString, GgufBuilder::kArray}) {
      EXPECT_THAT(Parse(with(GgufBuilder::kArray, Raw(type) + Raw<uint64_t>(count) + "12345678")),
                  StatusIs(kInvalid, HasSubstr("'k'")));
    }
  }
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += Raw<uint32_t>(GgufBuilder::kArray) + Raw<uint64_t>(1);
  EXPECT_THAT(Parse(with(GgufBuilder::kArray, deep + Raw<uint32_t>(0) + Raw<uint64_t>(0))),
              StatusIs(kInvalid, HasSubstr("too deep")));
  EXPECT_THAT(Parse(GgufBuilder().U32("k", 1).U32("k", 2).Build()), StatusIs(kInvalid, HasSubstr("comes twice")));
  for (const uint32_t alignment : {0u, 3u, 48u, 1u << 30}) {
    EXPECT_THAT(Parse(GgufBuilder().U32("general.alignment", alignment).Build()),
                StatusIs(kInvalid, HasSubstr("power of two")));
  }
}

TEST(Gguf, RefusesBrokenTensors) {
  const std::string floats = RawFloats({1, 2, 3, 4});
  const auto with = [&](const std::vector<int64_t>& shape, uint32_t type) {
    return GgufBuilder().Tensor("t", shape, type, floats).Build();
  };
  EXPECT_OK(Parse(with({2, 2}, 0)));
  EXPECT_THAT(Parse(with({}, 0)), StatusIs(kInvalid, HasSubstr("0 dimensions")));
  EXPECT_THAT(Parse(with({1, 1, 1, 1, 1}, 0)), StatusIs(kInvalid, HasSubstr("5 dimensions")));
  EXPECT_THAT(Parse(with({4, 0}, 0)), StatusIs(kInvalid, HasSubstr("dimension of 0")));
  EXPECT_THAT(Parse(with({-1}, 0)), StatusIs(kInvalid, HasSubstr("dimension of")));
  EXPECT_THAT(Parse(with({int64_t{1} << 32, int64_t{1} << 32}, 0)), StatusIs(kInvalid, HasSubstr("dimension of")));
  EXPECT_THAT(Parse(with({4, 4}, 0)), StatusIs(kInvalid, HasSubstr("ends inside tensor 't'")));
  EXPECT_THAT(Parse(with({2, 2}, 12)),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("'t' is stored as type 12 (Q4_K)")));
  EXPECT_THAT(Parse(with({16}, 2)), StatusIs(kInvalid, HasSubstr("whole blocks of 32")));
  EXPECT_THAT(Parse(GgufBuilder().Floats("t", {1}, {1}).Floats("t", {1}, {1}).Build()),
              StatusIs(kInvalid, HasSubstr("'t' comes twice")));
}

TEST(Gguf, RefusesMisplacedTensors) {
  // One tensor of 16 floats; its offset is the last field before the padding and data.
  std::string bytes = GgufBuilder().Floats("a", {16}, std::vector<float>(16, 1)).Build();
  const size_t at = bytes.find(RawString("a")) + 9 + 4 + 8 + 4;
  bytes.replace(at, 8, Raw<uint64_t>(4));
  EXPECT_THAT(Parse(bytes), StatusIs(kInvalid, HasSubstr("not aligned")));
  bytes.replace(at, 8, Raw<uint64_t>(32));
  EXPECT_THAT(Parse(bytes), StatusIs(kInvalid, HasSubstr("ends inside tensor 'a'")));
  bytes.replace(at, 8, Raw<uint64_t>(~0ull - 31));
  EXPECT_THAT(Parse(bytes), StatusIs(kInvalid, HasSubstr("ends inside tensor 'a'")));
  std::string two =
      GgufBuilder().Floats("a", {16}, std::vector<float>(16)).Floats("b", {16}, std::vector<float>(16)).Build();
  const size_t second = two.find(RawString("b")) + 9 + 4 + 8 + 4;
  two.replace(second, 8, Raw<uint64_t>(32));
  EXPECT_THAT(Parse(two), StatusIs(kInvalid, HasSubstr("'a' and 'b' overlap")));
}

TEST(Gguf, OpenReportsTheFile) {
  const testing::TempDir dir;
  EXPECT_THAT(GgufFile::Open(dir.File("none.gguf")), StatusIs(absl::StatusCode::kNotFound, HasSubstr("none.gguf")));
  EXPECT_THAT(GgufFile::Open(dir.path()), StatusIs(kInvalid, HasSubstr("not a plain file")));
  EXPECT_THAT(GgufFile::Open(dir.Write("empty.gguf", "")), StatusIs(kInvalid, HasSubstr("empty.gguf")));
  ASSERT_OK_AND_ASSIGN(GgufFile file, GgufFile::Open(dir.Write("ok.gguf", Sample().Build())));
  const GgufFile moved = std::move(file);
  float value = 0;
  ASSERT_OK(ToFloat(*moved.Find("v"), &value));
  EXPECT_EQ(value, 9);
}

TEST(Gguf, ReadsSmolLM2) {
  const std::string path = testing::SmolModelPath();
  if (path.empty()) GTEST_SKIP() << "SKIPPED: the model is absent (scripts/fetch-model)";
  ASSERT_OK_AND_ASSIGN(const GgufFile file, GgufFile::Open(path));
  EXPECT_EQ(*file.GetString("general.architecture"), "llama");
  EXPECT_EQ(file.tensors().size(), 272u);
  ASSERT_OK_AND_ASSIGN(const auto words, file.GetStringArray("tokenizer.ggml.tokens"));
  ASSERT_EQ(words.size(), 49152u);
  EXPECT_EQ(words[1], "<|im_start|>");
  EXPECT_STREQ(GgufTensorTypeName(file.Find("blk.0.ffn_down.weight")->type), "Q4_1");
  EXPECT_THAT(file.Find("token_embd.weight")->shape, ElementsAre(49152, 576));
}

}  // namespace
}  // namespace lockstep::formats
