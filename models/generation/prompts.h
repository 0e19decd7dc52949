// SPDX-License-Identifier: Apache-2.0
// Texts as tokens, of either type: tokenizers and files of tokens have int32, tensors int64.
//
//   Generate(*model, {tokenizer->Encode("Once"), tokenizer->Encode("Twice")}, config);
//   Generate(*model, {{15496, 995}}, config);
#ifndef TESSERA_MODELS_GENERATION_PROMPTS_H_
#define TESSERA_MODELS_GENERATION_PROMPTS_H_

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace tessera::models {

class Prompts {
 public:
  // One of them.
  class Row {
   public:
    Row(std::initializer_list<int64_t> ids) : ids_(ids) {}
    Row(std::vector<int64_t> ids) : ids_(std::move(ids)) {}  // NOLINT(google-explicit-constructor)
    Row(const std::vector<int32_t>& ids)                     // NOLINT(google-explicit-constructor)
        : ids_(ids.begin(), ids.end()) {}

   private:
    friend class Prompts;
    std::vector<int64_t> ids_;
  };

  Prompts(std::initializer_list<Row> rows) {
    for (const Row& row : rows) rows_.push_back(row.ids_);
  }
  Prompts(std::vector<std::vector<int64_t>> rows)  // NOLINT(google-explicit-constructor)
      : rows_(std::move(rows)) {}
  Prompts(const std::vector<std::vector<int32_t>>& rows) {  // NOLINT(google-explicit-constructor)
    for (const std::vector<int32_t>& row : rows) rows_.emplace_back(row.begin(), row.end());
  }

  const std::vector<std::vector<int64_t>>& rows() const { return rows_; }

 private:
  std::vector<std::vector<int64_t>> rows_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_PROMPTS_H_
