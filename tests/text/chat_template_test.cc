#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/file.h"
#include "tests/testing/shared_files.h"
#include "tests/testing/status_matchers.h"
#include "text/tokenizer.h"

namespace lockstep::text {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::string> RenderSource(const std::string& source, const Json& kwargs = Json()) {
  auto chat = ChatTemplate::Compile(source, {"<s>", "</s>"});
  if (!chat.ok()) return chat.status();
  return (*chat)->Render(Json::parse(R"([{"role":"user","content":"Hi"}])"), Json(), true, kwargs);
}

void ExpectRenders(const std::string& source, const std::string& want, const Json& kwargs = Json()) {
  const absl::StatusOr<std::string> got = RenderSource(source, kwargs);
  ASSERT_OK(got);
  EXPECT_EQ(*got, want) << source;
}

TEST(ChatTemplate, LoopsConditionsAndLoopVariables) {
  ExpectRenders("{% for m in messages %}{{ m.role }}:{{ m['content'] }}{% if loop.last %}.{% endif %}{% endfor %}",
                "user:Hi.");
  ExpectRenders("{% for i in range(5) if i % 2 %}{{ loop.index0 }}={{ i }};{% else %}none{% endfor %}", "0=1;1=3;");
  ExpectRenders("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012");
  ExpectRenders("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k ~ v }}{% endfor %}", "a1b2");
}

TEST(ChatTemplate, WhiteSpaceAsTransformersSetsIt) {
  ExpectRenders("a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc");
  ExpectRenders("a {{- ' b' -}} c", "a bc");
  ExpectRenders("x {#- note -#} y", "xy");
}

TEST(ChatTemplate, PythonValues) {
  ExpectRenders("{{ [1, 'a', none, true, 1.5, {'k': 'v'}] }}", "[1, 'a', None, True, 1.5, {'k': 'v'}]");
  ExpectRenders("{{ {'a': [1, \"x\"]} | tojson }}", R"({"a": [1, "x"]})");
  ExpectRenders("{{ 'abc'[::-1] }}{{ [1,2,3][-1] }}{{ 'hello'[1:3] }}", "cba3el");
  ExpectRenders("{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }}", "3 -4 2 3.5");
  ExpectRenders("{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
                "6");
  ExpectRenders("{% macro twice(x, sep='-') %}{{ x ~ sep ~ x }}{% endmacro %}{{ twice('a') }}{{ twice('b', sep='+') }}",
                "a-ab+b");
  ExpectRenders("{{ missing is defined }} {{ missing | default('d') }} {{ 'x' if missing }}", "False d ");
  ExpectRenders("{{ ' a b '.split() }} {{ 'a,b'.split(',') }} {{ '  x '.strip() }}", "['a', 'b'] ['a', 'b'] x");
  ExpectRenders("{{ flag }}", "7", Json{{"flag", 7}});
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_THAT(RenderSource("a\n{{ raise_exception('no such role') }}"),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("template line 2: no such role")));
  EXPECT_THAT(RenderSource("{% if x %}"), testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("endif")));
  EXPECT_THAT(RenderSource("{{ x.y }}"),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'x' is undefined")));
  EXPECT_THAT(RenderSource("{{ 1 + 'a' }}"),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("unsupported operand type(s) for +: 'int' and 'str'")));
  EXPECT_THAT(RenderSource("{{ 'a"), testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not closed")));
}

TEST(ChatTemplate, HostileTemplatesEndWithAnError) {
  EXPECT_THAT(RenderSource("{{ " + std::string(10000, '(') + "1" + std::string(10000, ')') + " }}"),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nested too deeply")));
  EXPECT_THAT(RenderSource("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too long")));
  EXPECT_THAT(RenderSource("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too deeply")));
}

TEST(ChatTemplate, SmolLmPromptIdsAsInTheGolden) {
  LOCKSTEP_NEEDS_SHARED();
  if (testing::SmolModelPath().empty())
    GTEST_SKIP() << "SKIPPED: the quickstart's model is absent (scripts/fetch-model)";
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Load(testing::SmolModelPath()));
  ASSERT_OK_AND_ASSIGN(const auto chat, ChatTemplate::Compile(tokenizer->chat_template_source(),
                                                              {tokenizer->bos_token(), tokenizer->eos_token()}));
  ASSERT_OK_AND_ASSIGN(const std::string text, ReadFile(testing::SharedPath("goldens/models/smollm2/golden.json")));
  const Json golden = Json::parse(text);
  int compared = 0;
  for (const Json& row : golden["cases"]) {
    const Json messages = Json::array({{{"role", "user"}, {"content", row["prompt"]}}});
    ASSERT_OK_AND_ASSIGN(const std::string prompt, chat->Render(messages, Json(), true, Json()));
    EXPECT_EQ(tokenizer->Encode(prompt, false), row["prompt_ids"].get<std::vector<int32_t>>());
    ++compared;
  }
  EXPECT_GE(compared, 2);
}

}  // namespace
}  // namespace lockstep::text
