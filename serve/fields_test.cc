// SPDX-License-Identifier: Apache-2.0
#include "serve/fields.h"

#include <gtest/gtest.h>

namespace tessera::serve {
namespace {

using nlohmann::ordered_json;

TEST(FieldsTest, ReadsWhatIsThere) {
  const ordered_json body = {{"t", 0.5},    {"n", 3.0},      {"on", true},
                             {"stop", "x"}, {"no", nullptr}, {"stops", {"a", "b"}},
                             {"user", "me"}};
  Fields fields(body);
  EXPECT_EQ(fields.Number("t", 0, 1), 0.5);
  EXPECT_EQ(fields.Integer("n", 1), 3);
  EXPECT_EQ(fields.Flag("on"), true);
  EXPECT_EQ(fields.Texts("stop", 2), std::vector<std::string>{"x"});
  EXPECT_EQ(fields.Texts("stops", 2)->size(), 2u);
  EXPECT_EQ(fields.Text("no"), std::nullopt);
  EXPECT_EQ(fields.Text("absent"), std::nullopt);
  fields.Allow({"user"});
  EXPECT_TRUE(fields.Finish().ok());
}

TEST(FieldsTest, KeepsTheFirstThatIsWrong) {
  struct Case {
    ordered_json body;
    std::string key, message;
  };
  for (const Case& c : std::vector<Case>{
           {{{"t", 2}}, "t", "t: must be at most 1, not 2"},
           {{{"t", "1"}}, "t", "t: must be a number, not \"1\""},
           {{{"n", 0}}, "n", "n: must be at least 1, not 0"},
           {{{"n", 1.5}}, "n", "n: must be an integer, not 1.5"},
           {{{"n", 18446744073709551615u}}, "n", "n: is too large: 18446744073709551615"},
           {{{"on", 1}}, "on", "on: must be true or false, not 1"},
           {{{"stops", {"a", 1}}},
            "stops",
            "stops: must be a text or a list of texts, not [\"a\",1]"},
           {{{"stops", {"a", "b", "c"}}}, "stops", "stops: must be at most 2 texts, not 3"},
           {{{"best", 2}}, "best", "best: there is one"},
           {{{"best", "x"}}, "best", "best: there is one"},
           {{{"on", nullptr}, {"skips", false}}, "skips", "skips: always"},
           {{{"stpos", 2}}, "stpos", "stpos: there is no such field here; did you mean 'stops'?"},
           {{{"n_probs", 2}}, "n_probs", "n_probs: there is no such field here; use 'logprobs'"},
           {{{"n_predict", 2}}, "n_predict", "n_predict: there is no such field here"},
           {{{"on", 1}, {"t", 2}}, "t", "t: must be at most 1, not 2"},
           {ordered_json::array(), "", "the body must be a JSON object"}}) {
    Fields fields(c.body);
    fields.Number("t", 0, 1);
    fields.Integer("n", 1);
    fields.Flag("on");
    fields.Texts("stops", 2);
    fields.Refuse("best", "there is one", 1);
    fields.Allow({"logprobs"});
    fields.Refuse("skips", "always", true);
    EXPECT_EQ(fields.Finish().message(), c.message) << c.body;
    EXPECT_EQ(fields.failed(), c.key);
  }
  const std::vector<ordered_json> neutral = {1, nullptr, false, "", ordered_json::array()};
  for (const ordered_json& best : neutral) {
    const ordered_json body = {{"best", best}, {"skips", true}, {"unknown", nullptr}};
    Fields fields(body);
    fields.Refuse("best", "there is one", 1);
    fields.Refuse("skips", "always", true);
    EXPECT_TRUE(fields.Finish().ok()) << body;
  }
}

struct Settings {
  double share = 1;
  int64_t count = 0;
  std::vector<std::string> ends = {};

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<Settings>("Settings")
            .Add("share", &Settings::share, "a share", {.least = 0, .most = 1})
            .Add("count", &Settings::count, "a count",
                 {.least = 1, .aliases = {{"max_tokens", "OpenAI"}, {"most", "OpenAI"}}})
            .Add("ends", &Settings::ends, "texts", {.aliases = {{"stop", "OpenAI"}}}));
    return *table;
  }
};

TEST(FieldsTest, DeclaredSettingsAreTakenByAnyOfTheirNames) {
  struct Case {
    ordered_json body;
    nlohmann::json asked;  // null: refused
    std::string message = "";
  };
  for (const Case& c : std::vector<Case>{
           {{{"share", 0.5}, {"count", 3.0}}, {{"share", 0.5}, {"count", 3}}},
           {{{"share", nullptr}}, nlohmann::json::object()},
           {{{"max_tokens", 2}, {"stop", "x"}}, {{"count", 2}, {"ends", {"x"}}}},
           {{{"max_tokens", 2}, {"most", 2}}, {{"count", 2}}},
           {{{"max_tokens", 2}, {"most", 3}},
            nullptr,
            "most: is given as max_tokens too, with another value"},
           {{{"share", 2}}, nullptr, "share: must be at most 1, not 2"},
           {{{"share", "x"}}, nullptr, "share: must be a number, not \"x\""},
           {{{"count", 1.5}}, nullptr, "count: must be an integer, not 1.5"},
           {{{"most", 0}}, nullptr, "most: must be at least 1, not 0"},
           {{{"count", 18446744073709551615u}},
            nullptr,
            "count: is too large: 18446744073709551615"},
           {{{"stop", {1}}}, nullptr, "stop: must be a text or a list of texts, not [1]"},
           {{{"shares", 1}},
            nullptr,
            "shares: there is no such field here; did you mean 'share'?"}}) {
    Fields fields(c.body);
    nlohmann::json asked = nlohmann::json::object();
    for (const Option& option : Settings::Table().options()) fields.Setting(option, &asked);
    const Status status = fields.Finish();
    EXPECT_EQ(status.ok(), !c.asked.is_null()) << c.body;
    if (status.ok()) {
      EXPECT_EQ(asked, c.asked) << c.body;
    } else {
      EXPECT_EQ(status.message(), c.message);
    }
  }
}

}  // namespace
}  // namespace tessera::serve
