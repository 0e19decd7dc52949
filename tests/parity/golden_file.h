// SPDX-License-Identifier: Apache-2.0
// What the golden tests share: reading a recorded reference, and holding a model to it.
//
//   const GoldenFile golden("tests/parity/goldens/bert/sequence/plain.safetensors");
//   CheckGolden(golden, *model, 5e-6, "plain");
#ifndef TESSERA_TESTS_PARITY_GOLDEN_FILE_H_
#define TESSERA_TESTS_PARITY_GOLDEN_FILE_H_

#include <map>
#include <string>
#include <vector>

#include "core/safetensors.h"
#include "models/model.h"

namespace tessera::models {

// Tensors `in.*`, `out.*` and `grad.*` of a reference in float64.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path) : file_(*SafetensorsFile::Open(path)) {}
  Tensor Get(const std::string& name) const;
  // Those whose names begin with `prefix`, without it.
  std::map<std::string, Tensor> GetAll(const std::string& prefix) const;

 private:
  SafetensorsFile file_;
};

// Feeds the inputs to `model` (in evaluation mode, with parameters of `dtype`) and compares every
// output (hidden states of all layers, where the file has them) and gradient: ||a-b|| <= tolerance
// ||b||. Rows of [B, T, ...] where an `attention_mask` is 0 are not compared; a gradient that is
// zero in theory must stay below 1e-7 of all of them.
void CheckGolden(const GoldenFile& golden, Model& model, double tolerance,
                 const std::string& where);

}  // namespace tessera::models

#endif  // TESSERA_TESTS_PARITY_GOLDEN_FILE_H_
