#include "models/generation/incremental_decoder.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "autograd/autograd.h"
#include "core/error.h"
#include "models/model_keys.h"
#include "ops/index/index.h"
#include "ops/view/view.h"

namespace tessera::models {
namespace {

// Rows behind rows, [A, S, ...] and [B, T, ...], with zeros behind the shorter ones.
Tensor RowsBehind(const Tensor& a, const Tensor& b) {
  const int64_t longest = std::max(a.size(1), b.size(1));
  return Cat({Pad(a, 1, 0, longest - a.size(1)), Pad(b, 1, 0, longest - b.size(1))}, 0);
}

// Whether no element is infinite or NaN: those times zero are not zero.
bool AllFinite(std::span<const double> values) {
  constexpr size_t kSums = 8;
  double sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= values.size(); i += kSums) {
    for (size_t j = 0; j < kSums; ++j) sums[j] += values[i + j] * 0.0;
  }
  for (; i < values.size(); ++i) sums[0] += values[i] * 0.0;
  return std::accumulate(sums, sums + kSums, 0.0) == 0.0;
}

Bundle RowsOf(const Bundle& all, const std::vector<int64_t>& rows) {
  const Tensor index = Tensor::FromVector<int64_t>(rows, {std::ssize(rows)});
  Bundle chosen;
  for (const auto& [name, t] : all.entries()) {
    chosen.SetNamed(name, IndexSelect(t, 0, CopyTo(index, t.device())));
  }
  return chosen;
}

}  // namespace

IncrementalDecoder::IncrementalDecoder(const Model& model, Lockstep* lockstep, int adapter)
    : model_(model),
      caches_(model.num_cache_layers() > 0),
      lockstep_(lockstep),
      context_{.adapter = adapter},
      cache_(model.num_cache_layers()) {}

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
  const Bundle encoded = model_.encoder_decoder()->Encode(
      {{keys::kInputIds, CopyTo(ids_BS, device)}, {keys::kAttentionMask, CopyTo(mask_BS, device)}},
      {.context = context_});
  if (lockstep_ != nullptr) lockstep_->Encoded(encoded);
  if (encoded_.empty()) {
    encoded_ = encoded;
    return;
  }
  Bundle all;
  for (const auto& [name, t] : encoded.entries()) {
    all.SetNamed(name, RowsBehind(*encoded_.FindNamed(name), t));
  }
  encoded_ = std::move(all);
}

Bundle IncrementalDecoder::EncodedFor(const std::vector<int64_t>& rows) const {
  const bool all = std::ssize(rows) == num_rows() && std::is_sorted(rows.begin(), rows.end());
  return all || encoded_.empty() ? encoded_ : RowsOf(encoded_, rows);
}

void IncrementalDecoder::Keep(const std::vector<int64_t>& rows) {
  const NoGrad no_grad;
  if (caches_) cache_.Reorder(rows);
  std::vector<std::vector<int64_t>> texts;
  for (const int64_t row : rows) texts.push_back(texts_.at(static_cast<size_t>(row)));
  texts_ = std::move(texts);
  if (!encoded_.empty()) encoded_ = RowsOf(encoded_, rows);
}

void IncrementalDecoder::SetPositions(const Pass& pass, Bundle* inputs) {
  const auto rows = std::ssize(pass.counts);
  const std::shared_ptr<const TextFormat> format = model_.text_format();
  std::vector<TextLayout> layouts;
  for (size_t b = 0; format != nullptr && b < pass.rows.size(); ++b) {
    const auto row = static_cast<size_t>(pass.rows[b]);
    StatusOr<TextLayout> layout = format->LayoutOf(texts_[row]);
    TESSERA_CHECK(layout.ok(), "decode", "row ", row, ": ", Message(layout.status()));
    layouts.push_back(*std::move(layout));
  }
  const bool plain = layouts.empty();
  const int64_t coordinates = plain ? 1 : std::ssize(layouts[0].positions);
  const Tensor positions_BNT = Zeros({rows, coordinates, pass.longest}, DType::kInt64);
  const Tensor prefix_B = Zeros({rows}, DType::kInt32);
  int64_t* position = positions_BNT.data<int64_t>();
  for (size_t b = 0; b < pass.counts.size(); ++b) {
    const int64_t begin = pass.begins[b];
    const TextLayout* layout = plain ? nullptr : &layouts[b];
    if (!plain) prefix_B.data<int32_t>()[b] = static_cast<int32_t>(layout->prefix_length);
    for (int64_t n = 0; n < coordinates; ++n, position += pass.longest) {
      for (int64_t t = 0; t < pass.counts[b]; ++t) {
        position[t] =
            plain ? begin + t
                  : layout->positions[static_cast<size_t>(n)].at(static_cast<size_t>(begin + t));
      }
    }
  }
  const Device device = model_.build().device;
  const Tensor positions = plain ? Reshape(positions_BNT, {rows, pass.longest}) : positions_BNT;
  inputs->set(keys::kPositionIds, CopyTo(positions, device));
  if (!plain) inputs->set(keys::kPrefixLength, CopyTo(prefix_B, device));
}

