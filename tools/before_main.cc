// SPDX-License-Identifier: Apache-2.0
#include "tools/before_main.h"

// Shared libraries' constructors, some of which take memory, run before any of a program's. This
// runs before theirs; a shared library may not have it, so that it is no part of //tools:program.
[[gnu::used, gnu::section(".preinit_array")]] static void (*const before_all)() =
    tessera::tools::ReportWhatNobodyCatches;
