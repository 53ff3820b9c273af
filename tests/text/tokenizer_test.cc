#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "tests/testing/shared_files.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "text/bpe.h"

namespace lockstep::text {
namespace {

using ::testing::HasSubstr;

std::vector<Json> ReadRows(const std::string& path) {
  std::ifstream file(path);
  std::vector<Json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(Json::parse(line));
  return rows;
}

std::string GoldenTokenizer(const std::string& name) {
  return name.starts_with("synth_") ? testing::SharedPath("goldens/text/synthetic_tokenizers/" + name + ".json")
                                    : testing::SharedPath("tokenizers/" + name);
}

class GoldenTokenizerTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTokenizerTest, EncodesAndDecodesEveryRow) {
  LOCKSTEP_NEEDS_SHARED();
  const std::string name = GetParam();
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Load(GoldenTokenizer(name)));
  const std::vector<Json> encode = ReadRows(testing::SharedPath("goldens/text/encode_" + name + ".jsonl"));
  for (const Json& row : encode) {
    ASSERT_EQ(tokenizer->Encode(row["text"].get<std::string>(), row["add_special_tokens"].get<bool>()),
              row["ids"].get<std::vector<int32_t>>())
        << row["text"].dump();
  }
  const std::vector<Json> decode = ReadRows(testing::SharedPath("goldens/text/decode_" + name + ".jsonl"));
  for (const Json& row : decode) {
    ASSERT_EQ(tokenizer->Decode(row["ids"].get<std::vector<int32_t>>(), row["skip_special_tokens"].get<bool>()),
              row["text"].get<std::string>())
        << row["ids"].dump();
  }
  EXPECT_GT(encode.size(), 50u);
  EXPECT_GT(decode.size(), 50u);
}

INSTANTIATE_TEST_SUITE_P(ByteLevel, GoldenTokenizerTest, ::testing::Values("qwen3", "gptoss", "deepseek_v3"));

// A vocabulary of bytes and a few merges, as a tokenizer.json.
std::string SmallTokenizerJson(const std::string& merges = R"([["h","e"],["l","l"],["he","ll"],["hell","o"]])") {
  Json vocab = Json::object();
  for (int b = 0; b < 256; ++b) vocab[ByteToCharacter(static_cast<uint8_t>(b))] = b;
  int id = 256;
  for (const char* token : {"he", "ll", "hell", "hello"}) vocab[token] = id++;
  Json json = {
      {"added_tokens", Json::array({{{"id", 260}, {"content", "<end>"}, {"special", true}, {"normalized", false}}})},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::parse(merges)}}}};
  return json.dump();
}

TEST(Tokenizer, MergesInOrderAndCutsAddedTokens) {
  const testing::TempDir dir;
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Load(dir.Write("tokenizer.json", SmallTokenizerJson())));
  EXPECT_EQ(tokenizer->Encode("hello<end>hell", false), (std::vector<int32_t>{259, 260, 258}));
  EXPECT_EQ(tokenizer->Decode({259, 260, 258}, true), "hellohell");
  EXPECT_EQ(tokenizer->Decode({259, 260, 258}, false), "hello<end>hell");
  EXPECT_TRUE(tokenizer->is_special(260));
  EXPECT_EQ(tokenizer->vocab_size(), 261);
}

TEST(Tokenizer, StreamingHoldsIncompleteCharactersBack) {
  const testing::TempDir dir;
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Load(dir.Write("tokenizer.json", SmallTokenizerJson())));
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.Add(0xE2), "");
  EXPECT_EQ(decoder.Add(0x82), "");
  EXPECT_EQ(decoder.Add(0xAC), "\u20ac");
  EXPECT_EQ(decoder.Add(0xE2), "");
  EXPECT_EQ(decoder.Finish(), "\ufffd");
}

TEST(Tokenizer, ErrorsNameTheEntry) {
  const testing::TempDir dir;
  EXPECT_THAT(Tokenizer::Load(dir.Write("a.json", SmallTokenizerJson(R"([["h","q"]])"))),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("merge 0 ('h' 'q')")));
  EXPECT_THAT(Tokenizer::Load(dir.Write("b.json", "{\"model\": 3}")),
              testing::StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("model of type")));
  EXPECT_THAT(Tokenizer::Load(dir.Write("c.json", "[1")),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("JSON")));
  EXPECT_THAT(Tokenizer::Load(dir.File("none.json")),
              testing::StatusIs(absl::StatusCode::kNotFound, HasSubstr("none.json")));
  Json twice = Json::parse(SmallTokenizerJson());
  twice["model"]["vocab"]["hello"] = 3;
  EXPECT_THAT(Tokenizer::Load(dir.Write("d.json", twice.dump())),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("share the id 3")));
  Json far = Json::parse(SmallTokenizerJson());
  far["added_tokens"][0]["id"] = 2000000000;
  EXPECT_THAT(Tokenizer::Load(dir.Write("e.json", far.dump())),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("<end>")));
}

TEST(Tokenizer, LongPiecesTakeNoQuadraticTime) {
  const testing::TempDir dir;
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Load(dir.Write("tokenizer.json", SmallTokenizerJson())));
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "hello";
  const std::vector<int32_t> ids = tokenizer->Encode(text, false);
  EXPECT_EQ(ids, std::vector<int32_t>(200000, 259));
}

TEST(Tokenizer, WrittenFilesReadBackTheSame) {
  if (testing::SmolModelPath().empty())
    GTEST_SKIP() << "SKIPPED: the quickstart's model is absent (scripts/fetch-model)";
  const testing::TempDir dir;
  ASSERT_OK_AND_ASSIGN(const auto original, Tokenizer::Load(testing::SmolModelPath()));
  ASSERT_OK(original->WriteFiles(dir.path()));
  ASSERT_OK_AND_ASSIGN(const auto copy, Tokenizer::Load(dir.path()));
  const std::string text =
      "<|im_start|>user\nWhat is 12 + 345?  \n\tNa\u00efve caf\u00e9 \u4f60\u597d \U0001F600!<|im_end|>\n";
  EXPECT_EQ(copy->Encode(text, true), original->Encode(text, true));
  EXPECT_EQ(original->Decode(original->Encode(text, false), false), text);
  EXPECT_EQ(copy->chat_template_source(), original->chat_template_source());
  EXPECT_EQ(copy->eos_id(), original->eos_id());
  EXPECT_EQ(copy->content_hash(), original->content_hash());
}

}  // namespace
}  // namespace lockstep::text
