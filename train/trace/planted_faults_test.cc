// SPDX-License-Identifier: Apache-2.0
// Runs that differ in one planted thing: a bit of one operation's result or gradient, a seed, the
// order of the data, a flag, a layout. The comparison of their digests names what was planted, and
// the step that is taken again shows the element.
#include <cstring>

#include "autograd/engine.h"
#include "core/thread_communicator.h"
#include "models/model_keys.h"
#include "train/testing/small_runs.h"
#include "train/trace/compare_traces.h"

namespace tessera::train {
namespace {

struct Fault {
  int64_t step = 1;
  int64_t micro_batch = 0;
  int64_t operation = 0;  // how many results, or gradients, of this pass come before
  bool backward = false;
};

std::ostream& operator<<(std::ostream& out, const Fault& fault) {
  return out << "step " << fault.step << ", micro-batch " << fault.micro_batch << ", "
             << (fault.backward ? "gradient " : "result ") << fault.operation;
}

// Hands on to a run's own watcher what it sees, and flips the lowest bit of one element.
class Planter final : public TapeWatcher {
 public:
  explicit Planter(const Fault& fault) : fault_(fault) {}

  // To be called at the start of a forward pass, on the thread that runs it.
  void Enter(int64_t step, int64_t micro_batch) {
    // Until the step's own scope ends: the backward pass comes after this call.
    TapeWatcher*& watcher = internal::execution_context.watcher;
    if (watcher != this) {
      inner_ = std::exchange(watcher, this);
      TapeWatcher::Enter(inner_->place());
    }
    is_here_ = step == fault_.step && micro_batch == fault_.micro_batch;
    seen_ = 0;
  }

  // "rank 0, micro-batch 1, forward: result 0 of 'linear' in transformer.h.0.attn.c_attn"; empty:
  // the pass had fewer operations.
  const std::string& planted() const { return planted_; }
  const Shape& element() const { return element_; }

 private:
  void Results(const Origin& origin, const std::vector<Tensor>& operands,
               const std::vector<Tensor>& results) override {
    for (size_t i = 0; i < results.size(); ++i) Plant(origin, false, i, results[i]);
    Sync();
    inner_->SeeResults(origin, operands, results);
  }
  void Arriving(const Origin& origin, const std::vector<Tensor>& of_results) override {
    Sync();
    inner_->SeeArriving(origin, of_results);
  }
  void Gradient(const Origin& origin, size_t operand, const Tensor& gradient,
                const std::vector<Tensor>& of_results) override {
    Plant(origin, true, operand, gradient);
    inner_->SeeGradient(origin, operand, gradient, of_results);
  }
  // The inner watcher counts this operation itself.
  void Sync() {
    PassPlace at = place();
    --at.operation;
    inner_->Enter(at);
  }
  void Plant(const Origin& origin, bool gradient, size_t index, const Tensor& t) {
    if (!is_here_ || gradient != fault_.backward || !t.defined() || !IsFloating(t.dtype()) ||
        t.numel() == 0 || !t.is_contiguous() || !planted_.empty() || seen_++ < fault_.operation) {
      return;
    }
    const int64_t element = t.numel() * 2 / 3;
    auto* const at = static_cast<std::byte*>(t.raw_data()) +
                     element * static_cast<int64_t>(DTypeSize(t.dtype()));
    *at ^= std::byte{1};
    element_ = RetakenTensor{.data = t, .begin = Zeros(t), .size = t.shape()}.PlaceOf(element);
    planted_ =
        Concat("rank 0, micro-batch ", fault_.micro_batch, ", ",
               place().backward ? "backward: " : "forward: ",
               gradient ? "the gradient for input " : "result ", index, " of '", origin.name, "'",
               origin.module_path == nullptr || origin.module_path->empty()
                   ? ""
                   : " in " + *origin.module_path);
  }
  static Shape Zeros(const Tensor& t) {
    return Shape(std::vector<int64_t>(static_cast<size_t>(t.ndim()), 0));
  }

  const Fault fault_;
  TapeWatcher* inner_ = nullptr;
  bool is_here_ = false;
  int64_t seen_ = 0;
  std::string planted_;
  Shape element_;
};

class PlantedFaultsTest : public SmallRuns {
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

