#include "runtime/base/check.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace lockstep {

void CheckFailed(const char* file, int line, const char* condition, const std::string& details) {
  std::fprintf(stderr, "%s:%d: this is a fault in lockstep, please report it: CHECK failed: %s %s\n", file, line,
               condition, details.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace lockstep
