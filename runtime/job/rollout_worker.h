// The child of a rollout rank: it samples what the coordinator asks for, and speaks ZeroMQ and never MPI.
//
// It maps the published weights, runs the engine, answers each sample as soon as it ends, and sends a heartbeat a
// second. It leaves with code 0 on Stop, and when its coordinator has been silent for too long.
#ifndef LOCKSTEP_RUNTIME_JOB_ROLLOUT_WORKER_H_
#define LOCKSTEP_RUNTIME_JOB_ROLLOUT_WORKER_H_

#include <string>

#include "absl/status/status.h"
#include "rollout/engine.h"
#include "runtime/device/tensor.h"

namespace lockstep::job {

struct RolloutWorkerArgs {
  int worker_id = 0;
  std::string bus_endpoint;
  std::string weights_socket;
  std::string model_path;  // configuration and tokenizer only: weights come through the channel
  DType dtype = DType::kBf16;
  int threads = 1;
  rollout::EngineOptions engine;
};

// As arguments of the hidden command `rollout-worker`, and back.
std::vector<std::string> ToArguments(const RolloutWorkerArgs& args);
absl::StatusOr<RolloutWorkerArgs> ParseRolloutWorkerArguments(const std::vector<std::string>& arguments);

absl::Status RunRolloutWorker(const RolloutWorkerArgs& args, rollout::StopWatcherFactory stop_watchers);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_ROLLOUT_WORKER_H_
