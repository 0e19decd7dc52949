// SPDX-License-Identifier: Apache-2.0
// The special tokens that the files beside a vocabulary declare: tokenizer_config.json, and of
// folders of transformers 4 special_tokens_map.json and added_tokens.json.
//
//   TESSERA_ASSIGN_OR_RETURN(const DeclaredTokens declared, ReadDeclaredTokens(folder));
//   declared.NameOf("eos_token");                    // "</s>", or nullptr
//   declared.AddTo(find_piece, vocab_size, &added);  // those that the vocabulary lacks get ids
//
// A token is written "</s>" or {"content": "</s>", "lstrip": false, ...}. What transformers 4 calls
// additional_special_tokens is extra_special_tokens in 5, a list, or an object of tokens by names
// of their own.
#ifndef TESSERA_DATA_TOKENIZER_DECLARED_TOKENS_H_
#define TESSERA_DATA_TOKENIZER_DECLARED_TOKENS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/json_part.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::data {

struct DeclaredTokens {
  // By key ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
  // "mask_token"), in this order; ids are < 0.
  std::vector<std::pair<std::string, AddedToken>> named;
  std::vector<AddedToken> extra;     // special tokens without a key; ids are < 0
  std::vector<AddedToken> with_ids;  // added_tokens_decoder, added_tokens.json

  const std::string* NameOf(std::string_view key) const;

  // Completes what a vocabulary has: those with ids, the named and the extra ones that are not
  // among `added` join them, with the id of the piece that is written so, else the next free one,
  // as transformers counts them, whatever id stands with it. One that is there takes the flags that
  // stand with its id.
  void AddTo(const std::function<std::optional<int32_t>(const std::string&)>& find_piece,
             int64_t vocab_size, std::vector<AddedToken>* added) const;
};

// A folder without any such file declares nothing. A token that is none, or an id that is no number
// in [0, 2^22), is InvalidArgument with file and key.
StatusOr<DeclaredTokens> ReadDeclaredTokens(const std::string& folder);

// The tokens of `additional_special_tokens` or `extra_special_tokens`, of which an object names
// each; nullopt: there is no such key.
StatusOr<std::optional<std::vector<AddedToken>>> ReadExtraTokens(const nlohmann::json& root,
                                                                 const std::string& path);

// {"5": {"content": "<x>", "special": true, ...}, ...}: appends to *tokens.
Status ReadAddedTokensDecoder(const nlohmann::json& decoder, const std::string& path,
                              std::vector<AddedToken>* tokens);

// The `added_tokens` of a tokenizer.json; none where it is null.
StatusOr<std::vector<AddedToken>> ReadAddedTokens(const JsonPart& part);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_DECLARED_TOKENS_H_
