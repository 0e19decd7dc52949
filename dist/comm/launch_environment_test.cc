// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/launch_environment.h"

#include <gtest/gtest.h>

#include <map>

namespace tessera::dist {
namespace {

using Variables = std::map<std::string, std::string>;

StatusOr<LaunchEnvironment> Read(const Variables& variables) {
  return ReadLaunchEnvironment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string Refusal(const Variables& variables) {
  const auto e = Read(variables);
  return e.ok() ? "accepted" : Message(e.status());
}

const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"MASTER_ADDR", "10.0.0.1"},
                             {"MASTER_PORT", "29500"}};

Variables With(Variables base, const std::string& name, const std::string& value) {
  base[name] = value;
  return base;
}
Variables Without(Variables base, const std::string& name) {
  base.erase(name);
  return base;
}

TEST(LaunchEnvironmentTest, OneProcess) {
  for (const Variables& v :
       {Variables{}, Variables{{"RANK", "7"}}, Variables{{"SLURM_NTASKS", "8"}}}) {
    const auto e = Read(v);
    ASSERT_TRUE(e.ok());
    EXPECT_EQ(e->started_by, StartedBy::kAlone);
    EXPECT_EQ(e->size, 1);
  }
}

TEST(LaunchEnvironmentTest, MpirunComesFirst) {
  Variables v = kTorchrun;
  v.insert({{"OMPI_COMM_WORLD_SIZE", "6"},
            {"OMPI_COMM_WORLD_RANK", "5"},
            {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
            {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
            {"SLURM_PROCID", "0"},
            {"SLURM_NTASKS", "2"}});
  const auto e = Read(v);
  ASSERT_TRUE(e.ok());
  EXPECT_EQ(e->started_by, StartedBy::kMpirun);
  EXPECT_EQ(e->rank, 5);
  EXPECT_EQ(e->size, 6);
  EXPECT_EQ(e->local_rank, 2);
  EXPECT_EQ(e->local_size, 3);
}

TEST(LaunchEnvironmentTest, Slurm) {
  const auto e = Read({{"SLURM_PROCID", "9"}, {"SLURM_NTASKS", "16"}, {"SLURM_LOCALID", "1"}});
  ASSERT_TRUE(e.ok());
  EXPECT_EQ(e->started_by, StartedBy::kSlurm);
  EXPECT_EQ(e->rank, 9);
  EXPECT_EQ(e->local_rank, 1);
}

TEST(LaunchEnvironmentTest, Torchrun) {
  const auto e = Read(kTorchrun);
  ASSERT_TRUE(e.ok());
  EXPECT_EQ(e->started_by, StartedBy::kTorchrun);
  EXPECT_EQ(e->rank, 3);
  EXPECT_EQ(e->local_rank, 1);
  EXPECT_EQ(e->master_addr, "10.0.0.1");
  EXPECT_EQ(e->master_port, 29500);
  // torchrun's own agent has the port.
  EXPECT_EQ(Read(With(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True"))->master_port, 39500);
  EXPECT_EQ(Read(With(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "False"))->master_port, 29500);
  const Variables high = With(kTorchrun, "MASTER_PORT", "60000");
  EXPECT_EQ(Read(With(high, "TORCHELASTIC_USE_AGENT_STORE", "True"))->master_port, 50000);
}

// A batch script's own variables are in the environment of everything that it starts.
TEST(LaunchEnvironmentTest, TorchrunComesBeforeWhatStartedIt) {
  Variables v = kTorchrun;
  v.insert({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}});
  EXPECT_EQ(Read(v)->started_by, StartedBy::kTorchrun);
  EXPECT_EQ(Read(v)->rank, 3);
  v.insert({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}});
  EXPECT_EQ(Read(v)->started_by, StartedBy::kMpirun);
  for (const char* store : {"True", "False"}) {
    const auto e = Read(With(v, "TORCHELASTIC_USE_AGENT_STORE", store));
    ASSERT_TRUE(e.ok());
    EXPECT_EQ(e->started_by, StartedBy::kTorchrun);
    EXPECT_EQ(e->size, 4);
  }
  // A script that gives Slurm's tasks an address and a port, and no ranks.
  const Variables slurm = {{"SLURM_PROCID", "2"},
                           {"SLURM_NTASKS", "4"},
                           {"MASTER_ADDR", "10.0.0.1"},
                           {"MASTER_PORT", "29500"},
                           {"WORLD_SIZE", "4"}};
  EXPECT_EQ(Read(slurm)->started_by, StartedBy::kSlurm);
  EXPECT_EQ(Read(slurm)->rank, 2);
  EXPECT_EQ(Read(With(With(With(slurm, "RANK", "0"), "WORLD_SIZE", "1"), "LOCAL_RANK", "0"))->size,
            4);
}

TEST(LaunchEnvironmentTest, LaunchersOfAnotherMpiAreNamed) {
  EXPECT_NE(Refusal({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}).find("PMI_SIZE=4 is of another MPI's"),
            std::string::npos);
  EXPECT_NE(Refusal({{"MV2_COMM_WORLD_SIZE", "2"}}).find("MV2_COMM_WORLD_SIZE=2"),
            std::string::npos);
  EXPECT_EQ(Read({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}})->started_by, StartedBy::kAlone);
  EXPECT_EQ(Read({{"PMI_SIZE", "4"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}})->started_by,
            StartedBy::kSlurm);
}

TEST(LaunchEnvironmentTest, NamesTheVariableThatIsWrong) {
  for (const auto& [name, value] : kTorchrun) {
    EXPECT_NE(Refusal(Without(kTorchrun, name)).find("has no " + name), std::string::npos)
        << Refusal(Without(kTorchrun, name));
  }
  EXPECT_EQ(Refusal(With(kTorchrun, "RANK", "4")),
            "the environment's RANK=4 is not below WORLD_SIZE=4");
  for (const char* text : {"", "-1", "two", "3x", " 3", "99999999999999"}) {
    EXPECT_NE(Refusal(With(kTorchrun, "RANK", text)).find("RANK=\""), std::string::npos) << text;
    EXPECT_NE(Refusal({{"OMPI_COMM_WORLD_SIZE", text}, {"OMPI_COMM_WORLD_RANK", "0"}})
                  .find("OMPI_COMM_WORLD_SIZE=\""),
              std::string::npos);
  }
  EXPECT_NE(Refusal(With(kTorchrun, "MASTER_PORT", "65536")).find("MASTER_PORT"),
            std::string::npos);
  EXPECT_NE(Refusal(With(kTorchrun, "WORLD_SIZE", "0")).find("WORLD_SIZE"), std::string::npos);
  EXPECT_NE(Refusal({{"OMPI_COMM_WORLD_SIZE", "2"}}).find("OMPI_COMM_WORLD_RANK"),
            std::string::npos);
}

TEST(LaunchEnvironmentTest, GpusAreSharedOutByLocalRank) {
  EXPECT_EQ(DeviceOfRank("cuda", 5, 4)->ToString(), "cuda:1");
  EXPECT_EQ(DeviceOfRank("cuda", 0, 0)->ToString(), "cuda:0");
  EXPECT_EQ(DeviceOfRank("cuda:2", 5, 4)->ToString(), "cuda:2");
  EXPECT_EQ(DeviceOfRank("cpu", 5, 4)->ToString(), "cpu");
  EXPECT_FALSE(DeviceOfRank("tpu", 0, 1).ok());
}

}  // namespace
}  // namespace tessera::dist
