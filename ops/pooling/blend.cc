// SPDX-License-Identifier: Apache-2.0
#include "ops/pooling/blend.h"

#include "autograd/autograd.h"
#include "ops/cast/cast.h"
#include "ops/pooling/pooling_kernel.h"

namespace tessera {
namespace {

// A table where the kernel reads it.
class TableOnDevice {
 public:
  TableOnDevice(const BlendTable& table, const Device& device) : in_(table.in), out_(table.out()) {
    std::vector<int64_t> numbers = {0};
    std::vector<double> weights;
    for (const auto& of_one : table.weights) {
      weights.insert(weights.end(), of_one.begin(), of_one.end());
      numbers.push_back(static_cast<int64_t>(weights.size()));
    }
    numbers.insert(numbers.end(), table.begin.begin(), table.begin.end());
    numbers_ = CopyTo(Tensor::FromVector(numbers, {static_cast<int64_t>(numbers.size())}), device);
    weights_ = CopyTo(Tensor::FromVector(weights, {static_cast<int64_t>(weights.size())}), device);
  }
  Blend Get() const {
    const auto* numbers = static_cast<const int64_t*>(numbers_.raw_data());
    const bool there = numbers != nullptr;  // not on meta
    return {in_, out_, numbers, there ? numbers + out_ + 1 : nullptr,
            static_cast<const double*>(weights_.raw_data())};
  }

 private:
  const int64_t in_;
  const int64_t out_;
  Tensor numbers_;  // first, begin
  Tensor weights_;
};

Tensor Launch(const Tensor& x, const BlendTable& h, const BlendTable& w, const Shape& result) {
  const Tensor y = Empty(result, x.dtype(), x.device());
  if (y.numel() == 0) return y;
  const Tensor xc = x.ContiguousCopy();
  const TableOnDevice rows(h, x.device());
  const TableOnDevice columns(w, x.device());
  blend_kernel.Launch(x.device(), {.dtype = x.dtype(),
                                   .planes = y.numel() / (h.out() * w.out()),
                                   .h = rows.Get(),
                                   .w = columns.Get(),
                                   .x = xc.raw_data(),
                                   .y = y.raw_data()});
  return y;
}

}  // namespace

BlendTable BlendTable::Transposed() const {
  BlendTable result{out(), std::vector<int64_t>(static_cast<size_t>(in), 0),
                    std::vector<std::vector<double>>(static_cast<size_t>(in))};
  for (size_t o = 0; o < begin.size(); ++o) {
    for (size_t k = 0; k < weights[o].size(); ++k) {
      const size_t i = static_cast<size_t>(begin[o]) + k;
      if (result.weights[i].empty()) result.begin[i] = static_cast<int64_t>(o);
      result.weights[i].push_back(weights[o][k]);
    }
  }
  return result;
}

Tensor BlendPlanes(const char* name, const Tensor& x, const BlendTable& h, const BlendTable& w,
                   const Shape& result) {
  const Tensor y = Launch(x.Detach(), h, w, result);
  if (AnyRequiresGrad({x})) {
    Record(name, {x}, {y}, [h, w, shape = x.shape()](GradContext& ctx) {
      ctx.set(0, Launch(ctx.grad(), h.Transposed(), w.Transposed(), shape));
    });
  }
  return y;
}

}  // namespace tessera
