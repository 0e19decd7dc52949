// SPDX-License-Identifier: Apache-2.0
// AMX's tiles for bfloat16 in plain C++, for tests on any machine.
//
//   InsteadOfGemmPairKernels() = &kModelKernels;      // the kernel of gemm_amx.h on a model
//   const EmulatedTiles emulated;                     // or the machine's code, instruction by
//   InsteadOfGemmPairKernels() = &amx::kGemmPairs;    // instruction, where there is no AMX
//
// After TDPBF16PS and the tile instructions of Intel's Software Developer's Manual, volume 2.
#ifndef TESSERA_OPS_MATMUL_GEMM_AMX_MODEL_H_
#define TESSERA_OPS_MATMUL_GEMM_AMX_MODEL_H_

#include <signal.h>
#include <ucontext.h>
#include <xmmintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "ops/matmul/gemm_amx.h"
#include "ops/matmul/gemm_kernel.h"

namespace tessera {

// A thread's eight tiles of 16 rows of 64 bytes.
struct ModelTiles {
  using Row = float[16];
  static inline thread_local Row tiles[8][16];

  static void Load(int t, const void* from, int64_t stride) {
    for (int i = 0; i < 16; ++i) {
      std::memcpy(tiles[t][i], static_cast<const char*>(from) + i * stride, sizeof(Row));
    }
  }
  static void Store(int t, void* to, int64_t stride) {
    for (int i = 0; i < 16; ++i) {
      std::memcpy(static_cast<char*>(to) + i * stride, tiles[t][i], sizeof(Row));
    }
  }
  static void Zero(int t) { std::memset(tiles[t], 0, sizeof(tiles[t])); }

  static void Dot(int c, int a, int b) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(0x9fc0);  // whatever the thread has: to nearest, no traps, denormals are zeros
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 16; ++j) tiles[c][i][j] = Sum(tiles[c][i][j], tiles[a][i], tiles[b], j);
    }
    _mm_setcsr(before);
  }
  __attribute__((noinline)) static float Sum(float c, const Row& a, const Row* b, int column) {
    float even = 0, odd = 0;
    for (int k = 0; k < 16; ++k) {
      even = std::fma(Half(a[k], 16), Half(b[k][column], 16), even);
      odd = std::fma(Half(a[k], 0), Half(b[k][column], 0), odd);
    }
    return c + (even + odd);
  }
  static float Half(float pair, int shift) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(pair) << shift & 0xffff0000u);
  }

  // What gemm_amx.h calls.
  template <int kTile>
  static void Zero() {
    Zero(kTile);
  }
  template <int kTile>
  static void Load(const float* from, int64_t stride) {
    Load(kTile, from, stride);
  }
  template <int kTile>
  static void Store(float* to, int64_t stride) {
    Store(kTile, to, stride);
  }
  template <int kC, int kA, int kB>
  static void Dot() {
    Dot(kC, kA, kB);
  }
  static void Finish(int64_t n, const float* s, float* c, float alpha, bool accumulate) {
    for (int64_t j = 0; j < n; ++j) c[j] = accumulate ? std::fma(alpha, s[j], c[j]) : alpha * s[j];
  }
};

// Packing, a number at a time.
template <bool kAlong>
void PackForModel(const GemmView& view, int64_t width, int64_t depth, float* dst) {
  constexpr int64_t kDeep = 2 * kAmxPairs;
  const int64_t deep = (depth + kDeep - 1) / kDeep * kDeep;
  auto* const to = reinterpret_cast<char*>(dst);
  std::memset(to, 0, static_cast<size_t>((width + 31) / 32 * 32 * deep * 2));
  for (int64_t w = 0; w < width; ++w) {
    for (int64_t k = 0; k < depth; ++k) {
      const int64_t in_panel = kAlong
                                   ? k / kDeep * kDeep * kAmxSide + w % kAmxSide * kDeep + k % kDeep
                                   : k / 2 * 2 * kAmxSide + w % kAmxSide * 2 + k % 2;
      const int64_t from = w * view.width_stride + k * view.depth_stride;
      std::memcpy(to + 2 * (w / kAmxSide * kAmxSide * deep + in_panel),
                  static_cast<const char*>(view.data) + 2 * from, 2);
    }
  }
}

