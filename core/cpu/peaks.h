// SPDX-License-Identifier: Apache-2.0
// What this processor can do at most, as measured now: the limits that a program's own rates are
// compared with (`tessera train --profile-summary`, bench/roofline.cc).
//
//   const CpuPeaks peaks = MeasurePeaks(NumThreads());
//   peaks.ProductRate(DType::kFloat32);           // FLOPs a second of all these threads
//   peaks.ReadBandwidth(64 << 20);                // bytes a second, of so many bytes
//   peaks.LeastSeconds({.flops = 2e9, .bytes = 1e8});
//
// A rate is the best of several short runs of loops that do nothing else, on every thread at the
// same time; products come from registers. It takes about a second. Other programs that run at the
// same time, and a clock that falls later, make it differ by some percent from run to run.
#ifndef TESSERA_CORE_CPU_PEAKS_H_
#define TESSERA_CORE_CPU_PEAKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/kernel_work.h"

namespace tessera {

struct CpuPeaks {
  struct Level {
    std::string name;   // "L1", "L2", "L3" or "memory"
    int64_t bytes = 0;  // of all the threads' caches together; of the memory 0
    double read = 0;    // bytes a second
    double write = 0;
  };

  int threads = 0;
  double fma_flops = 0;       // float32, by the instruction set in use (core/cpu_isa.h)
  double pairs_flops = 0;     // bfloat16 by VDPBF16PS; 0: products do not use it here
  double tiles_flops = 0;     // bfloat16 by AMX; 0: there is none, or it was not asked for
  std::vector<Level> levels;  // from the nearest to the memory

  // Of products of such numbers, by the instructions that Tessera uses for them.
  double ProductRate(DType dtype) const;
  // Of the nearest level that holds so many bytes.
  double ReadBandwidth(double bytes) const;
  // The greater of what the products take and what the reading takes.
  double LeastSeconds(const KernelWork& work) const;
};

// Throws Error where the memory for its buffers is not there (512 MB at most).
CpuPeaks MeasurePeaks(int threads);

}  // namespace tessera

#endif  // TESSERA_CORE_CPU_PEAKS_H_
