// SPDX-License-Identifier: Apache-2.0
#include "autograd/finite_watch.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/autograd.h"
#include "autograd/engine.h"

namespace tessera {
namespace {

// The bits of the exponent. All of them are set in an infinity and in a NaN.
constexpr uint64_t kFloat64Exponent = 0x7ff0000000000000;
constexpr uint32_t kFloat32Exponent = 0x7f800000;
constexpr uint16_t kBFloat16Exponent = 0x7f80;
constexpr uint16_t kFloat16Exponent = 0x7c00;

template <typename Bits>
bool AllFinite(const void* data, int64_t count, Bits exponent) {
  const auto* const bits = static_cast<const Bits*>(data);
  constexpr int64_t kPart = 4096;  // between two looks: what a loop without branches takes
  for (int64_t begin = 0; begin < count; begin += kPart) {
    const int64_t end = std::min(count, begin + kPart);
    unsigned bad = 0;
    for (int64_t i = begin; i < end; ++i) bad |= (bits[i] & exponent) == exponent;
    if (bad != 0) return false;
  }
  return true;
}

bool AllFinite(const Tensor& t) {
  if (!t.defined() || !IsFloating(t.dtype()) || t.device().is_meta()) return true;
  const Tensor host = CopyTo(t.Detach(), Device::Cpu()).ContiguousCopy();
  const void* const data = host.raw_data();
  switch (host.dtype()) {
    case DType::kFloat64:
      return AllFinite(data, host.numel(), kFloat64Exponent);
    case DType::kFloat32:
      return AllFinite(data, host.numel(), kFloat32Exponent);
    case DType::kBFloat16:
      return AllFinite(data, host.numel(), kBFloat16Exponent);
    default:
      return AllFinite(data, host.numel(), kFloat16Exponent);
  }
}

// Whether a constant among the operands is a mask: it has an infinity, and else nothing but 0
// and 1.
bool GivenInfinity(const std::vector<Tensor>& operands) {
  return std::any_of(operands.begin(), operands.end(), [](const Tensor& t) {
    if (!t.defined() || RequiresGrad(t) || AllFinite(t)) return false;
    const std::vector<double> values = t.Detach().ToVector<double>();
    return std::all_of(values.begin(), values.end(),
                       [](double v) { return v == 0 || v == 1 || std::isinf(v); });
  });
}

bool HasNan(const Tensor& t) {
  const std::vector<double> values = t.Detach().ToVector<double>();
  return std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
}

}  // namespace

NumbersSummary SummaryOf(const Tensor& t) {
  NumbersSummary summary = {.shape = t.shape(), .dtype = t.dtype()};
  if (t.device().is_meta()) return summary;
  const std::vector<double> values = t.Detach().ToVector<double>();
  double squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = values[i];
    if (std::isfinite(v)) {
      summary.greatest = std::max(summary.greatest, std::abs(v));
      squares += v * v;
    } else if (summary.not_finite++ == 0) {
      summary.first = static_cast<int64_t>(i);
      // Of a NaN processors differ in the sign.
      summary.value = std::isnan(v) ? std::numeric_limits<double>::quiet_NaN() : v;
    }
  }
  const int64_t finite = t.numel() - summary.not_finite;
  if (finite > 0) summary.root_mean_square = std::sqrt(squares / static_cast<double>(finite));
  return summary;
}

TextBuilder& operator<<(TextBuilder& text, const NumbersSummary& s) {
  text << DTypeName(s.dtype) << s.shape << ", is ";
  if (s.finite()) {
    return text << "finite (at most " << s.greatest << ", rms " << s.root_mean_square << ")";
  }
  text << s.value << " at element " << s.first;
  if (s.not_finite == 1 && s.shape.numel() == 1) return text;
  text << " (" << s.not_finite << " of " << s.shape.numel() << " are not finite";
  if (s.not_finite < s.shape.numel()) {
    text << "; the others at most " << s.greatest << ", rms " << s.root_mean_square;
  }
  return text << ")";
}

TextBuilder& operator<<(TextBuilder& text, const BadNumber& bad) {
  const bool forward = bad.kind == BadNumber::Kind::kResult;
  const auto origin = [&] {
    text << "'" << bad.operation << "'";
    if (!bad.module.empty()) text << " in " << bad.module;
  };
  if (forward) {
    text << "result " << bad.index << " of ";
    origin();
  } else if (bad.kind == BadNumber::Kind::kGradient) {
    text << "the gradient of ";
    origin();
    text << " for its input " << bad.index;
  } else {
    text << "the sum of gradients that reach result " << bad.index << " of ";
    origin();
  }
  text << ", " << bad.numbers;
  for (size_t i = 0; i < bad.operands.size(); ++i) {
    text << "; " << (forward ? "input " : "the gradient of result ") << i << ", "
         << bad.operands[i];
  }
  return text;
}

void FiniteWatch::Keep(BadNumber::Kind kind, const Origin& origin, size_t index, const Tensor& t,
                       const std::vector<Tensor>& operands) {
  BadNumber bad = {.kind = kind,
                   .place = place(),
                   .operation = origin.name,
                   .module = origin.module_path == nullptr ? "" : *origin.module_path,
                   .index = static_cast<int64_t>(index),
                   .numbers = SummaryOf(t)};
  for (const Tensor& operand : operands) {
    if (operand.defined()) bad.operands.push_back(SummaryOf(operand));
  }
  TESSERA_CHECK(!throws_, kind == BadNumber::Kind::kResult ? "forward" : "backward", bad);
  found_ = std::move(bad);
}

void FiniteWatch::Results(const Origin& origin, const std::vector<Tensor>& operands,
                          const std::vector<Tensor>& results) {
  if (!Looks()) return;
  for (size_t i = 0; i < results.size(); ++i) {
    if (AllFinite(results[i]) || (!HasNan(results[i]) && GivenInfinity(operands))) continue;
    return Keep(BadNumber::Kind::kResult, origin, i, results[i], operands);
  }
}

void FiniteWatch::Arriving(const Origin& origin, const std::vector<Tensor>& of_results) {
  if (!Looks()) return;
  for (size_t i = 0; i < of_results.size(); ++i) {
    if (AllFinite(of_results[i])) continue;
    return Keep(BadNumber::Kind::kSum, origin, i, of_results[i], {});
  }
}

void FiniteWatch::Gradient(const Origin& origin, size_t operand, const Tensor& gradient,
                           const std::vector<Tensor>& of_results) {
  if (!Looks() || AllFinite(gradient)) return;
  Keep(BadNumber::Kind::kGradient, origin, operand, gradient, of_results);
}

DetectAnomaly::DetectAnomaly(bool enabled)
    : watch_(std::make_unique<FiniteWatch>(/*throws=*/true)),
      scope_(enabled ? watch_.get() : nullptr) {}

DetectAnomaly::~DetectAnomaly() = default;

}  // namespace tessera
