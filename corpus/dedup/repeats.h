// SPDX-License-Identifier: Apache-2.0
// Keys that come again, anywhere in a corpus: all but the first of each.
//
//   RepeatSearch search = {.name = "urls", .inputs = files, .folder = "out.work"};
//   search.keys = [](Document& document, const AddKey& add) { add(0, document.Url()); };
//   TESSERA_ASSIGN_OR_RETURN(const auto repeats, FindRepeats(search, context));
//   if (!repeats.Of(document.number).empty()) ...
//
// A key is known by 128 bits of hash: of 1e12 different ones, two are taken for the same once in
// 7e14. They are sorted on the disk, 32 bytes each.
#ifndef TESSERA_CORPUS_DEDUP_REPEATS_H_
#define TESSERA_CORPUS_DEDUP_REPEATS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_member.h"
#include "base/status.h"
#include "corpus/engine/block_run.h"
#include "corpus/engine/sorted_file.h"
#include "corpus/io/document.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::corpus {

// A key of a document that an earlier one has, or the same one before.
struct Repeat {
  int64_t number;  // the document's
  int64_t unit;    // which of its keys
  int64_t first;   // the number of the document that has it first
  auto operator<=>(const Repeat&) const = default;
};

using AddKey = std::function<void(int64_t unit, std::string_view key)>;

struct RepeatSearch {
  std::string name;
  std::vector<std::string> inputs;
  std::string text_key = "text";
  JsonMember made_from = {};  // what the keys depend on, beside the inputs
  std::string folder;         // of one's own, for what is kept on the disk
  std::function<void(Document& document, const AddKey& add)> keys = nullptr;
};

StatusOr<SortedFile<Repeat>> FindRepeats(const RepeatSearch& search, const RunContext& context);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_DEDUP_REPEATS_H_
