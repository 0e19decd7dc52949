// SPDX-License-Identifier: Apache-2.0
#include "train/run/adapter_start.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nlohmann/json.hpp"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/random/random.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"
#include "train/testing/task_runs.h"

namespace tessera::train {
namespace {

Tensor RandomWeight(int64_t out, int64_t in) {
  return Randn({out, in}, NoiseKey(3, "weight", 0, 0), {.dtype = DType::kFloat64});
}

// x y^T.
Tensor Times(const Tensor& x, const Tensor& y) {
  return Linear(x, y.ContiguousCopy(), {}, LinearLayout::kOutIn);
}
Tensor Flip(const Tensor& t) { return Transpose(t, 0, 1).ContiguousCopy(); }
double At(const Tensor& t, int64_t row, int64_t column) {
  return t.ToVector<double>()[static_cast<size_t>(row * t.size(1) + column)];
}
double Largest(const Tensor& t) {
  double most = 0;
  for (const double x : t.ContiguousCopy().ToVector<double>()) most = std::max(most, std::abs(x));
  return most;
}
// The largest singular value, by the power method.
double Norm(const Tensor& w) {
  Tensor x = Full({1, w.size(1)}, 1.0, DType::kFloat64);
  double norm = 0;
  for (int i = 0; i < 500; ++i) {
    const Tensor y = Times(Times(x, w), Flip(w));
    norm = std::sqrt(Sum(Square(y)).Item());
    x = Div(y, norm);
  }
  return std::sqrt(norm);
}

struct Sizes {
  int64_t out, in, rank;
};

class AdapterStartTest : public TaskRuns {};

// What is left of the weight is at right angles to what was taken, and smaller.
TEST_F(AdapterStartTest, PrincipalStartIsTheBestPart) {
  constexpr double kScale = 1.75;
  for (const Sizes& s : {Sizes{7, 5, 2}, Sizes{5, 9, 3}, Sizes{4, 4, 4}, Sizes{6, 3, 1}}) {
    const Tensor w = RandomWeight(s.out, s.in);
    const LowRankStart start = PrincipalStart(w, s.rank, kScale);
    ASSERT_EQ(start.a.shape(), (Shape{s.rank, s.in}));
    ASSERT_EQ(start.b.shape(), (Shape{s.out, s.rank}));
    const Tensor rest = Sub(w, Mul(Times(start.b, Flip(start.a)), kScale));
    EXPECT_LT(Largest(Times(Flip(start.b), Flip(rest))), 1e-12);
    EXPECT_LT(Largest(Times(rest, start.a)), 1e-12);
    const Tensor of_a = Times(start.a, start.a);
    const Tensor of_b = Times(Flip(start.b), Flip(start.b));
    EXPECT_LT(Largest(Sub(of_a, of_b)), 1e-12);
    double least = 1e30;
    for (int64_t k = 0; k < s.rank; ++k) {
      for (int64_t l = 0; l < k; ++l) EXPECT_NEAR(At(of_a, k, l), 0, 1e-12);
      EXPECT_LE(At(of_a, k, k), least);
      least = At(of_a, k, k);
    }
    EXPECT_NEAR(At(of_a, 0, 0) * kScale, Norm(w), 1e-6);
    if (s.rank < std::min(s.out, s.in)) {
      EXPECT_LE(Norm(rest), least * kScale + 1e-9);
    }
    // Rounds of iteration come near it.
    const LowRankStart near = PrincipalStart(w, s.rank, kScale, 400, NoiseKey(1, "pissa", 0, 0));
    EXPECT_LT(Largest(Sub(near.a, start.a)), 1e-6);
    EXPECT_LT(Largest(Sub(near.b, start.b)), 1e-6);
  }
}

TEST_F(AdapterStartTest, OrthonormalStartIsOfTheQrDecomposition) {
  for (const Sizes& s : {Sizes{7, 5, 2}, Sizes{5, 9, 3}, Sizes{4, 4, 4}}) {
    const Tensor w = RandomWeight(s.out, s.in);
    const LowRankStart start = OrthonormalStart(w, s.rank);
    const Tensor gram = Times(Flip(start.b), Flip(start.b));
    for (int64_t k = 0; k < s.rank; ++k) {
      for (int64_t l = 0; l < s.rank; ++l) EXPECT_NEAR(At(gram, k, l), k == l ? 1 : 0, 1e-12);
      for (int64_t l = 0; l < k; ++l) EXPECT_EQ(At(start.a, k, l), 0);
      EXPECT_GT(At(start.a, k, k), 0);
    }
    // The first columns of the weight are in it as a whole; what is left is at right angles.
    const Tensor rest = Sub(w, Times(start.b, Flip(start.a)));
    EXPECT_LT(Largest(Slice(rest, 1, 0, s.rank)), 1e-12);
    EXPECT_LT(Largest(Times(Flip(start.b), Flip(rest))), 1e-12);
  }
}

// Nothing changes at first; what is saved belongs to the weights as they were.
TEST_F(AdapterStartTest, TrainsBesideAWeightThatStays) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += Concat("line ", i % 17, " of the song\n");
  RunConfig base = Config("gpt-tiny", Put("song.txt", text));
  base.tokenizer = "byte";
  base.seq_len = 24;
  base.max_steps = 20;
  base.out = Path("base_run");
  base.val_fraction = 0.2;
  double plain = 0;
  {
    RunSetup setup = *PrepareRun(base);
    Trainer trainer(setup.config, *setup.model, setup.data);
    ASSERT_TRUE(trainer.Train({.output = nullptr}).ok());
    ASSERT_TRUE(trainer.SaveModel(Path("base"), setup.tokenizer.get()).ok());
    plain = trainer.Evaluate(*setup.data.validation, 0)->loss;
  }
  for (const char* init : {"true", "false", "gaussian", "pissa", "pissa_niter_4", "olora"}) {
    for (const char* kind : {"lora", "rslora"}) {
      SCOPED_TRACE(Concat(init, " ", kind));
      RunConfig config = base;
      config.model = Path("base");
      config.adapter = kind;
      config.init_lora_weights = init;
      config.lora_r = 3;
      config.lora_alpha = 5;
      config.max_steps = 30;
      config.lr = 1e-3;
      config.out = Path(Concat(init, kind));
      RunSetup setup = *PrepareRun(config);
      Trainer trainer(setup.config, *setup.model, setup.data);
      const double before = trainer.Evaluate(*setup.data.validation, 0)->loss;
      if (std::string(init) == "false") {
        EXPECT_NE(before, plain);
      } else {
        EXPECT_EQ(before, plain);
      }
      ASSERT_TRUE(trainer.Train({.output = nullptr}).ok());
      const double after = trainer.Evaluate(*setup.data.validation, 0)->loss;
      EXPECT_LT(after, before);
      ASSERT_TRUE(trainer.SaveModel(Path("adapter"), nullptr).ok());
      // Over the folder's weights, as they always were.
      RunConfig again = config;
      again.adapter = Path("adapter");
      again.init_lora_weights = "true";
      again.lora_r = FineTuningConfig().lora_r;
      again.lora_alpha = FineTuningConfig().lora_alpha;
      again.out = Path("again");
      RunSetup loaded = *PrepareRun(again);
      Trainer other(loaded.config, *loaded.model, loaded.data);
      EXPECT_NEAR(other.Evaluate(*loaded.data.validation, 0)->loss, after, 2e-6);
      const auto saved = models::AdapterConfig::Read(Path("adapter"));
      const bool doubled = init[0] == 'p' || init[0] == 'o';
      EXPECT_EQ(saved->r, doubled ? 6 : 3);
      EXPECT_EQ(saved->StartsFromWeights(), false);
    }
  }
}

TEST_F(AdapterStartTest, RefusesInOneLine) {
  RunConfig config = Config("gpt-tiny", Put("song.txt", std::string(4000, 'x')));
  config.tokenizer = "byte";
  config.seq_len = 24;
  config.adapter = "lora";
  config.init_lora_weights = "best";
  ExpectContains(Failure(config), "init_lora_weights is 'best', expected true, false, gaussian");
  config.init_lora_weights = "pissa";
  config.lora_r = 4096;
  ExpectContains(Failure(config),
                 "init_lora_weights is pissa, and the rank 4096 is greater than "
                 "that of 'transformer.h.0.attn.c_attn.weight'");
  config.lora_r = 2;
  config.adapter = "dora";
  ExpectContains(Failure(config), "init_lora_weights is pissa, which does not go with use_dora");
}

}  // namespace
}  // namespace tessera::train
