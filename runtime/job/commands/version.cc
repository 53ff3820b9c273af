#include <ostream>

#include "runtime/job/commands.h"

namespace lockstep::job {

absl::Status VersionCommand(std::ostream& out) {
  out << "lockstep " << LOCKSTEP_VERSION << " (" << __VERSION__ << ")\n";
  return absl::OkStatus();
}

}  // namespace lockstep::job
