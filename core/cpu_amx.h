// SPDX-License-Identifier: Apache-2.0
// Intel's AMX: tiles of registers that multiply matrices of bfloat16. They are used where the
// environment variable TESSERA_CPU_AMX=1 asks for them and nowhere else, since their sums have
// other bits than those of the instruction sets of core/cpu_isa.h (ops/matmul/gemm.h says which).
//
//   TESSERA_RETURN_IF_ERROR(CheckAmxEnvironment());   // beside CheckIsaEnvironment
//   if (ActiveAmx()) ...                              // where kernels are chosen
#ifndef TESSERA_CORE_CPU_AMX_H_
#define TESSERA_CORE_CPU_AMX_H_

#include "base/status.h"

namespace tessera {

// Whether the processor has tiles for bfloat16 and Linux lets this process use them. It is asked
// for that by this, and makes room for 8 KiB more in the frames of signals.
bool HasAmx();

// Whether TESSERA_CPU_AMX is 1 and CheckAmxEnvironment has nothing against it.
bool ActiveAmx();

// Refuses a TESSERA_CPU_AMX that is neither 0 nor 1, and 1 where ActiveIsa() is below kAvx512 or
// not HasAmx(). Programs call it before anything else and print its message.
Status CheckAmxEnvironment();

}  // namespace tessera

#endif  // TESSERA_CORE_CPU_AMX_H_
