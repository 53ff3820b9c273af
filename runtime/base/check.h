// CHECK: programmer errors end the process with file, line and what was wrong. For errors of the outside world use
// absl::Status. Checks stay on in release builds.
#ifndef LOCKSTEP_RUNTIME_BASE_CHECK_H_
#define LOCKSTEP_RUNTIME_BASE_CHECK_H_

#include <sstream>
#include <string>

namespace lockstep {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const std::string& details);

namespace internal {
template <typename A, typename B>
[[noreturn]] void CheckOpFailed(const char* file, int line, const char* condition, const A& a, const B& b) {
  std::ostringstream details;
  details << "(" << a << " vs " << b << ")";
  CheckFailed(file, line, condition, details.str());
}
}  // namespace internal
}  // namespace lockstep

#define CHECK(condition)                                           \
  do {                                                             \
    if (!(condition)) [[unlikely]]                                 \
      ::lockstep::CheckFailed(__FILE__, __LINE__, #condition, ""); \
  } while (false)

#define LOCKSTEP_CHECK_OP_(op, a, b)                                                                      \
  do {                                                                                                    \
    const auto& lockstep_a = (a);                                                                         \
    const auto& lockstep_b = (b);                                                                         \
    if (!(lockstep_a op lockstep_b)) [[unlikely]]                                                         \
      ::lockstep::internal::CheckOpFailed(__FILE__, __LINE__, #a " " #op " " #b, lockstep_a, lockstep_b); \
  } while (false)

#define CHECK_EQ(a, b) LOCKSTEP_CHECK_OP_(==, a, b)
#define CHECK_NE(a, b) LOCKSTEP_CHECK_OP_(!=, a, b)
#define CHECK_LT(a, b) LOCKSTEP_CHECK_OP_(<, a, b)
#define CHECK_LE(a, b) LOCKSTEP_CHECK_OP_(<=, a, b)
#define CHECK_GT(a, b) LOCKSTEP_CHECK_OP_(>, a, b)
#define CHECK_GE(a, b) LOCKSTEP_CHECK_OP_(>=, a, b)

#endif  // LOCKSTEP_RUNTIME_BASE_CHECK_H_
