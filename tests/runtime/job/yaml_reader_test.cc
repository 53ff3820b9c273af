#include "runtime/job/yaml_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "learner/policy_update.h"
#include "model/training_pass.h"
#include "runtime/base/status.h"
#include "runtime/job/foreign_names.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace lockstep::job {
namespace {

using ::lockstep::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

// A configuration that is complete, so that only the lines under test can be wrong. They start at line 3.
std::string WithModel(const std::string& lines) { return "model:\n  path: m\n" + lines; }

absl::StatusOr<Config> Parse(const std::string& lines, const std::vector<std::string>& overrides = {}) {
  return ParseConfig(WithModel(lines), "x.yaml", overrides);
}

// The message of the error, "" if there is none.
std::string ErrorOf(const std::string& lines, const std::vector<std::string>& overrides = {}) {
  const absl::StatusOr<Config> config = Parse(lines, overrides);
  if (config.ok()) return "";
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message = Message(config.status());
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message;
}

TEST(YamlReader, FillsEveryKindOfOption) {
  ASSERT_OK_AND_ASSIGN(const Config config, Parse("run: {seed: 18446744073709551615, dir: 'runs/a b'}\n"
                                                  "rollout:\n"
                                                  "  n: 4\n"
                                                  "  temperature: 0.7\n"
                                                  "  stop: [\"\\n\\n\", END]\n"
                                                  "  stop_ids: [2, 0]\n"
                                                  "reward:\n"
                                                  "  kind: process\n"
                                                  "  command:\n"
                                                  "    - python3\n"
                                                  "    - reward.py\n"
                                                  "  weights: {correct: 1, short: 0.25}\n"
                                                  "learner: {lr: 2e-5, recompute: layer}\n"
                                                  "data: {shuffle: false, train: [a.jsonl]}\n"
                                                  "roles: {learner: [0], rollout: [1, 2]}\n"));
  const RunOptions& o = config.options;
  EXPECT_EQ(o.run.seed, 18446744073709551615u);
  EXPECT_EQ(o.run.dir, "runs/a b");
  EXPECT_EQ(o.rollout.n, 4);
  EXPECT_EQ(o.rollout.sampling.temperature, 0.7f);
  EXPECT_THAT(o.rollout.sampling.stop, ElementsAre("\n\n", "END"));
  EXPECT_THAT(o.rollout.sampling.stop_ids, ElementsAre(2, 0));
  EXPECT_EQ(o.reward.kind, "process");
  EXPECT_THAT(o.reward.command, ElementsAre("python3", "reward.py"));
  EXPECT_THAT(o.reward.weights, UnorderedElementsAre(Pair("correct", 1.0), Pair("short", 0.25)));
  EXPECT_EQ(o.learner.schedule.base, 2e-5);
  EXPECT_EQ(o.learner.recompute, model::Recompute::kLayer);
  EXPECT_FALSE(o.data.shuffle);
  EXPECT_THAT(o.roles.rollout, ElementsAre(1, 2));
  EXPECT_EQ(o.rollout.prompts_per_step, RolloutOptions().prompts_per_step) << "what is not written stays a default";
}

TEST(YamlReader, TellsWhatWasWrittenFromDefaults) {
  ASSERT_OK_AND_ASSIGN(const Config config, Parse("rollout:\n  n: 8\n", {"run.seed=3"}));
  EXPECT_THAT(config.written_at, UnorderedElementsAre(Pair("model.path", "x.yaml:2"), Pair("rollout.n", "x.yaml:4"),
                                                      Pair("run.seed", "command line")));
}

TEST(YamlReader, OverridesWinAndTextsNeedNoQuoting) {
  ASSERT_OK_AND_ASSIGN(const Config config,
                       Parse("rollout:\n  n: 8\nreward:\n  kind: exact_match\n",
                             {"rollout.n=16", R"(reward.regex=#### (-?\d+))", "check.bit_equal=off",
                              R"(rollout.stop=["a", "b c"])", "run.dir=007", "roles.learner=auto"}));
  EXPECT_EQ(config.options.rollout.n, 16);
  EXPECT_EQ(config.options.reward.regex, R"(#### (-?\d+))");
  EXPECT_EQ(config.options.check.bit_equal, learner::BitCheck::kOff);
  EXPECT_THAT(config.options.rollout.sampling.stop, ElementsAre("a", "b c"));
  EXPECT_EQ(config.options.run.dir, "007");
}

TEST(YamlReader, UnknownKeysNameTheNearestOne) {
  EXPECT_EQ(ErrorOf("rollout:\n  temprature: 1\n"),
            "x.yaml:4: unknown key rollout.temprature; did you mean rollout.temperature?");
  EXPECT_EQ(ErrorOf("rolout:\n  n: 1\n"), "x.yaml:3: unknown key rolout; did you mean rollout?");
  EXPECT_EQ(ErrorOf("learner:\n  kl_loss_coef: 1\n"),
            "x.yaml:4: unknown key learner.kl_loss_coef; did you mean algorithm.kl_loss_coef?");
  EXPECT_EQ(ErrorOf("temperature: 1\n"), "x.yaml:3: unknown key temperature; did you mean rollout.temperature?");
  EXPECT_EQ(ErrorOf("zzzzzzzzzzzzzz: 1\n"), "x.yaml:3: unknown key zzzzzzzzzzzzzz");
  EXPECT_EQ(ErrorOf("", {"rollout.max_token=3"}),
            "command line: unknown key rollout.max_token; did you mean rollout.max_tokens?");
  EXPECT_THAT(ErrorOf("rollout.n: 3\n"), StartsWith("x.yaml:3: unknown key rollout.n"));
}

TEST(YamlReader, NamesOfOtherProjectsAreAnsweredWithOurs) {
  EXPECT_EQ(ErrorOf("rollout:\n  num_generations: 8\n"),
            "x.yaml:4: unknown key rollout.num_generations; here it is rollout.n");
  EXPECT_EQ(ErrorOf("beta: 0.1\n"), "x.yaml:3: unknown key beta; here it is algorithm.kl_loss_coef");
  EXPECT_EQ(ErrorOf("", {"actor_rollout_ref.actor.ppo_mini_batch_size=8"}),
            "command line: unknown key actor_rollout_ref.actor.ppo_mini_batch_size; here it is learner.mini_batches");
  RunOptions options;
  const FieldList list = ListFields(options);
  for (const ForeignName& name : ForeignNames()) {
    EXPECT_NE(list.Find(name.path), nullptr) << name.path << " is no option of ours";
    EXPECT_EQ(std::string(name.key).find('.'), std::string::npos);
    for (const Field& field : list.fields()) {
      EXPECT_NE(field.path.substr(field.path.find('.') + 1), name.key) << "is our own name";
    }
  }
}

TEST(YamlReader, DuplicateKeysAreErrorsAtBothLevels) {
  EXPECT_EQ(ErrorOf("rollout:\n  n: 1\n  max_batch: 2\n  n: 1\n"), "x.yaml:6: duplicate key n (first at line 4)");
  EXPECT_EQ(ErrorOf("rollout:\n  n: 1\nrun:\n  seed: 1\nrollout:\n  max_batch: 2\n"),
            "x.yaml:7: duplicate key rollout (first at line 3)");
  EXPECT_EQ(ErrorOf("rollout: {n: 1, n: 2}\n"), "x.yaml:3: duplicate key n (first at line 3)");
  EXPECT_EQ(ErrorOf("rollout: {n: 1, \"n\": 2}\n"), "x.yaml:3: duplicate key n (first at line 3)");
  EXPECT_EQ(ErrorOf("", {"rollout.n=1", "rollout.n=2"}), "command line: rollout.n is given twice");
}

TEST(YamlReader, WholeNumbersAreWholeAndPlain) {
  const std::string must = ": it must be a whole number";
  EXPECT_EQ(ErrorOf("rollout: {n: \"7\"}\n"), "x.yaml:3: rollout.n is \"7\"" + must + " without quotes");
  EXPECT_EQ(ErrorOf("rollout: {n: 7.0}\n"), "x.yaml:3: rollout.n is 7.0" + must);
  EXPECT_EQ(ErrorOf("rollout: {n: 1e3}\n"), "x.yaml:3: rollout.n is 1e3" + must);
  EXPECT_EQ(ErrorOf("rollout: {n: seven}\n"), "x.yaml:3: rollout.n is seven" + must);
  EXPECT_EQ(ErrorOf("rollout: {n: 0x10}\n"), "x.yaml:3: rollout.n is 0x10" + must);
  EXPECT_EQ(ErrorOf("rollout: {n: 1_000}\n"), "x.yaml:3: rollout.n is 1_000" + must);
  EXPECT_EQ(ErrorOf("rollout: {n: [1]}\n"), "x.yaml:3: rollout.n is a list" + must);
  EXPECT_EQ(ErrorOf("rollout: {n: {a: 1}}\n"), "x.yaml:3: rollout.n is a section" + must);
  EXPECT_EQ(ErrorOf("rollout: {n: true}\n"), "x.yaml:3: rollout.n is true" + must);
  EXPECT_THAT(ErrorOf("rollout: {n: 010}\n"), HasSubstr("octal"));
  EXPECT_THAT(ErrorOf("rollout: {n: -010}\n"), HasSubstr("octal"));
  EXPECT_THAT(ErrorOf("rollout: {n: 2147483648}\n"), HasSubstr("to 2147483647"));
  EXPECT_THAT(ErrorOf("run: {seed: -1}\n"), HasSubstr("from 0 to 18446744073709551615"));
  EXPECT_THAT(ErrorOf("run: {seed: 18446744073709551616}\n"), HasSubstr("from 0 to 18446744073709551615"));
  EXPECT_EQ(ErrorOf("", {"rollout.n=\"7\""}), "command line: rollout.n is \"7\"" + must + " without quotes");
  EXPECT_THAT(ErrorOf("", {"rollout.n=010"}), StartsWith("command line: rollout.n is 010"));
}

TEST(YamlReader, NumbersAreFiniteAndPlain) {
  EXPECT_EQ(ErrorOf("learner: {lr: 1}\n"), "");
  EXPECT_EQ(ErrorOf("learner: {lr: .5}\n"), "");
  EXPECT_EQ(ErrorOf("learner: {lr: \"1e-5\"}\n"),
            "x.yaml:3: learner.lr is \"1e-5\": it must be a number without quotes");
  for (const char* bad : {".inf", "inf", "nan", ".nan", "1e999", "1,5", "01.5", "fast", "0x1p3"}) {
    EXPECT_THAT(ErrorOf(std::string("learner:\n  lr: ") + bad + "\n"), StartsWith("x.yaml:4: learner.lr is ")) << bad;
  }
  EXPECT_THAT(ErrorOf("rollout: {temperature: 1e39}\n"), HasSubstr("float32"));
}

TEST(YamlReader, BooleansAreTrueAndFalseOnly) {
  EXPECT_EQ(ErrorOf("data: {shuffle: true}\n"), "");
  for (const char* bad : {"yes", "no", "on", "off", "y", "n", "True", "FALSE", "1", "0", "\"true\""}) {
    EXPECT_THAT(ErrorOf(std::string("data:\n  shuffle: ") + bad + "\n"),
                AllOf(StartsWith("x.yaml:4: data.shuffle is "), HasSubstr("true or false")))
        << bad;
  }
}

TEST(YamlReader, TextsThatYamlReadsAsSomethingElseNeedQuotes) {
  for (const char* bad : {"yes", "Off", "null", "12", "1.5", "010", "true"}) {
    EXPECT_NE(ErrorOf(std::string("run:\n  dir: ") + bad + "\n"), "") << bad;
    EXPECT_EQ(ErrorOf(std::string("run:\n  dir: \"") + bad + "\"\n"), "") << bad;
  }
  EXPECT_THAT(ErrorOf("run:\n  dir: 12\n"), HasSubstr("write \"12\""));
  EXPECT_THAT(ErrorOf("run:\n  dir: \"a\\0b\"\n"), HasSubstr("zero byte"));
}

TEST(YamlReader, EmptyValuesAreErrorsWhereTheirKeyStands) {
  EXPECT_THAT(ErrorOf("rollout:\n  n:\n\n\n  max_batch: 3\n"), StartsWith("x.yaml:4: rollout.n is empty"));
  EXPECT_THAT(ErrorOf("rollout:\n  n: ~\n"), StartsWith("x.yaml:4: rollout.n is empty"));
  EXPECT_THAT(ErrorOf("rollout:\n  n: null\n"), StartsWith("x.yaml:4: rollout.n is empty"));
  EXPECT_THAT(ErrorOf("rollout:\n\n\nrun:\n  seed: 1\n"), StartsWith("x.yaml:3: rollout is empty"));
  EXPECT_THAT(ErrorOf("", {"rollout.n="}), StartsWith("command line: rollout.n is empty"));
  EXPECT_THAT(ErrorOf("roles: {learner: []}\n"), HasSubstr("empty list"));
  EXPECT_THAT(ErrorOf("data: {train: [a, ]}\n"), "");
  EXPECT_THAT(ErrorOf("data:\n  train:\n    -\n    - a\n"), StartsWith("x.yaml:4: data.train is empty"));
}

TEST(YamlReader, ChoicesListWhatIsAllowed) {
  EXPECT_EQ(ErrorOf("check: {bit_equal: off}\n"), "");
  EXPECT_EQ(ErrorOf("check: {bit_equal: wran}\n"),
            "x.yaml:3: check.bit_equal is wran: it must be one of error, warn, off; did you mean warn?");
  EXPECT_EQ(ErrorOf("algorithm: {loss: 3}\n"),
            "x.yaml:3: algorithm.loss is 3: it must be one of ppo_clip, reinforce, gspo, cispo");
}

TEST(YamlReader, WholeDocumentRules) {
  const auto error = [](const std::string& text) {
    return Message(ParseConfig(text, "x.yaml", {"model.path=m"}).status());
  };
  EXPECT_THAT(error(""), StartsWith("x.yaml: holds no options"));
  EXPECT_THAT(error("# only a comment\n"), StartsWith("x.yaml: holds no options"));
  EXPECT_THAT(error("---\n"), StartsWith("x.yaml: holds no options"));
  EXPECT_THAT(error("just text\n"), HasSubstr("sections"));
  EXPECT_THAT(error("- a\n- b\n"), HasSubstr("sections"));
  EXPECT_THAT(error("run: 3\n"), StartsWith("x.yaml:1: run must be a section"));
  EXPECT_THAT(error("run:\n  seed: 1\n---\nrun:\n  seed: 2\n"), HasSubstr("more than one document"));
  EXPECT_THAT(error("run: {seed: &a 1}\n"), HasSubstr("anchors"));
  EXPECT_THAT(error("run: {seed: *a}\n"), Not(""));
  EXPECT_THAT(error("run: {seed: !!int 1}\n"), HasSubstr("tags"));
  EXPECT_THAT(error("run: {[a]: 1}\n"), HasSubstr("a key must be a word"));
  EXPECT_THAT(error("run: {seed: 1\n"), StartsWith("x.yaml:"));
  EXPECT_THAT(error("run:\n\tseed: 1\n"), StartsWith("x.yaml:2: "));
  EXPECT_THAT(error("run: " + std::string(5000, '[') + "\n"), StartsWith("x.yaml:1: "));
  EXPECT_THAT(error("run: " + std::string(99, '[') + std::string(99, ']') + "\n"), HasSubstr("nested too deeply"));
  EXPECT_THAT(error(std::string(2 << 20, '#')), HasSubstr("too many"));
  EXPECT_EQ(error("---\nrun:\n  seed: 1\n...\n"), "") << "document marks around a single document are fine";
}

TEST(YamlReader, BoundsNameThePlace) {
  EXPECT_EQ(ErrorOf("rollout:\n  n: 0\n"), "x.yaml:4: rollout.n is 0: it must be 1 or more");
  EXPECT_EQ(ErrorOf("", {"rollout.n=0"}), "command line: rollout.n is 0: it must be 1 or more");
  EXPECT_EQ(ErrorOf("rollout:\n  temperature: -1\n"),
            "x.yaml:4: rollout.temperature is -1: it must be 0 (greedy) or at least 0.001");
  EXPECT_EQ(Message(ParseConfig("run: {seed: 1}\n", "x.yaml", {}).status()),
            "model.path is empty: it must be a Hugging Face model folder or a GGUF file");
}

TEST(YamlReader, TwoKeysThatContradictNameBothPlaces) {
  EXPECT_EQ(ErrorOf("rollout:\n  kv_blocks: 5\n  kv_memory_mb: 3\n"),
            "x.yaml:4: rollout.kv_blocks is 5 and rollout.kv_memory_mb is 3: both size the same cache; set one of them "
            "(also x.yaml:5)");
  EXPECT_EQ(
      ErrorOf("algorithm:\n  loss: gspo\n  clip_ratio_c: 3\n"),
      "x.yaml:5: algorithm.clip_ratio_c is 3, but algorithm.loss is gspo (at x.yaml:4): it takes effect only where "
      "that is ppo_clip");
  EXPECT_EQ(
      ErrorOf("reward:\n  regex: a\n"),
      "x.yaml:4: reward.regex is a, but reward.kind is arithmetic (by default): it takes effect only where that is "
      "exact_match");
  EXPECT_EQ(
      ErrorOf("algorithm:\n  clip_ratio_c: 3\n", {"algorithm.loss=cispo"}),
      "x.yaml:4: algorithm.clip_ratio_c is 3, but algorithm.loss is cispo (at command line): it takes effect only "
      "where that is ppo_clip");
  EXPECT_EQ(ErrorOf("algorithm:\n  loss: gspo\n"), "") << "defaults never contradict";
  EXPECT_THAT(ErrorOf("eval: {every: 5}\n"), HasSubstr("data.eval"));
  EXPECT_THAT(ErrorOf("roles: {learner: [0]}\n"), HasSubstr("set both or neither"));
  EXPECT_THAT(ErrorOf("reward: {kind: process}\n"), StartsWith("x.yaml:3: reward.kind is process, which needs"));
}

TEST(YamlReader, OverridesNeedAKeyAndAValue) {
  EXPECT_THAT(ErrorOf("", {"rollout.n"}), HasSubstr("must be section.key=value"));
  EXPECT_THAT(ErrorOf("", {"=3"}), HasSubstr("must be section.key=value"));
  EXPECT_THAT(ErrorOf("", {"rollout={n: 3}"}), HasSubstr("unknown key rollout"));
}

TEST(YamlReader, ReadsFilesAndSaysWhichIsMissing) {
  testing::TempDir dir;
  const std::string path = dir.Write("c.yaml", "model: {path: m}\nrollout: {n: 0}\n");
  EXPECT_THAT(ReadConfig(path, {}), StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(path + ":2: rollout.n")));
  EXPECT_OK(ReadConfig(path, {"rollout.n=2"}));
  EXPECT_THAT(ReadConfig(dir.File("none.yaml"), {}), StatusIs(absl::StatusCode::kNotFound, HasSubstr("none.yaml")));
}

