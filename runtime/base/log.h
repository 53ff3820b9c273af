// Log lines for people: "I 12:00:01.123 learner  message". Text is built by the caller (absl::StrCat, absl::StrFormat),
// so this header stays thin. Thread-safe. Never log secrets or environment variables. Logs go to stderr; SetLogFile
// adds a file.
#ifndef LOCKSTEP_RUNTIME_BASE_LOG_H_
#define LOCKSTEP_RUNTIME_BASE_LOG_H_

#include <string>

#include "absl/status/status.h"

namespace lockstep {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void Log(LogLevel level, const std::string& message);
inline void LogInfo(const std::string& message) { Log(LogLevel::kInfo, message); }
inline void LogWarning(const std::string& message) { Log(LogLevel::kWarning, message); }
inline void LogError(const std::string& message) { Log(LogLevel::kError, message); }

// Lines below `level` are dropped. Default: kInfo.
void SetLogLevel(LogLevel level);

// Name shown in every line of this process, e.g. "learner 0" or "rollout 1".
void SetLogRole(const std::string& role);

// Also appends every line to `path` (created 0600).
absl::Status SetLogFile(const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_RUNTIME_BASE_LOG_H_
