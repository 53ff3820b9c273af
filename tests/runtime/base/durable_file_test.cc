#include "runtime/base/durable_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using testing::StatusIs;
using testing::TempDir;

std::vector<std::string> FilesIn(const TempDir& dir) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir.path())) names.push_back(entry.path().filename());
  return names;
}

// While it lives no file of this process grows beyond `max_bytes`: a write across the limit is cut short and the next
// one fails, just as on a disk that fills up.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t max_bytes) {
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);  // otherwise the signal ends the process
    const rlimit limit{max_bytes, before_.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0);
    CHECK(signal(SIGXFSZ, SIG_DFL) != SIG_ERR);
  }

 private:
  rlimit before_;
};

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {
    CHECK_GE(fd_, 0);
  }
  ~Descriptor() { close(fd_); }
  int get() const { return fd_; }

 private:
  int fd_;
};

TEST(DurableFile, IsAbsentUntilCommitted) {
  const TempDir dir;
  const std::string path = dir.File("file");
  DurableFile file(path);
  ASSERT_OK(file.Open());
  ASSERT_OK(file.Append("one ", 4));
  ASSERT_OK(file.Append("two", 3));
  EXPECT_FALSE(fs::exists(path));
  ASSERT_OK(file.Commit());
  EXPECT_EQ(ReadFile(path).value(), "one two");
  EXPECT_EQ(FilesIn(dir).size(), 1u);
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(DurableFile, DroppedWithoutCommitLeavesTheOldFile) {
  const TempDir dir;
  const std::string path = dir.Write("file", "old");
  {
    DurableFile file(path);
    ASSERT_OK(file.Open());
    const std::string much(3 << 20, 'x');  // really written, not only gathered
    ASSERT_OK(file.Append(much.data(), much.size()));
  }
  EXPECT_EQ(ReadFile(path).value(), "old");
  EXPECT_EQ(FilesIn(dir).size(), 1u);
}

TEST(DurableFile, KeepsOrderAcrossItsBuffer) {
  const TempDir dir;
  const std::string path = dir.File("file");
  std::string expected;
  DurableFile file(path);
  ASSERT_OK(file.Open());
  for (const size_t num_bytes : {10, 1 << 20, 5, (1 << 20) - 5, 1, 3 << 20, 0, 17}) {
    const std::string piece(num_bytes, static_cast<char>('a' + expected.size() % 26));
    ASSERT_OK(file.Append(piece.data(), piece.size()));
    expected += piece;
  }
  ASSERT_OK(file.Commit());
  EXPECT_TRUE(ReadFile(path).value() == expected);
}

TEST(DurableFile, FullDiskIsAnErrorAndLeavesNothing) {
  const TempDir dir;
  const std::string path = dir.Write("file", "old");
  const std::string much(3 << 20, 'x');
  absl::Status status;
  {
    DurableFile file(path);
    ASSERT_OK(file.Open());
    const FileSizeLimit limit(1 << 20);
    status = file.Append(much.data(), much.size());
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                               AllOf(StartsWith("cannot write " + path), HasSubstr("File too large"))));
  EXPECT_EQ(ReadFile(path).value(), "old");
  EXPECT_EQ(FilesIn(dir).size(), 1u);
}

// The disk fills when the gathered pieces go out: Commit must say so, not rename half a file.
TEST(DurableFile, FullDiskAtCommit) {
  const TempDir dir;
  const std::string path = dir.File("file");
  const std::string some(5000, 'x');
  absl::Status status;
  {
    DurableFile file(path);
    ASSERT_OK(file.Open());
    ASSERT_OK(file.Append(some.data(), some.size()));
    const FileSizeLimit limit(4096);
    status = file.Commit();
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr(path)));
  EXPECT_THAT(FilesIn(dir), IsEmpty());
}

TEST(DurableFile, MissingFolderIsAnError) {
  const TempDir dir;
  DurableFile file(dir.File("none/file"));
  EXPECT_THAT(file.Open(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("none/file")));
}

TEST(DurableFile, AFolderInTheWayIsAnError) {
  const TempDir dir;
  ASSERT_OK(MakeDirs(dir.File("taken")));
  EXPECT_THAT(WriteFileDurably(dir.File("taken"), "x"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("cannot rename to " + dir.File("taken"))));
  EXPECT_EQ(FilesIn(dir).size(), 1u);
}

TEST(DurableFile, RelativePathsWork) {
  const TempDir dir;
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  const absl::Status status = WriteFileDurably("file", "x");
  fs::current_path(before);
  EXPECT_OK(status);
  EXPECT_EQ(ReadFile(dir.File("file")).value(), "x");
}

TEST(WriteFully, FullDiskIsResourceExhausted) {
  const Descriptor full("/dev/full", O_WRONLY);
  EXPECT_THAT(WriteFully(full.get(), "x", 1, "the log"),
              StatusIs(absl::StatusCode::kResourceExhausted, "cannot write the log: No space left on device"));
  EXPECT_OK(WriteFully(full.get(), "", 0, "the log"));
}

TEST(AppendRecord, GrowsByWholeRecords) {
  const TempDir dir;
  const std::string path = dir.Write("log", "one\n");
  {
    const Descriptor log(path, O_WRONLY | O_APPEND);
    ASSERT_OK(AppendRecord(log.get(), "two\n", 4, path));
    const std::string big(5000, 'x');
    absl::Status status;
    {
      const FileSizeLimit limit(4096);
      status = AppendRecord(log.get(), big.data(), big.size(), path);
    }
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr(path)));
    EXPECT_EQ(ReadFile(path).value(), "one\ntwo\n");
    ASSERT_OK(AppendRecord(log.get(), "three\n", 6, path));
  }
  EXPECT_EQ(ReadFile(path).value(), "one\ntwo\nthree\n");
}

TEST(AppendRecord, ErrorsOfThingsThatCannotBeCut) {
  const Descriptor full("/dev/full", O_WRONLY);
  EXPECT_THAT(AppendRecord(full.get(), "x", 1, "/dev/full"),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("/dev/full")));
}

}  // namespace
}  // namespace lockstep
