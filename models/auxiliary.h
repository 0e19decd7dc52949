// SPDX-License-Identifier: Apache-2.0
// Losses that a model's layers add to the loss of the targets, as a router's.
//
//   Bundle Mine::RunBlock(int block, Bundle in, const RunOptions& options) const {
//     ...
//     options.AddAuxiliary("z_loss", Mean(Square(LogSumExp(logits_NE, -1))), 1e-3);
//   }
//
// RunOptions::Log reports a number in the same way, without a loss. `value` is a mean over what the
// pass sees, 0-d and on the tape; the loss gets weight * value. What a pass adds under one name is
// added up. Model::Run gives each sum as `auxiliary.NAME`, off the tape, and all, weighted, as
// `auxiliary_loss`; values go from stage to stage of a pipeline and through recomputation by
// themselves.
//
// Scale. `loss` of LossReduction::kMean has it once. A summed loss has it `loss_targets` times
// (RunOptions): divided by the targets of a step, the loss has the mean of the micro-batches'
// auxiliary losses, each with the weight of its targets. Where loss_targets is 0, as in an
// evaluation, and of LossReduction::kNone, `loss` is without it.
#ifndef TESSERA_MODELS_AUXILIARY_H_
#define TESSERA_MODELS_AUXILIARY_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/bundle.h"
#include "core/tensor.h"

namespace tessera::keys {

inline constexpr TensorKey kAuxiliaryLoss{"auxiliary_loss", KeyElements::kFloating, "[]",
                                          "the model's own losses, with their weights"};

}  // namespace tessera::keys

namespace tessera::models {

struct RunOptions;

// What one block has added.
class Auxiliaries {
 public:
  // Throws Error for a value that is not 0-d, and for a name that is empty or has a dot.
  void Add(std::string_view name, const Tensor& value, double weight);
  // Puts them into a bundle that has none.
  void MergeInto(Bundle* bundle) const { Merge(found_, bundle); }
  // Adds those of one block to those of others.
  static void Merge(const Bundle& found, Bundle* sums);

 private:
  Bundle found_;  // by their names in a bundle
};

// Moves all of them from one bundle to another, on the tape as they are.
Bundle TakeAuxiliaries(Bundle* bundle);
// Their values by name.
std::map<std::string, Tensor> AuxiliariesOf(const Bundle& outputs);
// A loss of these outputs with them, at the scale of options.loss_reduction and loss_targets.
Tensor WithAuxiliaries(const Tensor& loss, const Bundle& outputs, const RunOptions& options);
// `loss` with them, unless it is of single tokens; takes the values off the tape.
void FinishAuxiliaries(Bundle* outputs, const RunOptions& options);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_AUXILIARY_H_
