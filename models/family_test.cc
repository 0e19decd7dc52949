// SPDX-License-Identifier: Apache-2.0
// Families and presets that are registered twice.
#include "models/family.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/error.h"

namespace tessera::models {
namespace {

Family Named(const char* type, const char* preset) {
  return {.model_type = type, .presets = {{preset, "", {{"model_type", type}}}}};
}

// Registers both, asks for the families, and ends the process with what was told.
[[noreturn]] void RegisterAndAsk(FamilyRegistration::Make first, FamilyRegistration::Make second) {
  const FamilyRegistration a(first);
  const FamilyRegistration b(second);
  try {
    std::fprintf(stderr, "%zu families", Families().size());
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
  }
  std::_Exit(3);
}

TEST(FamilyDeathTest, SecondRegistrationsAreToldWhenTheFirstIsAskedFor) {
  EXPECT_EXIT(RegisterAndAsk([] { return Named("a", "p"); }, [] { return Named("b", "q"); }),
              testing::ExitedWithCode(3), "^2 families$");
  EXPECT_EXIT(RegisterAndAsk([] { return Named("a", "p"); }, [] { return Named("a", "q"); }),
              testing::ExitedWithCode(3),
              "^families: two families of model_type 'a' are linked in$");
  EXPECT_EXIT(RegisterAndAsk([] { return Named("a", "p"); }, [] { return Named("b", "p"); }),
              testing::ExitedWithCode(3),
              "^families: two presets are named 'p', of 'a' and of 'b'$");
}

}  // namespace
}  // namespace tessera::models
