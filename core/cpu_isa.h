// Which of the kernels compiled once per instruction set (tessera_isa_library) may run here.
//
//   using SoftmaxFn = void(const SoftmaxArgs&);
//   constexpr IsaTable<SoftmaxFn> kSoftmax{baseline::Softmax, avx2::Softmax, avx512::Softmax};
//   kSoftmax.Select()(args);      // once per launch
//
// The choice is the best set that both the processor and the operating system support, lowered by
// the environment variable TESSERA_CPU_ISA (`baseline`, `avx2`, `avx512` or `avx512vnni`), so that
// tests can cover every set on one machine. kAvx2 includes FMA and F16C; kAvx512 is F, BW, DQ and
// VL; kAvx512Vnni adds VNNI, which products of integers use.
#ifndef TESSERA_CORE_CPU_ISA_H_
#define TESSERA_CORE_CPU_ISA_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/status.h"

namespace tessera {

enum class CpuIsa : uint8_t { kBaseline, kAvx2, kAvx512, kAvx512Vnni };
inline constexpr CpuIsa kCpuIsas[] = {CpuIsa::kBaseline, CpuIsa::kAvx2, CpuIsa::kAvx512,
                                      CpuIsa::kAvx512Vnni};

// "baseline", "avx2", "avx512", "avx512vnni".
std::string_view CpuIsaName(CpuIsa isa);
std::optional<CpuIsa> ParseCpuIsa(std::string_view name);

// The best that this machine can run.
CpuIsa DetectedIsa();

// What kernels use: DetectedIsa(), lowered by TESSERA_CPU_ISA as it stood at the first call. A
// value that CheckIsaEnvironment refuses lowers nothing.
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
  Fn* baseline = nullptr;
  Fn* avx2 = nullptr;
  Fn* avx512 = nullptr;
  Fn* avx512vnni = nullptr;

  Fn* Select(CpuIsa isa) const {
    if (isa >= CpuIsa::kAvx512Vnni && avx512vnni != nullptr) return avx512vnni;
    if (isa >= CpuIsa::kAvx512 && avx512 != nullptr) return avx512;
    if (isa >= CpuIsa::kAvx2 && avx2 != nullptr) return avx2;
    return baseline;
  }
  Fn* Select() const { return Select(ActiveIsa()); }
};

}  // namespace tessera

#endif  // TESSERA_CORE_CPU_ISA_H_
