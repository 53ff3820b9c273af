#include "runtime/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::StatusIs;
using testing::TempDir;

int ModeOf(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? static_cast<int>(info.st_mode & 0777) : -1;
}

TEST(ReadFile, GivesEveryByte) {
  const TempDir dir;
  std::string bytes(200000, '\0');  // more than one read
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 >> 3);
  EXPECT_EQ(ReadFile(dir.Write("big", bytes)).value(), bytes);
  EXPECT_EQ(ReadFile(dir.Write("empty", "")).value(), "");
}

TEST(ReadFile, ErrorsNameThePath) {
  const TempDir dir;
  EXPECT_THAT(ReadFile(dir.File("none")), StatusIs(absl::StatusCode::kNotFound, HasSubstr(dir.File("none"))));
  EXPECT_THAT(ReadFile(dir.path()), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("Is a directory")));
}

TEST(ReadFile, WithoutPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "SKIPPED: root may read everything";
  const TempDir dir;
  const std::string path = dir.Write("secret", "x");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  EXPECT_THAT(ReadFile(path), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(path)));
}

TEST(MakeDirs, CreatesParentsPrivately) {
  const TempDir dir;
  const std::string path = dir.File("a/b/c");
  ASSERT_OK(MakeDirs(path));
  EXPECT_EQ(ModeOf(path), 0700);
  EXPECT_EQ(ModeOf(dir.File("a")), 0700);
  EXPECT_OK(MakeDirs(path));
  EXPECT_OK(MakeDirs(path + "/"));
}

TEST(MakeDirs, AFileInTheWayIsAnError) {
  const TempDir dir;
  const std::string file = dir.Write("file", "x");
  EXPECT_THAT(MakeDirs(file), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is not a folder")));
  EXPECT_THAT(MakeDirs(file + "/below"), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("file/below")));
  EXPECT_EQ(ReadFile(file).value(), "x");
}

TEST(MappedFile, ShowsTheBytes) {
  const TempDir dir;
  const std::string path = dir.Write("file", "some bytes");
  ASSERT_OK_AND_ASSIGN(const MappedFile file, MappedFile::Open(path));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.data()), file.size()), "some bytes");
  EXPECT_EQ(file.path(), path);
}

TEST(MappedFile, OutlivesTheName) {
  const TempDir dir;
  const std::string path = dir.Write("file", "some bytes");
  ASSERT_OK_AND_ASSIGN(const MappedFile file, MappedFile::Open(path));
  ASSERT_OK(WriteFileDurably(path, "replaced"));  // a rename: the mapping keeps the old file
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.data()), file.size()), "some bytes");
}

TEST(MappedFile, EmptyFileHasNoBytes) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const MappedFile file, MappedFile::Open(dir.Write("empty", "")));
  EXPECT_EQ(file.size(), 0u);
  EXPECT_EQ(file.data(), nullptr);
}

TEST(MappedFile, Moves) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(MappedFile first, MappedFile::Open(dir.Write("first", "1")));
  ASSERT_OK_AND_ASSIGN(MappedFile second, MappedFile::Open(dir.Write("second", "22")));
  const uint8_t* data = second.data();
  first = std::move(second);
  EXPECT_EQ(first.data(), data);
  EXPECT_EQ(first.size(), 2u);
  const MappedFile third(std::move(first));
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.data()[1], '2');
}

TEST(MappedFile, ErrorsNameThePath) {
  const TempDir dir;
  EXPECT_THAT(MappedFile::Open(dir.File("none")), StatusIs(absl::StatusCode::kNotFound, HasSubstr(dir.File("none"))));
  EXPECT_THAT(MappedFile::Open(dir.path()),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(dir.path()), HasSubstr("plain file"))));
}

}  // namespace
}  // namespace lockstep
