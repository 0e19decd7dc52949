// SPDX-License-Identifier: Apache-2.0
#include "data/masking/span_corruption_dataset.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "core/batch_keys.h"
#include "data/masking/random_choices.h"

namespace tessera::data {

SpanCorruptionLengths LengthsOfText(int64_t text, double noise_density, double mean_span_length) {
  SpanCorruptionLengths lengths = {.text = text};
  const double noise = std::nearbyint(static_cast<double>(text) * noise_density);
  lengths.noise = std::clamp<int64_t>(static_cast<int64_t>(noise), 1, text - 1);
  const double spans = std::nearbyint(static_cast<double>(lengths.noise) / mean_span_length);
  // Each span has a token before it that stays.
  lengths.spans = std::clamp<int64_t>(static_cast<int64_t>(spans), 1,
                                      std::min(lengths.noise, text - lengths.noise));
  lengths.input = text - lengths.noise + lengths.spans + 1;
  lengths.target = lengths.noise + lengths.spans + 1;
  return lengths;
}

SpanCorruptionLengths LengthsForInput(int64_t input, double noise_density,
                                      double mean_span_length) {
  TESSERA_CHECK(input >= 4, "LengthsForInput", "an input of ", input, " tokens is too short");
  const auto of = [&](int64_t text) {
    return LengthsOfText(text, noise_density, mean_span_length);
  };
  int64_t text = 2;
  while (of(text + 1).input <= input) ++text;
  return of(text);
}

SpanCorruptionDataset::SpanCorruptionDataset(std::shared_ptr<const TokenDataset> windows,
                                             const SpanCorruptionOptions& options)
    : windows_(std::move(windows)),
      options_(options),
      lengths_(
          LengthsOfText(windows_->seq_len(), options.noise_density, options.mean_span_length)) {
  TESSERA_CHECK(std::ssize(options.sentinels) >= lengths_.spans, "SpanCorruptionDataset",
                lengths_.spans, " spans need as many sentinels; there are ",
                options.sentinels.size());
}

StatusOr<Batch> SpanCorruptionDataset::MakeBatch(std::span<const Sample> samples) const {
  const auto rows = static_cast<int64_t>(samples.size());
  const Tensor ids = Empty({rows, lengths_.input}, DType::kInt64);
  const Tensor labels = Empty({rows, lengths_.target}, DType::kInt64);
  std::vector<int64_t> text(static_cast<size_t>(lengths_.text));
  std::vector<int64_t> next(text.size());  // not used: targets of causal models
  for (int64_t r = 0; r < rows; ++r) {
    const Sample& sample = samples[static_cast<size_t>(r)];
    TESSERA_RETURN_IF_ERROR(windows_->Fill(
        sample.index,
        {.input_ids = text, .targets = next, .position_ids = {}, .document_ids = {}}));
    RandomChoices random(RandomKey::FromSeed(options_.seed)
                             .With("span_corruption")
                             .With(static_cast<uint64_t>(sample.position)));
    const std::vector<int64_t> out = random.Segments(lengths_.noise, lengths_.spans);
    const std::vector<int64_t> kept =
        random.Segments(lengths_.text - lengths_.noise, lengths_.spans);
    int64_t* input = ids.data<int64_t>() + r * lengths_.input;
    int64_t* target = labels.data<int64_t>() + r * lengths_.target;
    auto at = text.begin();
    for (size_t span = 0; span < out.size(); ++span) {
      input = std::copy_n(at, kept[span], input);
      at += kept[span];
      *input++ = options_.sentinels[span];
      *target++ = options_.sentinels[span];
      target = std::copy_n(at, out[span], target);
      at += out[span];
    }
    *input = options_.eos_id;
    *target = options_.eos_id;
  }
  Batch batch;
  batch.rows = rows;
  batch.tokens = ids.numel() + labels.numel();
  batch.targets = labels.numel();
  batch.tensors = {{keys::kInputIds, ids}, {keys::kLabels, labels}};
  return batch;
}

}  // namespace tessera::data
