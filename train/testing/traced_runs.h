// SPDX-License-Identifier: Apache-2.0
// Small runs that trace digests, some with a planted fault, and where they part.
//
//   class MyTest : public TracedRuns {};
//   TEST_F(MyTest, NamesTheFault) {
//     Run(good);
//     Run(bad, 2, {.before_pass = [](nn::Module& model, const TracedPass& pass) { ... }});
//     EXPECT_EQ(Compared(good, bad).difference, "...");
//   }
#ifndef TESSERA_TRAIN_TESTING_TRACED_RUNS_H_
#define TESSERA_TRAIN_TESTING_TRACED_RUNS_H_

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/thread_communicator.h"
#include "train/testing/small_runs.h"
#include "train/trace/compare_traces.h"

namespace tessera::train {

// A fault is named within this time.
inline constexpr double kMostSeconds = 60;

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A forward pass that is about to begin, on the thread that runs it.
struct TracedPass {
  int rank;
  int64_t step;
  int64_t micro_batch;  // of the whole step
};

// How a run gets its fault. Pipelines and context-parallel ranks have no `before_pass`.
struct PlantedFault {
  // On each rank, before the run's first step.
  std::function<void(nn::Module& model, int rank)> at_start = nullptr;
  std::function<void(nn::Module& model, const TracedPass& pass)> before_pass = nullptr;
  std::function<double(int64_t step, int64_t total_steps)> learning_rate = nullptr;
};

class TracedRuns : public SmallRuns {
 protected:
  RunConfig Traced(const std::string& name) const {
    RunConfig config = Config(name);
    config.trace = "digests";
    config.max_steps = 3;
    config.val_fraction = 0;
    config.gradient_accumulation_steps = 2;
    config.deterministic = true;
    config.threads = 1;
    config.seq_len = 16;
    config.batch_size = 2;
    return config;
  }

  static void Run(const RunConfig& config, int ranks = 1, const PlantedFault& fault = {}) {
    OnRanks(config, ranks, fault, [](Trainer& trainer, int) {
      const auto result = trainer.Train({.output = nullptr});
      ASSERT_TRUE(result.ok()) << Message(result.status());
    });
  }

  // What the run gives with its fault when the step is taken again.
  static std::vector<RetakenTensor> RetakeWith(const RunConfig& config, int ranks,
                                               const PlantedFault& fault,
                                               const TracedTensor& wanted) {
    std::mutex mutex;
    std::map<int, std::vector<TensorPart>> by_rank;
    OnRanks(config, ranks, fault, [&](Trainer& trainer, int rank) {
      const auto again = trainer.Retake(wanted);
      ASSERT_TRUE(again.ok()) << Message(again.status());
      const std::scoped_lock lock(mutex);
      by_rank[rank] = *again;
    });
    std::vector<TensorPart> parts;
    for (const auto& [rank, own] : by_rank) parts.insert(parts.end(), own.begin(), own.end());
    return Assemble(parts);
  }

  static TraceComparison Compared(const RunConfig& a, const RunConfig& b) {
    const auto found = CompareTraces(a.out, b.out);
    EXPECT_TRUE(found.ok()) << Message(found.status());
    return found.ok() ? *found : TraceComparison();
  }

  // "transformer.wte.weight[2, 17]": the first element that differs.
  static std::string FirstOf(const std::vector<RetakenTensor>& x,
                             const std::vector<RetakenTensor>& y) {
    if (x.empty() || y.empty()) return "other bits";
    for (const RetakenTensor& t : x) {
      for (const RetakenTensor& other : y) {
        if (other.name != t.name) continue;
        if (t.data.shape() != other.data.shape()) return "other shapes";
        const std::vector<double> a = t.data.ToVector<double>();
        const std::vector<double> b = other.data.ToVector<double>();
        for (size_t i = 0; i < a.size(); ++i) {
          if (std::memcmp(&a[i], &b[i], sizeof(double)) != 0) {
            return Concat(t.name, IndexOf(static_cast<int64_t>(i), t.data.shape()));
          }
        }
      }
    }
    return "no difference";
  }

 private:
  static void OnRanks(const RunConfig& config, int ranks, const PlantedFault& fault,
                      const std::function<void(Trainer& trainer, int rank)>& body) {
    RunRanks(ranks, [&](const std::shared_ptr<Communicator>& world) {
      const auto mesh = MakeMesh(config, world);
      ASSERT_TRUE(mesh.ok()) << Message(mesh.status());
      const auto setup = PrepareRun(config, *mesh);
      ASSERT_TRUE(setup.ok()) << Message(setup.status());
      models::Model& model = *setup->model;
      if (fault.at_start) fault.at_start(model, world->rank());
      TrainerParts parts;
      parts.learning_rate.run = fault.learning_rate;
      if (fault.before_pass) {
        parts.step.forward.run = [&](const models::Bundle& batch,
                                     const models::RunOptions& options) {
          fault.before_pass(model,
                            {.rank = world->rank(),
                             .step = static_cast<int64_t>(options.context.step),
                             .micro_batch = static_cast<int64_t>(options.context.micro_batch)});
          return model.Run(batch, options);
        };
      }
      Trainer trainer(setup->config, model, setup->data, *mesh, std::move(parts));
      body(trainer, world->rank());
    });
  }
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TESTING_TRACED_RUNS_H_
