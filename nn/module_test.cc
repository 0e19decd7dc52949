// SPDX-License-Identifier: Apache-2.0
#include "nn/module.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/recompute.h"
#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/mlp.h"
#include "nn/sequential.h"
#include "ops/reduction/reduction.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

std::unique_ptr<Mlp> MakeMlp(const BuildContext& build = {}) {
  return std::make_unique<Mlp>(
      MlpConfig{
          .hidden_size = 4, .inner_size = 6, .activation = *FindActivation("relu"), .dropout = 0.5},
      Scope::Root(build));
}

TEST(ModuleTest, NamesCountsAndSummary) {
  const auto mlp = MakeMlp();
  std::vector<std::string> names;
  for (Parameter* p : mlp->Parameters()) names.push_back(p->name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"c_fc.weight", "c_fc.bias", "c_proj.weight", "c_proj.bias"}));
  EXPECT_EQ(mlp->ParameterCount(), 4 * 6 + 6 + 6 * 4 + 4);
  EXPECT_EQ(mlp->Freeze("bias"), 2);
  EXPECT_EQ(mlp->ParameterCount(/*trainable_only=*/true), 48);
  mlp->Freeze("bias", false);
  EXPECT_EQ(mlp->ParameterCount(true), 58);
  EXPECT_NE(mlp->Summary().find("c_fc.weight"), std::string::npos);
  EXPECT_NE(mlp->Summary().find("58"), std::string::npos);
}

TEST(ModuleTest, InitialisationDependsOnSeedAndNameAlone) {
  const auto a = MakeMlp({.seed = 1});
  const auto b = MakeMlp({.seed = 1});
  const auto c = MakeMlp({.seed = 2});
  const auto weight = [](Mlp& m, const char* name) {
    return m.FindParameter(name)->tensor.ToVector<float>();
  };
  EXPECT_EQ(weight(*a, "c_fc.weight"), weight(*b, "c_fc.weight"));
  EXPECT_NE(weight(*a, "c_fc.weight"), weight(*c, "c_fc.weight"));
  EXPECT_NE(weight(*a, "c_fc.weight"), weight(*a, "c_proj.weight"));
}

TEST(ModuleTest, StateDictRoundTripsAndRefusesByName) {
  const auto a = MakeMlp({.seed = 1});
  const auto b = MakeMlp({.seed = 2});
  auto state = a->StateDict();
  ASSERT_TRUE(b->LoadStateDict(state).ok());
  EXPECT_EQ(b->FindParameter("c_fc.weight")->tensor.ToVector<float>(),
            a->FindParameter("c_fc.weight")->tensor.ToVector<float>());
  auto missing = state;
  missing.erase("c_proj.bias");
  EXPECT_NE(Message(b->LoadStateDict(missing)).find("'c_proj.bias' is missing"), std::string::npos);
  auto unknown = state;
  unknown["extra"] = Zeros({1});
  EXPECT_NE(Message(b->LoadStateDict(unknown)).find("'extra' is not known"), std::string::npos);
  auto undefined = state;
  undefined["c_fc.bias"] = Tensor();
  EXPECT_EQ(Message(b->LoadStateDict(undefined)), "parameter 'c_fc.bias' is an undefined tensor");
  auto reshaped = state;
  reshaped["c_fc.bias"] = Zeros({5});
  EXPECT_NE(Message(b->LoadStateDict(reshaped)).find("has shape [5], expected [6]"),
            std::string::npos);
}

struct Tied : Module {
  explicit Tied(const Scope& s)
      : Module(s), wte({.rows = 5, .width = 3}, Child("wte")), head(wte.weight(), Child("head")) {}
  VocabParallelEmbedding wte;
  VocabParallelHead head;
};

// PyTorch's states have a tied weight under each of its names.
TEST(ModuleTest, LoadsTiedNamesThatAgree) {
  Tied tied(Scope::Root({.seed = 1}));
  const Tensor weight = RandomTensor({5, 3}, 7);
  EXPECT_TRUE(tied.LoadStateDict({{"wte.weight", weight}, {"head.weight", weight}}).ok());
  const Tensor rounded = CastCopy(weight, DType::kFloat32);
  EXPECT_EQ(tied.StateDict().at("wte.weight").ToVector<float>(), rounded.ToVector<float>());
  EXPECT_TRUE(tied.LoadStateDict({{"wte.weight", weight}, {"head.weight", rounded}}).ok());
  EXPECT_EQ(Message(tied.LoadStateDict({{"wte.weight", weight}, {"head.weight", Zeros({5, 3})}})),
            "parameter 'head.weight' is tied to 'wte.weight', which has other values");
  EXPECT_FALSE(tied.LoadStateDict({{"wte.weight", weight}, {"head.weight", Zeros({5})}}).ok());
  EXPECT_FALSE(tied.LoadStateDict({{"head.weight", weight}}).ok());
}

