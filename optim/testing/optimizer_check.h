// SPDX-License-Identifier: Apache-2.0
// The harness for tests of optimizers.
//
//   CheckGolden("lion", {.options = {{"betas", {0.9, 0.99}}}, .lr = 0.01, .exact = kLionGolden,
//                        .rounded = kLionRoundedGolden});
//   CheckConduct("lion");
//
// Both run on each of TestDevices() (ops/testing/op_check.h).
#ifndef TESSERA_OPTIM_TESTING_OPTIMIZER_CHECK_H_
#define TESSERA_OPTIM_TESTING_OPTIMIZER_CHECK_H_

#include <memory>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "optim/optimizer_kind.h"

namespace tessera::optim {

// An optimizer by name with options as users write them; a problem fails the test.
std::shared_ptr<const UpdateRule> RuleOf(const std::string& name,
                                         const nlohmann::json& options = nlohmann::json::object());

struct GoldenCase {
  nlohmann::json options = nlohmann::json::object();
  double lr = 0;
  // All parameters after the 20 steps of optim/testdata/golden_problem.py, in float64, and with
  // starting values and gradients rounded to bfloat16.
  const std::vector<double>& exact;
  const std::vector<double>& rounded;
};

// Float64 parameters to 1e-11, float32 ones to 1e-6, and to 1e-6 the masters of bfloat16 ones, with
// float32 and bfloat16 gradients; on every instruction set of this machine.
void CheckGolden(const std::string& name, const GoldenCase& golden);

// What every optimizer must do, whatever its formula:
//   - its states are those that its rule declares, the same on meta, after steps there too;
//   - it continues bit for bit from a state dict, and does not depend on the number of threads;
//   - clip factor and loss scale scale gradients; an overflow changes nothing;
//   - what has no gradient stays, and strided parameters are stepped as others are;
//   - a parameter that needs no whole may be cut anywhere;
//   - on 2 and 3 ranks that hold uneven parts (several boxes, or nothing) of parameters it does
//   what
//     one process does, within `tolerance_of_parts` of the largest magnitude.
void CheckConduct(const std::string& name, const nlohmann::json& options = nlohmann::json::object(),
                  double tolerance_of_parts = 2e-6);

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_TESTING_OPTIMIZER_CHECK_H_
