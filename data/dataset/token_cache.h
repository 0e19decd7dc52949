// SPDX-License-Identifier: Apache-2.0
// Token ids that are made of other files once, and used again while those stay the same.
//
//   TESSERA_ASSIGN_OR_RETURN(json made_from, DescribeFiles({"train.tsv"}));
//   made_from["tokenizer"] = tokenizer.Fingerprint();
//   TESSERA_ASSIGN_OR_RETURN(
//       CachedTokens cached,
//       TokensMadeOnce("out/data/train", made_from, {.vocab_size = tokenizer.vocab_size()},
//                      [&](IndexedDatasetWriter* writer) -> StatusOr<json> {
//                        ...; return json{{"labels", labels}};
//                      }));
//
// Beside <prefix>.bin and <prefix>.idx stands <prefix>.json: what they were made from, their
// checksums, and what else was found out on the way (`facts`). Processes that start together on one
// machine wait for the first one (<prefix>.lock) and then map its files.
#ifndef TESSERA_DATA_DATASET_TOKEN_CACHE_H_
#define TESSERA_DATA_DATASET_TOKEN_CACHE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/dataset/indexed_dataset.h"
#include "data/dataset/indexed_dataset_writer.h"
#include "nlohmann/json.hpp"

namespace tessera::data {

struct CachedTokens {
  std::shared_ptr<const IndexedDataset> tokens;
  nlohmann::json facts;
  bool reused = false;
};

// What is known of the tokens, and whether those on the disk serve.
struct TokenCacheOptions {
  int64_t vocab_size = 0;  // ids are in [0, vocab_size)
  bool reuse = true;       // false: make them even if the files on the disk are up to date
};

// Path, size and time of each file, and of those of a split (data_folder.h): equal as long as
// nobody touched them.
StatusOr<nlohmann::json> DescribeFiles(const std::vector<std::string>& files);

// `make` writes the tokens and returns the facts; it must leave at least one token.
StatusOr<CachedTokens> TokensMadeOnce(
    const std::string& prefix, const nlohmann::json& made_from, const TokenCacheOptions& options,
    const std::function<StatusOr<nlohmann::json>(IndexedDatasetWriter*)>& make);

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_TOKEN_CACHE_H_
