// SPDX-License-Identifier: Apache-2.0
#include "core/cpu_amx.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "base/status.h"
#include "core/cpu_isa.h"

namespace tessera {
namespace {

std::string MessageFor(const char* value, CpuIsa isa) {
  const CpuIsa active = ActiveIsa();
  SetActiveIsa(isa);
  setenv("TESSERA_CPU_AMX", value, 1);
  const Status status = CheckAmxEnvironment();
  unsetenv("TESSERA_CPU_AMX");
  SetActiveIsa(active);
  return status.ok() ? "" : Message(status);
}

TEST(CpuAmx, IsUsedOnlyWhereItIsAskedFor) {
  unsetenv("TESSERA_CPU_AMX");
  EXPECT_TRUE(CheckAmxEnvironment().ok());
  EXPECT_FALSE(ActiveAmx());
}

TEST(CpuAmx, TheEnvironmentIsChecked) {
  const CpuIsa best = DetectedIsa();
  EXPECT_EQ(MessageFor("0", best), "");
  EXPECT_EQ(MessageFor("", best), "");
  for (const char* value : {"yes", "10"}) {
    EXPECT_EQ(MessageFor(value, best),
              "TESSERA_CPU_AMX=" + std::string(value) + ": must be 0 or 1");
  }
#if defined(__x86_64__)
  EXPECT_EQ(MessageFor("1", CpuIsa::kBaseline),
            "TESSERA_CPU_AMX=1: goes with the instruction set avx512 or a higher one");
  if (best < CpuIsa::kAvx512) return;
  constexpr CpuIsa kLowest = CpuIsa::kAvx512;
#else
  constexpr CpuIsa kLowest = kCpuIsas[0];
#endif
  EXPECT_EQ(MessageFor("1", kLowest),
            HasAmx() ? ""
                     : "TESSERA_CPU_AMX=1: this machine has no AMX tiles for bfloat16, or its "
                       "operating system does not let them be used");
}

}  // namespace
}  // namespace tessera
