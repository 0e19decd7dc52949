// SPDX-License-Identifier: Apache-2.0
// Ranks with a GPU each, by every way to start them, beside ranks that share one: the same losses,
// which are those of one process. Where the machine has one GPU, ranks that share it are all there
// is to see; --config=cuda_emulation has as many GPUs as it is asked for.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/process/process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

class GpuRanksTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/gpu_ranks";
    fs::remove_all(root_);
    fs::create_directories(root_);
    std::ofstream text(root_ + "/text.txt");
    for (int i = 0; i < 100; ++i) text << "line " << i << " of the text: " << i * i % 97 << "\n";
  }
  static void SetGpus(int gpus) {
    setenv("TESSERA_EMULATED_GPUS", std::to_string(gpus).c_str(), 1);
  }
  // Whether the program sees a second one.
  bool HasTwoGpus() const {
    SetGpus(2);
    Process inspect(Arguments{"inspect", "--devices"}, Path("devices"));
    EXPECT_EQ(inspect.ExitCode(), 0) << inspect.Errors();
    return inspect.Output().find("cuda:1: ") != std::string::npos;
  }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  Arguments Training(const std::string& run, const Arguments& more) const {
    Arguments arguments = {"train",
                           "gpt2",
                           "--data",
                           Path("text.txt"),
                           "--tokenizer",
                           "byte",
                           "--out",
                           Path(run),
                           "--seq-len",
                           "16",
                           "--batch-size",
                           "2",
                           "--max-steps",
                           "3",
                           "--dropout",
                           "0",
                           "--threads",
                           "1",
                           "--config-overrides",
                           "n_embd=16,n_layer=2,n_head=2,n_positions=16"};
    arguments.insert(arguments.end(), {"--log-interval", "1", "--val-fraction", "0"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::vector<double> Losses(const std::string& run) const {
    std::vector<double> losses;
    for (const auto& row : Metrics(Path(run))) {
      if (row.contains("loss")) losses.push_back(row["loss"]);
    }
    EXPECT_EQ(losses.size(), 3u) << run;
    return losses;
  }
  // What two ranks under mpirun print.
  std::string Train(const std::string& run, const Arguments& more) const {
    Process job(2, Training(run, more), Path(run + "-log"));
    EXPECT_EQ(job.ExitCode(), 0) << job.Errors();
    return job.Output();
  }

  std::string root_;
};

constexpr char kShare[] = "ranks 0 and 1 share a GPU";
constexpr char kOneGpu[] = "this machine has one GPU";

// Tensors of a GPU go through the host's memory over MPI.
TEST_F(GpuRanksTest, RanksThatShareAGpuTrainLikeOneProcess) {
  SetGpus(1);
  const std::vector<std::string> common = {"--device", "cuda", "--gradient-accumulation-steps"};
  const auto with = [&](const std::string& micro_batches, const Arguments& keys) {
    Arguments more = common;
    more.push_back(micro_batches);
    more.insert(more.end(), keys.begin(), keys.end());
    return more;
  };
  Process alone(Training("alone", with("2", {})), Path("alone-log"));
  ASSERT_EQ(alone.ExitCode(), 0) << alone.Errors();
  const std::vector<double> expected = Losses("alone");
  const std::vector<std::pair<std::string, Arguments>> layouts = {
      {"data", with("1", {})},
      {"zero2", with("1", {"--zero", "2"})},
      {"zero3", with("1", {"--zero", "3", "--cpu-offload", "true"})},
      {"tensor", with("2", {"--tp", "2", "--sequence-parallel", "true"})},
      {"pipeline", with("2", {"--pp", "2"})}};
  for (const auto& [name, keys] : layouts) {
    SCOPED_TRACE(name);
    EXPECT_NE(Train(name, keys).find(kShare), std::string::npos);
    const std::vector<double> losses = Losses(name);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i], 2e-5 * expected[i]) << "step " << i + 1;
    }
  }
}

