// SPDX-License-Identifier: Apache-2.0
#include "corpus/dedup/dedup.h"

#include "corpus/dedup/minhash.h"

namespace tessera::corpus {

const OptionTable& DedupOptions::Table() {
  static const auto* const table = new OptionTable(
      OptionTable::Of<DedupOptions>("Deduplication")
          .Include<DedupOptions, FilterFiles>()
          .Add("by", &DedupOptions::by,
               "what is looked for: documents whose 5-grams of words are nearly the same (`near`), "
               "or the same documents, paragraphs or lines, of which the first stays",
               {.choices = {"near", "document", "paragraph", "line"}})
          .Add("threshold", &DedupOptions::threshold,
               "least Jaccard similarity of the 5-grams of documents that are duplicates",
               {.above = 0, .most = 1})
          .Add("keep", &DedupOptions::keep, "the one of a group that stays",
               {.choices = {"first", "longest"}})
          .Add("pairs", &DedupOptions::pairs,
               "lists the pairs that are alike: a line of id, id and similarity for each",
               {.type = "FILE", .unset = "none"})
          .Add("permutations", &DedupOptions::permutations,
               "numbers of a MinHash signature, a multiple of 64", {.least = 64, .most = 4096})
          .Add("rows", &DedupOptions::rows,
               "numbers of a band; documents are compared where one of the permutations / rows "
               "bands is the same",
               {.least = 1, .unset = "the most with which 1 of 200 pairs is missed"})
          .Add("reference", &DedupOptions::reference,
               "files that the documents must not be like, such as test sets",
               {.type = "FILE", .unset = "none"})
          .Add(
              "fingerprints", &DedupOptions::fingerprints,
              "a folder of fingerprints: documents like one of them go, those that stay are added; "
              "it is made where there is none",
              {.unset = "none"}));
  return *table;
}

StatusOr<Counts> RunDedup(const DedupOptions& options, const RunContext& context) {
  if (options.permutations % kPermutationBlock != 0) {
    return InvalidArgument("dedup: permutations must be a multiple of ", kPermutationBlock,
                           ", not ", options.permutations);
  }
  if (options.rows && *options.rows > options.permutations) {
    return InvalidArgument("dedup: rows are more than permutations");
  }
  if (options.by == "near") return DropNearDuplicates(options, context);
  const DedupOptions defaults;
  for (const auto& [name, given] : {std::pair{"pairs", !options.pairs.empty()},
                                    {"reference", !options.reference.empty()},
                                    {"fingerprints", !options.fingerprints.empty()},
                                    {"threshold", options.threshold != defaults.threshold},
                                    {"permutations", options.permutations != defaults.permutations},
                                    {"rows", options.rows.has_value()},
                                    {"keep longest", options.keep == "longest"}}) {
    if (given) return InvalidArgument("dedup: ", name, " goes with by near alone");
  }
  return DropExactDuplicates(options, context);
}

}  // namespace tessera::corpus
