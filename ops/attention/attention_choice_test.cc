// SPDX-License-Identifier: Apache-2.0
// Which kernel of attention a call takes: the comparison of results, and the choice.
#include "ops/attention/attention_choice.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/attention/attention_agreement.h"
#include "ops/attention/sdpa_graph.h"
#include "ops/kernel_choice.h"

namespace tessera {
namespace {

// ---- Comparing results

std::vector<BFloat16> Rows(int64_t count, uint32_t seed, float noise = 0) {
  std::mt19937 random(5);
  std::mt19937 other(seed);
  std::normal_distribution<float> normal;
  std::vector<BFloat16> rows(static_cast<size_t>(count));
  for (BFloat16& x : rows) {
    const float exact = normal(random);
    x = exact * (1 + noise * normal(other));
  }
  return rows;
}

TEST(AttentionAgreement, RoundingAgreesAndAWrongRowDoesNot) {
  const auto agree = [](const std::vector<BFloat16>& a, const std::vector<BFloat16>& b) {
    return RowsAgree("o", DType::kBFloat16, a.data(), b.data(), 100, 64);
  };
  const std::vector<BFloat16> own = Rows(6400, 1);
  EXPECT_TRUE(*agree(own, Rows(6400, 2, 0.005f)));
  EXPECT_FALSE(agree(own, Rows(6400, 2, 0.05f)).ok());
  std::vector<BFloat16> wrong = own;
  for (int i = 37 * 64; i < 38 * 64; ++i) wrong[static_cast<size_t>(i)] = 0.0f;
  const StatusOr<bool> verdict = agree(own, wrong);
  ASSERT_FALSE(verdict.ok());
  EXPECT_NE(Message(verdict.status()).find("the worst row is 37 of 100"), std::string::npos)
      << Message(verdict.status());
  wrong = own;
  wrong[70] = NAN;
  EXPECT_FALSE(agree(own, wrong).ok());
  // Operands that cannot tell.
  EXPECT_FALSE(*agree(wrong, own));
  const std::vector<BFloat16> zeros(6400);
  EXPECT_FALSE(*agree(zeros, zeros));
}

TEST(AttentionAgreement, LogSumExps) {
  const float own[] = {3.25f, -INFINITY, 80.0f};
  const float near[] = {3.2505f, -INFINITY, 80.002f};
  EXPECT_TRUE(*LseAgree(own, near, 3));
  const float base_two[] = {3.25f * 1.4427f, -INFINITY, 80.0f * 1.4427f};
  EXPECT_FALSE(LseAgree(own, base_two, 3).ok());
  const float lost[] = {3.25f, 0.0f, 80.0f};
  EXPECT_FALSE(LseAgree(own, lost, 3).ok());
  const float nan[] = {3.25f, NAN, 80.0f};
  EXPECT_FALSE(LseAgree(own, nan, 3).ok());
  EXPECT_FALSE(*LseAgree(nan, own, 3));
}

// ---- The choice

struct Script {
  Status prepared;
  StatusOr<bool> agreed = true;
  double own_ms = 1.0;
  double cudnn_ms = 0.5;
  int prepares = 0;
  int comparisons = 0;
  int measurements = 0;
  AttentionTrial trial() {
    return {[this] {
              ++prepares;
              return prepared;
            },
            [this] {
              ++comparisons;
              return agreed;
            },
            [this](bool cudnn) {
              ++measurements;
              return cudnn ? cudnn_ms : own_ms;
            }};
  }
};

// Causal, in bfloat16.
SdpaShape ShapeOf(int64_t batch, int64_t heads, int64_t q_len, int64_t k_len, int64_t head_dim,
                  int64_t query_offset = 0) {
  SdpaShape shape;
  shape.batch = batch;
  shape.heads = shape.kv_heads = heads;
  shape.q_len = q_len;
  shape.k_len = k_len;
  shape.head_dim = head_dim;
  shape.causal = true;
  shape.query_offset = query_offset;
  return shape;
}

SdpaShape Large(int64_t batch = 8) { return ShapeOf(batch, 12, 1024, 1024, 64); }

class AttentionChoicesTest : public ::testing::Test {
 protected:
  bool Cudnn(const SdpaShape& shape, AttentionKernels kernels, bool may_try = true) {
    return choices_.Cudnn(shape, kernels, may_try, script_.trial());
  }
  std::vector<std::string> lines_;
  AttentionChoices choices_{[this](const std::string& line) { lines_.push_back(line); }};
  Script script_;
};

TEST_F(AttentionChoicesTest, TheFasterOneIsMeasuredOnce) {
  EXPECT_TRUE(Cudnn(Large(), AttentionKernels::kMeasured));
  EXPECT_TRUE(Cudnn(Large(), AttentionKernels::kMeasured));
  EXPECT_TRUE(Cudnn(Large(), AttentionKernels::kMeasured, /*may_try=*/false));
  EXPECT_EQ(script_.comparisons, 1);
  EXPECT_EQ(script_.measurements, 2);
  script_.cudnn_ms = 0.98;  // within the margin
  EXPECT_FALSE(Cudnn(Large(4), AttentionKernels::kMeasured));
  EXPECT_FALSE(Cudnn(Large(), AttentionKernels::kOwn));
  EXPECT_TRUE(Cudnn(Large(4), AttentionKernels::kCudnn));  // compared, if slower
  EXPECT_EQ(script_.comparisons, 2);
  EXPECT_TRUE(lines_.empty());
}

TEST_F(AttentionChoicesTest, NothingIsTriedWhileAStreamIsRecorded) {
  EXPECT_FALSE(Cudnn(Large(), AttentionKernels::kMeasured, /*may_try=*/false));
  EXPECT_FALSE(Cudnn(Large(), AttentionKernels::kCudnn, /*may_try=*/false));
  EXPECT_EQ(script_.prepares, 0);
  EXPECT_TRUE(Cudnn(Large(), AttentionKernels::kMeasured));
}

TEST_F(AttentionChoicesTest, WhatDisagreesIsDroppedWithALine) {
  script_.agreed = Internal("o differs");
  EXPECT_FALSE(Cudnn(Large(), AttentionKernels::kMeasured));
  EXPECT_FALSE(Cudnn(Large(), AttentionKernels::kCudnn));
  EXPECT_EQ(script_.comparisons, 1);
  EXPECT_EQ(script_.measurements, 0);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0],
            "attention: cuDNN is not used for bfloat16 q [8, 12, 1024, 64], k [8, 12, 1024, 64], "
            "causal: o differs");
}

