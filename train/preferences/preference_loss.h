// SPDX-License-Identifier: Apache-2.0
// Direct preference optimisation: the loss of pairs of completions, of which one is preferred.
//
//   const Tensor log_p = SequenceLogProbabilities(token_losses);          // [2 * pairs]
//   const CountedLoss found = PreferenceLoss(log_p, reference, {.beta = 0.1});
//
// Rows 2i and 2i + 1 are the preferred and the other completion of pair i. With the rewards
// r = beta (log p - log p_ref) and z = r_preferred - r_other, a pair's loss is
// -(1 - s) log sigmoid(z) - s log sigmoid(-z), where s is the chance that the preference is the
// wrong way round (Rafailov et al. 2023, "Direct Preference Optimization"; with s > 0 the
// conservative one, Mitchell 2023, TRL's `label_smoothing`).
#ifndef TESSERA_TRAIN_PREFERENCES_PREFERENCE_LOSS_H_
#define TESSERA_TRAIN_PREFERENCES_PREFERENCE_LOSS_H_

#include <cstddef>

#include "core/tensor.h"
#include "train/engine/step_parts.h"

namespace tessera::train {

// Of losses [B, T] of tokens, 0 where there is none to be predicted: minus their sums, [B] float64,
// in which float32 numbers add up all but exactly, whatever the padding. On the tape.
Tensor SequenceLogProbabilities(const Tensor& token_losses);

// What a log-probability is worth, and how far preferences are to be trusted.
struct PreferenceLossOptions {
  double beta = 0.1;
  double label_smoothing = 0;  // in [0, 0.5)
};

// What is counted: sums over pairs, in this order.
enum class PreferenceCount : size_t {
  kPairs,
  kChosenRewards,
  kRejectedRewards,
  kWon,  // pairs whose preferred completion has the greater reward
  kChosenLogProbabilities,
  kRejectedLogProbabilities,
  kNumCounts,
};

// [2 * pairs] float64 both; the loss is summed over pairs, and differentiates for the first.
CountedLoss PreferenceLoss(const Tensor& log_probabilities, const Tensor& reference,
                           const PreferenceLossOptions& options);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_PREFERENCES_PREFERENCE_LOSS_H_
