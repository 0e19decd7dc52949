// SPDX-License-Identifier: Apache-2.0
#include "ops/channel_norm/channel_norm.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "ops/cast/autocast.h"
#include "ops/channel_norm/plane_kernel.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/reduction.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

// N pictures, C channels, P elements of a plane, G groups of D channels. What has one number per
// plane or channel is small: it is computed by operations, off the tape.
namespace tessera {
namespace {

const void* DataOrNull(const Tensor& t) { return t.defined() ? t.raw_data() : nullptr; }

struct Sizes {
  explicit Sizes(const Tensor& x)
      : n(x.size(0)), c(x.size(1)), p(x.numel() / std::max<int64_t>(1, n * c)) {}
  int64_t n;
  int64_t c;
  int64_t p;
};

void Check(const char* name, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  TESSERA_CHECK(x.ndim() >= 2 && IsFloating(x.dtype()) && x.numel() > 0, name,
                "cannot normalise the channels of ", x,
                ": [N, C, ...] of a floating dtype with elements is needed");
  for (const Tensor& p : {weight, bias}) {
    TESSERA_CHECK(!p.defined() || (p.shape() == Shape{x.size(1)} && p.dtype() == x.dtype() &&
                                   p.device() == x.device()),
                  name, "parameter ", p, " for ", x, ": it must be [C] of x's dtype and device");
  }
}

Tensor Coefficients(const Tensor& t) {
  return t.defined() ? Reshape(t, {t.numel()}).ContiguousCopy() : t;
}

// a z + b (x - center) + d, where `b` (or `a`, without x) says how many coefficients there are.
struct Combination {
  Tensor z = {};
  Tensor a = {};
  Tensor x = {};
  Tensor b = {};
  Tensor center = {};
  Tensor d = {};
};
Tensor Apply(const Combination& given) {
  const Tensor& like = given.x.defined() ? given.x : given.z;
  const Tensor x = given.x.defined() ? given.x.ContiguousCopy() : given.x;
  const Tensor z = given.z.defined() ? given.z.ContiguousCopy() : given.z;
  const Tensor a = Coefficients(given.a);
  const Tensor b = Coefficients(given.b);
  const Tensor center = Coefficients(given.center);
  const Tensor d = Coefficients(given.d);
  const Tensor out = Empty(like.shape(), like.dtype(), like.device());
  const Sizes s(like);
  plane_affine_kernel.Launch(like.device(), {.dtype = like.dtype(),
                                             .planes = s.n * s.c,
                                             .n = s.p,
                                             .coefficients = b.defined() ? b.numel() : a.numel(),
                                             .z = DataOrNull(z),
                                             .a = DataOrNull(a),
                                             .x = DataOrNull(x),
                                             .b = DataOrNull(b),
                                             .center = DataOrNull(center),
                                             .d = DataOrNull(d),
                                             .out = out.raw_data()});
  return out;
}

struct PlanePair {
  Tensor first;  // [N, C]
  Tensor second;
};
PlanePair EmptyPair(const Tensor& x) {
  const Shape shape{x.size(0), x.size(1)};
  const DType wide = AccumulateDType(x.dtype());
  return {Empty(shape, wide, x.device()), Empty(shape, wide, x.device())};
}
// Mean, and sum of squares around it.
PlanePair MomentsOf(const Tensor& x) {
  const PlanePair moments = EmptyPair(x);
  const Sizes s(x);
  const Tensor xc = x.ContiguousCopy();
  plane_moments_kernel.Launch(x.device(), {.dtype = x.dtype(),
                                           .planes = s.n * s.c,
                                           .n = s.p,
                                           .x = xc.raw_data(),
                                           .mean = moments.first.raw_data(),
                                           .squares = moments.second.raw_data()});
  return moments;
}
// Of z and of z (x - center).
PlanePair SumsOf(const Tensor& x, const Tensor& z, const Tensor& center) {
  const PlanePair sums = EmptyPair(x);
  const Sizes s(x);
  const Tensor xc = x.ContiguousCopy();
  const Tensor zc = z.ContiguousCopy();
  const Tensor cc = Coefficients(center);
  plane_sums_kernel.Launch(x.device(), {.dtype = x.dtype(),
                                        .planes = s.n * s.c,
                                        .n = s.p,
                                        .coefficients = cc.numel(),
                                        .x = xc.raw_data(),
                                        .z = zc.raw_data(),
                                        .center = cc.raw_data(),
                                        .sums = sums.first.raw_data(),
                                        .products = sums.second.raw_data()});
  return sums;
}

Tensor TimesWeight(const Tensor& t, const Tensor& weight) {
  return weight.defined() ? Mul(t, Cast(weight, t.dtype())) : t;
}

// Mean and biased variance of all elements that are joined over `dims` of planes' moments; sizes
// stay as 1.
PlanePair Join(const PlanePair& moments, const std::vector<int>& dims, int64_t p) {
  const Tensor mean = Mean(moments.first, dims, true);
  const Tensor distance = Sub(moments.first, mean);
  const Tensor squares = Add(moments.second, Mul(Mul(distance, distance), static_cast<double>(p)));
  return {mean, Mul(Mean(squares, dims, true), 1.0 / static_cast<double>(p))};
}

Tensor ReciprocalRoot(const Tensor& variance, double eps) { return Rsqrt(Add(variance, eps)); }

// What the gradients of x, weight and bias are made of: dy and, off the tape, the statistics as
// they broadcast to [N, C] (or [N, G, D]).
void SetParameterGrads(GradContext& ctx, const PlanePair& sums, const Tensor& rstd_NC) {
  if (ctx.needs(1)) ctx.set(1, Reshape(Sum(Mul(sums.second, rstd_NC), {0}), {sums.first.size(1)}));
  if (ctx.needs(2)) ctx.set(2, Sum(sums.first, {0}));
}

// With M elements per channel: dx = w r (dy - mean(dy) - (x - mean) r^2 mean(dy (x - mean))).
GradFn BatchBackward(const Tensor& x, const Tensor& weight, const Tensor& mean_1C,
                     const Tensor& rstd_1C, bool constants) {
  return [x = SavedTensor(x), weight = SavedTensor(weight), mean = SavedTensor(mean_1C),
          rstd = SavedTensor(rstd_1C), constants](GradContext& ctx) {
    const NoGrad no_grad;
    const Tensor dy = ctx.grad();
    const Tensor in = x.Unpack().Detach();
    const Tensor r = rstd.Unpack();
    const Tensor a =
        TimesWeight(r, weight.Unpack().defined() ? weight.Unpack().Detach() : Tensor());
    const bool needs_sums = !constants || ctx.needs(1) || ctx.needs(2);
    const PlanePair sums = needs_sums ? SumsOf(in, dy, mean.Unpack()) : PlanePair{};
    SetParameterGrads(ctx, sums, r);
    if (!ctx.needs(0)) return;
    if (constants) return ctx.set(0, Apply({.z = dy, .a = a}));
    const Sizes s(in);
    const Tensor share = Mul(a, -1.0 / static_cast<double>(s.n * s.p));
    const Tensor d = Mul(share, Sum(sums.first, {0}, true));
    const Tensor b = Mul(Mul(share, Mul(r, r)), Sum(sums.second, {0}, true));
    ctx.set(0, Apply({dy, a, in, b, mean.Unpack(), d}));
  };
}

// The same with sums over the channels of a group of one picture, of w dy in the place of dy.
GradFn GroupBackward(const Tensor& x, const Tensor& weight, int64_t groups, const Tensor& mean_NC,
                     const Tensor& rstd_NG1) {
  return [x = SavedTensor(x), weight = SavedTensor(weight), groups, mean = SavedTensor(mean_NC),
          rstd = SavedTensor(rstd_NG1)](GradContext& ctx) {
    const NoGrad no_grad;
    const Tensor in = x.Unpack().Detach();
    const Sizes s(in);
    const Shape shape_NGD{s.n, groups, s.c / groups};
    const Tensor r = rstd.Unpack();
    const Tensor r_NGD = BroadcastTo(r, shape_NGD);
    const PlanePair sums = SumsOf(in, ctx.grad(), mean.Unpack());
    SetParameterGrads(ctx, sums, Reshape(r_NGD, {s.n, s.c}));
    if (!ctx.needs(0)) return;
    const Tensor w = weight.Unpack();
    const Tensor w_GD = w.defined() ? Reshape(w.Detach(), {groups, s.c / groups}) : w;
    const auto over_group = [&](const Tensor& t) {
      return Sum(TimesWeight(Reshape(t, shape_NGD), w_GD), {2}, true);
    };
    const Tensor share = Mul(r, -1.0 / static_cast<double>(s.c / groups * s.p));
    const Tensor d = Mul(share, over_group(sums.first));
    const Tensor b = Mul(Mul(share, Mul(r, r)), over_group(sums.second));
    ctx.set(0, Apply({ctx.grad(), TimesWeight(r_NGD, w_GD), in, BroadcastTo(b, shape_NGD),
                      mean.Unpack(), BroadcastTo(d, shape_NGD)}));
  };
}

Tensor AsWide(const Tensor& t, const Tensor& x) {
  return t.defined() ? Cast(t.Detach(), AccumulateDType(x.dtype())) : t;
}

// By mean and rstd [1, C]; `constants`: they do not depend on x.
Tensor NormaliseBatch(const char* name, const Tensor& x, const Tensor& weight, const Tensor& bias,
                      const Tensor& mean_1C, const Tensor& rstd_1C, bool constants) {
  Tensor y;
  {
    const NoGrad no_grad;
    y = Apply({.x = x.Detach(),
               .b = TimesWeight(rstd_1C, AsWide(weight, x)),
               .center = mean_1C,
               .d = AsWide(bias, x)});
  }
  if (AnyRequiresGrad({x, weight, bias})) {
    Record(name, {x, weight, bias}, {y}, BatchBackward(x, weight, mean_1C, rstd_1C, constants));
  }
  return y;
}

}  // namespace

BatchNormed BatchNorm(const Tensor& given, const Tensor& weight, const Tensor& bias, double eps) {
  const Tensor x = ForSum(given);
  Check("batch_norm", x, weight, bias);
  PlanePair moments;
  Tensor rstd;
  {
    const NoGrad no_grad;
    moments = Join(MomentsOf(x.Detach()), {0}, Sizes(x).p);
    rstd = ReciprocalRoot(moments.second, eps);
  }
  const Tensor y =
      NormaliseBatch("batch_norm", x, weight, bias, moments.first, rstd, /*constants=*/false);
  const NoGrad no_grad;
  return {y, Reshape(moments.first, {x.size(1)}), Reshape(moments.second, {x.size(1)})};
}

Tensor NormaliseChannels(const Tensor& given, const Tensor& mean, const Tensor& variance,
                         const Tensor& weight, const Tensor& bias, double eps) {
  constexpr const char* kName = "normalise_channels";
  const Tensor x = ForSum(given);
  Check(kName, x, weight, bias);
  for (const Tensor& t : {mean, variance}) {
    TESSERA_CHECK(
        t.shape() == Shape{x.size(1)} && IsFloating(t.dtype()) && t.device() == x.device(), kName,
        "statistics ", t, " for ", x);
  }
  Tensor mean_1C;
  Tensor rstd_1C;
  {
    const NoGrad no_grad;
    mean_1C = Reshape(AsWide(mean, x), {1, x.size(1)});
    rstd_1C = ReciprocalRoot(Reshape(AsWide(variance, x), {1, x.size(1)}), eps);
  }
  return NormaliseBatch(kName, x, weight, bias, mean_1C, rstd_1C, /*constants=*/true);
}

Tensor GroupNorm(const Tensor& given, int64_t groups, const Tensor& weight, const Tensor& bias,
                 double eps) {
  constexpr const char* kName = "group_norm";
  const Tensor x = ForSum(given);
  Check(kName, x, weight, bias);
  TESSERA_CHECK(groups >= 1 && x.size(1) % groups == 0, kName, groups,
                " groups of the channels of ", x);
  Tensor y;
  Tensor mean_NC;
  Tensor rstd_NG1;
  {
    const NoGrad no_grad;
    const Sizes s(x);
    const Shape shape_NGD{s.n, groups, s.c / groups};
    const PlanePair planes = MomentsOf(x.Detach());
    const PlanePair moments =
        Join({Reshape(planes.first, shape_NGD), Reshape(planes.second, shape_NGD)}, {2}, s.p);
    rstd_NG1 = ReciprocalRoot(moments.second, eps);
    mean_NC = Reshape(BroadcastTo(moments.first, shape_NGD), {s.n, s.c});
    const Tensor rstd_NC = Reshape(BroadcastTo(rstd_NG1, shape_NGD), {s.n, s.c});
    const Tensor shift = AsWide(bias, x);
    y = Apply({.x = x.Detach(),
               .b = TimesWeight(rstd_NC, AsWide(weight, x)),
               .center = mean_NC,
               .d = shift.defined() ? BroadcastTo(shift, {s.n, s.c}) : shift});
  }
  if (AnyRequiresGrad({x, weight, bias})) {
    Record(kName, {x, weight, bias}, {y}, GroupBackward(x, weight, groups, mean_NC, rstd_NG1));
  }
  return y;
}

}  // namespace tessera
