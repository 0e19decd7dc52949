// SPDX-License-Identifier: Apache-2.0
#include "ops/einsum/equation.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace tessera {
namespace {

constexpr std::string_view kEllipsis = "...";

std::string WithoutBlanks(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c != ' ') result += c;
  }
  return result;
}

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// How many letters stand beside an ellipsis, if there is one.
int Letters(const std::string& term) {
  const bool ellipsis = term.find(kEllipsis) != std::string::npos;
  return static_cast<int>(term.size() - (ellipsis ? kEllipsis.size() : 0));
}

void CheckTerm(std::string_view equation, const std::string& term) {
  std::string letters = term;
  const size_t at = letters.find(kEllipsis);
  if (at != std::string::npos) letters.erase(at, kEllipsis.size());
  for (const char c : letters) {
    TESSERA_CHECK(std::isalpha(static_cast<unsigned char>(c)) != 0, "einsum", "'", equation, "': '",
                  term, "' is not made of letters and one \"...\"");
  }
}

// The term with digits for its ellipsis: the last `dims` of `most`.
std::string Expanded(const std::string& term, int dims, int most) {
  const size_t at = term.find(kEllipsis);
  if (at == std::string::npos) return term;
  std::string digits;
  for (int i = most - dims; i < most; ++i) digits += static_cast<char>('0' + i);
  return term.substr(0, at) + digits + term.substr(at + kEllipsis.size());
}

// What is once in all operands, sorted, behind the dims of "...".
std::string ImplicitResult(const std::vector<std::string>& operands) {
  std::string all;
  for (const std::string& operand : operands) all += operand;
  std::sort(all.begin(), all.end());  // digits come first
  std::string result;
  for (const char c : all) {
    const bool once = std::count(all.begin(), all.end(), c) == 1;
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (once || (digit && result.find(c) == std::string::npos)) result += c;
  }
  return result;
}

}  // namespace

EinsumEquation ReadEquation(std::string_view text, const std::vector<int>& ndims) {
  const std::string equation = WithoutBlanks(text);
  const size_t arrow = equation.find("->");
  std::vector<std::string> terms = SplitAtCommas(equation.substr(0, arrow));
  TESSERA_CHECK(terms.size() == ndims.size(), "einsum", "'", text, "' is about ", terms.size(),
                " operands, ", ndims.size(), " are given");
  int most = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    CheckTerm(text, terms[i]);
    const int rest = ndims[i] - Letters(terms[i]);
    const bool ellipsis = terms[i].find(kEllipsis) != std::string::npos;
    TESSERA_CHECK(ellipsis ? rest >= 0 : rest == 0, "einsum", "'", text, "': '", terms[i],
                  "' does not name the ", ndims[i], " dims of operand ", i);
    most = std::max(most, rest);
  }
  EinsumEquation read;
  for (size_t i = 0; i < terms.size(); ++i) {
    read.operands.push_back(Expanded(terms[i], ndims[i] - Letters(terms[i]), most));
  }
  if (arrow == std::string::npos) {
    read.result = ImplicitResult(read.operands);
    return read;
  }
  const std::string result = equation.substr(arrow + 2);
  CheckTerm(text, result);
  read.result = Expanded(result, most, most);
  for (const char c : read.result) {
    const bool known = std::any_of(read.operands.begin(), read.operands.end(),
                                   [&](const auto& o) { return o.find(c) != std::string::npos; });
    TESSERA_CHECK(known, "einsum", "'", text, "': no operand has '", c, "'");
    TESSERA_CHECK(std::count(read.result.begin(), read.result.end(), c) == 1, "einsum", "'", text,
                  "': the result has '", c, "' twice");
  }
  return read;
}

}  // namespace tessera
