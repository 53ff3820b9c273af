// The commands of the program, one function each, in runtime/job/commands/*.cc. main.cc only turns the command line
// into these structs. A command writes its result to `out` and returns a Status; main prints an error as one line and
// exits with ExitCode(status).
#ifndef LOCKSTEP_RUNTIME_JOB_COMMANDS_H_
#define LOCKSTEP_RUNTIME_JOB_COMMANDS_H_

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model/kernels/matmul_backend.h"

namespace lockstep::job {

// 0: fine. 2: what the user gave cannot be used (options, files, data). 1: it went wrong on the way.
int ExitCode(const absl::Status& status);

struct ConfigArgs {
  std::string path;                    // YAML file
  std::vector<std::string> overrides;  // section.key=value
};

// Prints every option with its default and comment as YAML; with a file, that file's effective options instead.
absl::Status ConfigCommand(const ConfigArgs& args, std::ostream& out);

// Prints ranks, roles, threads, bytes and operations of a step, and runs nothing. The model folder needs only its
// config.json.
absl::Status PlanCommand(const ConfigArgs& args, int num_ranks, std::ostream& out);

struct ModelArgs {
  std::string model;          // Hugging Face folder or GGUF file
  std::string dtype = "f32";  // "f32" or "bf16"
  int threads = 0;            // 0: all CPUs
  model::MatMulChoice matmul = model::MatMulChoice::kAuto;
};

// JSON lines: {"ids": [...]} is answered by {"logprobs": [...]}, one value for each id but the first.
absl::Status ScoreCommand(const ModelArgs& args, std::istream& in, std::ostream& out);

// JSON lines: {"messages": [...]} or {"ids": [...]} with sampling options is answered by {"ids", "logprobs", "text",
// "finish_reason"}; sample_stream.h has the details.
struct SampleArgs {
  ModelArgs model;
  int max_batch = 64;          // completions decoded together at most
  int max_context_tokens = 0;  // prompt and completion together; 0: the model's, at most 4096
};
absl::Status SampleCommand(const SampleArgs& args, std::istream& in, std::ostream& out);

// JSON lines: {"text", "add_special_tokens" (true)} is answered by {"ids"}, {"ids", "skip_special_tokens" (false)} by
// {"text"}. `tokenizer_path`: model folder, tokenizer.json or GGUF file.
absl::Status TokenizeCommand(const std::string& tokenizer_path, std::istream& in, std::ostream& out);

struct RenderArgs {
  std::string tokenizer;      // model folder, tokenizer.json or GGUF file: its chat template and special tokens
  std::string template_file;  // a Jinja file; wins over the tokenizer's template
};

// JSON lines: {"messages", "tools", "add_generation_prompt" (false), "kwargs"} is answered by {"rendered"}.
absl::Status RenderCommand(const RenderArgs& args, std::istream& in, std::ostream& out);

struct ExportArgs {
  std::string model;          // Hugging Face folder or GGUF file
  std::string out;            // folder, created if missing
  std::string dtype = "f32";  // "f32" (exact) or "bf16" (half the size)
};

// Writes a Hugging Face folder, tokenizer files included.
absl::Status ExportCommand(const ExportArgs& args, std::ostream& out);

// Trains as the configuration says; every rank of a job calls it.
absl::Status TrainCommand(const ConfigArgs& args);

// Evaluates the model on data.eval as the configuration says: one JSON object in a line on `out`. Every rank of a job
// calls it; the learner's writes.
absl::Status EvalCommand(const ConfigArgs& args, std::ostream& out);

// The child of a rollout rank (rollout_worker.h); not for people.
absl::Status RolloutWorkerCommand(const std::vector<std::string>& arguments);

struct MakeDataArgs {
  std::string task;  // "arithmetic" or "json_object"
  int64_t rows = 100;
  uint64_t seed = 1;
  std::string split = "train";  // "train" or "test": the two never share a question
};

// Writes rows for a built-in task as JSON lines.
absl::Status MakeDataCommand(const MakeDataArgs& args, std::ostream& out);

// Version, compiler and kernel signature.
absl::Status VersionCommand(std::ostream& out);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_COMMANDS_H_