TEST_F(GpuRanksTest, EveryLayoutTrainsOverNcclAsThroughHostMemory) {
  if (!HasTwoGpus()) GTEST_SKIP() << kOneGpu;
  const std::vector<std::pair<std::string, Arguments>> layouts = {
      {"data", {}},
      {"zero2", {"--zero", "2"}},
      {"zero3", {"--zero", "3", "--cpu-offload", "true"}},
      {"tensor", {"--tp", "2", "--sequence-parallel", "true"}},
      {"pipeline", {"--pp", "2", "--num-microbatches", "2"}},
      {"half", {"--dtype", "bfloat16"}}};
  for (const auto& [name, keys] : layouts) {
    SCOPED_TRACE(name);
    Arguments more = {"--device", "cuda"};
    more.insert(more.end(), keys.begin(), keys.end());
    SetGpus(1);
    const std::string shared = Train(name + "-shared", more);
    EXPECT_NE(shared.find(kShare), std::string::npos) << shared;
    EXPECT_NE(shared.find("2 ranks over MPI:"), std::string::npos) << shared;
    SetGpus(2);
    const std::string own = Train(name + "-own", more);
    EXPECT_EQ(own.find(kShare), std::string::npos) << own;
    EXPECT_NE(own.find("2 ranks over MPI and NCCL:"), std::string::npos) << own;
    EXPECT_EQ(Losses(name + "-own"), Losses(name + "-shared"));
  }
}

TEST_F(GpuRanksTest, ARankMayNameItsGpu) {
  if (!HasTwoGpus()) GTEST_SKIP() << kOneGpu;
  Process named({{1, Training("named", {"--device", "cuda:0"})},
                 {1, Training("named", {"--device", "cuda:1"})}},
                Path("named-log"));
  EXPECT_EQ(named.ExitCode(), 0) << named.Errors();
  EXPECT_EQ(named.Output().find(kShare), std::string::npos);
  EXPECT_NE(Train("one", {"--device", "cuda:1"}).find(kShare), std::string::npos);
  EXPECT_EQ(Losses("named"), Losses("one"));

  Process mixed(
      {{1, Training("mixed", {"--device", "cuda"})}, {1, Training("mixed", {"--device", "cpu"})}},
      Path("mixed-log"));
  EXPECT_NE(mixed.ExitCode(), 0);
  EXPECT_NE(mixed.Errors().find("device is \"cpu\""), std::string::npos) << mixed.Errors();

  Process absent({{2, Training("absent", {"--device", "cuda:2"})}}, Path("absent-log"));
  EXPECT_NE(absent.ExitCode(), 0);
  EXPECT_NE(absent.Errors().find("cuda:2"), std::string::npos) << absent.Errors();
}

// No thread of a rank, NCCL's watch and those of loaders either, takes memory of another's GPU.
TEST_F(GpuRanksTest, ARankHasAContextOnItsOwnGpuAlone) {
  if (!HasTwoGpus()) GTEST_SKIP() << kOneGpu;
  setenv("TESSERA_EMULATION_CONTEXTS", Path("contexts").c_str(), 1);
  Train("contexts-run", {"--device", "cuda"});
  unsetenv("TESSERA_EMULATION_CONTEXTS");
  std::ifstream contexts(Path("contexts"));
  std::map<int, std::set<int>> of_process;
  std::set<int> gpus;
  for (int process = 0, gpu = 0; contexts >> process >> gpu;) {
    of_process[process].insert(gpu);
    gpus.insert(gpu);
  }
  EXPECT_EQ(gpus, (std::set<int>{0, 1}));
  for (const auto& [process, own] : of_process) EXPECT_EQ(own.size(), 1u) << process;
}

TEST_F(GpuRanksTest, StartedAsByTorchrun) {
  if (!HasTwoGpus()) GTEST_SKIP() << kOneGpu;
  Train("mpi", {"--device", "cuda"});
  setenv("WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(20000 + getpid() % 20000).c_str(), 1);
  std::vector<std::unique_ptr<Process>> ranks;
  for (const char* rank : {"0", "1"}) {
    setenv("RANK", rank, 1);
    setenv("LOCAL_RANK", rank, 1);
    ranks.push_back(std::make_unique<Process>(Training("torchrun", {"--device", "cuda"}),
                                              Path(std::string("rank") + rank)));
  }
  for (const char* name : {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK"}) {
    unsetenv(name);
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->ExitCode(), 0) << rank->Errors();
  EXPECT_NE(ranks[0]->Output().find("2 ranks over TCP and NCCL:"), std::string::npos);
  EXPECT_EQ(Losses("torchrun"), Losses("mpi"));
}

}  // namespace
}  // namespace tessera