TEST(ModuleTest, ToCastsAndKeepsTies) {
  Tied tied(Scope::Root({}));
  EXPECT_EQ(tied.ParameterCount(), 15);
  EXPECT_EQ(tied.StateDict().size(), 1u);
  tied.To(DType::kBFloat16);
  Parameter* head = tied.FindParameter("head.weight");
  EXPECT_EQ(head->tensor.dtype(), DType::kBFloat16);
  EXPECT_EQ(head->tensor.storage(), tied.FindParameter("wte.weight")->tensor.storage());
  EXPECT_EQ(GradDType(head->tensor), DType::kFloat32);
}

TEST(ModuleTest, TrainingSwitchesDropout) {
  Dropout dropout(0.5, Scope::Root({}));
  const Tensor x = Full({1000}, 1.0);
  const ForwardContext context = {.training = true, .step = 1};
  EXPECT_NE(dropout.Forward(x, context).ToVector<float>(), x.ToVector<float>());
  EXPECT_EQ(dropout.Forward(x, context).ToVector<float>(),
            dropout.Forward(x, context).ToVector<float>());
  EXPECT_NE(dropout.Forward(x, context).ToVector<float>(),
            dropout.Forward(x, {.training = true, .step = 2}).ToVector<float>());
  EXPECT_EQ(dropout.Forward(x, {.step = 1}).ToVector<float>(), x.ToVector<float>());
}

TEST(ModuleTest, DropoutIsAProbability) {
  for (const double p : {-0.1, 1.0, 1.5, std::nan("")}) {
    EXPECT_THROW(Dropout(p, Scope::Root({})), Error) << p;
    Dropout dropout(0, Scope::Root({}));
    EXPECT_THROW(dropout.set_dropout(p), Error) << p;
    EXPECT_EQ(dropout.p(), 0) << p;
  }
}

// Dropout's bits are a function of seed, module, step and micro-batch, and of nothing else; so are
// those inside of attention.
TEST(ModuleTest, NoiseDependsOnSeedPathStepAndMicroBatch) {
  const Tensor x = RandomTensor({1, 6, 8}, 1);
  const auto attend = [&](const std::string& name, const ForwardContext& context) {
    SelfAttention layer({.hidden_size = 8,
                         .num_heads = 2,
                         .attention_dropout = 0.4,
                         .weight_init = Init::Normal(0.3),
                         .output_init = Init::Normal(0.3)},
                        {name, nullptr, Scope::Root({.dtype = DType::kFloat64}).build});
    return layer.Forward(x, {}, context).ToVector<double>();
  };
  const auto drop = [&](const std::string& name, const ForwardContext& context) {
    Dropout layer(0.4, {name, nullptr, Scope::Root({}).build});
    return layer.Forward(x, context).ToVector<double>();
  };
  const auto check = [](const char* what, const auto& run) {
    const auto expected = run("a", {.training = true, .seed = 1, .step = 2, .micro_batch = 3});
    EXPECT_EQ(run("a", {.training = true, .seed = 1, .step = 2, .micro_batch = 3}), expected)
        << what;
    EXPECT_NE(run("a", {.training = true, .seed = 2, .step = 2, .micro_batch = 3}), expected)
        << what << ": seed";
    EXPECT_NE(run("a", {.training = true, .seed = 1, .step = 3, .micro_batch = 3}), expected)
        << what << ": step";
    EXPECT_NE(run("a", {.training = true, .seed = 1, .step = 2, .micro_batch = 4}), expected)
        << what << ": micro-batch";
    EXPECT_NE(run("b", {.training = true, .seed = 1, .step = 2, .micro_batch = 3}), expected)
        << what << ": path";
  };
  check("attention", attend);
  check("dropout", drop);
}

