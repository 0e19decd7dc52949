// SPDX-License-Identifier: Apache-2.0
// Which of the kernels compiled once per instruction set (tessera_isa_library) may run here.
//
//   using SoftmaxFn = void(const SoftmaxArgs&);
//   constexpr IsaTable<SoftmaxFn> kSoftmax{TESSERA_FOR_EVERY_ISA(Softmax)};
//   kSoftmax.Select()(args);      // once per launch
//
// (core/cpu/every_isa.h has the macro.)
//
// The choice is the fastest set that both the processor and the operating system support, or the
// one that the environment variable TESSERA_CPU_ISA names (CpuIsaName), so that tests can cover
// every set on one machine. kAvx2 includes FMA and F16C; kAvx512 is F, BW, DQ and VL; kAvx512Vnni
// adds VNNI, which products of integers use, and kAvx512Bf16 BF16, for products of bfloat16. No
// processor has BF16 without VNNI, so that the sets are a chain. On ARM64 there is kNeon, which
// every such processor has, and kNeonDot, which adds dot products of bytes (FEAT_DotProd), for
// products of integers.
#ifndef TESSERA_CORE_CPU_ISA_H_
#define TESSERA_CORE_CPU_ISA_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"

namespace tessera {

// kCpuIsas: all, from the lowest on; kKernelIsas: those that every kernel is compiled for.
#if defined(__aarch64__)
enum class CpuIsa : uint8_t { kNeon, kNeonDot };
inline constexpr CpuIsa kCpuIsas[] = {CpuIsa::kNeon, CpuIsa::kNeonDot};
inline constexpr CpuIsa kKernelIsas[] = {CpuIsa::kNeon};
inline constexpr CpuIsa kLowestWithFma = CpuIsa::kNeon;
#else
enum class CpuIsa : uint8_t { kBaseline, kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16 };
inline constexpr CpuIsa kCpuIsas[] = {CpuIsa::kBaseline, CpuIsa::kAvx2, CpuIsa::kAvx512,
                                      CpuIsa::kAvx512Vnni, CpuIsa::kAvx512Bf16};
inline constexpr CpuIsa kKernelIsas[] = {CpuIsa::kBaseline, CpuIsa::kAvx2, CpuIsa::kAvx512};
inline constexpr CpuIsa kLowestWithFma = CpuIsa::kAvx2;
#endif

// Whether Fma of core/cpu/simd.h rounds once there, as std::fma does.
constexpr bool HasFma(CpuIsa isa) { return isa >= kLowestWithFma; }

// "baseline", "avx2", "avx512", "avx512vnni", "avx512bf16"; "neon", "neondot".
std::string_view CpuIsaName(CpuIsa isa);
std::optional<CpuIsa> ParseCpuIsa(std::string_view name);

// The best that this machine can run.
CpuIsa DetectedIsa();

// What kernels use: the set that TESSERA_CPU_ISA named at the first call; where it named none, or
// one that CheckIsaEnvironment refuses, DetectedIsa(), but kAvx512Vnni on Intel's processors with
// BF16, whose instructions for it do half of what their float32 does in the same time.
CpuIsa ActiveIsa();

// Overrides ActiveIsa(), for tests and benchmarks that compare instruction sets. Throws Error for
// one above DetectedIsa(). Not to be called while kernels run.
void SetActiveIsa(CpuIsa isa);

// Refuses a TESSERA_CPU_ISA that is no known name or that this machine cannot run. Programs call
// it before anything else and print its message.
Status CheckIsaEnvironment();

// One function per instruction set; a null one falls back to the next lower.
template <typename Fn>
struct IsaTable {
#if defined(__aarch64__)
  Fn* neon = nullptr;
  Fn* neondot = nullptr;

  Fn* Select(CpuIsa isa) const {
    return isa >= CpuIsa::kNeonDot && neondot != nullptr ? neondot : neon;
  }
#else
  Fn* baseline = nullptr;
  Fn* avx2 = nullptr;
  Fn* avx512 = nullptr;
  Fn* avx512vnni = nullptr;
  Fn* avx512bf16 = nullptr;

  Fn* Select(CpuIsa isa) const {
    if (isa >= CpuIsa::kAvx512Bf16 && avx512bf16 != nullptr) return avx512bf16;
    if (isa >= CpuIsa::kAvx512Vnni && avx512vnni != nullptr) return avx512vnni;
    if (isa >= CpuIsa::kAvx512 && avx512 != nullptr) return avx512;
    if (isa >= CpuIsa::kAvx2 && avx2 != nullptr) return avx2;
    return baseline;
  }
#endif
  Fn* Select() const { return Select(ActiveIsa()); }
};

}  // namespace tessera

#endif  // TESSERA_CORE_CPU_ISA_H_
