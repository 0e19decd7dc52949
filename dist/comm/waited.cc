// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/waited.h"

#include <atomic>

namespace tessera::dist {
namespace {

std::atomic<double> waited{0};

}  // namespace

double SecondsWaited() { return waited.load(std::memory_order_relaxed); }

void AddSecondsWaited(double seconds) { waited.fetch_add(seconds, std::memory_order_relaxed); }

}  // namespace tessera::dist
