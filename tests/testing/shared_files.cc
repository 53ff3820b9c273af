#include "tests/testing/shared_files.h"

#include <cstdlib>
#include <filesystem>

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

// Tests run in the build tree; the source root is known at compile time.
fs::path SourceRoot() { return LOCKSTEP_SOURCE_ROOT; }

}  // namespace

std::string SharedDir() {
  if (const char* from_env = std::getenv("LOCKSTEP_SHARED"); from_env != nullptr) {
    return fs::is_directory(from_env) ? from_env : "";
  }
  const fs::path beside = SourceRoot().parent_path() / "shared";
  return fs::is_directory(beside / "goldens") ? beside.string() : "";
}

std::string SharedPath(const std::string& below) { return SharedDir() + "/" + below; }

std::string SmolModelPath() {
  const fs::path path = SourceRoot() / "models" / "SmolLM2-135M-Instruct-Q4_1.gguf";
  return fs::exists(path) ? path.string() : "";
}

}  // namespace lockstep::testing
