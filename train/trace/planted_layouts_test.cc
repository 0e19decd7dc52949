// SPDX-License-Identifier: Apache-2.0
// Faults of one rank of a layout: a weight that begins otherwise, a gradient that comes otherwise,
// a learning rate. The comparison with a run of one rank names the step and the tensor, and the
// element by its index in the whole tensor.
#include <bit>
#include <cstdlib>
#include <fstream>

#include "autograd/autograd.h"
#include "train/testing/traced_runs.h"
#include "train/trace/digest.h"
#include "train/trace/digest_trace.h"

namespace tessera::train {
namespace {

// Of the last block, so that the last stage of a pipeline has it; tensor-parallel ranks cut it.
constexpr char kWeight[] = "transformer.h.3.mlp.c_fc.weight";

struct Layout {
  const char* name;
  int ranks;
  void (*apply)(RunConfig* config);
  bool shards_parameters = false;
  bool same_bits = true;  // as one rank gives
};

const Layout kLayouts[] = {
    {"tp", 2, [](RunConfig* c) { c->tp = 2; }},
    {"tp and sequences", 2, [](RunConfig* c) { c->tp = 2, c->sequence_parallel = true; }},
    {"pp", 2, [](RunConfig* c) { c->pp = 2; }},
    {"cp", 2, [](RunConfig* c) { c->cp = 2; }, /*shards_parameters=*/false, /*same_bits=*/false},
    {"dp", 2, [](RunConfig* c) { c->gradient_accumulation_steps = 1; }},
    {"zero 1", 2, [](RunConfig* c) { c->gradient_accumulation_steps = 1, c->zero = 1; }},
    {"zero 2", 2, [](RunConfig* c) { c->gradient_accumulation_steps = 1, c->zero = 2; }},
    {"zero 3", 2, [](RunConfig* c) { c->gradient_accumulation_steps = 1, c->zero = 3; },
     /*shards_parameters=*/true},
    {"tp and pp", 4, [](RunConfig* c) { c->tp = 2, c->pp = 2; }},
    {"dp and tp", 4, [](RunConfig* c) { c->gradient_accumulation_steps = 1, c->tp = 2; }},
};

// Of tensor-parallel ranks the second one gets the fault, so that its part does not begin the
// weight.
class PlantedLayoutsTest : public TracedRuns {
 protected:
  RunConfig Base(const std::string& name) const {
    RunConfig config = Traced(name);
    config.lr_schedule = "constant";
    return config;
  }
  RunConfig BadRun(const Layout& layout) const {
    RunConfig config = Base("bad");
    config.overwrite = true;
    layout.apply(&config);
    return config;
  }

  static nn::Parameter* WeightOf(nn::Module& model) {
    nn::Parameter* found = nullptr;
    model.VisitParameters([&](nn::Parameter& p) {
      if (p.name == kWeight && !p.elsewhere && p.tensor.defined()) found = &p;
    });
    return found;
  }
  // An element of this rank's part, and its index in the whole weight.
  static int64_t MiddleOf(const nn::Parameter& p) {
    return p.placement.local_shape().numel() / 2 + 1;
  }
  static Shape IndexInWhole(const nn::Parameter& p) {
    const Shape local = IndexOf(MiddleOf(p), p.placement.local_shape());
    Shape index = local;
    for (const BoxMapping& box : p.placement.boxes()) {
      bool within = true;
      for (int d = 0; d < local.ndim(); ++d) {
        within &=
            local[d] >= box.local_begin[d] && local[d] < box.local_begin[d] + box.global.size[d];
      }
      if (!within) continue;
      for (int d = 0; d < local.ndim(); ++d) {
        index[d] = box.global.begin[d] + local[d] - box.local_begin[d];
      }
    }
    return index;
  }

