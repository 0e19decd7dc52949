// SPDX-License-Identifier: Apache-2.0
#include "ops/einsum/einsum.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "ops/testing/op_check.h"

namespace tessera {
namespace {

struct Case {
  const char* equation;
  // The same with every dim named once and a result.
  std::vector<std::string> operands;
  std::string result;
  std::vector<Shape> shapes;
};

// Where the operand's element lies for the given value of every name; dims of size 1 stretch.
int64_t OffsetOf(const Tensor& t, const std::string& names, std::map<char, int64_t>& at) {
  int64_t offset = 0;
  for (int d = 0; d < t.ndim(); ++d) {
    if (t.size(d) != 1) offset += at[names[static_cast<size_t>(d)]] * t.stride(d);
  }
  return offset;
}

// One loop over all values of all names.
OpFn SumOfProducts(const Case& c) {
  return [c](const Tensors& in) {
    std::map<char, int64_t> sizes;
    for (size_t i = 0; i < in.size(); ++i) {
      for (int d = 0; d < in[i].ndim(); ++d) {
        int64_t& size = sizes[c.operands[i][static_cast<size_t>(d)]];
        size = std::max(size, in[i].size(d));
      }
    }
    Shape shape;
    for (const char name : c.result) shape.push_back(sizes[name]);
    Tensor y = Zeros(shape, DType::kFloat64);
    int64_t total = 1;
    for (const auto& [name, size] : sizes) total *= size;
    for (int64_t i = 0; i < total; ++i) {
      std::map<char, int64_t> at;
      int64_t rest = i;
      for (const auto& [name, size] : sizes) {
        at[name] = rest % size;
        rest /= size;
      }
      double product = 1;
      for (size_t k = 0; k < in.size(); ++k) {
        product *= in[k].data<double>()[OffsetOf(in[k], c.operands[k], at)];
      }
      y.data<double>()[OffsetOf(y, c.result, at)] += product;
    }
    return Tensors{y};
  };
}

TEST(EinsumTest, EqualsLoopsOverAllNames) {
  const std::vector<Case> cases = {
      {"ij,jk->ik", {"ij", "jk"}, "ik", {{3, 5}, {5, 7}}},
      {"ij,jk", {"ij", "jk"}, "ik", {{3, 5}, {5, 7}}},
      {"ba", {"ba"}, "ab", {{3, 5}}},
      {"bhqd,bhkd->bhqk", {"bhqd", "bhkd"}, "bhqk", {{2, 3, 5, 4}, {2, 3, 7, 4}}},
      {"bhqk,bkhd->bqhd", {"bhqk", "bkhd"}, "bqhd", {{2, 3, 5, 4}, {2, 4, 3, 7}}},
      {"i,j->ij", {"i", "j"}, "ij", {{3}, {5}}},
      {"i,i->", {"i", "i"}, "", {{7}, {7}}},
      {"ij,ij->ij", {"ij", "ij"}, "ij", {{3, 5}, {3, 5}}},
      {"ij,ij->j", {"ij", "ij"}, "j", {{3, 5}, {3, 5}}},
      {"ijk->ki", {"ijk"}, "ki", {{3, 5, 2}}},
      {"ij->", {"ij"}, "", {{3, 5}}},
      {"ii->i", {"ii"}, "i", {{5, 5}}},
      {"ii", {"ii"}, "", {{5, 5}}},
      {"kijik->jk", {"kijik"}, "jk", {{2, 3, 4, 3, 2}}},
      {"ij,j,k->i", {"ij", "j", "k"}, "i", {{3, 5}, {5}, {2}}},
      {"ij,jk,kl->il", {"ij", "jk", "kl"}, "il", {{2, 3}, {3, 5}, {5, 4}}},
      {"bi,oij,bj->bo", {"bi", "oij", "bj"}, "bo", {{2, 3}, {4, 3, 5}, {2, 5}}},
      {"...i,oi->...o", {"abi", "oi"}, "abo", {{2, 3, 5}, {7, 5}}},
      {"...ij,...jk->...ik", {"xyij", "yjk"}, "xyik", {{2, 3, 4, 5}, {3, 5, 2}}},
      {"...ij,...jk->...ik", {"xyij", "xyjk"}, "xyik", {{2, 1, 4, 5}, {1, 3, 5, 2}}},
      {"...ij,...jk", {"xij", "xjk"}, "xik", {{2, 4, 5}, {2, 5, 2}}},
      {"i...->...", {"iab"}, "ab", {{3, 2, 5}}},
      {"ab, bc -> a c", {"ab", "bc"}, "ac", {{3, 1}, {4, 5}}},
      {"i,->i", {"i", ""}, "i", {{3}, {}}},
      {"abcdefg,g->gfedcba", {"abcdefg", "g"}, "gfedcba", {{1, 2, 1, 2, 1, 2, 3}, {3}}},
  };
  for (const Case& c : cases) {
    Tensors inputs;
    for (size_t i = 0; i < c.shapes.size(); ++i) {
      inputs.push_back(RandomTensor(c.shapes[i], 1 + i));
    }
    CheckOp({.name = c.equation,
             .op = [&](const Tensors& in) { return Tensors{Einsum(c.equation, in)}; },
             .reference = SumOfProducts(c),
             .inputs = inputs,
             .sum_length = 60,
             .scale_floor = 4});
  }
}

TEST(EinsumTest, SumsOfNothing) {
  EXPECT_EQ(Einsum("ij,jk->ik", {Zeros({2, 0}), Zeros({0, 3})}).ToVector<float>(),
            std::vector<float>(6, 0));
  EXPECT_EQ(Einsum("ij,jk->ik", {Zeros({0, 2}), Zeros({2, 3})}).shape(), (Shape{0, 3}));
}

std::string Refusal(const char* equation, const Tensors& operands) {
  try {
    Einsum(equation, operands);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(EinsumTest, RefusesWhatIsNoEquation) {
  const Tensor x = Zeros({2, 3});
  EXPECT_EQ(Refusal("ij,jk->ik", {x}), "einsum: 'ij,jk->ik' is about 2 operands, 1 are given");
  EXPECT_EQ(Refusal("ijk->k", {x}),
            "einsum: 'ijk->k': 'ijk' does not name the 2 dims of operand 0");
  EXPECT_EQ(Refusal("...ijk->k", {x}),
            "einsum: '...ijk->k': '...ijk' does not name the 2 dims of operand 0");
  EXPECT_EQ(Refusal("i1->i", {x}), "einsum: 'i1->i': 'i1' is not made of letters and one \"...\"");
  EXPECT_EQ(Refusal("......->i", {x}),
            "einsum: '......->i': '......' is not made of letters and one \"...\"");
  EXPECT_EQ(Refusal("ij->k", {x}), "einsum: 'ij->k': no operand has 'k'");
  EXPECT_EQ(Refusal("ij->ii", {x}), "einsum: 'ij->ii': the result has 'i' twice");
  EXPECT_EQ(Refusal("ii->i", {x}), "einsum: 'i' is the name of dims 0 and 1 of float32[2, 3]");
  EXPECT_EQ(Refusal("ij,jk->ik", {x, x}), "einsum: 'j' has the sizes 3 and 2");
  EXPECT_NE(Refusal("", {}), "");
}

}  // namespace
}  // namespace tessera
