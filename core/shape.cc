// SPDX-License-Identifier: Apache-2.0
#include "core/shape.h"

#include <algorithm>

namespace tessera {

void Shape::ThrowTooMany() {
  internal::ThrowError("shape", Concat("more than ", kMaxDims, " dimensions"));
}

void Shape::ThrowOutOfRange(int dim, std::string_view operation) const {
  internal::ThrowError(operation,
                       Concat("dim ", dim, " is out of range for the ", ndim_, " of ", *this));
}

Shape BroadcastShapes(const Shape& a, const Shape& b, std::string_view operation) {
  const int ndim = std::max(a.ndim(), b.ndim());
  Shape out;
  for (int i = 0; i < ndim; ++i) {
    const int ia = i - (ndim - a.ndim());
    const int ib = i - (ndim - b.ndim());
    const int64_t sa = ia < 0 ? 1 : a[ia];
    const int64_t sb = ib < 0 ? 1 : b[ib];
    TESSERA_CHECK(sa == sb || sa == 1 || sb == 1, operation, "shapes ", a, " and ", b,
                  " do not broadcast");
    out.push_back(sa == 1 ? sb : sa);
  }
  return out;
}

}  // namespace tessera
