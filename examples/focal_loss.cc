// SPDX-License-Identifier: Apache-2.0
// A program of one's own: `tessera` with an argument and a loss that it has not.
//
//   focal_loss train bert-mini --tokenizer bert --data sst2.tsv --out run --focal-gamma 2
//   focal_loss explain --focal_gamma 2 --lr 1e-4
//
// The focal loss (Lin et al. 2017) counts a target of probability p for (1 - p)^gamma as much.
#include <tessera/base/options.h>
#include <tessera/models/model_keys.h>
#include <tessera/ops/cross_entropy/cross_entropy.h>
#include <tessera/ops/elementwise/elementwise.h>
#include <tessera/tools/program.h>
#include <tessera/train/config/arguments.h>

#include "ops/reduction/sum.h"

namespace {

using namespace tessera;

struct FocalOptions {
  double focal_gamma = 0;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<FocalOptions>("Focal loss")
            .Add("focal_gamma", &FocalOptions::focal_gamma,
                 "how much less targets count that are easy; 0: alike", {.least = 0, .most = 10}));
    return *table;
  }
};

// Of logits [B, L] and labels [B]; summed over rows.
Tensor FocalLoss(const Tensor& logits_BL, const Tensor& labels_B, double gamma) {
  const Tensor losses_B = CrossEntropy(logits_BL, labels_B, {.reduction = LossReduction::kNone});
  const Tensor missed_B = Add(Mul(Exp(Mul(losses_B, -1.0)), -1.0), 1.0);  // 1 - p
  const Tensor weight_B = Exp(Mul(Log(Add(missed_B, 1e-12)), gamma));
  return Sum(Mul(weight_B, losses_B));
}

StatusOr<train::TrainerParts> PartsOfRun(const train::RunConfig& config, train::RunSetup*) {
  TESSERA_ASSIGN_OR_RETURN(const auto options, config.Part<FocalOptions>());
  train::TrainerParts parts;
  if (options.focal_gamma == 0) return parts;
  parts.step.loss = {.run =
                         [gamma = options.focal_gamma](const models::Bundle& outputs,
                                                       const models::Bundle& batch) {
                           return FocalLoss(outputs.at(keys::kLogits), batch.at(keys::kLabels),
                                            gamma);
                         },
                     .capturable = true};
  return parts;
}

}  // namespace

int main(int argc, char** argv) {
  tessera::train::AddArguments<FocalOptions>();
  return tessera::Main(argc, argv,
                       {.name = "focal_loss",
                        .description = "Trains transformers; classifiers with the focal loss.",
                        .parts_of_run = PartsOfRun});
}