TEST_F(AttentionChoicesTest, NoEngineIsSaidOnlyWhereCudnnIsAskedFor) {
  script_.prepared = NotFound("no engine");
  EXPECT_FALSE(Cudnn(Large(), AttentionKernels::kMeasured));
  EXPECT_TRUE(lines_.empty());
  EXPECT_FALSE(Cudnn(Large(4), AttentionKernels::kCudnn));
  EXPECT_EQ(lines_.size(), 1u);
  EXPECT_EQ(script_.comparisons, 0);
}

TEST_F(AttentionChoicesTest, OperandsThatCannotTellAreTriedAgainAFewTimes) {
  script_.agreed = false;
  EXPECT_FALSE(Cudnn(Large(), AttentionKernels::kMeasured));
  script_.agreed = true;
  EXPECT_TRUE(Cudnn(Large(), AttentionKernels::kMeasured));
  script_.agreed = false;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Cudnn(Large(4), AttentionKernels::kMeasured));
  EXPECT_EQ(script_.comparisons, 2 + AttentionChoices::kMostComparisons);
}

TEST_F(AttentionChoicesTest, WhatFailsLaterIsDropped) {
  EXPECT_TRUE(Cudnn(Large(), AttentionKernels::kMeasured));
  choices_.Drop(Large(), "no room");
  EXPECT_FALSE(Cudnn(Large(), AttentionKernels::kMeasured));
  EXPECT_FALSE(Cudnn(Large(), AttentionKernels::kCudnn));
  EXPECT_EQ(lines_.size(), 1u);
}

TEST_F(AttentionChoicesTest, SmallAndManyShapesAreNotMeasured) {
  const SdpaShape decoding = ShapeOf(64, 32, 1, 4096, 128, 4095);
  EXPECT_FALSE(Cudnn(decoding, AttentionKernels::kMeasured));
  EXPECT_FALSE(Cudnn(ShapeOf(1, 2, 128, 128, 64), AttentionKernels::kMeasured));
  EXPECT_EQ(script_.prepares, 0);
  for (int64_t i = 0; i < 2 * static_cast<int64_t>(AttentionChoices::kMostShapes); ++i) {
    Cudnn(Large(4 + i), AttentionKernels::kMeasured);
  }
  EXPECT_EQ(script_.prepares, static_cast<int>(AttentionChoices::kMostShapes));
}

TEST(AttentionKernels, AreParsedAndSet) {
  EXPECT_EQ(*ParseAttentionKernels("own"), AttentionKernels::kOwn);
  EXPECT_EQ(*ParseAttentionKernels("cudnn"), AttentionKernels::kCudnn);
  EXPECT_EQ(*ParseAttentionKernels("measure"), AttentionKernels::kMeasured);
  EXPECT_EQ(Message(ParseAttentionKernels("fast").status()),
            "'fast' is none of measure, own, cudnn");
  const auto before = SetAttentionKernels(AttentionKernels::kCudnn);
  EXPECT_EQ(CurrentAttentionKernels(), AttentionKernels::kCudnn);
  EXPECT_EQ(SetAttentionKernels(before), AttentionKernels::kCudnn);
}

TEST(AttentionKernels, AreTheRunsChoiceWhereNothingElseIsSet) {
  const auto before = SetAttentionKernels(std::nullopt);
  EXPECT_EQ(CurrentAttentionKernels(), AttentionKernels::kMeasured);
  SetKernelChoice({.alike = true});  // after one was chosen
  EXPECT_EQ(CurrentAttentionKernels(), AttentionKernels::kOwn);
  {
    const AttentionKernelsScope forced(AttentionKernels::kCudnn);
    EXPECT_EQ(CurrentAttentionKernels(), AttentionKernels::kCudnn);
  }
  EXPECT_EQ(CurrentAttentionKernels(), AttentionKernels::kOwn);
  SetKernelChoice({});
  EXPECT_EQ(CurrentAttentionKernels(), AttentionKernels::kMeasured);
  SetAttentionKernels(before);
}

}  // namespace
}  // namespace tessera
