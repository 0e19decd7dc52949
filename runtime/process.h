// SPDX-License-Identifier: Apache-2.0
// What the host gave the library for the whole process (tsr_configure).
#ifndef TESSERA_RUNTIME_PROCESS_H_
#define TESSERA_RUNTIME_PROCESS_H_

#include <string>

#include "runtime/tessera.h"

namespace tessera::runtime {

// Whose memory `operator new` gives; nullptr: the C library's. What it points to is never freed, so
// that every block can name its own.
const tsr_allocator* HostAllocator() noexcept;
void SetHostAllocator(const tsr_allocator* allocator);

// To the host's logger, where it has one.
void LogWarning(const std::string& message);

}  // namespace tessera::runtime

#endif  // TESSERA_RUNTIME_PROCESS_H_