TEST(ModuleTest, HooksFireAroundForwardAndBackward) {
  const auto mlp = MakeMlp();
  std::string order;
  mlp->VisitModules([&](Module& m) {
    if (m.path() != "c_fc") return;
    m.AddHooks({.pre_forward =
                    [&](const Module& x) {
                      order += "f(" + CurrentModulePath();
                      (void)x;
                    },
                .post_forward = [&](const Module&) { order += ")"; },
                .pre_backward = [&](const Module&) { order += "b("; },
                .post_backward = [&](const Module&) { order += "]"; }});
  });
  const Tensor x = RequireGrad(Full({2, 4}, 1.0));
  const Tensor h = Reshape(x, {1, 2, 4});  // a result of the tape: post-backward can be seen
  const Tensor y = mlp->Forward(h, {});
  EXPECT_EQ(order, "f(c_fc)");
  EXPECT_EQ(CurrentModulePath(), "");
  Backward({y}, {Full({1, 2, 4}, 1.0)});
  EXPECT_EQ(order, "f(c_fc)b(]");
}

// A model whose head can be changed, as for fine-tuning.
struct WithHead : Module {
  explicit WithHead(const Scope& scope) : Module(scope) { Take("head", 2); }
  void Take(const std::string& name, int64_t out) {
    head = std::make_unique<ReplicatedLinear>(LinearConfig{.in_features = 4, .out_features = out},
                                              Child(name));
  }
  // A child without a name of its own.
  void TakeExtra() {
    struct Extra : Module {
      explicit Extra(const Scope& scope) : Module(scope) {
        AddParameter("extra", Placement::Whole({2}), {});
      }
    };
    extra.reset();
    extra = std::make_unique<Extra>(Child(""));
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    VisitParameters([&](Parameter& p) { names.push_back(p.name); });
    return names;
  }
  ReplicatedLinear body{{.in_features = 4, .out_features = 4, .bias = false}, Child("body")};
  std::unique_ptr<ReplicatedLinear> head;
  std::unique_ptr<Module> extra;
};

TEST(ModuleTest, AParentForgetsAChildThatIsGone) {
  WithHead model(Scope::Root({.seed = 1}));
  const std::vector<std::string> names = {"body.weight", "head.weight", "head.bias"};
  EXPECT_EQ(model.Names(), names);
  model.Take("classifier", 3);
  EXPECT_EQ(model.Names(),
            (std::vector<std::string>{"body.weight", "classifier.weight", "classifier.bias"}));
  model.head.reset();
  EXPECT_EQ(model.Names(), (std::vector<std::string>{"body.weight"}));
  model.Take("head", 5);
  EXPECT_EQ(model.Names(), names);
  EXPECT_EQ(model.FindParameter("head.weight")->placement.global_shape(), (Shape{5, 4}));
  for (int i = 0; i < 2; ++i) model.TakeExtra();
  EXPECT_EQ(model.Names().back(), "extra");
}

TEST(ModuleTest, AParentForgetsAChildWhoseConstructorThrows) {
  Sequential layers(Scope::Root({.seed = 1}));
  layers.Add<ReplicatedLinear>(LinearConfig{.in_features = 4, .out_features = 4});
  EXPECT_THROW(layers.Add<ReplicatedLinear>(LinearConfig{.in_features = 4}), Error);
  EXPECT_EQ(layers.Parameters().size(), 2U);
  layers.Add<ReplicatedLinear>(LinearConfig{.in_features = 4, .out_features = 3});
  EXPECT_EQ(layers.Parameters().size(), 4U);
}

TEST(ModuleTest, AChildMayOutliveItsParent) {
  std::unique_ptr<ReplicatedLinear> head;
  {
    WithHead model(Scope::Root({.seed = 1}));
    head = std::move(model.head);
  }
  EXPECT_EQ(head->Parameters().size(), 2U);
  head.reset();
}

// Sizes that a configuration leaves at 0.
TEST(ModuleTest, AttentionWithoutSizesIsRefused) {
  const Scope scope = Scope::Root({});
  EXPECT_THROW(SelfAttention({.num_heads = 2}, scope), Error);
  EXPECT_THROW(SelfAttention({.num_heads = 2, .head_dim = 4}, scope), Error);
  EXPECT_THROW(SelfAttention({.hidden_size = 8}, scope), Error);
}

