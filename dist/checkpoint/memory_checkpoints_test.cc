// SPDX-License-Identifier: Apache-2.0
#include "dist/checkpoint/memory_checkpoints.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/thread_communicator.h"
#include "nlohmann/json.hpp"

namespace tessera::dist {
namespace {

namespace fs = std::filesystem;
using Ranks = std::shared_ptr<Communicator>;

std::string FreshFolder() {
  const std::string folder = testing::TempDir() + "/memory_" +
                             testing::UnitTest::GetInstance()->current_test_info()->name();
  fs::remove_all(folder);
  return folder;
}

// A tensor that all ranks hold and one that they share out, both full of `value`.
std::vector<CheckpointTensor> TensorsOf(const Communicator& world, double value) {
  const Share rows = EvenShare(9, world.size(), world.rank());
  const Placement placement = Placement::Split({9, 5}, 0, {{9, rows.begin, rows.count}});
  std::vector<CheckpointTensor> tensors = {{"all", Zeros({30}), Placement::Whole({30})},
                                           {"rows", Zeros(placement.local_shape()), placement}};
  for (CheckpointTensor& t : tensors) Fill(t.tensor, value);
  return tensors;
}

MemoryFolder Place(const std::string& root, const std::vector<std::string>& hosts, int rank) {
  const std::string& host = hosts[static_cast<size_t>(rank)];
  return {.folder = root + "/" + host, .host = host};
}

void SaveSteps(const std::string& root, const std::vector<std::string>& hosts, int64_t steps) {
  RunRanks(static_cast<int>(hosts.size()), [&](Ranks world) {
    MemoryCheckpoints memory(Place(root, hosts, world->rank()), *world);
    for (int64_t step = 1; step <= steps; ++step) {
      const std::vector<CheckpointTensor> tensors = TensorsOf(*world, static_cast<double>(step));
      const Status saved = memory.Save(step, tensors, {{"step", step}});
      ASSERT_TRUE(saved.ok()) << Message(saved);
    }
  });
}

void ExpectNewest(const std::string& root, const std::vector<std::string>& hosts, int64_t step) {
  RunRanks(static_cast<int>(hosts.size()), [&](Ranks world) {
    const MemoryCheckpoints memory(Place(root, hosts, world->rank()), *world);
    const auto newest = memory.FindNewest();
    ASSERT_TRUE(newest.ok()) << Message(newest.status());
    ASSERT_EQ(newest->has_value(), step > 0);
    if (step == 0) return;
    EXPECT_EQ((*newest)->step(), step);
    EXPECT_EQ((*newest)->trainer()["step"], step);
    const std::vector<CheckpointTensor> tensors = TensorsOf(*world, -1);
    const Status loaded = (*newest)->Load(tensors, *world);
    ASSERT_TRUE(loaded.ok()) << Message(loaded);
    for (const CheckpointTensor& t : tensors) {
      for (const float x : t.tensor.ToVector<float>()) EXPECT_EQ(x, static_cast<float>(step));
    }
  });
}

TEST(MemoryCheckpointsTest, OneHostKeepsTheNewestTwo) {
  const std::string root = FreshFolder();
  SaveSteps(root, {"a", "a", "a"}, 3);
  EXPECT_EQ(ListCheckpoints(root + "/a"), (std::vector<int64_t>{2, 3}));
  ExpectNewest(root, {"a", "a", "a"}, 3);
  ExpectNewest(root, {"a"}, 3);  // on another number of ranks
}

// The other hosts together hold every file of the one that was lost.
TEST(MemoryCheckpointsTest, AnyHostMayBeLost) {
  const std::vector<std::vector<std::string>> layouts = {{"a", "b"},
                                                         {"a", "a", "b", "b"},
                                                         {"a", "a", "a", "b"},
                                                         {"a", "b", "c"},
                                                         {"b", "a", "a", "b"}};
  for (const std::vector<std::string>& hosts : layouts) {
    for (const std::string lost : {"a", "b", "c"}) {
      const std::string root = FreshFolder();
      SaveSteps(root, hosts, 2);
      fs::remove_all(root + "/" + lost);
      std::vector<std::string> left;
      for (const std::string& host : hosts) {
        if (host != lost) left.push_back(host);
      }
      if (left.size() == hosts.size()) continue;
      ExpectNewest(root, left, 2);
      left.insert(left.begin() + 1, "new");  // a host that has nothing
      ExpectNewest(root, left, 2);
    }
  }
}

// Where no host has an undamaged copy, the checkpoint before it is the newest.
TEST(MemoryCheckpointsTest, ADamagedFileIsReadFromTheOtherHost) {
  const std::string root = FreshFolder();
  const std::vector<std::string> hosts = {"a", "b"};
  SaveSteps(root, hosts, 2);
  const auto damage = [&](const std::string& host, int64_t step) {
    const std::string path =
        CheckpointPath(root + "/" + host, step) + "/tensors-00000-of-00002.safetensors";
    std::fstream file(path, std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
    ASSERT_TRUE(file.good()) << path;
  };
  damage("a", 2);
  ExpectNewest(root, hosts, 2);
  damage("b", 2);
  ExpectNewest(root, hosts, 1);
  fs::remove(CheckpointPath(root + "/a", 1) + "/tensors-00000-of-00002.safetensors");
  ExpectNewest(root, hosts, 1);
  fs::remove_all(CheckpointPath(root + "/b", 1));
  ExpectNewest(root, hosts, 0);
}

// A host that was away has a checkpoint of the same step from another course of the run.
TEST(MemoryCheckpointsTest, FilesOfAnotherCourseAreNotMixedIn) {
  const std::string root = FreshFolder();
  SaveSteps(root, {"a", "b", "c"}, 2);
  fs::rename(root + "/c", root + "/away");
  SaveSteps(root, {"a", "b"}, 2);
  fs::rename(root + "/away", root + "/c");
  ExpectNewest(root, {"a", "b", "c"}, 2);
  RunRanks(2, [&](Ranks world) {
    const MemoryCheckpoints memory(Place(root, {"a", "b"}, world->rank()), *world);
    EXPECT_TRUE(memory.RemoveAfter(1).ok());
  });
  EXPECT_EQ(ListCheckpoints(root + "/a"), std::vector<int64_t>{1});
  EXPECT_EQ(ListCheckpoints(root + "/b"), std::vector<int64_t>{1});
}

// More than fits in one message, of tensors that ranks cut as they did when they saved and in
// another way.
TEST(MemoryCheckpointsTest, LargeTensorsComeFromOtherHosts) {
  const std::string root = FreshFolder();
  const Shape shape({1, 2061, 4999});
  const auto share_of = [&](const Communicator& world, int dim) {
    return EvenShare(shape[dim], world.size(), world.rank());
  };
  const auto tensor_of = [&](const Communicator& world, int dim) {
    const Share share = share_of(world, dim);
    const Placement placement =
        Placement::Split(shape, dim, {{shape[dim], share.begin, share.count}});
    return CheckpointTensor{"large", Zeros(placement.local_shape()), placement};
  };
  // The value of an element is its place in the unsharded tensor, which float32 holds exactly.
  const auto value_at = [&](const Communicator& world, int dim, int64_t i) {
    const Share share = share_of(world, dim);
    const int64_t width = dim == 1 ? shape[2] : share.count;
    const int64_t row = i / width + (dim == 1 ? share.begin : 0);
    const int64_t column = i % width + (dim == 1 ? 0 : share.begin);
    return static_cast<float>(row * shape[2] + column);
  };
  RunRanks(2, [&](Ranks world) {
    MemoryCheckpoints memory(Place(root, {"a", "b"}, world->rank()), *world);
    const CheckpointTensor t = tensor_of(*world, 1);
    for (int64_t i = 0; i < t.tensor.numel(); ++i) {
      t.tensor.data<float>()[i] = value_at(*world, 1, i);
    }
    ASSERT_TRUE(memory.Save(1, {t}, {}).ok());
  });
  const auto expect_loads = [&](const std::vector<std::string>& hosts, int dim) {
    RunRanks(static_cast<int>(hosts.size()), [&](Ranks world) {
      const MemoryCheckpoints memory(Place(root, hosts, world->rank()), *world);
      const auto newest = memory.FindNewest();
      ASSERT_TRUE(newest.ok() && newest->has_value());
      const CheckpointTensor t = tensor_of(*world, dim);
      const Status loaded = (*newest)->Load({t}, *world);
      ASSERT_TRUE(loaded.ok()) << Message(loaded);
      int64_t wrong = 0;
      for (int64_t i = 0; i < t.tensor.numel(); ++i) {
        wrong += t.tensor.data<float>()[i] == value_at(*world, dim, i) ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0) << "along dim " << dim;
    });
  };
  expect_loads({"new", "b"}, 1);  // 20.6 MB of one piece
  expect_loads({"new", "b", "newer"}, 2);
}

TEST(MemoryCheckpointsTest, AFullHostIsAFailureOfAllRanks) {
  const std::string root = FreshFolder();
  fs::create_directories(root);
  std::FILE* const in_the_way = std::fopen((root + "/b").c_str(), "w");
  ASSERT_NE(in_the_way, nullptr);
  std::fclose(in_the_way);
  const std::vector<std::string> hosts = {"a", "b"};
  RunRanks(2, [&](Ranks world) {
    MemoryCheckpoints memory(Place(root, hosts, world->rank()), *world);
    const Status saved = memory.Save(1, TensorsOf(*world, 1), {});
    EXPECT_FALSE(saved.ok());
    EXPECT_NE(Message(saved).find("rank 1"), std::string::npos) << Message(saved);
  });
  EXPECT_TRUE(ListCheckpoints(root + "/a").empty());
}

}  // namespace
}  // namespace tessera::dist
