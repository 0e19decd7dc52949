// SPDX-License-Identifier: Apache-2.0
#include "autograd/autograd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "autograd/finite_watch.h"
#include "autograd/gradcheck.h"
#include "autograd/recompute.h"

namespace tessera {
namespace {

// Small operations with known gradients, so that the tape is tested without ops/.
Tensor Map(const Tensor& a, const Tensor& b, double (*f)(double, double)) {
  Tensor y = EmptyLike(a);
  DispatchFloat(a.dtype(), "map", [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < a.numel(); ++i) {
      y.data<T>()[i] = static_cast<T>(f(a.data<T>()[i], b.data<T>()[i]));
    }
  });
  return y;
}

Tensor Product(const Tensor& a, const Tensor& b) {
  Tensor y = Map(a, b, [](double x, double z) { return x * z; });
  if (AnyRequiresGrad({a, b})) {
    Record("product", {a, b}, {y}, [a = SavedTensor(a), b = SavedTensor(b)](GradContext& ctx) {
      if (ctx.needs(0)) ctx.set(0, Product(ctx.grad(), b.Unpack()));
      if (ctx.needs(1)) ctx.set(1, Product(ctx.grad(), a.Unpack()));
    });
  }
  return y;
}

// y = x * w with the gradient of w apart.
Tensor Scaled(const Tensor& x, const Tensor& w) {
  Tensor y = Map(x, w, [](double a, double b) { return a * b; });
  if (AnyRequiresGrad({x, w})) {
    RecordSplit(
        "scaled", {x, w}, {y},
        [w = SavedTensor(w)](GradContext& ctx) {
          if (ctx.needs(0)) ctx.set(0, Product(ctx.grad(), w.Unpack()));
        },
        {1},
        [x = SavedTensor(x)](GradContext& ctx) {
          if (ctx.needs(1)) ctx.set(1, Product(ctx.grad(), x.Unpack()));
        });
  }
  return y;
}

Tensor Leaf(std::vector<float> values) {
  const auto n = static_cast<int64_t>(values.size());
  return RequireGrad(Tensor::FromVector<float>(values, {n}));
}

std::vector<float> GradOf(const Tensor& leaf) { return Grad(leaf).ToVector<float>(); }

TEST(AutogradTest, SumsOverAllUses) {
  const Tensor x = Leaf({3});
  Backward(Product(Product(x, x), x));
  EXPECT_EQ(GradOf(x), std::vector<float>{27});
  Backward(x.Detach().record() == nullptr ? Product(x, x) : x);
  EXPECT_EQ(GradOf(x), std::vector<float>{33});  // gradients add up over passes
}

TEST(AutogradTest, SeveralRootsWithGivenGradients) {
  const Tensor x = Leaf({2, 5});
  const Tensor y = Leaf({7, 1});
  const Tensor a = Product(x, y);
  const Tensor b = Product(x, x);
  Backward({a, b},
           {Tensor::FromVector<float>({1, 10}, {2}), Tensor::FromVector<float>({3, 0}, {2})});
  EXPECT_EQ(GradOf(x), (std::vector<float>{7 + 3 * 4, 10}));
  EXPECT_EQ(GradOf(y), (std::vector<float>{2, 50}));
}

// The gradient that an operation hands to both of its inputs is one tensor; what is added for one
// of them must not reach the other.
TEST(AutogradTest, AGradientSharedByTwoInputsIsNotAddedInto) {
  const Tensor x = Leaf({1});
  const Tensor z = Leaf({1});
  const Tensor two = Tensor::FromVector<float>({2}, {1});
  const Tensor a = Product(x, two);
  const Tensor b = Product(z, two);
  const Tensor later = Product(a, Tensor::FromVector<float>({5}, {1}));
  const Tensor sum = Map(a, b, [](double p, double q) { return p + q; });
  Record("sum", {a, b}, {sum}, [](GradContext& ctx) {
    ctx.set(0, ctx.grad());
    ctx.set(1, ctx.grad());
  });
  Backward({sum, later}, {Tensor(), Tensor()});
  EXPECT_EQ(GradOf(x), std::vector<float>{2 * (1 + 5)});
  EXPECT_EQ(GradOf(z), std::vector<float>{2});
}

TEST(AutogradTest, NoGradRecordsNothing) {
  const Tensor x = Leaf({2});
  const NoGrad no_grad;
  EXPECT_FALSE(RequiresGrad(Product(x, x)));
  const NoGrad again(true);
  EXPECT_TRUE(RequiresGrad(Product(x, x)));
}

TEST(AutogradTest, RefusesMisuse) {
  const Tensor x = Leaf({2, 3});
  EXPECT_THROW(Backward(Product(x, x)), Error);     // not one element
  EXPECT_THROW(Backward(Full({1}, 1.0)), Error);    // no leaf
  EXPECT_THROW(RequireGrad(Arange(3)), Error);      // integers
  EXPECT_THROW(RequireGrad(Product(x, x)), Error);  // not a leaf
  EXPECT_THROW(SetGrad(x, Zeros({3})), Error);      // shape
  const Tensor one = Leaf({1});
  const Tensor y = Product(one, one);
  Backward(y);
  EXPECT_THROW(Backward(y), Error);  // run twice
  const Tensor z = Product(one, one);
  Backward(z, {.retain_graph = true});
  EXPECT_NO_THROW(Backward(z));
}

TEST(AutogradTest, RefusesATensorChangedInPlaceButNotAGatheredOne) {
  const Tensor x = Leaf({2});
  const Tensor y = Product(x, x);
  AddInto(x, Full({1}, 1.0));
  EXPECT_THROW(Backward(y), Error);

  const Tensor w = Leaf({2});
  const Tensor z = Product(w, w);
  w.storage()->ReleaseBytes();
  EXPECT_THROW(Backward(z, {.retain_graph = true}), Error);
  w.storage()->ObtainBytes();
  {
    const UncountedWrite gather(w.storage());
    Fill(w, 2.0);
  }
  SetGrad(w, Tensor());
  Backward(z);
  EXPECT_EQ(GradOf(w), std::vector<float>{4});
}

TEST(AutogradTest, WritingToOrFromAResultOfTheTapeIsRefused) {
  const Tensor w = Leaf({1, 2});
  const Tensor y = Product(w, w);
  const Tensor plain = Full({2}, 3.0);
  EXPECT_THROW(Fill(y, 0), Error);
  EXPECT_THROW(CopyInto(y, plain), Error);
  EXPECT_THROW(AddInto(y, plain), Error);
  EXPECT_THROW(CopyInto(plain, y), Error);
  EXPECT_THROW(AddInto(plain, y), Error);
  EXPECT_EQ(y.ToVector<float>(), (std::vector<float>{1, 4}));
  EXPECT_EQ(plain.ToVector<float>(), (std::vector<float>{3, 3}));
  // Leaves, constants, copies, and whatever is written where nothing records.
  EXPECT_NO_THROW(CopyInto(plain, w));
  EXPECT_NO_THROW(AddInto(plain, y.Detach()));
  EXPECT_EQ(plain.ToVector<float>(), (std::vector<float>{2, 6}));
  EXPECT_NO_THROW(CastCopy(y, DType::kFloat64));
  EXPECT_NO_THROW(CopyTo(y, Device::Cpu()));
  EXPECT_EQ(y.AsStrided({2}, {0}, 1).ContiguousCopy().ToVector<float>(),
            (std::vector<float>{4, 4}));
  {
    const NoGrad no_grad;
    EXPECT_NO_THROW(CopyInto(plain, y));
    EXPECT_NO_THROW(Fill(y, 2));
  }
  EXPECT_NO_THROW(AddInto(w, plain));
}

// Communication that follows a node with weight gradients begins before those are computed.
TEST(AutogradTest, CommunicationStartsBeforeWeightGradients) {
  std::vector<std::string> events;
  const Tensor x = Leaf({2});
  const Tensor w = Leaf({3});
  for (const bool hooked : {false, true}) {
    events.clear();
    const Tensor copy = Full({1}, 2.0);
    RecordStarted(
        "communicate", {x}, {copy},
        [&](GradContext& ctx) { events.push_back(Concat("start ", ctx.grad().Item())); },
        [&](GradContext& ctx) {
          events.push_back("finish");
          ctx.set(0, ctx.grad());
        });
    if (hooked) AddGradHook(copy, [](const Tensor&) { return Full({1}, 5.0); });
    const Tensor y = Full({1}, 6.0);
    RecordSplit(
        "linear", {copy, w}, {y},
        [&](GradContext& ctx) {
          events.push_back("input");
          ctx.set(0, Full({1}, 3.0));
        },
        {1},
        [&](GradContext& ctx) {
          events.push_back("weight");
          ctx.set(1, Full({1}, 2.0));
        });
    Backward(y);
    using V = std::vector<std::string>;
    EXPECT_EQ(events, hooked ? (V{"input", "weight", "start 5", "finish"})
                             : (V{"input", "start 3", "weight", "finish"}));
    EXPECT_EQ(GradOf(x), std::vector<float>{hooked ? 8.0F : 3.0F});
  }
  EXPECT_EQ(GradOf(w), std::vector<float>{4});
}

TEST(AutogradTest, GradientsLieInTheBufferGiven) {
  const Tensor bucket = Full({4}, 7.0);
  const Tensor w = Leaf({3});
  const Tensor view = bucket.AsStrided({1}, {1}, 2);
  SetGradBuffer(w, view);
  EXPECT_FALSE(Grad(w).defined());
  Backward(Product(w, w));
  EXPECT_EQ(bucket.ToVector<float>(), (std::vector<float>{7, 7, 6, 7}));  // written, then added to
  Backward(Scaled(w, w));
  EXPECT_EQ(bucket.ToVector<float>(), (std::vector<float>{7, 7, 12, 7}));
  EXPECT_EQ(Grad(w).storage(), bucket.storage());
  SetGrad(w, Tensor());
  Backward(Product(w, w));
  EXPECT_EQ(bucket.ToVector<float>()[2], 12);
  EXPECT_EQ(GradOf(w), std::vector<float>{6});
  EXPECT_THROW(SetGradBuffer(w, bucket), Error);
  EXPECT_THROW(SetGradBuffer(w, Full({1}, 0.0, DType::kFloat64)), Error);
}

TEST(AutogradTest, ABufferIsAskedForWhenTheFirstContributionComes) {
  const Tensor w = Leaf({3});
  int asked = 0;
  const Tensor buffer = Full({1}, 7.0);
  const auto give = [&] {
    ++asked;
    return buffer;
  };
  SetGradBuffer(w, give);
  EXPECT_EQ(asked, 0);
  Backward(Product(w, w));
  Backward(Scaled(w, w));
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(buffer.ToVector<float>(), std::vector<float>{12});
  // A gradient that is set takes the buffer's place, also an undefined one.
  SetGradBuffer(w, give);
  SetGrad(w, Tensor());
  Backward(Product(w, w));
  EXPECT_EQ(asked, 1);
  SetGradBuffer(w, [] { return Zeros({2}); });
  EXPECT_THROW(Backward(Product(w, w)), Error);
  SetGradBuffer(w, [] { return Zeros({1}, DType::kFloat64); });
  EXPECT_THROW(Backward(Product(w, w)), Error);
}

TEST(AutogradTest, QueuedWeightGradientsAndCompleteHooks) {
  const Tensor w = Leaf({3});
  const Tensor x = Leaf({2});
  std::vector<float> seen;
  AddGradCompleteHook(w, [&](const Tensor& leaf) { seen.push_back(GradOf(leaf)[0]); });
  WeightGradQueue queue;
  Backward(Scaled(Scaled(x, w), w), {.weight_queue = &queue});
  EXPECT_EQ(GradOf(x), std::vector<float>{9});
  EXPECT_FALSE(Grad(w).defined());
  EXPECT_EQ(queue.size(), 2u);
  queue.Run(1);
  EXPECT_EQ(queue.size(), 1u);
  EXPECT_TRUE(seen.empty());
  queue.Run();
  EXPECT_EQ(seen, std::vector<float>{12});  // d(x w w)/dw = 2 x w
}

TEST(AutogradTest, QueuedLeafGradientsWaitAndComeInOrder) {
  const Tensor w = Leaf({3});
  const Tensor x = Leaf({2});
  std::vector<float> seen;
  AddGradCompleteHook(x, [&](const Tensor& leaf) { seen.push_back(GradOf(leaf)[0]); });
  WeightGradQueue first;
  WeightGradQueue second;
  Backward(Scaled(x, w), {.weight_queue = &first, .queue_leaf_gradients = true});
  Backward(Product(x, x), {.weight_queue = &second, .queue_leaf_gradients = true});
  EXPECT_FALSE(Grad(x).defined());
  EXPECT_FALSE(Grad(w).defined());
  EXPECT_TRUE(seen.empty());
  first.Run();
  EXPECT_EQ(GradOf(x), std::vector<float>{3});
  EXPECT_EQ(GradOf(w), std::vector<float>{2});
  second.Run();
  EXPECT_EQ(GradOf(x), std::vector<float>{7});  // 3 + 2 x
  EXPECT_EQ(seen, (std::vector<float>{3, 7}));
}

// Work of a pass may run before the pass is over; what comes later waits as before.
TEST(AutogradTest, AQueueMayRunWithinThePass) {
  const Tensor w = Leaf({3});
  const Tensor x = Leaf({2});
  const Tensor square = Product(x, x);
  WeightGradQueue queue;
  AddGradHook(square, [&](const Tensor&) {
    queue.Run();
    return Tensor();
  });
  Backward(Scaled(square, w), {.weight_queue = &queue, .queue_leaf_gradients = true});
  EXPECT_EQ(GradOf(w), std::vector<float>{4});
  EXPECT_FALSE(Grad(x).defined());
  queue.Run();
  EXPECT_EQ(GradOf(x), std::vector<float>{12});  // d(x x w)/dx = 2 x w
}

TEST(AutogradTest, WhatStartsCommunicationKnowsWhoNeedsGradients) {
  const Tensor x = Leaf({1});
  const Tensor y = Full({1}, 1.0);
  std::vector<bool> needs;
  RecordStarted(
      "started", {x, Full({1}, 1.0)}, {y},
      [&](GradContext& ctx) {
        needs = {ctx.needs(0), ctx.needs(1)};
      },
      [](GradContext& ctx) { ctx.set(0, ctx.grad()); });
  Backward(y);
  EXPECT_EQ(needs, (std::vector<bool>{true, false}));
}

// A pass gives back what gradient functions hold, while results of the graph are still there.
TEST(AutogradTest, NodesThatHaveRunHoldNothing) {
  const auto held = std::make_shared<int>(0);
  const Tensor x = Leaf({1});
  const Tensor w = Leaf({2});
  const auto holds = [held](int input) {
    return [held, input](GradContext& ctx) {
      if (input >= 0) ctx.set(input, ctx.grad());
    };
  };
  const Tensor plain = Full({1}, 1.0);
  const Tensor split = Full({1}, 1.0);
  const Tensor started = Full({1}, 1.0);
  Record("plain", {x}, {plain}, holds(0));
  RecordSplit("split", {x, w}, {split}, holds(0), {1}, holds(1));
  RecordStarted("started", {x}, {started}, holds(-1), holds(0));
  const std::vector<Tensor> roots = {plain, split, started};
  Backward(roots, {Tensor(), Tensor(), Tensor()}, {.retain_graph = true});
  EXPECT_GT(held.use_count(), 5);
  Backward(roots, {Tensor(), Tensor(), Tensor()});
  EXPECT_EQ(held.use_count(), 2);  // and `holds`
  EXPECT_EQ(GradOf(x), std::vector<float>{6});
}

// A weight that is a result itself needs its gradient within the pass.
TEST(AutogradTest, GradientsOfWeightsThatAreResultsDoNotWait) {
  const Tensor w = Leaf({3});
  const Tensor x = Leaf({2});
  WeightGradQueue queue;
  Backward(Scaled(x, Product(w, w)), {.weight_queue = &queue});
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_EQ(GradOf(w), std::vector<float>{12});  // d(x w w)/dw = 2 x w
}

TEST(AutogradTest, AGradientThatIsGivenIsRoundedToItsRoot) {
  const Tensor x = RequireGrad(Full({1}, 1.0, DType::kBFloat16));
  Backward({x}, {Full({1}, 1.0 / 3)});
  EXPECT_EQ(GradOf(x), Full({1}, 1.0 / 3, DType::kBFloat16).ToVector<float>());
}

TEST(AutogradTest, AGradientHasTheDTypeOfItsOutput) {
  const Tensor x = Leaf({3});
  const Tensor half = Full({1}, 3.0, DType::kBFloat16);
  DType seen = DType::kFloat32;
  Record("narrow", {x}, {half}, [&](GradContext& ctx) {
    seen = ctx.grad().dtype();
    ctx.set(0, CastCopy(ctx.grad(), DType::kFloat32));
  });
  const Tensor y = Full({1}, 6.0);
  Record("wide", {half}, {y}, [](GradContext& ctx) { ctx.set(0, Full({1}, 2.0)); });
  Backward(y);
  EXPECT_EQ(seen, DType::kBFloat16);
  EXPECT_EQ(GradOf(x), std::vector<float>{2});
}

TEST(AutogradTest, CompleteFiresForALeafThatGetsNoGradient) {
  const Tensor x = Leaf({1});
  const Tensor a = Leaf({1});
  int fired = 0;
  AddGradCompleteHook(a, [&](const Tensor&) { ++fired; });
  // No gradient reaches two nodes, of which one has a constant for an input.
  const Tensor unused = Product(Product(a, a), Full({1}, 1.0));
  Tensor y1 = Full({1}, 1.0);
  Tensor y2 = Full({1}, 1.0);
  Record("two", {x, unused}, {y1, y2}, [](GradContext& ctx) {
    ctx.set(0, ctx.grad(0));
    ctx.set(1, Tensor());
  });
  Backward(y1);
  EXPECT_EQ(fired, 1);
  EXPECT_FALSE(Grad(a).defined());
}

TEST(AutogradTest, HooksSeeAndReplaceWholeGradients) {
  const Tensor x = Leaf({2});
  const Tensor y = Product(x, x);
  std::vector<float> seen;
  AddGradHook(y, [&](const Tensor& g) {
    seen = g.ToVector<float>();
    return Full({1}, 1.0);
  });
  Backward(Product(y, y));
  EXPECT_EQ(seen, std::vector<float>{8});
  EXPECT_EQ(GradOf(x), std::vector<float>{4});
}

TEST(AutogradTest, WhatAHookReturnsFitsTheGradient) {
  for (const bool of_leaf : {true, false}) {
    const auto hooked = [&](const TensorHook& hook) {
      const Tensor x = RequireGrad(Full({2, 3}, 2.0));
      const Tensor y = Product(x, x);
      AddGradHook(of_leaf ? x : y, hook);
      return std::pair(x, Product(y, y));
    };
    const Tensor ones = Full({2, 3}, 1.0);
    const auto refused = [&](const TensorHook& hook) {
      const auto [x, y] = hooked(hook);
      try {
        Backward({y}, {ones});
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    const std::string shape = refused([](const Tensor&) { return Full({3, 2}, 1.0); });
    EXPECT_NE(shape.find("given the gradient float32[2, 3] and returned float32[3, 2]"),
              std::string::npos)
        << shape;
    EXPECT_NE(refused([](const Tensor&) { return Full({1}, 1.0); }), "");
    EXPECT_NE(refused([](const Tensor& grad) {
                return Empty(grad.shape(), grad.dtype(), Device::Meta());
              }),
              "");
    // Promotion makes a dtype wider, and the gradient keeps its own.
    const auto [x, y] =
        hooked([](const Tensor& grad) { return Full(grad.shape(), 1.5, DType::kFloat64); });
    std::vector<DType> seen;
    AddGradHook(of_leaf ? x : y, [&](const Tensor& grad) {
      seen.push_back(grad.dtype());
      return Tensor();
    });
    Backward({y}, {ones});
    EXPECT_EQ(Grad(x).dtype(), DType::kFloat32);
    EXPECT_EQ(seen, std::vector<DType>{DType::kFloat32});
    EXPECT_EQ(GradOf(x), std::vector<float>(6, of_leaf ? 1.5f : 6.0f));
  }
}

TEST(AutogradTest, AHookOfALeafSeesItsWholeGradientOfAPass) {
  const Tensor w = Leaf({3});
  const Tensor x = Leaf({2});
  std::vector<float> seen;
  HookHandle hook = AddGradHook(w, [&](const Tensor& grad) {
    seen.push_back(grad.ToVector<float>()[0]);
    return Full({1}, 100.0);
  });
  std::vector<float> complete;
  AddGradCompleteHook(w, [&](const Tensor& leaf) { complete.push_back(GradOf(leaf)[0]); });
  Backward(Scaled(Scaled(x, w), w));
  WeightGradQueue queue;
  Backward(Scaled(Product(x, w), w), {.weight_queue = &queue, .queue_leaf_gradients = true});
  EXPECT_EQ(seen.size(), 1u);
  queue.Run();
  EXPECT_EQ(seen, (std::vector<float>{12, 12}));  // d(x w w)/dw = 2 x w, in one piece
  EXPECT_EQ(complete, (std::vector<float>{100, 200}));
  hook.Remove();
  hook.Remove();
  Backward(Scaled(x, w));
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_EQ(GradOf(w), std::vector<float>{202});
}

TEST(AutogradTest, HooksRemoveThemselvesAndHandlesOutliveTensors) {
  HookHandle late;
  {
    const Tensor x = Leaf({2});
    int calls = 0;
    HookHandle once;
    once = AddGradHook(x, [&](const Tensor&) {
      ++calls;
      once.Remove();
      return Tensor();
    });
    late = AddGradHook(x, [&](const Tensor&) {
      ++calls;
      return Tensor();
    });
    Backward(Product(x, x));
    EXPECT_EQ(calls, 2);
    Backward(Product(x, x));
    EXPECT_EQ(calls, 3);
    const Tensor y = Product(x, x);
    AddGradHook(y, [&](const Tensor&) {
      ADD_FAILURE() << "removed";
      return Tensor();
    }).Remove();
    Backward(y);
  }
  late.Remove();
}

std::string MessageOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(AutogradTest, AGradientFunctionThatLeavesAnInputOutIsTold) {
  const Tensor a = Leaf({1, 2});
  const Tensor b = Leaf({1});
  const Tensor y = Full({1}, 1.0);
  Record("forgets", {a, b}, {y}, [](GradContext& ctx) { ctx.set(1, ctx.grad()); });
  EXPECT_EQ(MessageOf([&] { Backward(y); }),
            "backward: the gradient of 'forgets' says nothing for its input 0 of shape [2], which "
            "needs one; where there is none, set(0, Tensor()) says so");
  const Tensor z = Full({1}, 1.0);
  Record("has none", {a, b}, {z}, [](GradContext& ctx) {
    ctx.set(0, Tensor());
    ctx.set(1, ctx.grad());
  });
  Backward(z);
  EXPECT_FALSE(Grad(a).defined());
  EXPECT_EQ(GradOf(b), std::vector<float>{1});
}

TEST(AutogradTest, ErrorsNameTheOperationAndTheModuleThatCalledIt) {
  const Tensor x = Leaf({2});
  const auto path = std::make_shared<const std::string>("h.0.attn");
  Tensor y = Full({1}, 1.0);
  {
    const ExecutionModeScope<&ExecutionContext::module_path> in_module(&path);
    Record("fails", {x}, {y}, [](GradContext&) { throw Error("scale", "no such scale"); });
  }
  EXPECT_EQ(MessageOf([&] { Backward(y); }),
            "scale: no such scale (in the gradient of 'fails' in h.0.attn)");
}

TEST(AutogradTest, AnomaliesAreFoundWhereTheyBegin) {
  const Tensor x = Leaf({2, 0});
  const auto run = [&] {
    const Tensor y = EmptyLike(x);
    Record("inverse", {x}, {y}, [x = SavedTensor(x)](GradContext& ctx) {
      ctx.set(0, Map(ctx.grad(), x.Unpack(), [](double g, double v) { return -g / (v * v); }));
    });
    Backward({Product(y, Full({2}, 1.0))}, {Full({2}, 1.0)});
  };
  EXPECT_EQ(MessageOf(run), "no error");
  const DetectAnomaly mode;
  EXPECT_EQ(MessageOf(run),
            "backward: the gradient of 'inverse' for its input 0, float32[2], is -inf at element 1 "
            "(1 of 2 "
            "are not finite; the others at most 0.25, rms 0.25); the gradient of result 0, "
            "float32[2], is "
            "finite (at most 1, rms 1)");
}

TEST(AutogradTest, AnomaliesOfTheForwardPassAreFoundWhereTheyBegin) {
  const Tensor x = Leaf({3e38, 2});
  const Tensor mask = Tensor::FromVector<float>({-INFINITY, 0}, {2});
  const auto path = std::make_shared<const std::string>("h.0.mlp");
  const ExecutionModeScope<&ExecutionContext::module_path> in_module(&path);
  const DetectAnomaly mode;
  // A mask's infinity is meant.
  const Tensor masked = EmptyLike(x);
  CopyInto(masked, mask);
  EXPECT_NO_THROW(Record("add", {x, mask}, {masked}, nullptr));
  EXPECT_EQ(
      MessageOf([&] { Product(x, Full({2}, 10.0)); }),
      "h.0.mlp: forward: result 0 of 'product' in h.0.mlp, float32[2], is inf at element 0 (1 of 2 "
      "are not finite; the others at most 20, rms 20); input 0, float32[2], is finite (at most "
      "3e+38, rms 2.12132e+38); input 1, float32[2], is finite (at most 10, rms 10)");
  const DetectAnomaly off(false);
  EXPECT_EQ(MessageOf([&] { Product(x, Full({2}, 10.0)); }), "no error");
}

TEST(AutogradTest, AWatchKeepsWhatOneProcessMeetsFirst) {
  FiniteWatch watch;
  const TapeWatcher::Scope scope(&watch);
  const Tensor x = Leaf({2});
  const Tensor bad = Full({1}, NAN);
  const auto see = [&](const PassPlace& place, const char* name) {
    watch.Enter(place);
    Record(name, {x}, {bad.ContiguousCopy()}, nullptr);
  };
  EXPECT_FALSE(watch.found());
  for (const auto& [place, name] : std::vector<std::pair<PassPlace, const char*>>{
           {{.micro_batch = 2}, "later micro-batch"},
           {{.micro_batch = 1, .backward = true}, "backward, chunk 0"},
           {{.micro_batch = 1, .backward = true, .chunk = 1}, "backward, chunk 1"},
           {{.micro_batch = 1, .chunk = 1}, "forward, chunk 1"},
           {{.micro_batch = 1}, "forward, chunk 0"}}) {
    see(place, name);
    ASSERT_TRUE(watch.found());
    EXPECT_EQ(watch.found()->operation, name);
  }
  see({.micro_batch = 1, .chunk = 1}, "not before");
  see({.micro_batch = 1, .operation = 5}, "nor this");
  EXPECT_EQ(watch.found()->operation, "forward, chunk 0");
}

TEST(AutogradTest, SumsOfGradientsThatOverflowAreFound) {
  const Tensor x = Leaf({1});
  const Tensor y = Product(x, Full({1}, 1.0));
  const Tensor huge = Full({1}, 3e38);
  const Tensor a = Product(y, huge), b = Product(y, huge);
  FiniteWatch watch;
  const TapeWatcher::Scope scope(&watch);
  Backward({a, b}, {Full({1}, 1.0), Full({1}, 1.0)});
  ASSERT_TRUE(watch.found());
  EXPECT_EQ(watch.found()->kind, BadNumber::Kind::kSum);
  EXPECT_EQ(
      Concat(*watch.found()),
      "the sum of gradients that reach result 0 of 'product', float32[1], is inf at element 0");
}

TEST(AutogradTest, TensorsSeveredFromTheTapeAreRefused) {
  const Tensor w = Leaf({1, 2});
  const Tensor matrix = RequireGrad(Zeros({2, 3}));
  const Tensor half = Product(w, w);
  for (const auto& [name, severed] : std::vector<std::pair<std::string, Tensor>>{
           {"AsStrided", w.AsStrided({2}, {1}, 0)},
           {"AsStrided", half.AsStrided({2}, {1}, 0)},
           {"AsStrided", w.ContiguousCopy().AsStrided({2}, {1}, 0)},
           {"ContiguousCopy", w.ContiguousCopy()},
           {"ContiguousCopy", matrix.AsStrided({3, 2}, {1, 3}, 0).ContiguousCopy()},
           {"CastCopy", CastCopy(w, DType::kFloat64)},
           {"CopyTo", CopyTo(matrix, Device::Meta())}}) {
    const std::string message = MessageOf([&] { AnyRequiresGrad({w, severed}); });
    EXPECT_NE(message.find(" was made by " + name + ", off the tape"), std::string::npos)
        << message;
    EXPECT_NO_THROW(AnyRequiresGrad({w, severed.Detach()}));
    const NoGrad no_grad;
    EXPECT_FALSE(AnyRequiresGrad({severed}));
  }
  EXPECT_EQ(half.Detach().AsStrided({2}, {1}, 0).severed_by(), nullptr);
  EXPECT_EQ(CastCopy(w, DType::kInt64).severed_by(), nullptr);  // never takes part
  EXPECT_EQ(Zeros({3}).AsStrided({1}, {1}, 0).severed_by(), nullptr);
  const NoGrad no_grad;
  EXPECT_EQ(w.AsStrided({2}, {1}, 0).severed_by(), nullptr);  // a constant, and meant to be one
}

TEST(AutogradTest, GradientsOfHalfLeavesAreFloat32) {
  const Tensor w = RequireGrad(Full({1}, 2.0, DType::kBFloat16));
  Backward(Product(w, w));
  EXPECT_EQ(Grad(w).dtype(), DType::kFloat32);
  const Tensor v = RequireGrad(Full({1}, 2.0, DType::kBFloat16), DType::kBFloat16);
  Backward(Product(v, v));
  EXPECT_EQ(Grad(v).dtype(), DType::kBFloat16);
}

TEST(AutogradTest, ALeafGradientIsNeverSharedWithTheTape) {
  const Tensor a = Leaf({1});
  const Tensor b = Leaf({1});
  Tensor y = Full({1}, 2.0);
  Record("add", {a, b}, {y}, [](GradContext& ctx) {
    ctx.set(0, ctx.grad());
    ctx.set(1, ctx.grad());
  });
  Backward(y);
  Fill(Grad(a), 9.0);
  EXPECT_EQ(GradOf(b), std::vector<float>{1});
}

TEST(AutogradTest, LongChainsDoNotExhaustTheStack) {
  const Tensor x = Leaf({1});
  Tensor y = x;
  for (int i = 0; i < 200000; ++i) y = Product(y, Full({1}, 1.0));
  Tensor z = y;
  Backward(y);
  EXPECT_EQ(GradOf(x), std::vector<float>{1});
  // Nor where a node has one tensor for two inputs.
  for (int i = 0; i < 200000; ++i) {
    const Tensor next = Full({1}, 1.0);
    Record("twice", {z, z}, {next}, [](GradContext&) {});
    z = next;
  }
  // Nor where other functions of a node hold its inputs.
  Tensor split = x;
  Tensor started = x;
  for (int i = 0; i < 200000; ++i) {
    const Tensor after_split = Full({1}, 1.0);
    RecordSplit(
        "split", {split}, {after_split}, [](GradContext&) {}, {0}, [split](GradContext&) {});
    split = after_split;
    const Tensor next = Full({1}, 1.0);
    RecordStarted(
        "started", {started}, {next}, [started](GradContext&) {}, [](GradContext&) {});
    started = next;
  }
  // Nor where a node has many inputs.
  std::vector<Tensor> results;
  for (int i = 0; i < 200000; ++i) {
    results.push_back(Full({1}, 1.0));
    Record("one of many", {x}, {results.back()}, [](GradContext&) {});
  }
  const Tensor all = Full({1}, 1.0);
  Record("many", results, {all}, [](GradContext&) {});
  results.clear();  // the node alone holds them
}

struct CountingHooks : SavedTensorHooks {
  struct Held : PackedTensor {
    explicit Held(Tensor t) : t(std::move(t)) {}
    Tensor Unpack() override { return t; }
    Tensor t;
  };
  std::unique_ptr<PackedTensor> Pack(const Tensor& t) override {
    ++packed;
    return std::make_unique<Held>(t);
  }
  int packed = 0;
};

TEST(SavedTensorTest, HooksSeeActivationsAndNotLeaves) {
  const Tensor x = Leaf({2});
  CountingHooks hooks;
  Tensor y;
  {
    const SavedTensorScope scope(&hooks);
    y = Product(Product(x, x), x);  // saves x, x; then x*x and x
  }
  EXPECT_EQ(hooks.packed, 1);
  Backward(y);
  EXPECT_EQ(GradOf(x), std::vector<float>{12});
}

TEST(RecomputeTest, SameGradientsWithOneSecondRun) {
  const Tensor w = Leaf({1.5f});
  int runs = 0;
  int fired = 0;
  AddGradCompleteHook(w, [&](const Tensor&) { ++fired; });
  const auto block = [&](const std::vector<Tensor>& in) {
    ++runs;
    Tensor h = Scaled(in[0], w);
    return Product(Product(h, h), Scaled(h, w));
  };
  const Tensor x = Leaf({2});
  const Tensor h0 = Product(x, x);
  Tensor plain = block({h0});
  Backward(plain);
  const std::vector<float> gx = GradOf(x);
  const std::vector<float> gw = GradOf(w);
  EXPECT_EQ(runs, 1);

  SetGrad(x, Tensor());
  SetGrad(w, Tensor());
  const Tensor recomputed = Recompute(block, {Product(x, x)});
  EXPECT_EQ(recomputed.Item(), plain.Item());
  WeightGradQueue queue;
  Backward(recomputed, {.weight_queue = &queue});
  queue.Run();
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(fired, 2);
  EXPECT_EQ(GradOf(x), gx);
  EXPECT_EQ(GradOf(w), gw);
}

TEST(RecomputeTest, RefusesASecondRunThatDiffers) {
  const Tensor x = Leaf({2});
  bool first = true;
  const Tensor y = Recompute(
      [&](const std::vector<Tensor>& in) {
        Tensor h = Product(in[0], in[0]);
        if (std::exchange(first, false)) h = Product(h, h);
        return Product(h, h);
      },
      {x});
  EXPECT_THROW(Backward(y), Error);
}

TEST(GradCheckTest, AcceptsRightAndRefusesWrongGradients) {
  const Tensor x = Tensor::FromVector<double>({0.3, -1.2, 2.0}, {3});
  EXPECT_TRUE(
      GradCheck([](const auto& in) { return std::vector<Tensor>{Product(in[0], in[0])}; }, {x}).ok);
  const GradCheckResult wrong = GradCheck(
      [](const std::vector<Tensor>& in) {
        Tensor y = Map(in[0], in[0], [](double a, double b) { return a * b; });
        if (AnyRequiresGrad({in[0]})) {
          Record("wrong", {in[0]}, {y}, [](GradContext& ctx) { ctx.set(0, ctx.grad()); });
        }
        return std::vector<Tensor>{y};
      },
      {x});
  EXPECT_FALSE(wrong.ok);
  EXPECT_NE(wrong.message.find("input 0"), std::string::npos);
}

TEST(GradCheckTest, LeavesOtherGradientsAsTheyAre) {
  const Tensor w = RequireGrad(Tensor::FromVector<double>({2, 3}, {2}));
  const Tensor x = Tensor::FromVector<double>({0.5, 0.25}, {2});
  const auto forward = [&](const auto& in) { return std::vector<Tensor>{Product(w, in[0])}; };
  EXPECT_TRUE(GradCheck(forward, {x}).ok);
  EXPECT_FALSE(Grad(w).defined());
  Backward({Product(w, x)}, {Tensor::FromVector<double>({1, 1}, {2})});
  const std::vector<double> before = Grad(w).ToVector<double>();
  EXPECT_EQ(before, (std::vector<double>{0.5, 0.25}));
  EXPECT_TRUE(GradCheck(forward, {x}).ok);
  EXPECT_EQ(Grad(w).ToVector<double>(), before);
}

// A leaf is moved itself, so that what the function holds of it is checked, and put back.
TEST(GradCheckTest, ChecksLeavesThatTheFunctionHolds) {
  const Tensor w = RequireGrad(Tensor::FromVector<double>({2, 3}, {2}));
  const Tensor x = Tensor::FromVector<double>({0.5, 0.25}, {2});
  SetGrad(w, Tensor::FromVector<double>({7, 8}, {2}));
  const GradCheckResult right =
      GradCheck([&](const auto& in) { return std::vector<Tensor>{Product(w, in[0])}; }, {x, w});
  EXPECT_TRUE(right.ok) << right.message;
  const GradCheckResult wrong = GradCheck(
      [&](const std::vector<Tensor>& in) {
        Tensor y = Map(w, in[0], [](double a, double b) { return a * b; });
        Record("wrong", {w, in[0]}, {y}, [x = in[0]](GradContext& ctx) {
          const NoGrad no_grad;
          ctx.set(0, Map(ctx.grad(), x, [](double g, double v) { return 2 * g * v; }));
          ctx.set(1, Product(ctx.grad(), Tensor::FromVector<double>({2, 3}, {2})));
        });
        return std::vector<Tensor>{y};
      },
      {x, w});
  EXPECT_FALSE(wrong.ok);
  EXPECT_EQ(wrong.message.find("input 1 "), 0u) << wrong.message;
  EXPECT_EQ(w.ToVector<double>(), (std::vector<double>{2, 3}));
  EXPECT_EQ(Grad(w).ToVector<double>(), (std::vector<double>{7, 8}));
}

// y = w * x whose gradient of w, 1, is added in place where the leaf has one; counts how often.
Tensor AddsInPlace(const Tensor& w, int* in_place) {
  Tensor y = Zeros(w.shape());
  RecordSplit(
      "adds", {w}, {y}, [](GradContext&) {}, {0},
      [in_place](GradContext& ctx) {
        const Tensor sum = ctx.accumulator(0);
        if (!sum.defined()) {
          ctx.set(0, Full({2}, 1.0));
          return;
        }
        ++*in_place;
        AddInto(sum, Full({2}, 1.0));
      });
  return y;
}

TEST(AutogradTest, ContributionsMayBeAddedInPlace) {
  const Tensor w = RequireGrad(Zeros({2}));
  int in_place = 0;
  int complete = 0;
  AddGradCompleteHook(w, [&](const Tensor&) { ++complete; });
  const auto run = [&](const BackwardOptions& options) {
    Backward({AddsInPlace(w, &in_place)}, {Zeros({2})}, options);
  };
  run({});
  EXPECT_EQ(in_place, 0);
  run({});
  EXPECT_EQ(in_place, 1);
  EXPECT_EQ(Grad(w).ToVector<float>(), std::vector<float>(2, 2.0f));
  EXPECT_EQ(complete, 2);
  // Work that waits adds when it is its turn.
  WeightGradQueue queue;
  run({.weight_queue = &queue, .queue_leaf_gradients = true});
  EXPECT_EQ(in_place, 1);
  queue.Run();
  EXPECT_EQ(in_place, 2);
  EXPECT_EQ(complete, 3);
  // A place for the first gradient is not a gradient.
  const Tensor buffer = Full({2}, 7.0);
  SetGradBuffer(w, buffer);
  run({});
  EXPECT_EQ(in_place, 2);
  EXPECT_EQ(buffer.ToVector<float>(), std::vector<float>(2, 1.0f));
  // Hooks see the gradient of a pass by itself.
  AddGradHook(w, [](const Tensor& grad) { return CastCopy(grad, DType::kFloat64); });
  run({});
  EXPECT_EQ(in_place, 2);
  EXPECT_EQ(Grad(w).ToVector<float>(), std::vector<float>(2, 2.0f));
}

TEST(AutogradTest, NodesThatAreNotSplitWaitInTheQueueToo) {
  const Tensor w = RequireGrad(Zeros({2}));
  SetGrad(w, Zeros({2}));
  bool offered = true;
  Tensor y = Zeros({2});
  Record("adds", {w}, {y}, [&](GradContext& ctx) {
    offered = ctx.accumulator(0).defined();
    ctx.set(0, Full({2}, 1.0));
  });
  WeightGradQueue queue;
  Backward({y}, {Zeros({2})}, {.weight_queue = &queue, .queue_leaf_gradients = true});
  EXPECT_FALSE(offered);
  EXPECT_EQ(Grad(w).ToVector<float>(), std::vector<float>(2, 0.0f));
  queue.Run();
  EXPECT_EQ(Grad(w).ToVector<float>(), std::vector<float>(2, 1.0f));
}

}  // namespace
}  // namespace tessera
