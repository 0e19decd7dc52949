// SPDX-License-Identifier: Apache-2.0
// Results of any length, to a caller who says how much room there is.
#ifndef TESSERA_RUNTIME_GIVE_OUT_H_
#define TESSERA_RUNTIME_GIVE_OUT_H_

#include <cstddef>
#include <cstring>
#include <vector>

#include "base/status.h"

namespace tessera::runtime {

// `elements` to a caller who has room for `capacity`, 0 of which asks for their number alone.
template <typename Element>
Status GiveOut(const std::vector<Element>& elements, Element* out, size_t capacity, size_t* count,
               const char* what) {
  *count = elements.size();
  if (capacity == 0) return OkStatus();
  if (elements.size() > capacity) {
    return Failure(StatusCode::kOutOfRange, elements.size(), " ", what, " do not fit ", capacity);
  }
  if (!elements.empty()) std::memcpy(out, elements.data(), elements.size() * sizeof(Element));
  return OkStatus();
}

}  // namespace tessera::runtime

#endif  // TESSERA_RUNTIME_GIVE_OUT_H_
