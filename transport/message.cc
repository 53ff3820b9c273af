#include "transport/message.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace lockstep::transport {

ErrorReport ReportOf(WorkerId worker_id, const absl::Status& status, std::vector<std::string> causes) {
  return {worker_id, static_cast<int32_t>(status.code()), lockstep::Message(status), std::move(causes)};
}

absl::Status StatusOf(const ErrorReport& report) {
  std::string text = absl::StrCat("worker ", report.worker_id, ": ", report.text);
  for (const std::string& cause : report.causes) absl::StrAppend(&text, ": ", cause);
  const bool known = report.code > 0 && report.code <= static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? static_cast<absl::StatusCode>(report.code) : absl::StatusCode::kUnknown, text);
}

const char* MessageName(const Message& message) {
  // In the order of the variant.
  static constexpr const char* kNames[] = {"Hello",          "Heartbeat",      "GenerateRequest", "GenerateResult",
                                           "CancelRequests", "PublishWeights", "PublishAck",      "PhaseChange",
                                           "Stop",           "ErrorReport",    "Metrics"};
  static_assert(std::size(kNames) == std::variant_size_v<Message>);
  return kNames[message.index()];
}

}  // namespace lockstep::transport
