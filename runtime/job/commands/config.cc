#include <ostream>

#include "runtime/base/status.h"
#include "runtime/job/commands.h"
#include "runtime/job/yaml_reader.h"

namespace lockstep::job {

absl::Status ConfigCommand(const ConfigArgs& args, std::ostream& out) {
  if (args.path.empty()) {
    if (!args.overrides.empty()) {
      return absl::InvalidArgumentError("section.key=value overrides a file: name it with --config");
    }
    out << "# Every option of `lockstep train`, with its default. Write only what differs.\n\n"
        << ToYaml(RunOptions(), /*with_comments=*/true);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Config config, ReadConfig(args.path, args.overrides));
  out << ToYaml(config.options, /*with_comments=*/false);
  return absl::OkStatus();
}

}  // namespace lockstep::job