TEST(ModuleTest, HooksMayRemoveThemselvesAndAddOthers) {
  ReplicatedLinear layer({.in_features = 4, .out_features = 4}, Scope::Root({.seed = 1}));
  std::string order;
  int once = 0;
  once = layer.AddHooks({.pre_forward = [&](const Module&) {
    layer.RemoveHooks(once);
    layer.AddHooks({.post_forward = [&](const Module&) { order += "added "; }});
    order += "once ";
  }});
  layer.AddHooks({.pre_forward = [&](const Module&) { order += "always "; }});
  layer.Forward(Zeros({2, 4}));
  EXPECT_EQ(order, "once always added ");
  layer.Forward(Zeros({2, 4}));
  EXPECT_EQ(order, "once always added always added ");
}

TEST(ModuleTest, HooksOfAModuleThatIsGoneAreSilent) {
  int fired = 0;
  Tensor y;
  {
    ReplicatedLinear layer({.in_features = 4, .out_features = 4}, Scope::Root({.seed = 1}));
    const auto count = [&](const Module&) { ++fired; };
    layer.AddHooks({.pre_backward = count, .post_backward = count});
    const Tensor x = Reshape(RequireGrad(Full({8}, 1.0)), {2, 4});
    y = layer.Forward(x);
  }
  Backward(Sum(y));
  EXPECT_EQ(fired, 0);
}

std::string ErrorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ModuleTest, TheRowOfPaddingBeginsAsZeros) {
  const auto table = [](auto layer) {
    return layer.StateDict().at("weight").template ToVector<float>();
  };
  const EmbeddingConfig config = {.rows = 3, .width = 2, .padding_idx = 1};
  for (const std::vector<float>& weight :
       {table(ReplicatedEmbedding(config, Scope::Root({.seed = 1}))),
        table(VocabParallelEmbedding(config, Scope::Root({.seed = 1})))}) {
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(weight[i] == 0, i / 2 == 1) << i;
  }
  for (const int64_t outside : {int64_t{3}, int64_t{-2}}) {
    EXPECT_EQ(ErrorOf([&] {
                ReplicatedEmbedding({.rows = 3, .width = 2, .padding_idx = outside},
                                    Scope::Root({}));
              }),
              Concat("embedding: padding_idx ", outside,
                     " is none of the 3 rows of the table; -1 is no padding"));
  }
}

// Makes what its configuration says under names that the test chooses.
struct Named : Module {
  Named(const Scope& scope, const std::vector<std::string>& parameters,
        const std::vector<std::string>& children)
      : Module(scope) {
    for (const std::string& name : parameters) {
      AddParameter(name, Placement::Whole({2}), Init::Zeros());
    }
    for (const std::string& name : children) {
      made.push_back(std::make_unique<Named>(Child(name), std::vector<std::string>{"weight"},
                                             std::vector<std::string>{}));
    }
  }
  std::vector<std::unique_ptr<Named>> made;
};

TEST(ModuleTest, RefusesTwoOfOneName) {
  const auto make = [](const std::vector<std::string>& parameters,
                       const std::vector<std::string>& children, const std::string& path = "h.0") {
    return ErrorOf([&] {
      Scope scope = Scope::Root({});
      scope.path = path;
      Named(scope, parameters, children);
    });
  };
  EXPECT_EQ(make({"bias"}, {"a", "b", ""}), "no error");
  EXPECT_EQ(make({}, {"a", "a"}), "module: two children or parameters of 'h.0' are named 'h.0.a'");
  EXPECT_EQ(make({}, {"a", "a"}, ""),
            "module: two children or parameters of the root are named 'a'");
  EXPECT_EQ(make({"scale", "scale"}, {}),
            "module: two children or parameters of 'h.0' are named 'h.0.scale'");
  // A child without a name has its parameters under its parent's.
  EXPECT_EQ(make({"weight"}, {""}),
            "module: two children or parameters of 'h.0' are named 'h.0.weight'");
  EXPECT_EQ(make({"a"}, {"a"}), "module: two children or parameters of 'h.0' are named 'h.0.a'");
}

TEST(ModuleTest, RefusesSizesOfZero) {
  EXPECT_EQ(ErrorOf([] {
              ReplicatedLinear({.out_features = 2}, {"head", nullptr, Scope::Root({}).build});
            }),
            "module: parameter 'head.weight' of shape [2, 0] has a size of zero; a size of its "
            "layer's configuration was not set");
  EXPECT_NE(ErrorOf([] { VocabParallelEmbedding({.rows = 4}, Scope::Root({})); }), "no error");
}

