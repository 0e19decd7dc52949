// SPDX-License-Identifier: Apache-2.0
#include "tools/report/markup.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "nlohmann/json.hpp"

namespace tessera::report {
namespace {

TEST(MarkupTest, EscapesTextAndAttributes) {
  Markup out;
  out.Open("p", {{"title", "a\"b'<&>"}, {"data-n", 3}, {"x", 1.504}, {"y", 2.0}});
  out.Text("</p><script>&\x1b\xff" + std::string(1, '\0')).Close();
  EXPECT_EQ(std::move(out).Finish(),
            "<p title=\"a&quot;b&#39;&lt;&amp;&gt;\" data-n=\"3\" x=\"1.5\" y=\"2\">"
            "&lt;/p&gt;&lt;script&gt;&amp;\\x1b\\xff\\x00</p>");
}

TEST(MarkupTest, DataCannotEndTheirScript) {
  Markup out;
  out.Data({{"type", "application/json"}}, {{"a", "</script><!--"}, {"bad", "\xff"}});
  EXPECT_EQ(std::move(out).Finish(),
            "<script type=\"application/json\">"
            "{\"a\":\"\\u003c/script>\\u003c!--\",\"bad\":\"\xef\xbf\xbd\"}</script>");
}

TEST(MarkupTest, EveryElementIsClosed) {
  Markup open;
  open.Open("div").Leaf("input", {{"type", "checkbox"}});
  EXPECT_THROW(std::move(open).Finish(), Error);
  Markup closed;
  EXPECT_THROW(closed.Close(), Error);
}

}  // namespace
}  // namespace tessera::report
