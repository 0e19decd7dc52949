// SPDX-License-Identifier: Apache-2.0
// The equation of an Einsum, read.
//
//   ReadEquation("...i,oi->...o", {3, 2});     // operands {"01i", "oi"}, result "01o"
#ifndef TESSERA_OPS_EINSUM_EQUATION_H_
#define TESSERA_OPS_EINSUM_EQUATION_H_

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// A character per dim: a letter, or a digit for a dim of "...", the last of which have the same
// digit in all operands.
struct EinsumEquation {
  std::vector<std::string> operands;
  std::string result;
};

// Throws Error for what is no equation of operands of so many dims.
EinsumEquation ReadEquation(std::string_view text, const std::vector<int>& ndims);

}  // namespace tessera

#endif  // TESSERA_OPS_EINSUM_EQUATION_H_
