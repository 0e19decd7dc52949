// SPDX-License-Identifier: Apache-2.0
#include "ops/routed_rows/routed_rows.h"

#include "autograd/autograd.h"
#include "ops/routed_rows/routed_rows_kernel.h"

namespace tessera {
namespace {

const int64_t* PlacesOf(const Tensor& place) {
  return static_cast<const int64_t*>(place.raw_data());
}

void Check(const char* name, const Tensor& x, const Tensor& place, int64_t rows) {
  TESSERA_CHECK(x.ndim() == 2 && IsFloating(x.dtype()), name, "rows are ", x);
  TESSERA_CHECK(place.ndim() == 2 && place.dtype() == DType::kInt64 && place.device() == x.device(),
                name, "places ", place, " of ", x);
  if (!place.device().is_cpu()) return;
  for (int64_t i = 0; i < place.numel(); ++i) {
    TESSERA_CHECK(PlacesOf(place)[i] >= -1 && PlacesOf(place)[i] < rows, name, "place ",
                  PlacesOf(place)[i], " of ", rows, " rows");
  }
}

Tensor Combined(const Tensor& x, const Tensor& weights, const Tensor& place) {
  const Tensor out = Empty({place.size(0), x.size(1)}, x.dtype(), x.device());
  if (out.numel() == 0) return out;
  combine_rows_kernel.Launch(x.device(),
                             {.dtype = x.dtype(),
                              .tokens = place.size(0),
                              .each = place.size(1),
                              .width = x.size(1),
                              .x = x.raw_data(),
                              .place = PlacesOf(place),
                              .weights = weights.defined() ? weights.raw_data() : nullptr,
                              .out = out.raw_data()});
  return out;
}

// The rows, and where `with` is defined, the gradient of the weights.
Tensor Spread(const Tensor& x, const Tensor& weights, const Tensor& place, int64_t rows,
              const Tensor& with, const Tensor& d_weights) {
  const Tensor out = Empty({rows, x.size(1)}, x.dtype(), x.device());
  if (place.numel() == 0) return out;
  spread_rows_kernel.Launch(x.device(),
                            {.dtype = x.dtype(),
                             .tokens = place.size(0),
                             .each = place.size(1),
                             .width = x.size(1),
                             .x = x.raw_data(),
                             .place = PlacesOf(place),
                             .weights = weights.defined() ? weights.raw_data() : nullptr,
                             .rows = out.raw_data(),
                             .with = with.defined() ? with.raw_data() : nullptr,
                             .d_weights = d_weights.defined() ? d_weights.raw_data() : nullptr});
  return out;
}

}  // namespace

Tensor DispatchRows(const Tensor& x, const Tensor& places, int64_t rows) {
  const Tensor place = places.ContiguousCopy();
  Check("dispatch_rows", x, place, rows);
  TESSERA_CHECK(place.size(0) == x.size(0), "dispatch_rows", "places ", place, " of ", x);
  const Tensor y = Spread(x.Detach().ContiguousCopy(), {}, place, rows, {}, {});
  if (AnyRequiresGrad({x})) {
    Record("dispatch_rows", {x}, {y}, [place = SavedTensor(place)](GradContext& ctx) {
      ctx.set(0, Combined(ctx.grad().ContiguousCopy(), {}, place.Unpack()));
    });
  }
  return y;
}

Tensor CombineRows(const Tensor& x, const Tensor& weights, const Tensor& places) {
  const Tensor place = places.ContiguousCopy();
  Check("combine_rows", x, place, x.size(0));
  TESSERA_CHECK(weights.shape() == place.shape() && IsFloating(weights.dtype()) &&
                    weights.device() == x.device(),
                "combine_rows", "weights ", weights, " for places ", place);
  const DType wide = AccumulateDType(x.dtype());
  const Tensor rows = x.Detach().ContiguousCopy();
  const Tensor given = weights.Detach().ContiguousCopy();
  const Tensor factors = given.dtype() == wide ? given : CastCopy(given, wide);
  const Tensor y = Combined(rows, factors, place);
  if (AnyRequiresGrad({x, weights})) {
    Record("combine_rows", {x, weights}, {y},
           [rows = SavedTensor(rows), factors = SavedTensor(factors), place = SavedTensor(place),
            dtype = weights.dtype()](GradContext& ctx) {
             const Tensor with = rows.Unpack();
             const Tensor at = place.Unpack();
             const Tensor d_weights =
                 Empty(at.shape(), AccumulateDType(with.dtype()), with.device());
             const Tensor d_rows = Spread(ctx.grad().ContiguousCopy(), factors.Unpack(), at,
                                          with.size(0), with, d_weights);
             if (ctx.needs(0)) ctx.set(0, d_rows);
             if (ctx.needs(1)) {
               ctx.set(1, d_weights.dtype() == dtype ? d_weights : CastCopy(d_weights, dtype));
             }
           });
  }
  return y;
}

}  // namespace tessera
