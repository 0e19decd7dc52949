// SPDX-License-Identifier: Apache-2.0
#include "net/html/page_assets.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera::net {
namespace {

TEST(PageAssetsTest, FillsByName) {
  EXPECT_EQ(Fill("a{{x}}b{{y}}{{x}}", {{"x", "1"}, {"y", "{{x}}"}}), "a1b{{x}}1");
  EXPECT_EQ(Fill("}} {", {}), "}} {");
  EXPECT_THROW(Fill("{{z}}", {{"x", ""}}), Error);
  EXPECT_THROW(Fill("{{x", {{"x", ""}}), Error);
}

TEST(PageAssetsTest, ThePolicyAllowsNothingElse) {
  EXPECT_EQ(SecurityPolicy({"", "", "", "abc=", "def="}),
            "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
            "img-src data:; style-src 'sha256-abc='; script-src 'sha256-def='");
}

}  // namespace
}  // namespace tessera::net
