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
           {{{"t", 2}}, "t", "t: must be a number from 0 to 1"},
           {{{"t", "1"}}, "t", "t: must be a number from 0 to 1"},
           {{{"n", 0}}, "n", "n: must be an integer of at least 1"},
           {{{"n", 1.5}}, "n", "n: must be an integer of at least 1"},
           {{{"n", 18446744073709551615u}}, "n", "n: must be an integer of at least 1"},
           {{{"on", 1}}, "on", "on: must be true or false"},
           {{{"stops", {"a", 1}}}, "stops", "stops: must be a text, or a list of at most 2"},
           {{{"stops", {"a", "b", "c"}}}, "stops", "stops: must be a text, or a list of at most 2"},
           {{{"best", 2}}, "best", "best: there is one"},
           {{{"stpos", 2}}, "stpos", "stpos: there is no such field here; did you mean 'stops'?"},
           {{{"on", 1}, {"t", 2}}, "t", "t: must be a number from 0 to 1"},
           {ordered_json::array(), "", "the body must be a JSON object"}}) {
    Fields fields(c.body);
    fields.Number("t", 0, 1);
    fields.Integer("n", 1);
    fields.Flag("on");
    fields.Texts("stops", 2);
    fields.Refuse("best", "there is one", 1);
    EXPECT_EQ(fields.Finish().message(), c.message) << c.body;
    EXPECT_EQ(fields.failed(), c.key);
  }
  const ordered_json neutral = {{"best", 1}};
  Fields fields(neutral);
  fields.Refuse("best", "there is one", 1);
  EXPECT_TRUE(fields.Finish().ok());
}

}  // namespace
}  // namespace tessera::serve
