// The program: which command, with which arguments. Everything else is in runtime/job/commands.
#include <CLI/CLI.hpp>

#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/job/commands.h"
#include "runtime/job/suggest.h"
#include "runtime/process/child_process.h"

namespace lockstep::job {
namespace {

constexpr int kBadUsage = 2;

// One command: its options are declared on `app`, and what is returned runs it once they are parsed.
struct Command {
  const char* name;
  const char* summary;
  const char* details;  // shown below the options by --help, with an example
  std::function<absl::Status()> (*declare)(CLI::App& app);
};

void AddConfig(CLI::App& app, ConfigArgs& args, bool required) {
  app.add_option("--config", args.path, "YAML file with the options of the run")->required(required)->type_name("FILE");
  app.add_option("overrides", args.overrides, "section.key=value: wins over the file, checked like it");
}

std::function<absl::Status()> DeclareConfig(CLI::App& app) {
  auto args = std::make_shared<ConfigArgs>();
  AddConfig(app, *args, /*required=*/false);
  return [args] { return ConfigCommand(*args, std::cout); };
}

void AddModel(CLI::App& app, ModelArgs& args) {
  app.add_option("--model", args.model, "Hugging Face model folder or GGUF file")->required()->type_name("M");
  app.add_option("--dtype", args.dtype, "Compute type")->check(CLI::IsMember({"f32", "bf16"}))->capture_default_str();
  app.add_option("--threads", args.threads, "Compute threads; 0: all CPUs")->check(CLI::Range(0, 4096))->type_name("N");
  const std::map<std::string, model::MatMulChoice> choices = {{"auto", model::MatMulChoice::kAuto},
                                                              {"onednn", model::MatMulChoice::kOneDnn},
                                                              {"own", model::MatMulChoice::kOwn}};
  app.add_option("--matmul", args.matmul, "Matrix products, as compute.matmul of a run; their bits differ")
      ->transform(CLI::CheckedTransformer(choices, CLI::ignore_case).description("{auto, onednn, own} [auto]"));
}

std::function<absl::Status()> DeclareScore(CLI::App& app) {
  auto args = std::make_shared<ModelArgs>();
  AddModel(app, *args);
  return [args] { return ScoreCommand(*args, std::cin, std::cout); };
}

std::function<absl::Status()> DeclareTrain(CLI::App& app) {
  auto args = std::make_shared<ConfigArgs>();
  AddConfig(app, *args, /*required=*/true);
  return [args] { return TrainCommand(*args); };
}

std::function<absl::Status()> DeclareEval(CLI::App& app) {
  auto args = std::make_shared<ConfigArgs>();
  AddConfig(app, *args, /*required=*/true);
  return [args] { return EvalCommand(*args, std::cout); };
}

std::function<absl::Status()> DeclareMakeData(CLI::App& app) {
  auto args = std::make_shared<MakeDataArgs>();
  app.add_option("task", args->task, "arithmetic or json_object")
      ->required()
      ->check(CLI::IsMember({"arithmetic", "json_object"}));
  app.add_option("--rows", args->rows, "Rows to write")->capture_default_str();
  app.add_option("--seed", args->seed, "Seed: the same gives the same rows")->capture_default_str();
  app.add_option("--split", args->split, "The two splits never share a question")
      ->check(CLI::IsMember({"train", "test"}))
      ->capture_default_str();
  return [args] { return MakeDataCommand(*args, std::cout); };
}

std::function<absl::Status()> DeclareSample(CLI::App& app) {
  auto args = std::make_shared<SampleArgs>();
  AddModel(app, args->model);
  app.add_option("--max-batch", args->max_batch, "Completions decoded together at most")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--max-context", args->max_context_tokens,
                 "Prompt and completion together; 0: the model's, at most 4096")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  return [args] { return SampleCommand(*args, std::cin, std::cout); };
}

std::function<absl::Status()> DeclareTokenize(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  app.add_option("--tokenizer", *path, "Model folder, tokenizer.json or GGUF file")->required()->type_name("T");
  return [path] { return TokenizeCommand(*path, std::cin, std::cout); };
}

std::function<absl::Status()> DeclareRender(CLI::App& app) {
  auto args = std::make_shared<RenderArgs>();
  app.add_option("--tokenizer", args->tokenizer, "Model folder, tokenizer.json or GGUF file")->type_name("T");
  app.add_option("--template", args->template_file, "Jinja file; wins over the tokenizer's template")
      ->type_name("FILE");
  return [args] { return RenderCommand(*args, std::cin, std::cout); };
}

std::function<absl::Status()> DeclareExport(CLI::App& app) {
  auto args = std::make_shared<ExportArgs>();
  app.add_option("--model", args->model, "Hugging Face model folder or GGUF file")->required()->type_name("M");
  app.add_option("--out", args->out, "Folder to write, created if missing")->required()->type_name("DIR");
  app.add_option("--dtype", args->dtype, "Type of the weights: f32 is exact, bf16 half the size")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  return [args] { return ExportCommand(*args, std::cout); };
}

std::function<absl::Status()> DeclarePlan(CLI::App& app) {
  auto args = std::make_shared<ConfigArgs>();
  auto num_ranks = std::make_shared<int>(1);
  AddConfig(app, *args, /*required=*/true);
  app.add_option("-n,--np", *num_ranks, "Ranks that would run; -np too")->type_name("N");
  return [args, num_ranks] { return PlanCommand(*args, *num_ranks, std::cout); };
}

std::function<absl::Status()> DeclareVersion(CLI::App&) {
  return [] { return VersionCommand(std::cout); };
}

constexpr Command kCommands[] = {
    {"train", "Train a model by reinforcement learning",
     "Every MPI rank runs it; alone it runs without MPI.\n"
     "Examples:\n"
     "  lockstep train --config configs/arithmetic.yaml run.steps=5\n"
     "  mpirun -np 2 lockstep train --config configs/arithmetic.yaml\n"
     "  scripts/launch -np 3 train --config configs/arithmetic.yaml\n",
     DeclareTrain},
    {"eval", "Measure a model on data.eval: avg@n and pass@k, as JSON",
     "Reads the file that `train` reads; model.path says which weights, for example a run's exports/final. Samples\n"
     "eval.n times per prompt and scores with the file's reward. stdout gets one JSON object: \"avg\" (mean reward),\n"
     "\"pass@1\" to \"pass@n\" (probability that at least one of k samples has a reward of 1 or more, unbiased),\n"
     "\"num_prompts\", \"num_invalid\" and \"invalid_reasons\" (samples left out), \"mean_tokens\". The same weights "
     "give\n"
     "the numbers that `train` printed for them, on any number of ranks.\n"
     "Examples:\n"
     "  lockstep eval --config configs/arithmetic.yaml model.path=runs/arithmetic/exports/final\n"
     "  scripts/launch -np 3 eval --config configs/arithmetic.yaml eval.n=16 | jq '.\"pass@8\"'\n",
     DeclareEval},
    {"make-data", "Write data for the built-in tasks, as JSON lines",
     "Example:\n  lockstep make-data arithmetic --rows 400 --seed 1 --split train > data/train.jsonl\n",
     DeclareMakeData},
    {"sample", "Completions of prompts, as JSON lines",
     "Each line {\"messages\": [...]} or {\"ids\": [...]}, with \"seed\", \"temperature\", \"top_k\", \"top_p\", "
     "\"max_tokens\",\n"
     "\"min_tokens\", \"stop\" and \"n\" if wanted, is answered by n lines {\"ids\", \"logprobs\", \"text\", "
     "\"finish_reason\"}.\n"
     "Example:\n"
     "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"temperature\": 0}' | lockstep sample "
     "--model models/M\n",
     DeclareSample},
    {"tokenize", "Text to token ids and back, as JSON lines",
     "{\"text\", \"add_special_tokens\"} is answered by {\"ids\"}, {\"ids\", \"skip_special_tokens\"} by {\"text\"}.\n"
     "Example:\n  echo '{\"text\": \"Hello\"}' | lockstep tokenize --tokenizer models/M\n",
     DeclareTokenize},
    {"render", "Messages through a chat template, as JSON lines",
     "{\"messages\", \"tools\", \"add_generation_prompt\", \"kwargs\"} is answered by {\"rendered\"}.\n"
     "Example:\n"
     "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' | lockstep render --tokenizer models/M\n",
     DeclareRender},
    {"export", "Write a model as a Hugging Face folder, tokenizer included",
     "Example:\n  lockstep export --model models/M.gguf --out exported --dtype bf16\n", DeclareExport},
    {"score", "Log-probs of token ids, as JSON lines",
     "Each line {\"ids\": [...]} is answered by {\"logprobs\": [...]}: one value for each id but the first. A bad line "
     "is\n"
     "answered by {\"error\": \"...\"}, and the exit code is 1 at the end.\n"
     "Example:\n  echo '{\"ids\": [1, 42, 7]}' | lockstep score --model models/M --dtype f32\n",
     DeclareScore},
    {"config", "Print every option with its default and comment, or the effective options of a file",
     "Examples:\n"
     "  lockstep config > all-options.yaml\n"
     "  lockstep config --config configs/arithmetic.yaml run.seed=7\n",
     DeclareConfig},
    {"plan", "Show ranks, roles, threads, memory and operations of a run without running it",
     "The model folder needs only its config.json.\n"
     "Example:\n  lockstep plan --config configs/arithmetic.yaml -np 3\n",
     DeclarePlan},
    {"version", "Print the version", "Example:\n  lockstep version\n", DeclareVersion},
};

int Complain(const std::string& message) {
  // One line, whatever a library's message holds.
  std::string line = message.substr(0, message.find_last_not_of("\n ") + 1);
  for (char& c : line) c = c == '\n' ? ' ' : c;
  std::cerr << "lockstep: " << line << "\n";
  return kBadUsage;
}

std::vector<std::string> CommandNames() {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.push_back(command.name);
  return names;
}

// A word in place of a command that is none: CLI11 would only say that it did not expect it.
bool IsUnknownCommand(const std::vector<std::string>& args) {
  if (args.empty() || args[0].empty() || args[0][0] == '-') return false;
  for (const Command& command : kCommands) {
    if (args[0] == command.name) return false;
  }
  return true;
}

int Main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  if (IsUnknownCommand(args)) {
    return Complain("unknown command " + args[0] + DidYouMean(args[0], CommandNames()) +
                    " (`lockstep --help` lists them)");
  }
  CLI::App app("Reinforcement learning for language models: what was sampled is what is trained, bit for bit.",
               "lockstep");
  app.require_subcommand(1);
  app.footer("`lockstep COMMAND --help` shows a command's options and an example.");
  std::vector<std::function<absl::Status()>> runs;
  std::vector<CLI::App*> subcommands;
  for (const Command& command : kCommands) {
    CLI::App* subcommand = app.add_subcommand(command.name, command.summary);
    subcommand->footer(command.details);
    subcommands.push_back(subcommand);
    runs.push_back(command.declare(*subcommand));
  }
  // mpirun's own spelling; CLI11 would read it as -n with the value "p".
  for (std::string& arg : args) arg = arg == "-np" ? "--np" : arg;
  try {
    std::vector<std::string> reversed(args.rbegin(), args.rend());  // CLI11 takes them from the back
    app.parse(std::move(reversed));
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return Complain(error.what());
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!subcommands[i]->parsed()) continue;
    const absl::Status status = runs[i]();
    std::cout.flush();
    if (!status.message().empty()) Complain(Message(status));
    return ExitCode(status);
  }
  return kBadUsage;
}

}  // namespace
}  // namespace lockstep::job

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "child-exec") == 0) return lockstep::process::RunShim(argc - 2, argv + 2);
  if (argc > 1 && std::strcmp(argv[1], "rollout-worker") == 0) {
    const absl::Status status = lockstep::job::RolloutWorkerCommand(std::vector<std::string>(argv + 2, argv + argc));
    if (!status.ok()) std::cerr << "lockstep: " << lockstep::Message(status) << "\n";
    return lockstep::job::ExitCode(status);
  }
  return lockstep::job::Main(argc, argv);
}
