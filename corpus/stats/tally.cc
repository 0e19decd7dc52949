// SPDX-License-Identifier: Apache-2.0
#include "corpus/stats/tally.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "corpus/filters/text_facts.h"
#include "corpus/language/identify.h"
#include "corpus/urls/url.h"

namespace tessera::corpus {
namespace {

using nlohmann::json;

constexpr char kOthers[] = "(others)";

template <typename Key>
void AddAll(const std::map<Key, int64_t>& from, std::map<Key, int64_t>* to) {
  for (const auto& [key, count] : from) (*to)[key] += count;
}

json PairsOf(const auto& map) {
  json pairs = json::array();
  for (const auto& [key, count] : map) pairs.push_back({key, count});
  return pairs;
}

}  // namespace

void Tally::Add(const Document& document) {
  const std::string& text = document.text();
  const int64_t num_characters = CountCharacters(text), num_words = CountPieces(text);
  ++documents;
  characters += num_characters;
  words += num_words;
  bytes += std::ssize(text);
  ++document_characters[std::bit_width(static_cast<uint64_t>(num_characters))];
  ++document_words[std::bit_width(static_cast<uint64_t>(num_words))];
  ++languages[std::string(IdentifyLanguage(text).code)];
  const auto url = ParseUrl(document.Url());
  if (url) ++domains[url->host.starts_with("www.") ? url->host.substr(4) : url->host];
}

void Tally::Add(const Tally& other) {
  documents += other.documents;
  characters += other.characters;
  words += other.words;
  bytes += other.bytes;
  AddAll(other.document_characters, &document_characters);
  AddAll(other.document_words, &document_words);
  AddAll(other.languages, &languages);
  AddAll(other.domains, &domains);
}

void Tally::Shorten(size_t most_domains) {
  if (domains.size() <= most_domains) return;
  std::vector<int64_t> counts;
  for (const auto& [name, count] : domains) counts.push_back(count);
  std::nth_element(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(most_domains),
                   counts.end(), std::greater<>());
  const int64_t least = counts[most_domains];
  int64_t others = 0;
  std::erase_if(domains, [&](const auto& entry) {
    const bool goes = entry.second <= least;
    others += goes ? entry.second : 0;
    return goes;
  });
  domains[kOthers] += others;
}

json Tally::ToJson() const {
  return {{"documents", documents},
          {"characters", characters},
          {"words", words},
          {"bytes", bytes},
          {"document_characters", PairsOf(document_characters)},
          {"document_words", PairsOf(document_words)},
          {"languages", PairsOf(languages)},
          {"domains", PairsOf(domains)}};
}

StatusOr<Tally> Tally::FromJson(const json& json) {
  Tally tally;
  try {
    tally.documents = json.at("documents");
    tally.characters = json.at("characters");
    tally.words = json.at("words");
    tally.bytes = json.at("bytes");
    for (const auto& [name, map] : {std::pair{"document_characters", &tally.document_characters},
                                    {"document_words", &tally.document_words}}) {
      for (const auto& pair : json.at(name)) (*map)[pair.at(0).get<int>()] = pair.at(1);
    }
    for (const auto& [name, map] :
         {std::pair{"languages", &tally.languages}, {"domains", &tally.domains}}) {
      for (const auto& pair : json.at(name)) (*map)[pair.at(0).get<std::string>()] = pair.at(1);
    }
  } catch (const nlohmann::json::exception&) {
    return DataLoss("a tally that is none");
  }
  return tally;
}

}  // namespace tessera::corpus