  // The named line of a layout with a fault, and the first element; nothing may differ without it.
  void ExpectNamed(const Layout& layout, const PlantedFault& fault, const std::string& line,
                   const std::string& element) const {
    const Stopwatch watch;
    const RunConfig good = Base("good");
    RunConfig bad = BadRun(layout);
    Run(bad, layout.ranks, fault);
    const TraceComparison found = Compared(good, bad);
    EXPECT_EQ(found.difference.find(line), 0u) << found.difference;
    ASSERT_TRUE(found.in_a && found.in_b) << found.difference;
    const auto x = Retake(good.out, *found.in_a);
    ASSERT_TRUE(x.ok()) << Message(x.status());
    if (found.in_b->kind == TracedTensor::Kind::kGradients) bad.zero = 0;  // as Retake does
    const std::vector<RetakenTensor> y = RetakeWith(bad, layout.ranks, fault, *found.in_b);
    if (found.in_b->kind == TracedTensor::Kind::kState) {
      ASSERT_EQ(y.size(), 1u);
      EXPECT_EQ(DigestOf(y.front().data), found.in_b->digest);
    }
    const std::string first = FirstOf(*x, y);
    EXPECT_NE(first.find(element), std::string::npos) << found.difference << ": " << first;
    EXPECT_LT(watch.seconds(), kMostSeconds);
  }
};

TEST_F(PlantedLayoutsTest, AWeightThatBeginsOtherwiseIsNamed) {
  Run(Base("good"));
  for (const Layout& layout : kLayouts) {
    if (layout.shards_parameters) continue;  // no rank has the weight outside of its passes
    SCOPED_TRACE(layout.name);
    const RunConfig config = BadRun(layout);
    const bool is_cut = config.tp > 1;
    Shape index;
    std::mutex mutex;
    const PlantedFault fault = {.at_start = [&](nn::Module& model, int rank) {
      nn::Parameter* const p = WeightOf(model);
      if (p == nullptr || (is_cut && rank % 2 == 0)) return;
      p->tensor.data<float>()[MiddleOf(*p)] += 1;
      const std::scoped_lock lock(mutex);
      index = IndexInWhole(*p);
    }};
    Run(config, layout.ranks, fault);  // says the index
    ExpectNamed(layout, fault, Concat("before step 1: model.", kWeight, " differs"),
                Concat("model.", kWeight, index));
  }
}

TEST_F(PlantedLayoutsTest, AGradientThatComesOtherwiseIsNamed) {
  Run(Base("good"));
  for (const Layout& layout : kLayouts) {
    if (!layout.same_bits) continue;  // the loss differs before
    SCOPED_TRACE(layout.name);
    const RunConfig config = BadRun(layout);
    const int64_t passes = config.gradient_accumulation_steps;
    const bool is_cut = config.tp > 1;
    std::map<int, int64_t> seen;  // backward passes of each rank
    std::mutex mutex;
    Shape index;
    const PlantedFault fault = {.at_start = [&, passes](nn::Module& model, int rank) {
      const std::scoped_lock lock(mutex);
      seen[rank] = 0;
      nn::Parameter* const p = WeightOf(model);
      if (p == nullptr || (is_cut && rank % 2 == 0)) return;
      AddGradHook(p->tensor, [&, passes, rank, p](const Tensor& gradient) {
        const std::scoped_lock once(mutex);
        if (seen[rank]++ != passes) return gradient;  // the first pass of step 2
        index = IndexInWhole(*p);
        const Tensor wrong = EmptyLike(gradient);
        CopyInto(wrong, gradient);
        wrong.data<float>()[MiddleOf(*p)] += 1;
        return wrong;
      });
    }};
    Run(config, layout.ranks, fault);  // says the index
    ExpectNamed(layout, fault, "step 2: the norm of the gradients is ", Concat(kWeight, index));
  }
}

// Without a fault every layout gives the gradients of one rank, all of them and whole.
TEST_F(PlantedLayoutsTest, GradientsAreThoseOfOneRank) {
  const RunConfig good = Base("good");
  Run(good);
  const std::vector<nlohmann::json> rows = [&] {
    std::ifstream in(DigestFile(good.out, 0));
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }();
  const std::string norm = rows.at(2)["grad_norm"];  // the first row is that of the start
  TracedTensor wanted = {.kind = TracedTensor::Kind::kGradients,
                         .step = 2,
                         .digest = std::bit_cast<uint64_t>(std::strtod(norm.c_str(), nullptr))};
  const auto x = Retake(good.out, wanted);
  ASSERT_TRUE(x.ok()) << Message(x.status());
  ASSERT_EQ(x->size(), 52u);
  EXPECT_EQ(x->front().name, "transformer.ln_f.bias");
  for (const Layout& layout : kLayouts) {
    if (!layout.same_bits) continue;
    SCOPED_TRACE(layout.name);
    const RunConfig config = BadRun(layout);
    Run(config, layout.ranks);
    wanted.ranks = layout.ranks;
    const auto y = Retake(config.out, wanted);
    ASSERT_TRUE(y.ok()) << Message(y.status());
    EXPECT_EQ(y->size(), x->size());
    EXPECT_EQ(FirstOf(*x, *y), "no difference");
  }
  wanted.digest ^= 1;
  EXPECT_TRUE(Retake(BadRun(kLayouts[0]).out, wanted)->empty());
}

// Operations of layouts that cut the model otherwise are not compared: the gradients are. Where
// the first step's loss rounds to the same number, as on some processors, the weights after it are.
TEST_F(PlantedLayoutsTest, ALayoutOfOtherBitsIsNamedInStepOne) {
  Run(Base("good"));
  for (const Layout& layout : kLayouts) {
    if (layout.same_bits) continue;
    SCOPED_TRACE(layout.name);
    ExpectNamed(layout, {}, "step 1: ", "transformer.");
  }
}

TEST_F(PlantedLayoutsTest, ALearningRateOfOneStepIsNamed) {
  Run(Base("good"));
  for (const Layout& layout : kLayouts) {
    if (!layout.same_bits) continue;
    SCOPED_TRACE(layout.name);
    const PlantedFault fault = {
        .learning_rate = [](int64_t step, int64_t) { return step == 2 ? 2e-3 : 1e-3; }};
    ExpectNamed(layout, fault, "step 2: after the update model.", "[");
  }
}

}  // namespace
}  // namespace tessera::train
