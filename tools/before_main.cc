// SPDX-License-Identifier: Apache-2.0
#include "tools/before_main.h"

// Constructors of shared libraries run before those of the program, and some take memory. What the
// pointer below names runs before all of them. Only a program may have such a section, so this file
// is no part of //tools:program.
[[gnu::used, gnu::section(".preinit_array")]] static void (*const before_all)() =
    tessera::tools::ReportWhatNobodyCatches;
