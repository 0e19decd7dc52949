// SPDX-License-Identifier: Apache-2.0
#include "docs/key_tables.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace tessera::docs {
namespace {

TEST(KeyTablesTest, ThePageIsWhatTheCodeSays) {
  const auto page = ReadFile("docs/cli.md");
  ASSERT_TRUE(page.ok());
  const auto text = WithTables(*page);
  ASSERT_TRUE(text.ok()) << Message(text.status());
  EXPECT_TRUE(*text == *page) << "docs/cli.md is out of date: bazel run //docs:write_key_tables";
}

TEST(KeyTablesTest, TheMigrationPageIsWhatTheCodeSays) {
  const auto page = ReadFile("docs/migration.md");
  ASSERT_TRUE(page.ok());
  const auto text = WithMigrationTables(*page);
  ASSERT_TRUE(text.ok()) << Message(text.status());
  EXPECT_TRUE(*text == *page)
      << "docs/migration.md is out of date: bazel run //docs:write_key_tables";
}

TEST(KeyTablesTest, AMissingPlaceIsNamed) {
  EXPECT_EQ(Message(WithTables("<!-- keys: generated -->\n<!-- end -->\n").status()),
            "the page has no place for optimizers");
}

}  // namespace
}  // namespace tessera::docs
