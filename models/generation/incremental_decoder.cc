#include "models/generation/incremental_decoder.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "autograd/autograd.h"
#include "core/error.h"
#include "models/model_keys.h"
#include "ops/index/index.h"
#include "ops/view/view.h"

namespace tessera::models {

IncrementalDecoder::IncrementalDecoder(const Model& model, Lockstep* lockstep)
    : model_(model), lockstep_(lockstep), cache_(model.num_cache_layers()) {}

void IncrementalDecoder::Encode(const std::vector<std::vector<int64_t>>& sources) {
  const NoGrad no_grad;
  size_t longest = 1;
  for (const std::vector<int64_t>& row : sources) longest = std::max(longest, row.size());
  const Shape shape = {std::ssize(sources), static_cast<int64_t>(longest)};
  const Tensor ids_BS = Zeros(shape, DType::kInt64);
  const Tensor mask_BS = Zeros(shape, DType::kInt64);
  for (size_t b = 0; b < sources.size(); ++b) {
    std::copy(sources[b].begin(), sources[b].end(), ids_BS.data<int64_t>() + b * longest);
    std::fill_n(mask_BS.data<int64_t>() + b * longest, sources[b].size(), 1);
  }
  const Device device = model_.build().device;
  if (lockstep_ != nullptr) lockstep_->BeforeEncoder();
  encoded_ = model_.encoder_decoder()->Encode(
      {{keys::kInputIds, CopyTo(ids_BS, device)}, {keys::kAttentionMask, CopyTo(mask_BS, device)}},
      {});
  if (lockstep_ != nullptr) lockstep_->Encoded(encoded_);
}

void IncrementalDecoder::Keep(const std::vector<int64_t>& rows) {
  const NoGrad no_grad;
  cache_.Reorder(rows);
  std::vector<std::vector<int64_t>> texts;
  for (const int64_t row : rows) texts.push_back(texts_.at(static_cast<size_t>(row)));
  texts_ = std::move(texts);
  if (encoded_.empty()) return;
  const Tensor index = Tensor::FromVector<int64_t>(rows, {std::ssize(rows)});
  Bundle kept;
  for (const auto& [name, t] : encoded_.entries()) {
    kept.SetNamed(name, IndexSelect(t, 0, CopyTo(index, t.device())));
  }
  encoded_ = std::move(kept);
}

void IncrementalDecoder::SetPositions(const std::vector<int64_t>& counts, int64_t longest,
                                      Bundle* inputs) {
  const int64_t rows = std::ssize(counts);
  const std::shared_ptr<const TextFormat> format = model_.text_format();
  std::vector<TextLayout> layouts;
  for (size_t b = 0; format != nullptr && b < texts_.size(); ++b) {
    StatusOr<TextLayout> layout = format->LayoutOf(texts_[b]);
    TESSERA_CHECK(layout.ok(), "decode", "row ", b, ": ", Message(layout.status()));
    layouts.push_back(*std::move(layout));
  }
  const bool plain = layouts.empty();
  const int64_t coordinates = plain ? 1 : std::ssize(layouts[0].positions);
  const Tensor positions_BNT = Zeros({rows, coordinates, longest}, DType::kInt64);
  const Tensor prefix_B = Zeros({rows}, DType::kInt32);
  int64_t* position = positions_BNT.data<int64_t>();
  for (int64_t b = 0; b < rows; ++b) {
    const int64_t begin = cache_.lengths()[static_cast<size_t>(b)];
    const TextLayout* layout = plain ? nullptr : &layouts[static_cast<size_t>(b)];
    if (!plain) prefix_B.data<int32_t>()[b] = static_cast<int32_t>(layout->prefix_length);
    for (int64_t n = 0; n < coordinates; ++n, position += longest) {
      for (int64_t t = 0; t < counts[static_cast<size_t>(b)]; ++t) {
        position[t] =
            plain ? begin + t
                  : layout->positions[static_cast<size_t>(n)].at(static_cast<size_t>(begin + t));
      }
    }
  }
  const Device device = model_.build().device;
  const Tensor positions = plain ? Reshape(positions_BNT, {rows, longest}) : positions_BNT;
  inputs->set(keys::kPositionIds, CopyTo(positions, device));
  if (!plain) inputs->set(keys::kPrefixLength, CopyTo(prefix_B, device));
}

StatusOr<std::vector<std::vector<double>>> IncrementalDecoder::Feed(
    const std::vector<std::vector<int64_t>>& tokens) {
  const NoGrad no_grad;
  const auto rows = static_cast<int64_t>(tokens.size());
  std::vector<int64_t> counts;
  int64_t longest = 1;
  for (const std::vector<int64_t>& row : tokens) {
    counts.push_back(static_cast<int64_t>(row.size()));
    longest = std::max(longest, counts.back());
  }
  // Shorter rows are filled up behind, where the cache does not look.
  const Tensor ids_BT = Zeros({rows, longest}, DType::kInt64);
  const Tensor last_B1 = Zeros({rows, 1}, DType::kInt64);
  cache_.BeginStep(counts);
  texts_.resize(tokens.size());
  for (int64_t b = 0; b < rows; ++b) {
    const std::vector<int64_t>& row = tokens[static_cast<size_t>(b)];
    std::copy(row.begin(), row.end(), ids_BT.data<int64_t>() + b * longest);
    std::vector<int64_t>& text = texts_[static_cast<size_t>(b)];
    text.insert(text.end(), row.begin(), row.end());
    last_B1.data<int64_t>()[b] = counts[static_cast<size_t>(b)] - 1;
  }
  const Device device = model_.build().device;
  Bundle inputs = encoded_;
  inputs.set(model_.encoder_decoder() != nullptr ? keys::kDecoderInputIds : keys::kInputIds,
             CopyTo(ids_BT, device));
  if (model_.Takes(keys::kPositionIds)) SetPositions(counts, longest, &inputs);
  inputs.set(keys::kLogitPositions, CopyTo(last_B1, device));
  if (lockstep_ != nullptr) lockstep_->BeforeDecoder(tokens[0]);
  const Bundle out = model_.Run(inputs, {.cache = &cache_});
  cache_.EndStep();
  const std::vector<double> logits_B1V = out.at(keys::kLogits).ToVector<double>();
  const size_t vocab = logits_B1V.size() / tokens.size();
  std::vector<std::vector<double>> scores;
  for (size_t b = 0; b < tokens.size(); ++b) {
    const auto begin = logits_B1V.begin() + static_cast<std::ptrdiff_t>(b * vocab);
    scores.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(vocab));
    for (double score : scores.back()) {
      if (!std::isfinite(score)) {
        return Internal("the model's logits are not finite (row ", b, ", position ",
                        cache_.lengths()[b] - 1, "): its weights are damaged or overflow ",
                        out.at(keys::kLogits).dtype());
      }
    }
  }
  return scores;
}

}  // namespace tessera::models
