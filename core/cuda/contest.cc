// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/contest.h"

#include <chrono>
#include <cmath>
#include <limits>

#include "core/cuda/stream.h"

namespace tessera::cuda {

std::vector<double> LeastMilliseconds(size_t contenders,
                                      const std::function<bool(size_t contender)>& run) {
  constexpr int kRounds = 3;
  constexpr int kRuns = 4;
  constexpr double kFailed = std::numeric_limits<double>::infinity();
  constexpr std::chrono::milliseconds kWarmUp(20);
  const Event begin(/*timing=*/true);
  const Event end(/*timing=*/true);
  // NaN: not measured yet.
  std::vector<double> least(contenders, std::numeric_limits<double>::quiet_NaN());
  const auto each_in_turn = [&](bool measures) {
    for (size_t i = 0; i < contenders; ++i) {
      begin.Record(CurrentStream());
      for (int r = 0; r < kRuns && least[i] != kFailed; ++r) {
        if (!run(i)) least[i] = kFailed;
      }
      end.Record(CurrentStream());
      end.Synchronize();
      if (measures && least[i] != kFailed) {
        least[i] = std::fmin(least[i], end.MillisecondsSince(begin) / kRuns);
      }
    }
  };
  const auto start = std::chrono::steady_clock::now();
  do {
    each_in_turn(/*measures=*/false);
  } while (std::chrono::steady_clock::now() - start < kWarmUp);
  for (int round = 0; round < kRounds; ++round) each_in_turn(/*measures=*/true);
  return least;
}

}  // namespace tessera::cuda
