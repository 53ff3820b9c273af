// Files that only some checkouts have beside them: golden cases and real tokenizers in ../shared (or $LOCKSTEP_SHARED).
#ifndef LOCKSTEP_TESTS_TESTING_SHARED_FILES_H_
#define LOCKSTEP_TESTS_TESTING_SHARED_FILES_H_

#include <gtest/gtest.h>

#include <string>

namespace lockstep::testing {

// Path of the shared folder, or "" where there is none.
std::string SharedDir();

// Path of a file or folder below it, e.g. SharedPath("goldens/algos/trees.json").
std::string SharedPath(const std::string& below);

// Path of the quickstart's model (SmolLM2-135M-Instruct as Q4_1 GGUF, fetched by scripts/fetch-model), or "" if absent.
std::string SmolModelPath();

}  // namespace lockstep::testing

// First line of a test that needs the shared folder.
#define LOCKSTEP_NEEDS_SHARED()                                                                   \
  do {                                                                                            \
    if (::lockstep::testing::SharedDir().empty()) GTEST_SKIP() << "SKIPPED: ../shared is absent"; \
  } while (false)

#endif  // LOCKSTEP_TESTS_TESTING_SHARED_FILES_H_
