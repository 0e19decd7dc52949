// SPDX-License-Identifier: Apache-2.0
#include "core/cpu_amx.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/cpu_isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tessera {
namespace {

constexpr char kAmxVariable[] = "TESSERA_CPU_AMX";

#if defined(__x86_64__)
bool HasAvx512() { return ActiveIsa() >= CpuIsa::kAvx512; }
#else
constexpr bool HasAvx512() { return true; }  // what is missing is AMX itself
#endif

}  // namespace

#if defined(__x86_64__)
bool HasAmx() {
  constexpr uint32_t kTilesOfBf16 = 1u << 24 | 1u << 22;
  uint32_t eax, ebx, ecx, edx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kTilesOfBf16) != kTilesOfBf16) return false;
  // Permission is given only for states that the system has enabled (XCR0).
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
bool HasAmx() { return false; }
#endif

bool ActiveAmx() {
  const char* const value = std::getenv(kAmxVariable);
  return value != nullptr && std::string_view(value) == "1" && HasAvx512() && HasAmx();
}

Status CheckAmxEnvironment() {
  const char* const given = std::getenv(kAmxVariable);
  const std::string_view value = given == nullptr ? "" : given;
  if (value.empty() || value == "0" || ActiveAmx()) return OkStatus();
  const char* const objection = value != "1" ? "must be 0 or 1"
                                : !HasAvx512()
                                    ? "goes with the instruction set avx512 or a higher one"
                                    : "this machine has no AMX tiles for bfloat16, or its "
                                      "operating system does not let them be used";
  return InvalidArgument(kAmxVariable, "=", value, ": ", objection);
}

}  // namespace tessera
