// SPDX-License-Identifier: Apache-2.0
// Training where memory ends: every request fails in turn, and the trainer continues or says that
// it cannot.
#include <string>
#include <vector>

#include "base/file.h"
#include "core/thread_pool.h"
#include "gtest/gtest.h"
#include "models/model_keys.h"
#include "runtime/tessera_training.h"
#include "tests/inference/failing_memory.h"
#include "tests/inference/small_models.h"
#include "tests/runtime/model_folders.h"

namespace tessera {
namespace {

class TrainingMemoryTest : public testing::Test {
 protected:
  TrainingMemoryTest() {
    ThreadPool::OfProcess().SetNumThreads(1);
    options_.size = sizeof(options_);
    options_.learning_rate = 0.01;
    options_.accumulation_steps = 2;
    Bundle batch = SmallInputs("gpt2");
    batch.set(keys::kLabels, batch.at(keys::kInputIds));
    batch_ = std::make_unique<NamedTensors>(batch);
  }

  // The code of a call while requests fail from `first` on; how many it made.
  template <typename Call>
  int CodeWhereMemoryEnds(int64_t first, bool all_after, int64_t* requests, const Call& call) {
    FailingMemory::Arm({.first = first, .all_after = all_after});
    tsr_status* const status = call();
    *requests = FailingMemory::Disarm();
    return CodeOf(status);
  }

  tsr_status* Step(tsr_trainer* trainer) {
    return tsr_train_step(trainer, batch_->tensors.data(), batch_->tensors.size(), &loss_);
  }
  tsr_trainer* Make() {
    tsr_trainer* trainer = nullptr;
    EXPECT_EQ(CodeOf(tsr_train_create(folder_.c_str(), &options_, &trainer)), TSR_OK);
    return trainer;
  }
  void Release(tsr_trainer* trainer) { EXPECT_EQ(CodeOf(tsr_train_release(trainer)), TSR_OK); }

  // The losses of two updates of a trainer that was just made.
  std::vector<double> Losses(tsr_trainer* trainer) {
    std::vector<double> losses;
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(CodeOf(Step(trainer)), TSR_OK);
      losses.push_back(loss_);
    }
    return losses;
  }

  const std::string folder_ = SmallModelFolder("gpt2");
  tsr_train_options options_ = {};
  std::unique_ptr<NamedTensors> batch_;
  double loss_ = 0;
};

TEST_F(TrainingMemoryTest, MakingATrainerFailsWhole) {
  for (const bool all_after : {false, true}) {
    int64_t requests = 0;
    for (int64_t n = 1; n == 1 || requests >= n - 1; ++n) {
      tsr_trainer* trainer = nullptr;
      const int code = CodeWhereMemoryEnds(n, all_after, &requests, [&] {
        return tsr_train_create(folder_.c_str(), &options_, &trainer);
      });
      if (code == TSR_OK) {
        Release(trainer);
      } else {
        ASSERT_EQ(code, TSR_RESOURCE_EXHAUSTED) << "request " << n;
        ASSERT_EQ(trainer, nullptr);
      }
      if (requests < n) break;
    }
  }
}

// Whatever of a step fails: the parameters are as they were, or the trainer says that they are not.
TEST_F(TrainingMemoryTest, AStepFailsWhole) {
  tsr_trainer* const reference = Make();
  const std::vector<double> expected = Losses(reference);
  Release(reference);
  for (const bool all_after : {false, true}) {
    for (const int before : {0, 1}) {  // batches that the update has already
      int64_t requests = 0;
      for (int64_t n = 1; n == 1 || requests >= n - 3; n += 3) {
        tsr_trainer* const trainer = Make();
        for (int i = 0; i < before; ++i) ASSERT_EQ(CodeOf(Step(trainer)), TSR_OK);
        const int code =
            CodeWhereMemoryEnds(n, all_after, &requests, [&] { return Step(trainer); });
        if (code != TSR_OK) {
          ASSERT_EQ(code, TSR_RESOURCE_EXHAUSTED) << "request " << n;
          const int next = CodeOf(Step(trainer));
          if (next == TSR_OK) {
            EXPECT_EQ(loss_, expected[0]) << "request " << n;
          } else {
            EXPECT_EQ(next, TSR_FAILED_PRECONDITION) << "request " << n;
            EXPECT_EQ(before, 1) << "there was no update to break off";
          }
        }
        Release(trainer);
        if (requests < n || HasFailure()) break;
      }
    }
  }
}

TEST_F(TrainingMemoryTest, WhatIsWrittenIsWholeOrNotThere) {
  tsr_trainer* const trainer = Make();
  Losses(trainer);
  const std::string folder = testing::TempDir() + "/memory_saved";
  for (const bool checkpoint : {false, true}) {
    int64_t requests = 0;
    for (int64_t n = 1; n == 1 || requests >= n - 5; n += 5) {
      ASSERT_TRUE(RemoveAll(folder).ok());
      const int code = CodeWhereMemoryEnds(n, false, &requests, [&] {
        return checkpoint ? tsr_train_save_checkpoint(trainer, folder.c_str())
                          : tsr_train_save(trainer, folder.c_str());
      });
      if (code != TSR_OK) {
        ASSERT_EQ(code, TSR_RESOURCE_EXHAUSTED) << "request " << n;
      } else if (checkpoint) {
        EXPECT_EQ(CodeOf(tsr_train_load_checkpoint(trainer, folder.c_str())), TSR_OK);
      } else {
        EXPECT_NE(LoadHandle(folder), nullptr);
      }
      if (requests < n) break;
    }
  }
  Release(trainer);
}

}  // namespace
}  // namespace tessera
