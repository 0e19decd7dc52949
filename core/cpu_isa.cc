// SPDX-License-Identifier: Apache-2.0
#include "core/cpu_isa.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#else
#include <sys/auxv.h>
#endif

namespace tessera {
namespace {

constexpr char kIsaVariable[] = "TESSERA_CPU_ISA";

#if defined(__x86_64__)
constexpr char kNames[] = "baseline, avx2, avx512, avx512vnni or avx512bf16";

// The register states that the operating system saves (XCR0).
uint64_t EnabledStates() {
  uint32_t low;
  uint32_t high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

CpuIsa Detect() {
  uint32_t eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return CpuIsa::kBaseline;
  constexpr uint32_t kLeaf1 = bit_FMA | bit_F16C | bit_OSXSAVE | bit_AVX;
  if ((ecx & kLeaf1) != kLeaf1) return CpuIsa::kBaseline;
  const uint64_t states = EnabledStates();
  constexpr uint64_t kYmmStates = 0x06;  // XMM, upper YMM
  constexpr uint64_t kZmmStates = 0xe6;  // and opmask, upper ZMM, ZMM16-31
  if ((states & kYmmStates) != kYmmStates) return CpuIsa::kBaseline;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return CpuIsa::kBaseline;
  if ((ebx & bit_AVX2) == 0) return CpuIsa::kBaseline;
  constexpr uint32_t kAvx512Bits = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  if ((states & kZmmStates) != kZmmStates || (ebx & kAvx512Bits) != kAvx512Bits) {
    return CpuIsa::kAvx2;
  }
  if ((ecx & bit_AVX512VNNI) == 0) return CpuIsa::kAvx512;
  // A leaf that a processor does not know reads as zeros or as its last one.
  const bool has_leaf = eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0;
  return has_leaf && (eax & bit_AVX512BF16) != 0 ? CpuIsa::kAvx512Bf16 : CpuIsa::kAvx512Vnni;
}

bool IsIntel() {
  uint32_t eax, ebx, ecx, edx;
  return __get_cpuid(0, &eax, &ebx, &ecx, &edx) != 0 && ebx == signature_INTEL_ebx &&
         ecx == signature_INTEL_ecx && edx == signature_INTEL_edx;
}

CpuIsa Fastest() {
  const CpuIsa best = DetectedIsa();
  return IsIntel() ? std::min(best, CpuIsa::kAvx512Vnni) : best;
}
#else
constexpr char kNames[] = "neon or neondot";

CpuIsa Detect() {
  constexpr uint64_t kDotProducts = 1 << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & kDotProducts) != 0 ? CpuIsa::kNeonDot : CpuIsa::kNeon;
}
CpuIsa Fastest() { return DetectedIsa(); }
#endif

// What the variable says; "" where it is not set.
std::string_view IsaAskedFor() {
  const char* const value = std::getenv(kIsaVariable);
  return value == nullptr ? "" : value;
}

CpuIsa FromEnvironment() {
  const CpuIsa best = DetectedIsa();
  const CpuIsa fastest = Fastest();
  const CpuIsa asked = ParseCpuIsa(IsaAskedFor()).value_or(fastest);
  return asked <= best ? asked : fastest;
}

std::atomic<CpuIsa>& Active() {
  static std::atomic<CpuIsa> active{FromEnvironment()};
  return active;
}

}  // namespace

std::string_view CpuIsaName(CpuIsa isa) {
  switch (isa) {
#if defined(__aarch64__)
    case CpuIsa::kNeon:
      return "neon";
    case CpuIsa::kNeonDot:
      return "neondot";
#else
    case CpuIsa::kBaseline:
      return "baseline";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAvx512Vnni:
      return "avx512vnni";
    case CpuIsa::kAvx512Bf16:
      return "avx512bf16";
#endif
  }
  return "unknown";
}

std::optional<CpuIsa> ParseCpuIsa(std::string_view name) {
  for (CpuIsa isa : kCpuIsas) {
    if (name == CpuIsaName(isa)) return isa;
  }
  return std::nullopt;
}

CpuIsa DetectedIsa() {
  static const CpuIsa detected = Detect();
  return detected;
}

CpuIsa ActiveIsa() { return Active().load(std::memory_order_relaxed); }

void SetActiveIsa(CpuIsa isa) {
  TESSERA_CHECK(isa <= DetectedIsa(), "SetActiveIsa", CpuIsaName(isa), " asked for, but ",
                CpuIsaName(DetectedIsa()), " is the best this machine can run");
  Active().store(isa, std::memory_order_relaxed);
}

Status CheckIsaEnvironment() {
  const std::string_view value = IsaAskedFor();
  if (value.empty()) return OkStatus();
  const std::optional<CpuIsa> asked = ParseCpuIsa(value);
  if (!asked.has_value()) {
    return InvalidArgument(kIsaVariable, "=", value, ": must be ", kNames);
  }
  if (*asked > DetectedIsa()) {
    return InvalidArgument(kIsaVariable, "=", value, ": the best this machine can run is ",
                           CpuIsaName(DetectedIsa()));
  }
  return OkStatus();
}

}  // namespace tessera
