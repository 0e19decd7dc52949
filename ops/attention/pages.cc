// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/pages.h"

#include "base/error.h"
#include "ops/attention/pages_kernel.h"

namespace tessera {

void WritePages(const Tensor& pages, const Tensor& x, const PagePlaces& places) {
  const bool fits = pages.ndim() == 4 && pages.is_contiguous() && x.ndim() == 4 &&
                    x.dtype() == pages.dtype() && x.device() == pages.device() &&
                    x.size(1) == pages.size(1) && x.size(3) == pages.size(3);
  TESSERA_CHECK(fits, "write_pages", "pages ", pages, ", x ", x);
  const Shape rows = {x.size(0)};
  const auto numbers = [&](const Tensor& t) {
    return t.defined() && t.dtype() == DType::kInt32 && t.device() == x.device() &&
           t.is_contiguous();
  };
  TESSERA_CHECK(numbers(places.table) && places.table.ndim() == 2 &&
                    places.table.size(0) == x.size(0) && numbers(places.begins) &&
                    places.begins.shape() == rows && numbers(places.counts) &&
                    places.counts.shape() == rows,
                "write_pages", "of x ", x, ": table ", places.table, ", begins ", places.begins,
                ", counts ", places.counts);
  const Tensor from = x.size(3) <= 1 || x.stride(3) == 1 ? x : x.ContiguousCopy();
  write_pages_kernel.Launch(x.device(),
                            {.element_bytes = static_cast<int64_t>(DTypeSize(x.dtype())),
                             .batch = x.size(0),
                             .heads = x.size(1),
                             .tokens = x.size(2),
                             .head_dim = x.size(3),
                             .page_size = pages.size(2),
                             .pages_per_row = places.table.size(1),
                             .x = from.raw_data(),
                             .x_batch = from.stride(0),
                             .x_head = from.stride(1),
                             .x_time = from.stride(2),
                             .pages = pages.raw_data(),
                             .table = static_cast<const int32_t*>(places.table.raw_data()),
                             .begins = static_cast<const int32_t*>(places.begins.raw_data()),
                             .counts = static_cast<const int32_t*>(places.counts.raw_data())});
}

}  // namespace tessera
