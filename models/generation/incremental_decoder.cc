// SPDX-License-Identifier: Apache-2.0
#include "models/generation/incremental_decoder.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "autograd/autograd.h"
#include "base/error.h"
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

// Some rows of [B, S, ...], of which `length` is kept of S.
Bundle RowsOf(const Bundle& all, const std::vector<int64_t>& rows, int64_t length) {
  const Tensor index = Tensor::FromVector<int64_t>(rows, {std::ssize(rows)});
  Bundle chosen;
  for (const auto& [name, t] : all.entries()) {
    const Tensor of_rows = IndexSelect(t, 0, CopyTo(index, t.device()));
    chosen.SetNamed(name, length < t.size(1) ? Slice(of_rows, 1, 0, length) : of_rows);
  }
  return chosen;
}

}  // namespace

std::vector<double> Scores::After(size_t row, int64_t t) const {
  return Select(Select(every_BTV_, 0, static_cast<int64_t>(row)), 0, t).ToVector<double>();
}

Status Scores::CheckFinite(std::span<const double> logits, int64_t row, int64_t position) const {
  if (AllFinite(logits)) return OkStatus();
  return Internal("the model's logits are not finite (row ", row, ", position ", position,
                  "): its weights are damaged or overflow ", computed_);
}

IncrementalDecoder::IncrementalDecoder(const Model& model, const DecoderOptions& options)
    : model_(model),
      caches_(model.num_cache_layers() > 0),
      lockstep_(options.lockstep),
      cache_(model.num_cache_layers(), options.cache) {}

void IncrementalDecoder::Encode(const std::vector<std::vector<int64_t>>& sources, int adapter) {
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
      {.context = {.adapter = adapter}});
  if (lockstep_ != nullptr) lockstep_->Encoded(encoded);
  Bundle all;
  for (const auto& [name, t] : encoded.entries()) {
    all.SetNamed(name, encoded_.empty() ? t : RowsBehind(*encoded_.FindNamed(name), t));
  }
  sources_.resize(sources_.size() + sources.size(), static_cast<int64_t>(longest));
  encoded_ = std::move(all);
}

int64_t IncrementalDecoder::num_encoded() const { return std::ssize(sources_); }

void IncrementalDecoder::UseEncoded(const Bundle& encoded) {
  encoded_ = encoded;
  sources_.clear();
  if (encoded.empty()) return;
  const Tensor& any = encoded.entries().begin()->second;
  sources_.assign(static_cast<size_t>(any.size(0)), any.size(1));
}

Bundle IncrementalDecoder::EncodedFor(const std::vector<int64_t>& rows) const {
  const bool all = std::ssize(rows) == num_encoded() && std::is_sorted(rows.begin(), rows.end());
  if (all || encoded_.empty()) return encoded_;
  int64_t longest = 0;
  for (const int64_t row : rows) {
    longest = std::max(longest, sources_.at(static_cast<size_t>(row)));
  }
  return RowsOf(encoded_, rows, longest);
}

void IncrementalDecoder::Keep(const std::vector<int64_t>& rows) {
  const NoGrad no_grad;
  std::vector<std::vector<int64_t>> texts;
  std::vector<int64_t> encoded;  // rows that have it
  std::vector<int64_t> sources;
  for (const int64_t row : rows) {
    texts.push_back(text(row));
    if (row >= num_encoded()) continue;
    encoded.push_back(row);
    sources.push_back(sources_[static_cast<size_t>(row)]);
  }
  Bundle kept;
  if (!encoded.empty()) kept = RowsOf(encoded_, encoded, INT64_MAX);
  if (caches_) cache_.Reorder(rows);
  texts_ = std::move(texts);
  sources_ = std::move(sources);
  encoded_ = std::move(kept);
}

void IncrementalDecoder::ReserveText() {
  if (texts_.size() == texts_.capacity()) texts_.reserve(2 * texts_.size() + 1);
}

int64_t IncrementalDecoder::AddRow() {
  ReserveText();
  if (caches_) cache_.AddRow();
  texts_.emplace_back();
  return num_rows() - 1;
}

int64_t IncrementalDecoder::AddRow(int64_t source, int64_t tokens, int adapter) {
  std::vector<int64_t> begin(text(source).begin(), text(source).begin() + tokens);
  ReserveText();
  if (caches_) {
    cache_.AddRow(source, tokens == 0 ? 0 : tokens + model_.prefix(adapter).tokens);
  }
  texts_.push_back(std::move(begin));
  return num_rows() - 1;
}

std::vector<Tensor> IncrementalDecoder::KeysOf(int64_t row) {
  const NoGrad no_grad;
  const int64_t length = cache_.lengths().at(static_cast<size_t>(row));
  std::vector<Tensor> keys;
  // A step without tokens tells where the row's pages are, and changes nothing.
  cache_.BeginStep({row}, {0});
  for (int layer = 0; layer < model_.num_cache_layers(); ++layer) {
    const Tensor pages_PGSD = cache_.Memory(layer).k;
    const Tensor none = Empty({1, pages_PGSD.size(1), 0, pages_PGSD.size(3)}, pages_PGSD.dtype(),
                              pages_PGSD.device());
    const nn::CachedKeys all = cache_.Append(layer, none, none);
    const Tensor index = CastCopy(Reshape(all.table, {all.table.size(1)}), DType::kInt64);
    for (const Tensor& t : {all.k, all.v}) {
      const Tensor of_row_GNSD = Permute(IndexSelect(t, 0, index), {1, 0, 2, 3});
      const Tensor whole =
          Reshape(of_row_GNSD, {1, t.size(1), index.numel() * t.size(2), t.size(3)});
      keys.push_back(Slice(whole, 2, 0, length).ContiguousCopy());
    }
  }
  cache_.DropStep();
  return keys;
}

