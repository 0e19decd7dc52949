// SPDX-License-Identifier: Apache-2.0
#include "core/tensor_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera {
namespace {

// Elements [begin, begin + length) along dim.
Tensor Part(const Tensor& t, int dim, int64_t begin, int64_t length) {
  Shape shape = t.shape();
  shape[dim] = length;
  return t.AsStrided(shape, t.strides(), t.offset() + begin * t.stride(dim));
}

// The ends of a dim side by side.
Tensor Ends(const Tensor& t, int dim, int64_t edge) {
  Shape shape = t.shape();
  shape[dim] = 2 * edge;
  const Tensor both = Empty(shape, t.dtype(), t.device());
  CopyInto(Part(both, dim, 0, edge), Part(t, dim, 0, edge));
  CopyInto(Part(both, dim, edge, edge), Part(t, dim, t.size(dim) - edge, edge));
  return both;
}

// What is shown of a tensor: a small one on the CPU, and the dims of which a part is left out.
struct Shown {
  Tensor values;
  std::vector<bool> shortened;
};

Shown Shorten(const Tensor& t, const TensorTextOptions& options) {
  Shown shown{t.Detach(), std::vector<bool>(static_cast<size_t>(t.ndim()))};
  for (int d = 0; d < t.ndim() && t.numel() > options.most; ++d) {
    if (t.size(d) <= 2 * options.edge) continue;
    shown.shortened[static_cast<size_t>(d)] = true;
    shown.values = Ends(shown.values, d, options.edge);
  }
  shown.values = CopyTo(shown.values, Device::Cpu()).ContiguousCopy();
  return shown;
}

std::string Formatted(const char* format, int digits, double value) {
  char text[400];  // the largest float64 has 309 digits
  const int length = std::snprintf(text, sizeof(text), format, digits, value);
  std::string out;
  constexpr std::string_view kUsual = "0123456789+-einfa";
  for (int i = 0; i < length; ++i) {
    const bool usual = kUsual.find(text[i]) != std::string_view::npos;
    if (usual) {
      out.push_back(text[i]);
    } else if (out.empty() || out.back() != '.') {
      out.push_back('.');  // whatever the locale's point is
    }
  }
  return out;
}

// One way of writing for all numbers: whole ones as "3.", those of very different magnitudes with
// exponents.
std::vector<std::string> FloatTexts(const std::vector<double>& values, int digits) {
  double least = HUGE_VAL;
  double most = 0;
  bool whole = true;
  for (const double v : values) {
    if (!std::isfinite(v)) continue;
    whole = whole && v == std::floor(v);
    const double magnitude = std::abs(v);
    most = std::max(most, magnitude);
    if (magnitude > 0) least = std::min(least, magnitude);
  }
  const bool exponents = most >= 1e8 || (!whole && (most / least > 1e3 || least < 1e-4));
  std::vector<std::string> texts;
  for (const double v : values) {
    if (std::isnan(v)) {
      texts.push_back("nan");
    } else if (std::isinf(v)) {
      texts.push_back(v > 0 ? "inf" : "-inf");
    } else if (exponents) {
      texts.push_back(Formatted("%.*e", digits, v));
    } else {
      texts.push_back(whole ? Formatted("%.*f", 0, v) + "." : Formatted("%.*f", digits, v));
    }
  }
  return texts;
}

std::vector<std::string> Texts(const Tensor& t, int digits) {
  if (IsFloating(t.dtype())) return FloatTexts(t.ToVector<double>(), digits);
  std::vector<std::string> texts;
  for (const int64_t v : t.ToVector<int64_t>()) {
    texts.push_back(t.dtype() == DType::kBool ? (v != 0 ? "true" : "false") : Concat(v));
  }
  return texts;
}

class Writer {
 public:
  Writer(const Shown& shown, const TensorTextOptions& options)
      : shown_(shown), options_(options), texts_(Texts(shown.values, options.digits)) {
    for (const std::string& text : texts_) width_ = std::max(width_, text.size());
  }

  // The elements from dim `dim` on, of which the next is that of `next_`.
  void Write(int dim) {
    if (dim == shown_.values.ndim()) return Put();
    out_ += '[';
    const int64_t size = shown_.values.size(dim);
    for (int64_t i = 0; i < size; ++i) {
      if (shown_.shortened[static_cast<size_t>(dim)] && i == options_.edge) {
        Separate(dim);
        out_ += "...";
      }
      if (i > 0) Separate(dim);
      Write(dim + 1);
    }
    out_ += ']';
  }
  std::string Take() && { return std::move(out_); }

 private:
  static constexpr std::string_view kOpening = "tensor(";

  void Put() {
    const std::string& text = texts_[next_++];
    out_.append(width_ - text.size(), ' ');
    out_ += text;
  }
  // Between two elements of dim `dim`.
  void Separate(int dim) {
    out_ += ',';
    const int inner = shown_.values.ndim() - 1 - dim;
    if (inner > 0) return Break(dim, inner);
    const size_t begin = out_.rfind('\n') == std::string::npos ? 0 : out_.rfind('\n') + 1;
    const auto room = static_cast<size_t>(options_.line_width);
    const size_t used = out_.size() - begin + (begin == 0 ? kOpening.size() : 0);
    if (used + width_ + 2 > room) return Break(dim, 1);
    out_ += ' ';
  }
  void Break(int dim, int lines) {
    out_.append(static_cast<size_t>(lines), '\n');
    out_.append(kOpening.size() + static_cast<size_t>(dim) + 1, ' ');
  }

  const Shown& shown_;
  const TensorTextOptions& options_;
  const std::vector<std::string> texts_;
  size_t width_ = 0;
  size_t next_ = 0;
  std::string out_;
};

}  // namespace

std::string ToString(const Tensor& t, const TensorTextOptions& options) {
  if (!t.defined()) return "tensor(undefined)";
  TESSERA_CHECK(options.digits >= 0 && options.digits <= 30 && options.edge >= 1, "to_string",
                options.digits, " digits, ", options.edge, " elements at each end");
  if (t.device().is_meta()) return Concat("tensor(", t, ")");
  if (t.numel() == 0) return Concat("tensor([], ", t, ")");
  const Shown shown = Shorten(t, options);
  Writer writer(shown, options);
  writer.Write(0);
  return Concat("tensor(", std::move(writer).Take(), ", ", t, ")");
}

std::string ToString(const Tensor& t) { return ToString(t, TensorTextOptions{}); }

}  // namespace tessera
