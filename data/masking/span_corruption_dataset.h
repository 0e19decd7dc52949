// SPDX-License-Identifier: Apache-2.0
// T5's span corruption (Raffel et al. 2020, section 3.1.4): spans of the text are taken out, each
// leaves a sentinel, and the target is the sentinels with what they stand for.
//
//   SpanCorruptionLengths lengths = LengthsForInput(512, 0.15, 3.0);   // text 568, targets 114
//   SpanCorruptionDataset data(windows_of_568, {.sentinels = {32099, 32098, ...}, .eos_id = 1});
//   // text      Thank you for inviting me to your party last week
//   // input_ids Thank you <X> me to your party <Y> week </s>
//   // labels    <X> for inviting <Y> last <Z> </s>     (without <Z>, as T5's own code)
//
// Batches: `input_ids` [B, S], `labels` [B, T], int64, of fixed lengths. How many tokens and spans
// are taken out is fixed by the window's length; where is a function of the seed and the sample's
// position. The segmentation is that of t5/data/preprocessors.py, random_spans_noise_mask.
#ifndef TESSERA_DATA_MASKING_SPAN_CORRUPTION_DATASET_H_
#define TESSERA_DATA_MASKING_SPAN_CORRUPTION_DATASET_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset/token_dataset.h"

namespace tessera::data {

struct SpanCorruptionLengths {
  int64_t text = 0;    // tokens of a window
  int64_t input = 0;   // tokens of the encoder's input
  int64_t target = 0;  // tokens of the labels
  int64_t noise = 0;   // tokens taken out
  int64_t spans = 0;
};
// Of a window of `text` tokens, at least 2.
SpanCorruptionLengths LengthsOfText(int64_t text, double noise_density, double mean_span_length);
// Of the longest window whose input has at most `input` tokens, at least 4.
SpanCorruptionLengths LengthsForInput(int64_t input, double noise_density, double mean_span_length);

// Which tokens are taken out, and what stands for them.
struct SpanCorruptionOptions {
  std::vector<int64_t> sentinels;  // in the order of their use; as many as spans
  int64_t eos_id = 0;
  double noise_density = 0.15;
  double mean_span_length = 3;
  uint64_t seed = 0;
};

class SpanCorruptionDataset : public Dataset {
 public:
  // Throws Error when there are fewer sentinels than spans.
  SpanCorruptionDataset(std::shared_ptr<const TokenDataset> windows,
                        const SpanCorruptionOptions& options);

  int64_t size() const override { return windows_->size(); }
  StatusOr<Batch> MakeBatch(std::span<const Sample> samples) const override;
  const SpanCorruptionLengths& lengths() const { return lengths_; }

 private:
  const std::shared_ptr<const TokenDataset> windows_;
  const SpanCorruptionOptions options_;
  const SpanCorruptionLengths lengths_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_MASKING_SPAN_CORRUPTION_DATASET_H_
