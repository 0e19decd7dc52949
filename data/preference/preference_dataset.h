// SPDX-License-Identifier: Apache-2.0
// Pairs of completions of one prompt, of which people prefer one: what preference optimisation
// learns from.
//
//   TESSERA_ASSIGN_OR_RETURN(
//       std::shared_ptr<PreferenceDataset> pairs,
//       PreferenceDataset::Open("pairs.jsonl", *tokenizer, "out/data/train", {.max_length = 512}));
//   TESSERA_ASSIGN_OR_RETURN(Batch batch, pairs->MakeBatch(samples));
//   // input_ids, targets: int64 [2 * pairs, T]
//
// A file is JSON lines, or one JSON array, of TRL's records:
//   texts          {"prompt": "...", "chosen": "...", "rejected": "..."}
//   conversations  the same of lists of messages, {"role": "user", "content": "..."}; without
//                  `prompt` it is what the two begin with in common; perhaps with `tools`
// A sample is a pair. Of a batch's rows 2i is the prompt with the chosen completion, 2i + 1 with
// the rejected one, so that nothing that takes whole samples takes a pair apart. Targets are the
// next token within the completion, kIgnoreLabel elsewhere; Batch::targets counts pairs.
//
// Texts. What the tokenizer puts in front of a text (a BOS) begins the prompt; the prompt and a
// completion are encoded as one text, behind which stands the end-of-text token. Conversations are
// the text of the chat template in the tokenizer's folder, of the prompt with the beginning of an
// answer behind it (add_generation_prompt), and of all messages; that text is all there is.
#ifndef TESSERA_DATA_PREFERENCE_PREFERENCE_DATASET_H_
#define TESSERA_DATA_PREFERENCE_PREFERENCE_DATASET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/bundle.h"
#include "data/dataset/dataset.h"
#include "data/dataset/indexed_dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::keys {

inline constexpr TensorKey kReferenceLogProbabilities{
    "reference_log_probabilities", KeyElements::kFloating, "[B]",
    "of each row's targets, summed, under the model that a preference run holds on to"};

}  // namespace tessera::keys

namespace tessera::data {

struct PreferenceOptions {
  int64_t max_length = 0;        // tokens that a prompt with a completion may have; 0: no limit
  bool overwrite_cache = false;  // encode anew even if the files beside `cache` are up to date
};

class PreferenceDataset : public Dataset {
 public:
  // InvalidArgument, one line with path:line or path[index]: a member that is missing, or is
  // neither a text nor messages; a prompt or completion without a token; a prompt whose tokens are
  // not those that prompt and completion begin with; a pair that is too long; messages without a
  // chat template; texts and a tokenizer without an end-of-text token.
  static StatusOr<std::shared_ptr<PreferenceDataset>> Open(const std::string& path,
                                                           const Tokenizer& tokenizer,
                                                           const std::string& cache,
                                                           const PreferenceOptions& options = {});

  int64_t size() const override { return tokens_->num_documents() / 3; }
  StatusOr<Batch> MakeBatch(std::span<const Sample> samples) const override;
  // Of the longer one of its rows.
  std::optional<int64_t> length_of(int64_t index) const override;

  // What the tokens were made from, as text; and where they lie.
  const std::string& made_from() const { return made_from_; }
  const std::string& cache() const { return cache_; }
  bool reused_cache() const { return reused_; }

  // Two numbers for each pair, of its chosen and its rejected completion: batches made from now on
  // have them (keys::kReferenceLogProbabilities, [2 * pairs] float64). Not while batches are made.
  void SetReference(std::vector<double> log_probabilities);
  bool has_reference() const { return !reference_.empty(); }

 private:
  PreferenceDataset(std::shared_ptr<const IndexedDataset> tokens, std::string made_from,
                    std::string cache, bool reused)
      : tokens_(std::move(tokens)),
        made_from_(std::move(made_from)),
        cache_(std::move(cache)),
        reused_(reused) {}
  // Tokens of document `part` of a pair: 0 the prompt, 1 chosen, 2 rejected.
  int64_t length(int64_t pair, int64_t part) const {
    const int64_t document = 3 * pair + part;
    return tokens_->document_begin(document + 1) - tokens_->document_begin(document);
  }

  const std::shared_ptr<const IndexedDataset> tokens_;  // three documents for each pair
  const std::string made_from_;
  const std::string cache_;
  const bool reused_;
  std::vector<double> reference_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_PREFERENCE_PREFERENCE_DATASET_H_
