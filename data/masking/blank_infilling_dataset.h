// SPDX-License-Identifier: Apache-2.0
// GLM's autoregressive blank infilling (Du et al. 2022, section 2.1 and 2.3).
//
//   BlankInfillingDataset data(windows, {.mask_id = ..., .sop_id = ..., .eop_id = ..., ...});
//
// A row is a text with blanks (part A) and, behind it, what fills them (part B), span by span in a
// random order: each begins with <|startofpiece|> as input and ends with <|endofpiece|> as target.
//
//   text            x1 x2 x3 x4 x5 x6, spans (x3) and (x5 x6)
//   input_ids       x1 x2 [M] x4 [M] [S] x5 x6 [S] x3
//   labels           -  -  -  -  -   x5 x6 [E] x3 [E]
//   position_ids 0  0  1  2   3  4   4  4  4   2  2     the blank's place in part A
//                1  0  0  0   0  0   1  2  3   1  2     the place within the span
//
// Three kinds of rows: short spans ([MASK], lengths of a Poisson distribution of mean 3, until 15 %
// of the tokens are masked), whole sentences ([sMASK], until 15 %), and the rest of a document
// ([gMASK], the last 50 % to 100 % of the window). Batches: `input_ids`, `labels` [B, T],
// `position_ids` [B, 2, T], `attention_mask` [B] (the length of part A, whose tokens see one
// another), all int64; T is the longest row's. Choices are functions of the seed and the sample's
// position.
#ifndef TESSERA_DATA_MASKING_BLANK_INFILLING_DATASET_H_
#define TESSERA_DATA_MASKING_BLANK_INFILLING_DATASET_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset/token_dataset.h"
#include "data/masking/random_choices.h"

namespace tessera::data {

struct BlankInfillingOptions {
  int64_t mask_id = 0;           // [MASK]
  int64_t sentence_mask_id = 0;  // [sMASK]
  int64_t document_mask_id = 0;  // [gMASK]
  int64_t sop_id = 0;
  int64_t eop_id = 0;
  int64_t pad_id = 0;
  int64_t cls_id = -1;  // begins every row; -1: nothing does
  int64_t eos_id = -1;  // ends part A of every row; -1: nothing does
  // Shares of the rows of the second and third kind; the others have short spans.
  double sentence_share = 0;
  double document_share = 0.5;
  double masked_share = 0.15;
  double mean_span_length = 3;
  // By id: whether a token ends a sentence. A window without whole sentences gets short spans.
  std::vector<bool> ends_sentence = {};
  uint64_t seed = 0;
};

// The longest window of text whose rows have at most `row` tokens.
int64_t WindowForBlanks(int64_t row, const BlankInfillingOptions& options);

class BlankInfillingDataset : public Dataset {
 public:
  BlankInfillingDataset(std::shared_ptr<const TokenDataset> windows,
                        const BlankInfillingOptions& options);

  int64_t size() const override { return windows_->size(); }
  StatusOr<Batch> MakeBatch(std::span<const Sample> samples) const override;

 private:
  struct Span {
    int64_t begin = 0;
    int64_t length = 0;
  };
  struct Row;
  std::vector<Span> ChooseSpans(const std::vector<int64_t>& text, RandomChoices* random,
                                int64_t* mask) const;
  std::vector<Span> ShortSpans(int64_t tokens, RandomChoices* random) const;
  std::vector<Span> Sentences(const std::vector<int64_t>& text, RandomChoices* random) const;
  Row MakeRow(const std::vector<int64_t>& text, int64_t position) const;

  const std::shared_ptr<const TokenDataset> windows_;
  const BlankInfillingOptions options_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_MASKING_BLANK_INFILLING_DATASET_H_
