// SPDX-License-Identifier: Apache-2.0
// Tasks and lists of options that are registered twice.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "base/error.h"
#include "train/config/run_config.h"
#include "train/task.h"

namespace tessera::train {
namespace {

// Ends the process with what `ask` told.
[[noreturn]] void Ask(const std::function<void()>& ask) {
  try {
    ask();
    std::fputs("fine", stderr);
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
  }
  std::_Exit(3);
}

[[noreturn]] void RegisterTask(const char* name) {
  static TaskKind task;
  task.name = name;
  const TaskRegistration registration(&task);
  Ask([] { Tasks(); });
}

[[noreturn]] void RegisterOptions(const OptionPart& part) {
  const OptionPartRegistration registration(part);
  Ask([] { OptionParts(); });
}

TEST(RegistrationDeathTest, SecondTasksAreToldWhenTheyAreAskedFor) {
  EXPECT_EXIT(RegisterTask("of_my_own"), testing::ExitedWithCode(3), "^fine$");
  EXPECT_EXIT(RegisterTask("masked_lm"), testing::ExitedWithCode(3),
              "^tasks: two are named 'masked_lm'$");
}

TEST(RegistrationDeathTest, SecondListsOfOptionsAreToldWhenTheyAreAskedFor) {
  const OptionTable* const table = &RunConfig::Table();
  EXPECT_EXIT(RegisterOptions({"task", "of_my_own", table}), testing::ExitedWithCode(3), "^fine$");
  EXPECT_EXIT(RegisterOptions({"optimizer", "adamw", table}), testing::ExitedWithCode(3),
              "^options: two lists of them belong to optimizer 'adamw'$");
}

}  // namespace
}  // namespace tessera::train
