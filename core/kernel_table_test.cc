// SPDX-License-Identifier: Apache-2.0
#include "core/kernel_table.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera {
namespace {

struct Args {
  int* calls;
};

void Count(const Args& args) { ++*args.calls; }

std::string LaunchError(const KernelTable<Args>& table, int* calls) {
  try {
    table.Launch(Device::Cpu(), {calls});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(KernelTableTest, RunsTheOneKernelOfADevice) {
  KernelTable<Args> table("count");
  int calls = 0;
  EXPECT_EQ(LaunchError(table, &calls), "count: no kernel for cpu; registered: none");
  table.Register(DeviceType::kCpu, Count);
  EXPECT_EQ(LaunchError(table, &calls), "no error");
  table.Register(DeviceType::kCpu, Count);
  EXPECT_EQ(LaunchError(table, &calls), "count: two kernels of one kind of device are registered");
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace tessera
