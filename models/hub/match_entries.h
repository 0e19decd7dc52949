// SPDX-License-Identifier: Apache-2.0
// Which entries of a folder's files belong to which parameters of a model.
//
//   TESSERA_ASSIGN_OR_RETURN(const std::vector<EntryMatch> matches,
//                            MatchEntries(*model, weights, nullptr));
//
// An entry is found under the parameter's own name, under what else its family knows it by, or,
// for one that others are tied to, under the names of those; each also behind WeightFiles::wrapper.
// Where several of these are in the files they must be equal.
#ifndef TESSERA_MODELS_HUB_MATCH_ENTRIES_H_
#define TESSERA_MODELS_HUB_MATCH_ENTRIES_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "models/hub/weight_files.h"
#include "models/model.h"
#include "nn/module.h"

namespace tessera::models {

// "'a', 'b', 'c' and 4 more".
std::string QuotedNames(const std::vector<std::string>& names);

struct EntryMatch {
  nn::Parameter* parameter = nullptr;
  std::string entry;
};

// An entry for every parameter that is not tied, of its shape and floating, and none left over but
// integers and tensors without elements, which are no weights.
// With `fresh`, parameters of a head without an entry of the right shape go there. InvalidArgument
// names what is missing, unknown, of another shape or type, and two entries for one parameter that
// differ, unless the family says which of them counts (Family::overrides). Of files whose
// config.json names a class that the family does not have, it names that.
StatusOr<std::vector<EntryMatch>> MatchEntries(Model& model, const WeightFiles& weights,
                                               std::vector<nn::Parameter*>* fresh);

// What the files say of the parameters that the model ties.
enum class Pairs {
  kOne,     // they have no more than one of each pair
  kEqual,   // they have both of a pair, and they are equal
  kDiffer,  // they are of a model that does not tie them
};
StatusOr<Pairs> PairsInFiles(Model& model, const WeightFiles& weights);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_MATCH_ENTRIES_H_
