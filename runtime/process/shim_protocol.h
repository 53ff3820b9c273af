// What Spawner and RunShim agree on. Internal to this folder.
#ifndef LOCKSTEP_RUNTIME_PROCESS_SHIM_PROTOCOL_H_
#define LOCKSTEP_RUNTIME_PROCESS_SHIM_PROTOCOL_H_

namespace lockstep::process {

// Set in the shim's environment and removed by RunShim. A process that finds it and spawns anyway was started as a shim
// by mistake (its main does not hand "child-exec" to RunShim): it must not spawn itself for ever.
inline constexpr char kShimMark[] = "LOCKSTEP_CHILD_EXEC";

// What the shim writes to its status pipe (as int) before it executes the command. If that fails, errno follows; if it
// succeeds, the pipe closes.
inline constexpr int kShimStarted = 0;

}  // namespace lockstep::process

#endif  // LOCKSTEP_RUNTIME_PROCESS_SHIM_PROTOCOL_H_
