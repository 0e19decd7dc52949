// SPDX-License-Identifier: Apache-2.0
// A file of its own: programs without such parts need no streams.
#include <locale>
#include <sstream>

#include "base/status.h"

namespace tessera::internal {

void AppendStreamed(TextBuilder& text, void (*print)(std::ostream& out, const void* part),
                    const void* part) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.exceptions(std::ios::badbit);  // else a text would be cut off where memory ends
  print(out, part);
  text << out.str();
}

}  // namespace tessera::internal
