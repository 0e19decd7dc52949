// SPDX-License-Identifier: Apache-2.0
// Which of several ways to compute the same takes least time on this GPU.
//
//   const std::vector<double> ms = LeastMilliseconds(candidates.size(), [&](size_t i) {
//     return Run(candidates[i]);
//   });
#ifndef TESSERA_CORE_CUDA_CONTEST_H_
#define TESSERA_CORE_CUDA_CONTEST_H_

#include <cstddef>
#include <functional>
#include <vector>

namespace tessera::cuda {

// Of each contender the least of three measurements of four runs on the current stream, infinity
// where `run` says false. They take turns, and run for a while before the first is measured: a GPU
// that was idle raises its clock only then, and whoever came first would seem the slower one. Waits
// for the stream.
std::vector<double> LeastMilliseconds(size_t contenders,
                                      const std::function<bool(size_t contender)>& run);

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_CONTEST_H_