  // With a fault planted, and what that run's step gives when it is taken again with it.
  static void Run(const RunConfig& config, int ranks = 1, Planter* planter = nullptr,
                  const TracedTensor* wanted = nullptr,
                  std::vector<RetakenTensor>* taken = nullptr) {
    RunRanks(ranks, [&](const std::shared_ptr<Communicator>& world) {
      const auto mesh = MakeMesh(config, world);
      ASSERT_TRUE(mesh.ok()) << Message(mesh.status());
      const auto setup = PrepareRun(config, *mesh);
      ASSERT_TRUE(setup.ok()) << Message(setup.status());
      TrainerParts parts;
      if (planter != nullptr) {
        parts.step.forward.run = [&](const models::Bundle& batch,
                                     const models::RunOptions& options) {
          planter->Enter(static_cast<int64_t>(options.context.step),
                         static_cast<int64_t>(options.context.micro_batch));
          return setup->model->Run(batch, options);
        };
      }
      Trainer trainer(setup->config, *setup->model, setup->data, *mesh, std::move(parts));
      if (wanted != nullptr) {
        const auto again = trainer.Retake(*wanted);
        ASSERT_TRUE(again.ok()) << Message(again.status());
        *taken = *again;
        return;
      }
      const auto result = trainer.Train({.output = nullptr});
      ASSERT_TRUE(result.ok()) << Message(result.status());
    });
  }

  static TraceComparison Compared(const RunConfig& a, const RunConfig& b) {
    const auto found = CompareTraces(a.out, b.out);
    EXPECT_TRUE(found.ok()) << Message(found.status());
    return found.ok() ? *found : TraceComparison();
  }