TEST(ModuleTest, NodesRememberTheModuleThatMadeThem) {
  struct Root : Module {
    explicit Root(const Scope& s) : Module(s), relu(Child("act")) {}
    struct Act : Module {
      using Module::Module;
      Tensor Forward(const Tensor& x) const {
        return Call(x, [&] {
          const Tensor y = Zeros(x.shape());
          Record("own", {x}, {y}, [](GradContext&) {});
          return y;
        });
      }
    } relu;
  };
  const Tensor x = RequireGrad(Full({1}, 1.0));
  Tensor y;
  {
    const Root root(Scope::Root({}));
    y = root.relu.Forward(x);
  }  // the node outlives its module
  EXPECT_NE(ErrorOf([&] { Backward(y); }).find("the gradient of 'own' in act says nothing"),
            std::string::npos);
}

TEST(ModuleTest, OnParameterSeesEachBeforeTheNext) {
  std::vector<std::string> seen;
  const auto mlp = MakeMlp({.on_parameter = [&](Parameter& p) { seen.push_back(p.name); }});
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen[0], "c_fc.weight");
}

// Values and slopes of transformers 5.24's ACT2FN, in float64.
TEST(ModuleTest, ActivationsMadeOfOthers) {
  const std::vector<double> at = {-4, -1.5, -0.25, 0, 0.5, 2, 7, 12};
  const struct {
    const char* name;
    std::vector<double> values;
    std::vector<double> slopes;
  } cases[] = {
      {"relu2", {0, 0, 0, 0, 0.25, 4, 49, 144}, {0, 0, 0, 0, 1, 4, 14, 24}},
      {"relu6", {0, 0, 0, 0, 0.5, 2, 6, 6}, {0, 0, 0, 0, 1, 1, 0, 0}},
      {"mish",
       {-0.0725917408, -0.298099742, -0.129926964, 0, 0.375245211, 1.94395896, 6.99998838, 12},
       {-0.0537732098, -0.0640978159, 0.439815602, 0.6, 0.886424375, 1.06931793, 1.00002156, 1}},
      {"quick_gelu",
       {-0.00441472414, -0.108337802, -0.0988003501, 0, 0.350388437, 1.93565862, 6.99995313,
        11.9999999838},
       {-0.00640188655, -0.0988480646, 0.293499559, 0.5, 0.879221912, 1.07381535, 1.00007308,
        1.0000000262}},
      {"gelu_python",
       {-0.000126684967, -0.100210802, -0.100323419, 0, 0.345731231, 1.95449974, 7, 12},
       {-0.000503649661, -0.127469192, 0.304626645, 0.5, 0.867495125, 1.0852318, 1, 1}},
      {"gelu_accurate",
       {-7.02459482e-05, -0.100428423, -0.100324649, 0, 0.34571401, 1.95459769, 7, 12},
       {-0.000335123197, -0.127710793, 0.304645905, 0.5, 0.867369904, 1.08609926, 1, 1}},
      {"gelu_10",
       {-0.000126684967, -0.100210802, -0.100323419, 0, 0.345731231, 1.95449974, 7, 10},
       {-0.000503649661, -0.127469192, 0.304626645, 0.5, 0.867495125, 1.0852318, 1, 0}},
      {"leaky_relu",
       {-0.04, -0.015, -0.0025, 0, 0.5, 2, 7, 12},
       {0.01, 0.01, 0.01, 0.01, 1, 1, 1, 1}},
      {"laplace",
       {0, 2.55351296e-15, 0.000345843137, 0.00609445962, 0.231421148, 0.99999771, 1, 1},
       {0, 7.20946583e-14, 0.00447542264, 0.0611138288, 1.08011405, 3.88341627e-05, 0, 0}}};
  for (const auto& c : cases) {
    Tensor x = Tensor::FromVector(at, {std::ssize(at)});
    RequireGrad(x);
    const Tensor y = (*FindActivation(c.name))(x);
    Backward(Sum(y));
    for (size_t i = 0; i < at.size(); ++i) {
      EXPECT_NEAR(y.ToVector<double>()[i], c.values[i], 1e-8) << c.name << " at " << at[i];
      EXPECT_NEAR(Grad(x).ToVector<double>()[i], c.slopes[i], 1e-8) << c.name << " at " << at[i];
    }
  }
}

TEST(ModuleTest, UnknownActivationIsNamed) {
  EXPECT_NE(Message(FindActivation("gelu2").status()).find("'gelu2'"), std::string::npos);
}

}  // namespace
}  // namespace tessera::nn
