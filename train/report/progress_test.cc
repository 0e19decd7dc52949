// SPDX-License-Identifier: Apache-2.0
#include "train/report/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "base/file.h"

namespace tessera::train {
namespace {

// What work of 100 rows says in a file, at three places.
std::string Said(std::chrono::steady_clock::duration quiet) {
  const std::string path = testing::TempDir() + "/progress";
  std::FILE* const file = std::fopen(path.c_str(), "w");
  {
    WorkProgress progress(file, "eval", "rows", quiet);
    for (const int done : {0, 25, 100}) progress.Show(done, 100);
  }
  std::fclose(file);
  return *ReadFile(path);
}

TEST(WorkProgressTest, LinesWithoutControlCharactersWhereThereIsNoTerminal) {
  const std::string said = Said(std::chrono::seconds(0));
  EXPECT_EQ(said,
            "eval: 0/100 rows\neval: 25/100 rows  0:00 left\neval: 100/100 rows  0:00 left\n");
}

TEST(WorkProgressTest, ShortWorkSaysNothing) { EXPECT_EQ(Said(std::chrono::hours(1)), ""); }

}  // namespace
}  // namespace tessera::train
