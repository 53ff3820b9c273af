// Short forms for absl::Status: errors of the outside world (files, YAML, peers, models, rewards) say what, where and
// how to mend it.
//
//   RETURN_IF_ERROR(WriteHeader(file));
//   ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
//   return AddContext(status, "reading the model folder");      // "reading the model folder: <message>", same code
#ifndef LOCKSTEP_RUNTIME_BASE_STATUS_H_
#define LOCKSTEP_RUNTIME_BASE_STATUS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep {

absl::Status AddContext(const absl::Status& status, const std::string& context);

// "<what>: <strerror(errno)>" with a code that fits errno; call it before anything can change errno.
absl::Status ErrnoStatus(int error_number, const std::string& what);

// The message as std::string (absl::string_view of this Abseil is not std::string_view).
std::string Message(const absl::Status& status);

}  // namespace lockstep

#define LOCKSTEP_CONCAT_(a, b) a##b
#define LOCKSTEP_CONCAT(a, b) LOCKSTEP_CONCAT_(a, b)

#define RETURN_IF_ERROR(expression)              \
  do {                                           \
    absl::Status lockstep_status = (expression); \
    if (!lockstep_status.ok()) [[unlikely]]      \
      return lockstep_status;                    \
  } while (false)

#define ASSIGN_OR_RETURN(target, expression) \
  LOCKSTEP_ASSIGN_OR_RETURN_(LOCKSTEP_CONCAT(lockstep_statusor_, __LINE__), target, expression)
#define LOCKSTEP_ASSIGN_OR_RETURN_(statusor, target, expression) \
  auto statusor = (expression);                                  \
  if (!statusor.ok()) [[unlikely]]                               \
    return statusor.status();                                    \
  target = *std::move(statusor)

#endif  // LOCKSTEP_RUNTIME_BASE_STATUS_H_
