// One YAML value into one typed option.
#ifndef LOCKSTEP_RUNTIME_JOB_YAML_VALUES_H_
#define LOCKSTEP_RUNTIME_JOB_YAML_VALUES_H_

#include "absl/status/status.h"
#include "runtime/job/field_list.h"
#include "runtime/job/yaml_tree.h"

namespace lockstep::job {

// Writes the value into the option. InvalidArgument "<path> is <value>: it must be <type>", without the place.
absl::Status SetField(const YamlNode& node, const Field& field);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_YAML_VALUES_H_
