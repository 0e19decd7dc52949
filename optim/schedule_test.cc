// SPDX-License-Identifier: Apache-2.0
#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "optim/testdata/schedule_golden.h"

namespace tessera::optim {
namespace {

double At(const ScheduleConfig& config, int64_t step) {
  const StatusOr<Schedule> schedule = MakeSchedule(config);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return schedule.ok() ? schedule->At(step) : NAN;
}

TEST(ScheduleTest, WarmUpRisesFromALittle) {
  for (const char* kind : {"constant", "linear", "cosine", "inverse_sqrt"}) {
    const ScheduleConfig config{kind, 0.5, 0, 4, 10};
    EXPECT_DOUBLE_EQ(At(config, 1), 0.125) << kind;
    EXPECT_DOUBLE_EQ(At(config, 2), 0.25) << kind;
    EXPECT_DOUBLE_EQ(At(config, 3), 0.375) << kind;
    EXPECT_DOUBLE_EQ(At(config, 4), 0.5) << kind;
    EXPECT_DOUBLE_EQ(At(config, 0), 0.125) << kind;
  }
}

TEST(ScheduleTest, Constant) {
  EXPECT_EQ(At({"constant", 0.3, 0, 0, 0}, 1), 0.3);
  EXPECT_EQ(At({"constant", 0.3, 0.1, 5, 0}, 1000000), 0.3);
}

TEST(ScheduleTest, LinearFallsEvenly) {
  const ScheduleConfig config{"linear", 1.0, 0.2, 2, 10};
  for (int64_t step = 3; step <= 10; ++step) {
    EXPECT_NEAR(At(config, step), 1.0 - 0.1 * static_cast<double>(step - 2), 1e-15);
  }
  EXPECT_EQ(At(config, 10), 0.2);
  EXPECT_EQ(At(config, 11), 0.2);
}

TEST(ScheduleTest, ALogarithmicWarmUpOfTwoStepsIsDoneAtOnce) {
  const ScheduleConfig config{
      .kind = "constant", .lr = 0.5, .warmup_steps = 2, .warmup_type = "log"};
  EXPECT_DOUBLE_EQ(At(config, 1), 0.5);
  EXPECT_EQ(At(config, 2), 0.5);
}

TEST(ScheduleTest, ARestartAtTheEndIsNone) {
  const ScheduleConfig config{"cosine_with_restarts", 1.0, 0.25, 0, 10};
  EXPECT_LT(At(config, 9), 0.5);
  EXPECT_EQ(At(config, 10), 0.25);
  EXPECT_EQ(At(config, 11), 0.25);
}

// Points of the half cosine known without computing one.
TEST(ScheduleTest, CosineFallsAlongAHalfWave) {
  const ScheduleConfig config{"cosine", 3e-4, 1e-4, 10, 22};
  EXPECT_NEAR(At(config, 14), 1e-4 + 2e-4 * 0.75, 1e-18);  // a third: cos = 1/2
  EXPECT_NEAR(At(config, 16), 2e-4, 1e-18);                // half way
  EXPECT_NEAR(At(config, 18), 1e-4 + 2e-4 * 0.25, 1e-18);
  EXPECT_EQ(At(config, 22), 1e-4);
  EXPECT_EQ(At(config, std::numeric_limits<int64_t>::max()), 1e-4);
  for (int64_t step = 11; step <= 22; ++step) {
    EXPECT_LT(At(config, step), At(config, step - 1));
  }
}

TEST(ScheduleTest, InverseSquareRoot) {
  const ScheduleConfig config{"inverse_sqrt", 1.0, 0.1, 16, 0};
  EXPECT_DOUBLE_EQ(At(config, 64), 0.5);
  EXPECT_DOUBLE_EQ(At(config, 256), 0.25);
  EXPECT_DOUBLE_EQ(At(config, 1600), 0.1);
  EXPECT_DOUBLE_EQ(At(config, 3000), 0.1) << "min_lr";
  // Hugging Face's of step k, from 0: lr / sqrt((k + 10000) / 10000).
  for (const int64_t k : {0, 1, 4, 10000, 30000}) {
    const ScheduleConfig without{.kind = "inverse_sqrt", .lr = 2.0, .offset = -1};
    EXPECT_DOUBLE_EQ(At(without, k + 1), 2.0 / std::sqrt((static_cast<double>(k) + 1e4) / 1e4));
  }
}

// Whatever the warm-up, its kind and the offset: no rate is infinite, negative or above lr.
TEST(ScheduleTest, RatesAreWithinTheirRangeFromTheFirstStepOn) {
  for (const std::string& kind : ScheduleNames()) {
    for (const std::string& warmup_type : WarmupNames()) {
      for (const int64_t warmup : {0, 1, 2, 5, 50}) {
        for (const int64_t offset : {-3, -2, -1, 0, 1, 7}) {
          for (const int64_t total : {1, 2, 10}) {
            const ScheduleConfig config{.kind = kind,
                                        .lr = 0.5,
                                        .min_lr = 0.25,
                                        .warmup_steps = warmup,
                                        .total_steps = total,
                                        .warmup_type = warmup_type,
                                        .warmup_min_lr = 0.125,
                                        .offset = offset,
                                        .decay_steps = 1};
            for (int64_t step = -1; step <= 12; ++step) {
              const double rate = At(config, step);
              EXPECT_TRUE(rate >= 0.125 && rate <= 0.5)
                  << kind << ' ' << warmup_type << ' ' << warmup << ' ' << offset << ' ' << total
                  << " step " << step << ": " << rate;
            }
          }
        }
      }
    }
  }
}

TEST(ScheduleTest, WarmUpMayOutlastTheRun) {
  const ScheduleConfig config{"cosine", 1.0, 0.5, 100, 10};
  EXPECT_DOUBLE_EQ(At(config, 10), 0.1);
  EXPECT_DOUBLE_EQ(At(config, 100), 1.0);
  EXPECT_DOUBLE_EQ(At(config, 101), 0.5);
}

// Whole runs of the schedulers of transformers, Colossal-AI, FlagAI and Megatron-LM.
TEST(ScheduleTest, FollowsThePublishedSchedulers) {
  const std::vector<ScheduleGolden> goldens = ScheduleGoldens();
  ASSERT_GT(goldens.size(), 40u);
  for (const ScheduleGolden& golden : goldens) {
    ASSERT_EQ(golden.rates.size(), 20u) << golden.name;
    for (size_t i = 0; i < golden.rates.size(); ++i) {
      EXPECT_NEAR(At(golden.config, static_cast<int64_t>(i) + 1), golden.rates[i], 1e-15)
          << golden.name << ", step " << i + 1;
    }
  }
}

TEST(ScheduleTest, KnownByOtherNames) {
  const std::vector<double> linear = {0.25,   0.5,    0.75,   1,      6. / 7,
                                      5. / 7, 4. / 7, 3. / 7, 2. / 7, 1. / 7};
  for (size_t i = 0; i < linear.size(); ++i) {
    EXPECT_NEAR(At(LinearWarmupLR(2.0, 10, 3), static_cast<int64_t>(i) + 1), 2 * linear[i], 1e-15);
  }
  const ScheduleConfig cosine = CosineAnnealingWarmupLR(2.0, 20, 10, 1.0);
  EXPECT_DOUBLE_EQ(At(cosine, 1), 0.2);
  EXPECT_DOUBLE_EQ(At(cosine, 10), 2.0);
  EXPECT_DOUBLE_EQ(At(cosine, 11), 2.0);
  EXPECT_NEAR(At(cosine, 16), 1.5, 1e-15);
}

TEST(ScheduleTest, RefusesBadConfigurations) {
  const auto message = [](const ScheduleConfig& config) {
    return Message(MakeSchedule(config).status());
  };
  EXPECT_NE(message({"cosin", 1, 0, 0, 10}).find("'cosin'"), std::string::npos);
  EXPECT_EQ(message({"constant", -1, 0, 0, 0}).rfind("lr is -1", 0), 0u);
  EXPECT_EQ(message({"constant", NAN, 0, 0, 0}).rfind("lr is", 0), 0u);
  EXPECT_EQ(message({"constant", INFINITY, 0, 0, 0}).rfind("lr is inf", 0), 0u);
  EXPECT_EQ(message({"constant", 1, 2, 0, 0}).rfind("min_lr is 2", 0), 0u);
  EXPECT_EQ(message({"constant", 1, NAN, 0, 0}).rfind("min_lr is", 0), 0u);
  EXPECT_EQ(message({"constant", 1, -0.5, 0, 0}).rfind("min_lr is -0.5", 0), 0u);
  for (const double first : {-0.5, double{NAN}, double{INFINITY}}) {
    EXPECT_EQ(
        message({.kind = "constant", .lr = 1, .warmup_min_lr = first}).rfind("warmup_min_lr is", 0),
        0u);
  }
  EXPECT_EQ(message({"constant", 1, 0, -1, 0}).rfind("warmup_steps is -1", 0), 0u);
  EXPECT_NE(message({"cosine", 1, 0, 0, 0}).find("total steps"), std::string::npos);
  EXPECT_NE(message({"linear", 1, 0, 0, -5}).find("total steps"), std::string::npos);
  EXPECT_EQ(message({.kind = "constant", .warmup_type = "slow"}),
            "warmup_type 'slow' is unknown; expected linear, log, cosine or 1-sqrt");
  EXPECT_EQ(message({.kind = "warmup_stable_decay", .lr = 1, .total_steps = 5, .decay_steps = 6}),
            "lr_decay_steps is 6, expected 1 to 5, the steps of the schedule");
  EXPECT_EQ(message({.kind = "warmup_stable_decay", .lr = 1, .total_steps = 5, .decay_steps = 0}),
            "lr_decay_steps is 0, expected 1 to 5, the steps of the schedule");
  for (const double number : {-1.0, 0.0, double{NAN}, double{INFINITY}}) {
    EXPECT_EQ(message({.kind = "cosine", .lr = 1, .total_steps = 5, .cycles = number})
                  .rfind("lr_cycles is", 0),
              0u);
    EXPECT_EQ(message({.kind = "polynomial", .lr = 1, .total_steps = 5, .power = number})
                  .rfind("lr_power is", 0),
              0u);
  }
  EXPECT_EQ(message({.kind = "inverse_sqrt", .lr = 1, .timescale = 0}),
            "lr_timescale is 0, expected >= 1");
  EXPECT_EQ(message({.kind = "constant", .decay_type = "slow"}),
            "lr_decay_type 'slow' is unknown; expected linear, cosine or 1-sqrt");
}

TEST(ScheduleTest, TheLimitsAreAllowed) {
  EXPECT_EQ(At({"constant", 0, 0, 0, 0}, 1), 0);
  EXPECT_EQ(At({"linear", 1, 1, 0, 1}, 1), 1);
  EXPECT_EQ(At({.kind = "warmup_stable_decay", .lr = 1, .total_steps = 4, .decay_steps = 4}, 4), 0);
}

// FlagAI decays over all steps, warm-up included, and past its end nothing is left to decay.
TEST(ScheduleTest, AfterAWarmUpOfAllStepsTheRateIsTheLeast) {
  const ScheduleConfig config{.kind = "cosine",
                              .lr = 1,
                              .warmup_steps = 10,
                              .total_steps = 10,
                              .counting = ScheduleCounting::kFlagAi};
  EXPECT_EQ(At(config, 11), 1);
  EXPECT_NEAR(At(config, 12), 0, 1e-15);
}

}  // namespace
}  // namespace tessera::optim
