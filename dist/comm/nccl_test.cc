// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "dist/comm/nccl_communicator.h"
#include "dist/comm/world.h"

namespace tessera::dist {
namespace {

bool HasDriver() { return access("/dev/nvidiactl", F_OK) == 0; }

TEST(NcclTest, WithoutADriverTheErrorIsOneLine) {
  if (HasDriver()) GTEST_SKIP() << "this machine has a driver";
  for (const Status& status :
       {NewNcclId().status(), OpenNccl(std::string(128, '\0'), 0, 1, {}).status()}) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(Message(status), "cuda:0: this machine has no NVIDIA driver");
  }
}

TEST(NcclTest, TorchrunStyleStartsAskNccl) {
  if (HasDriver()) GTEST_SKIP() << "this machine has a driver";
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("LOCAL_RANK", "0", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", "29999", 1);
  const auto gpu = OpenWorld({.device = "cuda"});
  EXPECT_NE(Message(gpu.status()).find("the GPUs do not answer"), std::string::npos)
      << Message(gpu.status());
  const auto cpu = OpenWorld({.device = "cpu"});
  EXPECT_NE(Message(cpu.status()).find("mpirun -n 2"), std::string::npos) << Message(cpu.status());
}

}  // namespace
}  // namespace tessera::dist
