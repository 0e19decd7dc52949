// SPDX-License-Identifier: Apache-2.0
// Runs that differ in one planted thing: a bit of one operation's result or gradient, a seed, the
// order of the data, a flag. The comparison of their digests names what was planted, and the step
// that is taken again shows the element. With those of planted_kernels_test.cc and
// planted_layouts_test.cc there are more than a hundred faults; each is named within a minute.
#include "autograd/engine.h"
#include "train/testing/traced_runs.h"

namespace tessera::train {
namespace {

// A bit of one tensor.
struct FlippedBit {
  int64_t step = 1;
  int64_t micro_batch = 0;
  int64_t operation = 0;  // how many results, or gradients, of this pass come before
  bool backward = false;
};

std::ostream& operator<<(std::ostream& out, const FlippedBit& fault) {
  return out << "step " << fault.step << ", micro-batch " << fault.micro_batch << ", "
             << (fault.backward ? "gradient " : "result ") << fault.operation;
}

// Hands on to a run's own watcher what it sees, and flips the lowest bit of one element.
class Planter final : public TapeWatcher {
 public:
  explicit Planter(const FlippedBit& fault) : fault_(fault) {}

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
    element_ = IndexOf(element, t.shape());
    planted_ =
        Concat("rank 0, micro-batch ", fault_.micro_batch, ", ",
               place().backward ? "backward: " : "forward: ",
               gradient ? "the gradient for input " : "result ", index, " of '", origin.name, "'",
               origin.module_path == nullptr || origin.module_path->empty()
                   ? ""
                   : " in " + *origin.module_path);
  }

  const FlippedBit fault_;
  TapeWatcher* inner_ = nullptr;
  bool is_here_ = false;
  int64_t seen_ = 0;
  std::string planted_;
  Shape element_;
};

class PlantedFaultsTest : public TracedRuns {
 protected:
  static PlantedFault FaultOf(Planter* planter) {
    return {.before_pass = [planter](nn::Module&, const TracedPass& pass) {
      planter->Enter(pass.step, pass.micro_batch);
    }};
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
};

TEST_F(PlantedFaultsTest, ABitOfAnOperationIsNamedWithItsElement) {
  const RunConfig good = Traced("good");
  Run(good);
  std::vector<FlippedBit> faults;
  for (int64_t i = 0; i < 44; ++i) {
    faults.push_back({.step = 1 + i % 3, .micro_batch = i % 2, .operation = 2 * i});
  }
  for (int64_t i = 0; i < 26; ++i) {
    faults.push_back(
        {.step = 1 + i % 3, .micro_batch = (i / 2) % 2, .operation = 4 * i, .backward = true});
  }
  int planted = 0;
  for (const FlippedBit& bit : faults) {
    SCOPED_TRACE(testing::PrintToString(bit));
    const Stopwatch watch;
    RunConfig bad = Traced("bad");
    bad.overwrite = true;
    Planter planter(bit);
    Run(bad, 1, FaultOf(&planter));
    if (planter.planted().empty()) continue;  // a pass of fewer operations
    ++planted;
    const TraceComparison found = Compared(good, bad);
    EXPECT_EQ(found.difference, Concat("step ", bit.step, ": ", planter.planted(), " differs"));
    ASSERT_TRUE(found.in_a && found.in_b);
    // The program of `bad` has the fault, and takes the step again with it.
    const auto x = Retake(good.out, *found.in_a);
    ASSERT_TRUE(x.ok()) << Message(x.status());
    Planter again(bit);
    EXPECT_EQ(FirstOf(*x, RetakeWith(bad, 1, FaultOf(&again), *found.in_b)),
              Concat(planter.element()));
    EXPECT_LT(watch.seconds(), kMostSeconds);
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
      {"tp, lr", [](RunConfig* c) { c->tp = 2, c->lr = 2e-3; }, kUpdate, true, 2},
  };
  for (const Change& change : changes) {
    SCOPED_TRACE(change.name);
    const Stopwatch watch;
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
    EXPECT_LT(watch.seconds(), kMostSeconds);
  }
}

}  // namespace
}  // namespace tessera::train