inline const GemmKernels<float> kModelKernels = [] {
  GemmKernels<float> kernels = baseline::kGemmFloat;  // for C's rows
  kernels.mr = kernels.nr = kAmxSide;
  kernels.pair_elements = 1;
  kernels.pairs_at_once = kAmxPairs;
  kernels.pack_a = PackForModel<true>;
  kernels.pack_b = PackForModel<false>;
  kernels.tile = AmxTile<ModelTiles>;
  kernels.skinny = nullptr;
  kernels.rows_tile = nullptr;
  return kernels;
}();

// While it lives, the model does what tile instructions this thread meets on a processor without
// them (the pool's threads block signals). One before LDTILECFG, or any other that is unknown, ends
// the process as ever.
class EmulatedTiles {
 public:
  EmulatedTiles() {
    struct sigaction action = {};
    action.sa_sigaction = [](int, siginfo_t*, void* context) {
      auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
      if (!Execute(registers)) signal(SIGILL, SIG_DFL);
    };
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, &before_);
  }
  ~EmulatedTiles() { sigaction(SIGILL, &before_, nullptr); }
  EmulatedTiles(const EmulatedTiles&) = delete;
  EmulatedTiles& operator=(const EmulatedTiles&) = delete;

 private:
  // Instructions of the form VEX.128.0F38.W0 at RIP, with ModRM and perhaps SIB.
  static bool Execute(gregset_t& registers) {
    constexpr int kNames[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                              REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                              REG_R12, REG_R13, REG_R14, REG_R15};
    const auto* const code = reinterpret_cast<const uint8_t*>(registers[REG_RIP]);
    if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x84) != 0) return false;
    const int prefix = code[2] & 3, opcode = code[3], mode = code[4] >> 6;  // 2: F3, 3: F2
    const int reg = code[4] >> 3 & 7, rm = code[4] & 7;
    const auto extended = [&](int bit, int low) { return (code[1] & bit) == 0 ? low | 8 : low; };
    const bool sib = mode != 3 && rm == 4;
    const bool from_rip = mode == 0 && rm == 5;
    const uint8_t* next = code + (sib ? 6 : 5);
    int32_t displacement = 0;
    if (mode == 1) displacement = static_cast<int8_t>(*next++);
    if (mode == 2 || from_rip) {
      std::memcpy(&displacement, next, 4);
      next += 4;
    }
    const auto base = static_cast<greg_t>(reinterpret_cast<intptr_t>(next));
    char* const memory = reinterpret_cast<char*>(
        displacement +
        (from_rip ? base : registers[kNames[extended(0x20, sib ? code[5] & 7 : rm)]]));
    if (opcode == 0x49 && prefix == 0) {  // LDTILECFG, TILERELEASE
      configured_ = mode != 3;
      if (configured_ && !IsFull(memory)) return false;
    } else if (!configured_) {
      return false;
    } else if (opcode == 0x49 && prefix == 3) {
      ModelTiles::Zero(reg);
    } else if (opcode == 0x4b && sib) {
      const int64_t stride = registers[kNames[extended(0x40, code[5] >> 3 & 7)]] << (code[5] >> 6);
      if (prefix == 3) ModelTiles::Load(reg, memory, stride);
      if (prefix == 2) ModelTiles::Store(reg, memory, stride);
    } else if (opcode == 0x5c && prefix == 2) {  // TDPBF16PS
      ModelTiles::Dot(reg, rm, (~code[2] >> 3) & 7);
    } else {
      return false;
    }
    registers[REG_RIP] = static_cast<greg_t>(reinterpret_cast<intptr_t>(next));
    return true;
  }

  // Whether a configuration is of eight tiles of 16 rows of 64 bytes.
  static bool IsFull(const char* memory) {
    uint8_t want[64] = {1};
    for (int t = 0; t < 8; ++t) want[16 + 2 * t] = 64, want[48 + t] = 16;
    return std::equal(want, want + 64, reinterpret_cast<const uint8_t*>(memory));
  }

  static inline thread_local bool configured_ = false;
  struct sigaction before_;
};

}  // namespace tessera

#endif  // TESSERA_OPS_MATMUL_GEMM_AMX_MODEL_H_
