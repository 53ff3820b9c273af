#include "tests/integration/tiny_run.h"

#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "model/export.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/base/philox.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"
#include "text/bpe.h"

namespace lockstep {

Outcome Shell(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  CHECK(pipe != nullptr);
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof(buffer), pipe)) outcome.output.append(buffer, n);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

void TinyRun::SetUp() {
  const model::LoadedModel tiny = testing::TinyModel(model::Architecture::kLlama, 5);
  model::ModelConfig config = tiny.config;
  config.vocab_size = 259;  // bytes and three more
  model::LoadedModel wide{config, model::Parameters(config)};
  for (int64_t i = 0; i < wide.parameters.size(); ++i) {
    wide.parameters.data()[i] =
        static_cast<float>(UniformDouble({9, RandomPurpose::kTest}, {.ordinal = i}) - 0.5) * 0.6f;
  }
  ASSERT_OK(model::ExportHf(config, wide.parameters, DType::kF32, dir_.File("model")));
  Json vocab = Json::object();
  for (int b = 0; b < 256; ++b) vocab[text::ByteToCharacter(static_cast<uint8_t>(b))] = b;
  Json added = Json::array();
  for (int i = 0; i < 3; ++i) {
    const char* names[] = {"<s>", "</s>", "<end>"};
    added.push_back({{"id", 256 + i}, {"content", names[i]}, {"special", true}, {"normalized", false}});
  }
  const Json tokenizer = {{"added_tokens", added},
                          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
                          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
  dir_.Write("model/tokenizer.json", tokenizer.dump());
  dir_.Write(
      "model/tokenizer_config.json",
      R"({"bos_token":"<s>","eos_token":"</s>","chat_template":"{% for m in messages %}{{ m.content }}{% endfor %}="})");
  std::string rows;
  for (int i = 0; i < 12; ++i) {
    rows += absl::StrCat("{\"messages\":[{\"role\":\"user\",\"content\":\"", i, "+", i, "\"}],\"answer\":\"", i % 10,
                         "\"}\n");
  }
  dir_.Write("data.jsonl", rows);
}

std::string TinyRun::Config(const std::string& extra) {
  return dir_.Write("run.yaml", absl::StrCat("run: {steps: 3, seed: 3}\n"
                                             "model: {path: ",
                                             dir_.File("model"),
                                             "}\n"
                                             "data: {train: [",
                                             dir_.File("data.jsonl"),
                                             "], max_prompt_tokens: 32}\n"
                                             "rollout: {prompts_per_step: 4, n: 4, max_tokens: 24}\n"
                                             "learner: {lr: 1e-3, micro_batch_tokens: 128}\n",
                                             extra));
}

std::string TinyRun::CommandLine(const std::string& command, int np, const std::string& name,
                                 const std::string& overrides, const std::string& extra) {
  // Open MPI leaks in plugins that it has unloaded: under ASan leaks are looked for in runs without it.
  const std::string mpirun =
      np == 1 ? ""
              : absl::StrCat(
                    "env ASAN_OPTIONS=detect_leaks=0 mpirun --allow-run-as-root --oversubscribe --bind-to none -np ",
                    np, " ");
  return absl::StrCat(mpirun, LOCKSTEP_PROGRAM_PATH, " ", command, " --config ", Config(extra),
                      " run.dir=", dir_.File(name), " ", overrides);
}

std::string TinyRun::HashOf(const Outcome& outcome) {
  const size_t at = outcome.output.find("weight hash ");
  return at == std::string::npos ? "" : outcome.output.substr(at + 12, 16);
}

std::vector<Json> TinyRun::Metrics(const std::string& name) {
  std::vector<Json> lines;
  std::ifstream file(dir_.File(name + "/metrics.jsonl"));
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

Json TinyRun::RunStatus(const std::string& name) {
  const absl::StatusOr<std::string> text = ReadFile(dir_.File(name + "/status.json"));
  return text.ok() ? Json::parse(*text) : Json();
}

}  // namespace lockstep
