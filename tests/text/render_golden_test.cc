// goldens/text/render.jsonl: real chat templates against jinja2's renderings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/base/file.h"
#include "tests/testing/shared_files.h"
#include "tests/testing/status_matchers.h"
#include "tests/text/golden_rows.h"
#include "text/chat_template.h"

namespace lockstep::text {
namespace {

using Spans = std::vector<std::pair<int64_t, int64_t>>;

TEST(RenderGolden, EveryRow) {
  LOCKSTEP_NEEDS_SHARED();
  const std::vector<Json> rows = testing::ReadGoldenRows(
      "text/render.jsonl", {"template", "case", "messages", "tools", "add_generation_prompt", "kwargs", "bos_token",
                            "eos_token", "rendered", "error", "now", "generation_spans", "mutable_sandbox"});
  std::map<std::string, std::unique_ptr<ChatTemplate>> templates;
  int rendered = 0, errors = 0, spans = 0, failed = 0;
  for (const Json& row : rows) {
    const auto name = row["template"].get<std::string>();
    if (templates.count(name) == 0) {
      ASSERT_OK_AND_ASSIGN(const std::string source,
                           ReadFile(testing::SharedPath("goldens/text/templates/" + name + ".jinja")));
      ASSERT_OK_AND_ASSIGN(templates[name], ChatTemplate::Compile(source, {}));
    }
    const auto text = [&](const char* key) { return row[key].is_string() ? row[key].get<std::string>() : ""; };
    const SpecialTokens special{text("bos_token"), text("eos_token")};
    ChatInput input;
    input.messages = &row["messages"];
    input.tools = &row["tools"];
    input.add_generation_prompt = row["add_generation_prompt"].get<bool>();
    input.kwargs = &row["kwargs"];
    input.special = &special;
    input.now = row.value("now", std::string());
    input.mutable_sandbox = row.value("mutable_sandbox", false);
    const absl::StatusOr<ChatText> got = templates[name]->Render(input);
    const std::string where = name + " " + row["case"].dump();
    if (row.contains("error")) {
      EXPECT_THAT(got, testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                         ::testing::EndsWith(": " + row["error"].get<std::string>())))
          << where;
      ++errors;
      continue;
    }
    ++rendered;
    if (!got.ok()) {
      ADD_FAILURE() << where << ": " << got.status().ToString();
      continue;
    }
    if (got->text != row["rendered"].get<std::string>() && ++failed <= 5) {
      EXPECT_EQ(got->text, row["rendered"].get<std::string>()) << where;
    }
    if (row.contains("generation_spans")) {
      EXPECT_EQ(got->generation_spans, row["generation_spans"].get<Spans>()) << where;
      ++spans;
    }
  }
  EXPECT_EQ(failed, 0);
  std::cout << rendered << " renderings, " << errors << " errors, " << spans << " rows with generation spans\n";
  EXPECT_GE(rendered, 1700);
  EXPECT_GE(errors, 30);
}

}  // namespace
}  // namespace lockstep::text
