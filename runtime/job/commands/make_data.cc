// `make-data`: rows for the built-in tasks.
#include "runtime/job/make_data.h"

#include "runtime/job/commands.h"

namespace lockstep::job {

absl::Status MakeDataCommand(const MakeDataArgs& args, std::ostream& out) {
  MakeDataOptions options;
  options.task = args.task;
  options.rows = args.rows;
  options.seed = args.seed;
  options.split = args.split;
  return MakeData(options, out);
}

}  // namespace lockstep::job
