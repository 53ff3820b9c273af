#include "runtime/base/log.h"

#include <fcntl.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
#include <mutex>

#include "runtime/base/status.h"

namespace lockstep {
namespace {

struct Logger {
  std::mutex mutex;
  std::string role = "lockstep";
  std::shared_ptr<spdlog::logger> sink;
  Logger() {
    sink = std::make_shared<spdlog::logger>("lockstep", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    sink->set_pattern("%L %H:%M:%S.%e %v");
    sink->flush_on(spdlog::level::info);
  }
};

// Process-wide by nature (one stderr); nothing but text passes through it.
Logger& TheLogger() {
  static Logger* logger = new Logger;  // never destroyed: threads may log while the process ends
  return *logger;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void Log(LogLevel level, const std::string& message) {
  Logger& logger = TheLogger();
  const std::lock_guard<std::mutex> lock(logger.mutex);
  logger.sink->log(ToSpdlog(level), "{:<10} {}", logger.role, message);
}

void SetLogLevel(LogLevel level) { TheLogger().sink->set_level(ToSpdlog(level)); }

void SetLogRole(const std::string& role) {
  Logger& logger = TheLogger();
  const std::lock_guard<std::mutex> lock(logger.mutex);
  logger.role = role;
}

absl::Status SetLogFile(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return ErrnoStatus(errno, "cannot open the log file " + path);
  close(file);
  try {
    Logger& logger = TheLogger();
    const std::lock_guard<std::mutex> lock(logger.mutex);
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    sink->set_pattern("%L %Y-%m-%d %H:%M:%S.%e %v");
    logger.sink->sinks().push_back(std::move(sink));
  } catch (const spdlog::spdlog_ex& error) {
    return absl::UnavailableError("cannot open the log file " + path + ": " + error.what());
  }
  return absl::OkStatus();
}

}  // namespace lockstep
