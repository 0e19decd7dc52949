// SPDX-License-Identifier: Apache-2.0
// Figures of documents that add up.
#ifndef TESSERA_CORPUS_STATS_TALLY_H_
#define TESSERA_CORPUS_STATS_TALLY_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "corpus/io/document.h"

namespace tessera::corpus {

struct Tally {
  // By the power of two that a length reaches: 0, 1, 2 to 3, 4 to 7, ...
  using Lengths = std::map<int, int64_t>;

  int64_t documents = 0, characters = 0, words = 0, bytes = 0;
  Lengths document_characters, document_words;
  std::map<std::string, int64_t> languages, domains;

  void Add(const Document& document);
  void Add(const Tally& other);
  // Domains beyond so many: those that came least often are one, "(others)".
  void Shorten(size_t most_domains);

  nlohmann::json ToJson() const;
  static StatusOr<Tally> FromJson(const nlohmann::json& json);
};

// The page. `drops` maps a filter to how often it dropped and to examples of what.
struct DropTally {
  int64_t count = 0;
  std::vector<std::pair<std::string, std::string>> examples;  // id and value
};
std::string StatsPage(const std::string& title, const Tally& tally,
                      const std::map<std::string, DropTally>& drops);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_STATS_TALLY_H_