  // The first element that differs where both runs' steps are taken again.
  static std::string ElementOf(const RunConfig& a, const RunConfig& b,
                               const TraceComparison& found) {
    if (!found.in_a || !found.in_b) return "no tensors";
    const auto x = Retake(a.out, *found.in_a);
    const auto y = Retake(b.out, *found.in_b);
    if (!x.ok() || !y.ok()) return Message(x.ok() ? y.status() : x.status());
    return FirstOf(*x, *y);
  }
  static std::string FirstOf(const std::vector<RetakenTensor>& x,
                             const std::vector<RetakenTensor>& y) {
    if (x.empty() || y.empty()) return "other bits";
    for (size_t t = 0; t < x.size() && t < y.size(); ++t) {
      if (x[t].data.shape() != y[t].data.shape()) return "other shapes";
      const std::vector<double> a = x[t].data.ToVector<double>();
      const std::vector<double> b = y[t].data.ToVector<double>();
      for (size_t i = 0; i < a.size(); ++i) {
        if (std::memcmp(&a[i], &b[i], sizeof(double)) != 0) {
          return Concat(x[t].name, x[t].PlaceOf(static_cast<int64_t>(i)));
        }
      }
    }
    return "no difference";
  }
};

TEST_F(PlantedFaultsTest, ABitOfAnOperationIsNamedWithItsElement) {
  const RunConfig good = Traced("good");
  Run(good);
  std::vector<Fault> faults;
  for (int64_t i = 0; i < 44; ++i) {
    faults.push_back({.step = 1 + i % 3, .micro_batch = i % 2, .operation = 2 * i});
  }
  for (int64_t i = 0; i < 26; ++i) {
    faults.push_back(
        {.step = 1 + i % 3, .micro_batch = (i / 2) % 2, .operation = 4 * i, .backward = true});
  }
  int planted = 0;
  for (const Fault& fault : faults) {
    SCOPED_TRACE(testing::PrintToString(fault));
    RunConfig bad = Traced("bad");
    bad.overwrite = true;
    Planter planter(fault);
    Run(bad, 1, &planter);
    if (planter.planted().empty()) continue;  // a pass of fewer operations
    ++planted;
    const TraceComparison found = Compared(good, bad);
    EXPECT_EQ(found.difference, Concat("step ", fault.step, ": ", planter.planted(), " differs"));
    ASSERT_TRUE(found.in_a && found.in_b);
    // The program of `bad` has the fault, and takes the step again with it.
    const auto x = Retake(good.out, *found.in_a);
    ASSERT_TRUE(x.ok()) << Message(x.status());
    std::vector<RetakenTensor> y;
    Planter again(fault);
    Run(bad, 1, &again, &*found.in_b, &y);
    EXPECT_EQ(FirstOf(*x, y), Concat(planter.element()));
  }
  EXPECT_GE(planted, 60);
}

struct Change {
  const char* name;
  void (*make)(RunConfig* config);
  const char* expected;  // what the line begins with
  bool has_element = true;
  int ranks = 1;
};

TEST_F(PlantedFaultsTest, AChangedConfigurationIsNamedAtItsFirstEffect) {
  const RunConfig good = Traced("good");
  Run(good);
  constexpr char kStart[] = "before step 1: model.";
  constexpr char kData[] = "step 1: micro-batch 0: the data differ";
  constexpr char kForward[] = "step 1: rank 0, micro-batch 0, forward: ";
  constexpr char kUpdate[] = "step 1: after the update ";
  const Change changes[] = {
      {"seed", [](RunConfig* c) { c->seed = 7, c->data_seed = 0; }, kStart},
      {"another seed", [](RunConfig* c) { c->seed = 8, c->data_seed = 0; }, kStart},
      {"data_seed", [](RunConfig* c) { c->data_seed = 5; }, kData},
      {"another data_seed", [](RunConfig* c) { c->data_seed = 6; }, kData},
      {"shuffle", [](RunConfig* c) { c->shuffle = false; }, kData},
      {"seq_len", [](RunConfig* c) { c->seq_len = 12; }, kData, false},
      {"batch_size", [](RunConfig* c) { c->batch_size = 1; }, kData, false},
      {"lr", [](RunConfig* c) { c->lr = 1.0000001e-3; }, kUpdate},
      {"betas",
       [](RunConfig* c) {
         c->options["betas"] = {0.8, 0.999};
       },
       kUpdate},
      {"the other beta",
       [](RunConfig* c) {
         c->options["betas"] = {0.9, 0.99};
       },
       kUpdate},
      {"eps", [](RunConfig* c) { c->options["eps"] = 1e-6; }, kUpdate},
      {"weight_decay", [](RunConfig* c) { c->weight_decay = 0.2; }, kUpdate},
      {"max_grad_norm", [](RunConfig* c) { c->max_grad_norm = 0.01; }, kUpdate},
      {"warmup", [](RunConfig* c) { c->warmup_steps = 2; }, kUpdate},
      {"lr_schedule", [](RunConfig* c) { c->lr_schedule = "linear"; }, kUpdate},
      {"max_steps", [](RunConfig* c) { c->max_steps = 4; }, kUpdate},
      {"optimizer", [](RunConfig* c) { c->optimizer = "sgd"; }, "before step 1: optimizer.", false},
      {"dropout", [](RunConfig* c) { c->dropout = 0.2; }, kForward},
      {"label_smoothing", [](RunConfig* c) { c->label_smoothing = 0.1; }, kForward},
      {"accumulation", [](RunConfig* c) { c->gradient_accumulation_steps = 4; },
       "step 1: micro-batch 2 is in ", false},
      {"autocast", [](RunConfig* c) { c->autocast = "bfloat16"; }, kForward, false},
      {"zero", [](RunConfig* c) { c->zero = 1, c->gradient_accumulation_steps = 1; }, "", false, 2},
      {"zero 3", [](RunConfig* c) { c->zero = 3, c->gradient_accumulation_steps = 1; }, "", false,
       2},
      {"dp", [](RunConfig* c) { c->gradient_accumulation_steps = 1; }, "", false, 2},
      {"tp", [](RunConfig* c) { c->tp = 2; }, "", false, 2},
      {"dp, not deterministic",
       [](RunConfig* c) { c->gradient_accumulation_steps = 1, c->deterministic = false; }, kForward,
       false, 2},
      {"dp, lr", [](RunConfig* c) { c->gradient_accumulation_steps = 1, c->lr = 2e-3; }, kUpdate,
       true, 2},
      {"zero, lr",
       [](RunConfig* c) { c->zero = 2, c->gradient_accumulation_steps = 1, c->lr = 2e-3; }, kUpdate,
       true, 2},
      {"dp, seed",
       [](RunConfig* c) { c->gradient_accumulation_steps = 1, c->seed = 7, c->data_seed = 0; },
       kStart, true, 2},
      {"dp, dropout", [](RunConfig* c) { c->gradient_accumulation_steps = 1, c->dropout = 0.2; },
       kForward, true, 2},
      {"dp, data_seed", [](RunConfig* c) { c->gradient_accumulation_steps = 1, c->data_seed = 5; },
       kData, true, 2},
      // No part of the weight is the same in both runs.
      {"tp, lr", [](RunConfig* c) { c->tp = 2, c->lr = 2e-3; }, kUpdate, false, 2},
  };
  for (const Change& change : changes) {
    SCOPED_TRACE(change.name);
    RunConfig bad = Traced("bad");
    bad.overwrite = true;
    change.make(&bad);
    Run(bad, change.ranks);
    const TraceComparison found = Compared(good, bad);
    if (*change.expected == '\0') {
      EXPECT_EQ(found.difference, "");
      continue;
    }
    EXPECT_EQ(found.difference.find(change.expected), 0u) << found.difference;
    EXPECT_FALSE(found.configurations.empty());
    const std::string element = ElementOf(good, bad, found);
    EXPECT_EQ(element.find('[') != std::string::npos, change.has_element)
        << found.difference << ": " << element;
  }
}

}  // namespace
}  // namespace tessera::train
