// Feeds a model token by token. What the model can do is asked of it: one that keeps keys and
// values (Model::num_cache_layers) is given the new tokens alone, any other its texts from the
// beginning; one that takes `logit_positions` gives the logits of those alone, of any other the
// last ones are picked out.
//
//   IncrementalDecoder decoder(model);
//   TESSERA_ASSIGN_OR_RETURN(auto scores, decoder.Feed(prompts));      // rows of any lengths >= 1
//   decoder.Keep({0, 0, 2});                                           // rows repeated or dropped
//   TESSERA_ASSIGN_OR_RETURN(scores, decoder.Feed({{5}, {9}, {1}}));
//   TESSERA_ASSIGN_OR_RETURN(scores, decoder.Feed({3}, {prompt}));     // a new row, by itself
//
// A row's scores do not depend on which others there are, nor on when they came.
//
// A model with an encoder (Model::encoder_decoder) reads its sources first, once:
//   decoder.Encode(sources);
//   TESSERA_ASSIGN_OR_RETURN(scores, decoder.Feed({{start}, {start}}));
#ifndef TESSERA_MODELS_GENERATION_INCREMENTAL_DECODER_H_
#define TESSERA_MODELS_GENERATION_INCREMENTAL_DECODER_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"
#include "models/generation/lockstep.h"
#include "models/model.h"
#include "nn/key_value_cache.h"

namespace tessera::models {

// Logits of rows, in float64, for whoever chooses tokens: they may be written to.
class Scores {
 public:
  explicit Scores(Tensor rows_BV) : rows_BV_(std::move(rows_BV)) {}
  std::span<double> operator[](size_t row) const {
    const auto size = static_cast<size_t>(rows_BV_.size(1));
    return {rows_BV_.data<double>() + row * size, size};
  }

 private:
  Tensor rows_BV_;
};

class IncrementalDecoder {
 public:
  // Its forward passes are `lockstep`'s, which outlives it; nullptr: its own. `adapter` is
  // nn::ForwardContext's.
  explicit IncrementalDecoder(const Model& model, Lockstep* lockstep = nullptr, int adapter = 0);

  // What the encoder reads for rows to come: of any lengths >= 1, before their first `Feed`.
  void Encode(const std::vector<std::vector<int64_t>>& sources);

  // What the encoder gave, a row for each source; of one text may be read by another decoder.
  const Bundle& encoded() const { return encoded_; }
  void UseEncoded(const Bundle& encoded) { encoded_ = encoded; }

  // The next tokens of every row; the logits [vocabulary] after the last one of each, in float64.
  // Internal when they are not finite. Throws Error for logits that are neither [rows, 1, V] nor
  // [rows, tokens, V], and for a model that does not keep what it says it keeps.
  StatusOr<Scores> Feed(const std::vector<std::vector<int64_t>>& tokens);

  // The same for some rows alone; what is behind the last row is a new one. `tokens` and what comes
  // back are in their order.
  StatusOr<Scores> Feed(const std::vector<int64_t>& rows,
                        const std::vector<std::vector<int64_t>>& tokens);

  int64_t num_rows() const { return std::ssize(texts_); }

  // Row b becomes what row rows[b] was.
  void Keep(const std::vector<int64_t>& rows);

 private:
  // What a pass reads: new tokens or whole texts, rows of equal length.
  struct Pass {
    std::vector<int64_t> rows;
    std::vector<int64_t> begins;  // of each row: how many tokens lie before
    std::vector<int64_t> counts;
    int64_t longest = 1;  // shorter rows are filled up behind
  };
  // position_ids of the tokens of a pass and, for families with a layout, prefix_length.
  void SetPositions(const Pass& pass, Bundle* inputs);
  Bundle InputsOf(const Pass& pass);
  // What an encoder gave for the rows of a pass.
  Bundle EncodedFor(const std::vector<int64_t>& rows) const;
  // [rows, V] of the logits after the last token of each row.
  Tensor LastLogits(const Tensor& logits, const Pass& pass) const;

  const Model& model_;
  const bool caches_;
  Lockstep* const lockstep_;
  const nn::ForwardContext context_;
  nn::KeyValueCache cache_;
  std::vector<std::vector<int64_t>> texts_;  // what each row was fed so far
  Bundle encoded_;                           // of an encoder
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_INCREMENTAL_DECODER_H_
