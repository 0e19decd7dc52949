// SPDX-License-Identifier: Apache-2.0
// Feeds a model token by token. What the model can do is asked of it: one that keeps keys and
// values (Model::num_cache_layers) is given the new tokens alone, any other its texts from the
// beginning; one that takes `logit_positions` gives the logits of those alone, of any other the
// last ones are picked out.
//
//   IncrementalDecoder decoder(model);
//   Scores scores = decoder.Feed(prompts);             // rows of any lengths >= 1
//   decoder.Keep({0, 0, 2});                           // rows repeated or dropped
//   scores = decoder.Feed({{5}, {9}, {1}});
//   scores = decoder.Feed({3}, {prompt});              // a new row, by itself
//   const int64_t row = decoder.AddRow(3, 20);         // one that has the first 20 tokens of row 3
//   scores = decoder.Feed({row}, {rest_of_its_prompt});
//
// A row's scores do not depend on which others there are, on when they came, nor on how its tokens
// were divided into passes - where the model's keys follow from the tokens before them
// (TextLayout::prefix_length, Model::length_kind).
//
// A model with an encoder (Model::encoder_decoder) reads its sources first, once:
//   decoder.Encode(sources);
//   Scores scores = decoder.Feed({{start}, {start}});
#ifndef TESSERA_MODELS_GENERATION_INCREMENTAL_DECODER_H_
#define TESSERA_MODELS_GENERATION_INCREMENTAL_DECODER_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/tensor.h"
#include "models/generation/lockstep.h"
#include "models/model.h"
#include "nn/key_value_cache.h"

namespace tessera::models {

// The logits of a pass, in float64.
class Scores {
 public:
  // After the last token of each row [B, V], on the host; `every` is undefined or what the model
  // gave of all tokens, [B, T, V] on the host.
  Scores(Tensor last_BV, Tensor every_BTV, DType computed)
      : last_BV_(std::move(last_BV)), every_BTV_(std::move(every_BTV)), computed_(computed) {}

  // After the last token of a row, for whoever chooses the next one: they may be written to.
  std::span<double> operator[](size_t row) const {
    const auto size = static_cast<size_t>(last_BV_.size(1));
    return {last_BV_.data<double>() + row * size, size};
  }
  // After token `t` of those that the row was fed (FeedOptions::every_token).
  std::vector<double> After(size_t row, int64_t t) const;

  // Internal where some of these logits are not finite; names a row and the position in its text.
  Status CheckFinite(std::span<const double> logits, int64_t row, int64_t position) const;

 private:
  Tensor last_BV_;
  Tensor every_BTV_;
  DType computed_;
};

// How a decoder is made.
struct DecoderOptions {
  // Where ranks make their passes together; may be null.
  Lockstep* lockstep = nullptr;
  nn::KeyValueCacheOptions cache = {};
};

// Of one pass.
struct FeedOptions {
  // Which of the model's adapters counts (nn::ForwardContext): the same in all passes of a row.
  int adapter = 0;
  // Whether the logits after every token are wanted, not of the last ones alone.
  bool every_token = false;
};

class IncrementalDecoder {
 public:
  explicit IncrementalDecoder(const Model& model, const DecoderOptions& options = {});

  // What the encoder reads for the first rows that have nothing of it yet: of any lengths >= 1,
  // before their first `Feed`.
  void Encode(const std::vector<std::vector<int64_t>>& sources, int adapter = 0);
  // How many rows, the first ones, have what the encoder gave.
  int64_t num_encoded() const;

  // What the encoder gave, a row for each source; of one text may be read by another decoder.
  const Bundle& encoded() const { return encoded_; }
  void UseEncoded(const Bundle& encoded);

  // The next tokens of every row. Throws Error for logits that are neither [rows, 1, V] nor
  // [rows, tokens, V], and for a model that does not keep what it says it keeps. After whatever is
  // thrown rows are as before, and new ones are not there.
  Scores Feed(const std::vector<std::vector<int64_t>>& tokens, const FeedOptions& options = {});

  // The same for some rows alone; what is behind the last row is a new one. `tokens` and what comes
  // back are in their order.
  Scores Feed(const std::vector<int64_t>& rows, const std::vector<std::vector<int64_t>>& tokens,
              const FeedOptions& options = {});

  int64_t num_rows() const { return std::ssize(texts_); }
  // What a row was fed so far.
  const std::vector<int64_t>& text(int64_t row) const {
    return texts_.at(static_cast<size_t>(row));
  }

  // Row b becomes what row rows[b] was.
  void Keep(const std::vector<int64_t>& rows);

  // A row behind the last one, which it returns: empty, or with the first `tokens` tokens of row
  // `source`, which was fed with this adapter. Nothing of them is computed again.
  int64_t AddRow();
  int64_t AddRow(int64_t source, int64_t tokens, int adapter = 0);

  // Copies of a row's keys and values, for another decoder of the model: those of each layer, one
  // behind the other, [1, G, T, D], where T counts a prefix's tokens as well. The row was fed, and
  // the model keeps keys and has no encoder.
  std::vector<Tensor> KeysOf(int64_t row);
  // A row behind the last one, which it returns, that is as one that was fed `text`; `keys` are
  // what KeysOf gave of that one. After whatever is thrown there is no such row.
  int64_t AddRow(std::vector<int64_t> text, const std::vector<Tensor>& keys);

  // Pages that feeding these rows so many tokens takes, besides those of sources (KeyValueCache).
  int64_t PagesNeeded(const std::vector<int64_t>& rows, const std::vector<int64_t>& tokens,
                      int adapter) const;
  const nn::KeyValueCache& cache() const { return cache_; }

 private:
  // What a pass reads: new tokens or whole texts, rows of equal length.
  struct Pass {
    std::vector<int64_t> rows;
    std::vector<int64_t> begins;  // of each row: how many tokens lie before
    std::vector<int64_t> counts;
    int64_t longest = 1;  // shorter rows are filled up behind
    FeedOptions options;
  };
  // Adding a text will not fail.
  void ReserveText();
  // `first` are the new tokens of its first row.
  Scores Run(const Pass& pass, const std::vector<int64_t>& first);
  // position_ids of the tokens of a pass and, for families with a layout, prefix_length.
  void SetPositions(const Pass& pass, Bundle* inputs);
  Bundle InputsOf(const Pass& pass);
  // What an encoder gave for the rows of a pass.
  Bundle EncodedFor(const std::vector<int64_t>& rows) const;
  void CheckLogits(const Tensor& logits, const Pass& pass) const;
  // [rows, V] of the logits after the last token of each row.
  Tensor LastLogits(const Tensor& logits, const Pass& pass) const;

  const Model& model_;
  const bool caches_;
  Lockstep* const lockstep_;
  nn::KeyValueCache cache_;
  std::vector<std::vector<int64_t>> texts_;  // what each row was fed so far
  Bundle encoded_;                           // of an encoder
  std::vector<int64_t> sources_;             // lengths in `encoded_` of the rows that have it
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_INCREMENTAL_DECODER_H_
