// SPDX-License-Identifier: Apache-2.0
// Weights held as small integers (ops/quantized/quantized_matrix.h), for models that are run, or
// that train adapters alone.
//
//   build.form_of = [&](const Parameter& p) -> std::shared_ptr<const WeightForm> {
//     return found == matrices.end() ? nullptr : std::make_shared<QuantizedWeight>(found->second);
//   };
//
// The parameter itself has a shape and no numbers: it is on meta, and does not train.
#ifndef TESSERA_NN_QUANTIZED_WEIGHT_H_
#define TESSERA_NN_QUANTIZED_WEIGHT_H_

#include <map>
#include <string>
#include <utility>

#include "nn/weight.h"
#include "ops/quantized/quantized_matrix.h"

namespace tessera::nn {

class QuantizedWeight : public WeightForm {
 public:
  // Of this rank's part; rows are outputs, or a table's rows, whatever the layer's layout.
  explicit QuantizedWeight(QuantizedMatrix matrix) : matrix_(std::move(matrix)) {}
  const QuantizedMatrix& matrix() const { return matrix_; }

  Tensor Multiply(const Parameter& weight, LinearLayout layout, const Tensor& x, const Tensor& bias,
                  const ForwardContext& context) const override;
  Tensor LookUp(const Parameter& table, const Tensor& ids, const EmbeddingOptions& options,
                const ForwardContext& context) const override;

 private:
  const QuantizedMatrix matrix_;
};

// The parameters that a model can hold so, by name, and how they lie where they are dense: weights
// of linear layers, and tables of the vocabulary. Tied ones are what they are tied to.
std::map<std::string, LinearLayout> QuantizableWeights(Module& model);

// A matrix with outputs as rows: a view.
Tensor OutputsAsRows(const Tensor& weight, LinearLayout layout);

}  // namespace tessera::nn

#endif  // TESSERA_NN_QUANTIZED_WEIGHT_H_
