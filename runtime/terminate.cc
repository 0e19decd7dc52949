// SPDX-License-Identifier: Apache-2.0
// The C++ library's own handler writes to standard error which exception nobody caught, and brings
// what makes its name readable: 60 kB. Nothing gets here (border.h); a library is silent.
#include <cstdlib>

namespace __gnu_cxx {  // NOLINT(bugprone-reserved-identifier): the library's name for it

void __verbose_terminate_handler() { std::abort(); }  // NOLINT(bugprone-reserved-identifier)

}  // namespace __gnu_cxx
