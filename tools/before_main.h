// SPDX-License-Identifier: Apache-2.0
// What the program does before anything is made, in the constructors of its shared libraries too.
#ifndef TESSERA_TOOLS_BEFORE_MAIN_H_
#define TESSERA_TOOLS_BEFORE_MAIN_H_

namespace tessera::tools {

// Memory that is asked for where nobody can catch that there is none, before main or on a library's
// thread, ends the program with "error: out of memory" and status 1. Again: nothing.
void ReportWhatNobodyCatches();

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_BEFORE_MAIN_H_
