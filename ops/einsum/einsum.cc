// SPDX-License-Identifier: Apache-2.0
#include "ops/einsum/einsum.h"

#include <map>
#include <string>

#include "ops/einsum/equation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/index/index.h"
#include "ops/matmul/matmul.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// A tensor and the names of its dims.
struct Named {
  Tensor tensor;
  std::string names;
};

bool Has(const std::string& names, char name) { return names.find(name) != std::string::npos; }

// The names for which `keep` holds.
template <typename Keep>
std::string Filtered(const std::string& names, Keep keep) {
  std::string result;
  for (const char name : names) {
    if (keep(name)) result += name;
  }
  return result;
}

// One dim, the first, in the place of two that have the name.
Named Diagonal(const Named& x, char name) {
  const int first = static_cast<int>(x.names.find(name));
  const int second = static_cast<int>(x.names.rfind(name));
  const int64_t n = x.tensor.size(first);
  TESSERA_CHECK(x.tensor.size(second) == n, "einsum", "'", name, "' is the name of dims ", first,
                " and ", second, " of ", x.tensor);
  std::vector<int> order = {first, second};
  Shape shape = {n * n};
  std::string names = {name};
  for (int d = 0; d < x.tensor.ndim(); ++d) {
    if (d == first || d == second) continue;
    order.push_back(d);
    shape.push_back(x.tensor.size(d));
    names += x.names[static_cast<size_t>(d)];
  }
  const Tensor places = static_cast<double>(n + 1) * Arange(n, x.tensor.device());
  return {IndexSelect(Reshape(Permute(x.tensor, order), shape), 0, places), names};
}

// One dim for every name.
Named Diagonals(Named x) {
  for (const char name : std::string(x.names)) {
    if (x.names.find(name) != x.names.rfind(name)) x = Diagonal(x, name);
  }
  return x;
}

using Sizes = std::map<char, int64_t>;

// The size of every name; 1 stretches.
Sizes SizesOf(const std::vector<Named>& operands) {
  Sizes sizes;
  for (const Named& x : operands) {
    for (size_t d = 0; d < x.names.size(); ++d) {
      const int64_t size = x.tensor.size(static_cast<int>(d));
      int64_t& known = sizes.emplace(x.names[d], size).first->second;
      TESSERA_CHECK(size == known || size == 1 || known == 1, "einsum", "'", x.names[d],
                    "' has the sizes ", known, " and ", size);
      if (known == 1) known = size;
    }
  }
  return sizes;
}

// Without the dims that stretch: the other operands have them.
Named WithoutStretched(Named x, const Sizes& sizes) {
  for (size_t d = x.names.size(); d-- > 0;) {
    const int dim = static_cast<int>(d);
    if (x.tensor.size(dim) == 1 && sizes.at(x.names[d]) != 1) {
      x.tensor = Squeeze(x.tensor, dim);
      x.names.erase(d, 1);
    }
  }
  return x;
}

// Summed over the names that nothing else needs.
Named SummedTo(const Named& x, const std::string& needed) {
  std::vector<int> dims;
  for (size_t d = 0; d < x.names.size(); ++d) {
    if (!Has(needed, x.names[d])) dims.push_back(static_cast<int>(d));
  }
  if (dims.empty()) return x;
  return {Sum(x.tensor, dims), Filtered(x.names, [&](char name) { return Has(needed, name); })};
}

Tensor InOrder(const Named& x, const std::string& names) {
  std::vector<int> order;
  for (const char name : names) order.push_back(static_cast<int>(x.names.find(name)));
  return Permute(x.tensor, order);
}

// Appends the sizes of `names` to `shape` and gives their product.
int64_t Append(const std::string& names, const Sizes& sizes, Shape* shape) {
  int64_t product = 1;
  for (const char name : names) {
    shape->push_back(sizes.at(name));
    product *= sizes.at(name);
  }
  return product;
}

// The product of two, summed over the names that both have and nothing else needs.
Named Contracted(const Named& a, const Named& b, const std::string& needed, const Sizes& sizes) {
  const auto in_b = [&](char name) { return Has(b.names, name); };
  const auto is_needed = [&](char name) { return Has(needed, name); };
  const std::string batch =
      Filtered(a.names, [&](char name) { return in_b(name) && is_needed(name); });
  const std::string summed =
      Filtered(a.names, [&](char name) { return in_b(name) && !is_needed(name); });
  const std::string rows = Filtered(a.names, [&](char name) { return !in_b(name); });
  const std::string columns = Filtered(b.names, [&](char name) { return !Has(a.names, name); });
  Shape shape;
  Shape unused;
  const int64_t batches = Append(batch, sizes, &shape);
  const int64_t m = Append(rows, sizes, &shape);
  const int64_t n = Append(columns, sizes, &shape);
  const int64_t k = Append(summed, sizes, &unused);
  const Tensor left = Reshape(InOrder(a, batch + rows + summed), {batches, m, k});
  const Tensor right = summed.empty()
                           ? Reshape(InOrder(b, batch + columns), {batches, 1, n})
                           : Reshape(InOrder(b, batch + summed + columns), {batches, k, n});
  const Tensor product = summed.empty() ? Mul(left, right) : Matmul(left, right);
  return {Reshape(product, shape), batch + rows + columns};
}

}  // namespace

Tensor Einsum(std::string_view text, const std::vector<Tensor>& tensors) {
  TESSERA_CHECK(!tensors.empty(), "einsum", "no operands");
  std::vector<int> ndims;
  for (const Tensor& t : tensors) ndims.push_back(t.ndim());
  const EinsumEquation equation = ReadEquation(text, ndims);
  std::vector<Named> operands;
  for (size_t i = 0; i < tensors.size(); ++i) {
    operands.push_back(Diagonals({tensors[i], equation.operands[i]}));
  }
  const Sizes sizes = SizesOf(operands);
  for (Named& x : operands) x = WithoutStretched(x, sizes);
  // What the result and the operands from i on need.
  const auto needed_from = [&](size_t i) {
    std::string names = equation.result;
    for (; i < operands.size(); ++i) names += operands[i].names;
    return names;
  };
  Named product = SummedTo(operands[0], needed_from(1));
  for (size_t i = 1; i < operands.size(); ++i) {
    const std::string later = needed_from(i + 1);
    const Named next = SummedTo(operands[i], later + product.names);
    product = Contracted(product, next, later, sizes);
  }
  return InOrder(product, equation.result);
}

}  // namespace tessera