Bundle IncrementalDecoder::InputsOf(const Pass& pass) {
  const auto rows = std::ssize(pass.counts);
  const Tensor ids_BT = Zeros({rows, pass.longest}, DType::kInt64);
  const Tensor last_B1 = Zeros({rows, 1}, DType::kInt64);
  for (int64_t b = 0; b < rows; ++b) {
    const std::vector<int64_t>& text =
        texts_[static_cast<size_t>(pass.rows[static_cast<size_t>(b)])];
    std::copy(text.begin() + pass.begins[static_cast<size_t>(b)], text.end(),
              ids_BT.data<int64_t>() + b * pass.longest);
    last_B1.data<int64_t>()[b] = pass.counts[static_cast<size_t>(b)] - 1;
  }
  const Device device = model_.build().device;
  Bundle inputs = EncodedFor(pass.rows);
  inputs.set(model_.encoder_decoder() != nullptr ? keys::kDecoderInputIds : keys::kInputIds,
             CopyTo(ids_BT, device));
  if (model_.Takes(keys::kPositionIds)) SetPositions(pass, &inputs);
  if (model_.Takes(keys::kLogitPositions)) {
    inputs.set(keys::kLogitPositions, CopyTo(last_B1, device));
  }
  return inputs;
}

Tensor IncrementalDecoder::LastLogits(const Tensor& logits, const Pass& pass) const {
  const auto rows = std::ssize(pass.counts);
  const bool chosen = model_.Takes(keys::kLogitPositions);
  const bool fits = logits.ndim() == 3 && logits.size(0) == rows &&
                    logits.size(2) == model_.vocab_size() &&
                    (logits.size(1) == pass.longest || (chosen && logits.size(1) == 1));
  TESSERA_CHECK(fits, "decode", "the model gave logits ", logits, "; of these tokens they are ",
                Shape{rows, pass.longest, model_.vocab_size()},
                chosen ? ", or one of each row, of logit_positions" : "");
  if (logits.size(1) == 1) return Reshape(logits, {rows, logits.size(2)});
  std::vector<int64_t> last;
  for (int64_t b = 0; b < rows; ++b) {
    last.push_back(b * pass.longest + pass.counts[static_cast<size_t>(b)] - 1);
  }
  const Tensor index = CopyTo(Tensor::FromVector<int64_t>(last, {rows}), logits.device());
  return IndexSelect(Reshape(logits, {rows * pass.longest, logits.size(2)}), 0, index);
}

StatusOr<Scores> IncrementalDecoder::Feed(const std::vector<std::vector<int64_t>>& tokens) {
  std::vector<int64_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  return Feed(rows, tokens);
}

StatusOr<Scores> IncrementalDecoder::Feed(const std::vector<int64_t>& rows,
                                          const std::vector<std::vector<int64_t>>& tokens) {
  const NoGrad no_grad;
  Pass pass = {.rows = rows, .begins = {}, .counts = {}};
  for (size_t b = 0; b < tokens.size(); ++b) {
    const auto row = static_cast<size_t>(rows[b]);
    if (row >= texts_.size()) texts_.resize(row + 1);
    pass.begins.push_back(caches_ ? std::ssize(texts_[row]) : 0);
    texts_[row].insert(texts_[row].end(), tokens[b].begin(), tokens[b].end());
    pass.counts.push_back(std::ssize(texts_[row]) - pass.begins[b]);
    pass.longest = std::max(pass.longest, pass.counts[b]);
  }
  const Bundle inputs = InputsOf(pass);
  if (lockstep_ != nullptr) lockstep_->BeforeDecoder(tokens[0]);
  if (caches_) {
    // Rows that begin take the keys and values of a prefix along (nn/prefix.h).
    std::vector<int64_t> counts = pass.counts;
    for (size_t b = 0; b < counts.size(); ++b) {
      if (pass.begins[b] == 0) counts[b] += model_.prefix(context_.adapter).tokens;
    }
    cache_.BeginStep(rows, counts);
  }
  const Bundle out =
      model_.Run(inputs, {.context = context_, .cache = caches_ ? &cache_ : nullptr});
  if (caches_) cache_.EndStep();
  const Tensor logits_BV = LastLogits(out.at(keys::kLogits), pass);
  Scores scores(CastCopy(CopyTo(logits_BV, Device::Cpu()), DType::kFloat64));
  for (size_t b = 0; b < rows.size(); ++b) {
    if (!AllFinite(scores[b])) {
      return Internal("the model's logits are not finite (row ", rows[b], ", position ",
                      std::ssize(texts_[static_cast<size_t>(rows[b])]) - 1,
                      "): its weights are damaged or overflow ", logits_BV.dtype());
    }
  }
  return scores;
}

}  // namespace tessera::models
