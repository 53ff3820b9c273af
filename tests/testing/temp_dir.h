// A folder that lives as long as the object: every file a test writes goes there.
#ifndef LOCKSTEP_TESTS_TESTING_TEMP_DIR_H_
#define LOCKSTEP_TESTS_TESTING_TEMP_DIR_H_

#include <string>

namespace lockstep::testing {

class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // Writes `contents` and returns the path.
  std::string Write(const std::string& name, const std::string& contents) const;

 private:
  std::string path_;
};

}  // namespace lockstep::testing

#endif  // LOCKSTEP_TESTS_TESTING_TEMP_DIR_H_
