// SPDX-License-Identifier: Apache-2.0
#include "ops/kernel_choice.h"

#include <atomic>

namespace tessera {
namespace {

std::atomic<KernelChoice> current = KernelChoice{};

}  // namespace

void SetKernelChoice(const KernelChoice& choice) { current = choice; }
KernelChoice CurrentKernelChoice() { return current; }

}  // namespace tessera
