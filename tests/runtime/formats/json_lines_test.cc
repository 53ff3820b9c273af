#include "runtime/formats/json_lines.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "runtime/base/file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace lockstep::formats {
namespace {

using ::lockstep::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(JsonLinesReader, ReadsLinesWithNumbersAndOffsets) {
  const testing::TempDir dir;
  const std::string path = dir.Write("d.jsonl", "{\"a\":1}\n{\"a\":\"\xc3\xa4\"}\r\n{\"a\":3}");
  ASSERT_OK_AND_ASSIGN(JsonLinesReader reader, JsonLinesReader::Open(path));
  JsonLine line;
  ASSERT_TRUE(*reader.Next(&line));
  EXPECT_EQ((*line.value)["a"], 1);
  ASSERT_TRUE(*reader.Next(&line));
  EXPECT_EQ((*line.value)["a"], "\xc3\xa4");
  EXPECT_EQ(line.number, 2);
  EXPECT_EQ(line.offset, 8);
  const int64_t second = line.offset;
  ASSERT_TRUE(*reader.Next(&line));
  EXPECT_EQ((*line.value)["a"], 3);
  EXPECT_FALSE(*reader.Next(&line));
  reader.Seek(second, 2);
  ASSERT_TRUE(*reader.Next(&line));
  EXPECT_EQ(line.number, 2);
  EXPECT_EQ((*line.value)["a"], "\xc3\xa4");
}

TEST(JsonLinesReader, NamesFileAndLineOfEveryFault) {
  const testing::TempDir dir;
  struct Case {
    const char* text;
    const char* message;
  };
  const Case cases[] = {
      {"", "the line is empty"},
      {"  ", "the line is empty"},
      {"{\"a\":", "not valid JSON"},
      {"{\"a\":1} {}", "not valid JSON"},
      {"[1]", "not a JSON object"},
      {"{\"a\":\"\xff\"}", "not valid UTF-8"},
      {"{\"a\":\"\xed\xa0\x80\"}", "not valid UTF-8"},
      {"{\"a\":\"\xc0\x80\"}", "not valid UTF-8"},
      {"{\"a\":\"\xf4\x90\x80\x80\"}", "not valid UTF-8"},
      {"\xef\xbb\xbf{}", "byte order mark"},
  };
  for (const Case& c : cases) {
    const std::string path = dir.Write("d.jsonl", std::string("{}\n") + c.text + "\n{\"after\":1}\n");
    ASSERT_OK_AND_ASSIGN(JsonLinesReader reader, JsonLinesReader::Open(path));
    JsonLine line;
    ASSERT_TRUE(*reader.Next(&line));
    EXPECT_THAT(reader.Next(&line), StatusIs(kInvalid, AllOf(HasSubstr("d.jsonl:2: "), HasSubstr(c.message))));
    ASSERT_TRUE(*reader.Next(&line)) << "a caller may go on";
    EXPECT_EQ(line.number, 3);
  }
}

TEST(JsonLinesReader, AnEmptyFileHasNoLines) {
  const testing::TempDir dir;
  ASSERT_OK_AND_ASSIGN(JsonLinesReader reader, JsonLinesReader::Open(dir.Write("e", "")));
  JsonLine line;
  EXPECT_FALSE(*reader.Next(&line));
  EXPECT_THAT(JsonLinesReader::Open(dir.File("none")), StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

TEST(JsonLinesWriter, AppendsWithMode0600) {
  const testing::TempDir dir;
  const std::string path = dir.File("m.jsonl");
  for (int run = 0; run < 2; ++run) {
    ASSERT_OK_AND_ASSIGN(JsonLinesWriter writer, JsonLinesWriter::Open(path));
    ASSERT_OK(writer.Write({{"run", run}, {"text", "two\nlines"}}));
    ASSERT_OK(writer.Sync());
  }
  EXPECT_EQ(*ReadFile(path), "{\"run\":0,\"text\":\"two\\nlines\"}\n{\"run\":1,\"text\":\"two\\nlines\"}\n");
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(JsonLinesWriter, CutsAnIncompleteLastLine) {
  const testing::TempDir dir;
  const std::string long_line = "{\"a\":\"" + std::string(10000, 'x') + "\"}\n";
  const std::pair<std::string, std::string> cases[] = {
      {"{\"a\":1}\n{\"a\":", "{\"a\":1}\n"},
      {long_line + std::string(9000, 'y'), long_line},
      {"{\"a\"", ""},
      {long_line, long_line},
  };
  for (const auto& [before, after] : cases) {
    const std::string path = dir.Write("m.jsonl", before);
    ASSERT_OK_AND_ASSIGN(JsonLinesWriter writer, JsonLinesWriter::Open(path));
    ASSERT_OK(writer.Write({{"b", 2}}));
    EXPECT_EQ(*ReadFile(path), after + "{\"b\":2}\n");
  }
}

// A file size limit stands for a full disk: the write comes back short, then fails.
TEST(JsonLinesWriter, TakesBackALineThatDoesNotFit) {
  const testing::TempDir dir;
  ASSERT_OK_AND_ASSIGN(JsonLinesWriter writer, JsonLinesWriter::Open(dir.File("m.jsonl")));
  ASSERT_OK(writer.Write({{"a", 1}}));
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = writer.Write({{"text", std::string(5000, 'x')}});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("m.jsonl"));
  EXPECT_EQ(*ReadFile(dir.File("m.jsonl")), "{\"a\":1}\n");
  ASSERT_OK(writer.Write({{"b", 2}}));
  EXPECT_EQ(*ReadFile(dir.File("m.jsonl")), "{\"a\":1}\n{\"b\":2}\n");
}

}  // namespace
}  // namespace lockstep::formats