int64_t IncrementalDecoder::AddRow(std::vector<int64_t> text, const std::vector<Tensor>& keys) {
  const NoGrad no_grad;
  ReserveText();
  const int64_t row = num_rows();
  try {
    cache_.BeginStep({row}, {keys.at(0).size(2)});
    for (size_t i = 0; i + 1 < keys.size(); i += 2) {
      cache_.Append(static_cast<int>(i / 2), keys[i], keys[i + 1]);
    }
  } catch (...) {
    cache_.DropStep();
    throw;
  }
  cache_.EndStep();
  texts_.push_back(std::move(text));
  return row;
}

int64_t IncrementalDecoder::PagesNeeded(const std::vector<int64_t>& rows,
                                        const std::vector<int64_t>& tokens, int adapter) const {
  if (!caches_) return 0;
  std::vector<int64_t> counts = tokens;
  for (size_t b = 0; b < counts.size(); ++b) {
    if (rows[b] >= num_rows() || text(rows[b]).empty()) counts[b] += model_.prefix(adapter).tokens;
  }
  return cache_.PagesNeeded(rows, counts);
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
  if (model_.Takes(keys::kLogitPositions) && !pass.options.every_token) {
    inputs.set(keys::kLogitPositions, CopyTo(last_B1, device));
  }
  return inputs;
}

void IncrementalDecoder::CheckLogits(const Tensor& logits, const Pass& pass) const {
  const auto rows = std::ssize(pass.counts);
  const bool chosen = model_.Takes(keys::kLogitPositions) && !pass.options.every_token;
  const bool fits = logits.ndim() == 3 && logits.size(0) == rows &&
                    logits.size(2) == model_.vocab_size() &&
                    (logits.size(1) == pass.longest || (chosen && logits.size(1) == 1));
  TESSERA_CHECK(fits, "decode", "the model gave logits ", logits, "; of these tokens they are ",
                Shape{rows, pass.longest, model_.vocab_size()},
                chosen ? ", or one of each row, of logit_positions" : "");
}

Tensor IncrementalDecoder::LastLogits(const Tensor& logits, const Pass& pass) const {
  const auto rows = std::ssize(pass.counts);
  if (logits.size(1) == 1) return Reshape(logits, {rows, logits.size(2)});
  std::vector<int64_t> last;
  for (int64_t b = 0; b < rows; ++b) {
    last.push_back(b * pass.longest + pass.counts[static_cast<size_t>(b)] - 1);
  }
  const Tensor index = CopyTo(Tensor::FromVector<int64_t>(last, {rows}), logits.device());
  return IndexSelect(Reshape(logits, {rows * pass.longest, logits.size(2)}), 0, index);
}

Scores IncrementalDecoder::Feed(const std::vector<std::vector<int64_t>>& tokens,
                                const FeedOptions& options) {
  std::vector<int64_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  return Feed(rows, tokens, options);
}

Scores IncrementalDecoder::Feed(const std::vector<int64_t>& rows,
                                const std::vector<std::vector<int64_t>>& tokens,
                                const FeedOptions& options) {
  const NoGrad no_grad;
  const size_t known = texts_.size();
  Pass pass = {.rows = rows, .begins = {}, .counts = {}, .options = options};
  try {
    for (size_t b = 0; b < tokens.size(); ++b) {
      const auto row = static_cast<size_t>(rows[b]);
      if (row >= texts_.size()) texts_.resize(row + 1);
      pass.begins.push_back(caches_ ? std::ssize(texts_[row]) : 0);
      pass.counts.push_back(std::ssize(texts_[row]) + std::ssize(tokens[b]) - pass.begins[b]);
      pass.longest = std::max(pass.longest, pass.counts[b]);
      texts_[row].insert(texts_[row].end(), tokens[b].begin(), tokens[b].end());
    }
    return Run(pass, tokens[0]);
  } catch (...) {
    for (size_t b = 0; b < pass.counts.size(); ++b) {
      const auto end = static_cast<size_t>(pass.begins[b] + pass.counts[b]);
      std::vector<int64_t>& text = texts_[static_cast<size_t>(rows[b])];
      if (text.size() == end) text.resize(end - tokens[b].size());
    }
    texts_.resize(known);
    if (caches_) cache_.DropStep();
    throw;
  }
}

Scores IncrementalDecoder::Run(const Pass& pass, const std::vector<int64_t>& first) {
  const Bundle inputs = InputsOf(pass);
  if (lockstep_ != nullptr) lockstep_->BeforeDecoder(first);
  const nn::ForwardContext context = {.adapter = pass.options.adapter};
  if (caches_) {
    // Rows that begin take the keys and values of a prefix along (nn/prefix.h).
    std::vector<int64_t> counts = pass.counts;
    for (size_t b = 0; b < counts.size(); ++b) {
      if (pass.begins[b] == 0) counts[b] += model_.prefix(context.adapter).tokens;
    }
    cache_.BeginStep(pass.rows, counts);
  }
  const Bundle out = model_.Run(inputs, {.context = context, .cache = caches_ ? &cache_ : nullptr});
  const Tensor logits = out.at(keys::kLogits);
  CheckLogits(logits, pass);
  const Tensor last_BV = LastLogits(logits, pass);
  Scores scores(CastCopy(CopyTo(last_BV, Device::Cpu()), DType::kFloat64),
                pass.options.every_token ? CopyTo(logits, Device::Cpu()) : Tensor(),
                logits.dtype());
  if (caches_) cache_.EndStep();
  return scores;
}

}  // namespace tessera::models