TEST(YamlReader, ReadsBackWhatItWrites) {
  ASSERT_OK_AND_ASSIGN(
      Config config,
      Parse("run: {dir: 'yes', seed: 7}\n"
            "rollout: {stop: ['a\"b\\', \"tab\\t, [x] # no comment\", 'ünï'], temperature: 0.1}\n"
            "reward: {kind: process, command: [sh, '-c', 'echo \"1\" | cat'], weights: {a b: 0.1, n: 1e-300}}\n"
            "learner: {lr: 2.0000000000000003e-5}\n"
            "roles: {learner: [0], rollout: [1]}\n"));
  for (const bool with_comments : {false, true}) {
    const std::string yaml = ToYaml(config.options, with_comments);
    // Options without effect are written out too; at their defaults they contradict nothing.
    const absl::StatusOr<Config> again = ParseConfig(yaml, "effective.yaml", {});
    ASSERT_OK(again);
    EXPECT_EQ(ToYaml(again->options, with_comments), yaml);
    EXPECT_EQ(again->options.rollout.sampling, config.options.rollout.sampling);
    EXPECT_EQ(again->options.reward.weights, config.options.reward.weights);
    EXPECT_EQ(again->options.run.dir, "yes");
  }
}

}  // namespace
}  // namespace lockstep::job
