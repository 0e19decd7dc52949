// SPDX-License-Identifier: Apache-2.0
#include "models/hub/match_entries.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "models/family.h"
#include "models/hub/quantized_entries.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

constexpr int kNamesShown = 3;

// The names that files may have a parameter under, its own first.
std::vector<std::string> NamesOf(const Family& family, const nn::Parameter& parameter,
                                 const WeightFiles& weights) {
  std::vector<std::string> names = {parameter.name};
  if (family.other_names != nullptr) {
    for (std::string& name : family.other_names(parameter.name)) names.push_back(std::move(name));
  }
  const size_t plain = weights.wrapper().empty() ? 0 : names.size();
  for (size_t i = 0; i < plain; ++i) names.push_back(weights.wrapper() + names[i]);
  return names;
}

// Entries under them that the files have, dense or quantised.
std::vector<std::string> Present(const std::vector<std::string>& names,
                                 const WeightFiles& weights) {
  std::vector<std::string> entries;
  for (const std::string& name : names) {
    if (weights.Find(name) != nullptr) entries.push_back(name);
    for (const QuantType type : kQuantTypes) {
      std::string entry = QuantizedEntryName(name, type);
      if (weights.Find(entry) != nullptr) entries.push_back(std::move(entry));
    }
  }
  return entries;
}

bool IsWhole(const Model& model) {
  return model.block_range() == std::pair<int, int>(0, model.num_blocks());
}

bool IsHead(const Family& family, const std::string& name) {
  return family.is_head != nullptr && family.is_head(name);
}

// What an entry's shape must be: the parameter's, or, where it is quantised, that of its bytes.
StatusOr<Shape> ExpectedShape(const EntryMatch& match, const WeightFiles& weights,
                              const std::map<std::string, LinearLayout>& layouts) {
  const Shape& dense = match.parameter->placement.global_shape();
  const std::optional<QuantType> type = QuantTypeOfEntry(match.entry);
  if (!type) return dense;
  const auto layout = layouts.find(match.parameter->name);
  if (layout != layouts.end()) {
    const int in = layout->second == LinearLayout::kOutIn ? 1 : 0;
    if (CanQuantize(*type, dense[in])) return Shape{dense[1 - in], QuantRowBytes(*type, dense[in])};
  }
  return InvalidArgument(weights.PathOf(match.entry), ": tensor '", match.entry,
                         "': a weight of shape ", dense, " cannot be ", QuantTypeName(*type),
                         " there");
}

// The words that the files have rows for, and those of a model that was asked to have more than
// their config.json says. Rows of dense tables are then added as they are read.
struct Vocabulary {
  int64_t in_files;
  int64_t wanted;
};

std::optional<Vocabulary> GrownVocabulary(const Model& model, const WeightFiles& weights) {
  const auto config = ReadJsonFile(JoinPath(weights.folder(), "config.json"));
  if (!config.ok() || !config->is_object()) return std::nullopt;
  const auto words = config->find("vocab_size");
  if (words == config->end() || !words->is_number_integer()) return std::nullopt;
  const auto in_files = words->get<int64_t>();
  if (in_files < 1 || in_files >= model.vocab_size()) return std::nullopt;
  return Vocabulary{in_files, model.vocab_size()};
}

bool Fits(const EntryMatch& match, const WeightFiles& weights, const Shape& expected,
          const std::optional<Vocabulary>& grown) {
  std::vector<int64_t> shape(expected.begin(), expected.end());
  if (weights.Find(match.entry)->shape == shape) return true;
  if (!grown || shape.empty() || shape[0] != grown->wanted) return false;
  shape[0] = grown->in_files;
  return !QuantTypeOfEntry(match.entry) && weights.Find(match.entry)->shape == shape;
}

Status CheckMatch(const EntryMatch& match, const WeightFiles& weights, const Shape& expected,
                  const std::optional<Vocabulary>& grown) {
  const WeightEntry& entry = *weights.Find(match.entry);
  if (!Fits(match, weights, expected, grown)) {
    std::string found;
    for (int64_t size : entry.shape) found += Concat(found.empty() ? "" : ", ", size);
    return InvalidArgument(weights.PathOf(match.entry), ": tensor '", match.entry, "' has shape [",
                           found, "]; the configuration asks for ", expected);
  }
  const std::optional<DType> dtype = ParseSafetensorsDType(entry.dtype);
  const bool quantised = QuantTypeOfEntry(match.entry).has_value();
  if (!dtype || (quantised ? *dtype != DType::kUInt8 : !IsFloating(*dtype))) {
    return InvalidArgument(weights.PathOf(match.entry), ": tensor '", match.entry,
                           "' has elements of type ", entry.dtype, "; weights must be ",
                           quantised ? "U8" : "F16, BF16, F32 or F64");
  }
  return OkStatus();
}

using Ties = std::map<const nn::Parameter*, std::vector<nn::Parameter*>>;

// By what they are tied to.
Ties TiesOf(const std::vector<nn::Parameter*>& parameters) {
  Ties ties;
  for (nn::Parameter* parameter : parameters) {
    if (parameter->tied_to != nullptr) ties[parameter->tied_to].push_back(parameter);
  }
  return ties;
}

// The entry of a parameter among those present under its names; the others must equal it.
StatusOr<std::string> ChooseEntry(const Family& family, const std::vector<std::string>& present,
                                  const WeightFiles& weights) {
  if (family.overrides != nullptr) {
    const auto found = std::ranges::find_if(present, [&](const std::string& entry) {
      return family.overrides(
          entry.substr(entry.starts_with(weights.wrapper()) ? weights.wrapper().size() : 0));
    });
    if (found != present.end()) return *found;
  }
  for (size_t i = 1; i < present.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(const bool same, weights.SameValues(present[0], present[i]));
    if (same) continue;
    return InvalidArgument(weights.PathOf(present[i]), ": tensors '", present[0], "' and '",
                           present[i], "' differ, and the model has one parameter for both");
  }
  return present[0];
}

// Whether an entry could be a weight: counters, masks and positions (integers), and tensors without
// elements are what other programs save beside them.
bool MayBeWeight(const WeightEntry& entry, const std::string& name) {
  if (QuantTypeOfEntry(name)) return true;
  if (std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end()) return false;
  return !entry.dtype.starts_with('I') && !entry.dtype.starts_with('U') && entry.dtype != "BOOL";
}

// Of tensors that are unknown or missing: `path`: `problem`, or, where config.json says why, that.
Status Misfit(const Model& model, const Family& family, const WeightFiles& weights,
              const std::string& path, const std::string& problem) {
  const auto names = model.config().find("architectures");
  const bool named = names != model.config().end() && names->is_array() && !names->empty();
  const std::string first = named && (*names)[0].is_string() ? (*names)[0] : "";
  if (!named && family.architectures.size() > 1) {
    return InvalidArgument(path, ": ", problem,
                           "; the configuration has no 'architectures', so it is ", "taken for ",
                           family.architectures[0].name);
  }
  if (!named || first.ends_with("Model") || family.ArchitectureOf(model.config()) != nullptr) {
    return InvalidArgument(path, ": ", problem);
  }
  std::string known;
  for (const Architecture& one : family.architectures)
    known += (known.empty() ? "" : ", ") + one.name;
  return InvalidArgument(JoinPath(weights.folder(), "config.json"),
                         ": 'architectures': ", (*names)[0].dump(), " is not supported; known are ",
                         known, " (", path, ": ", problem, ")");
}

Status CheckNothingIsLeft(const Model& model, const Family& family, const WeightFiles& weights,
                          const std::set<std::string>& known) {
  // A pipeline stage leaves the other stages' tensors alone.
  if (!IsWhole(model)) return OkStatus();
  std::vector<std::string> unknown;
  for (std::string& name : weights.Names()) {
    if (known.count(std::string(ParameterOfEntry(name))) != 0) continue;
    const std::string plain = name.substr(weights.wrapper().size());
    if (family.ignored_entry != nullptr && family.ignored_entry(plain)) continue;
    if (IsHead(family, std::string(ParameterOfEntry(plain)))) continue;
    if (!MayBeWeight(*weights.Find(name), name)) continue;
    unknown.push_back(std::move(name));
  }
  if (unknown.empty()) return OkStatus();
  return Misfit(
      model, family, weights, weights.PathOf(unknown[0]),
      Concat("unknown ", unknown.size() == 1 ? "tensor " : "tensors ", QuotedNames(unknown)));
}

}  // namespace

std::string QuotedNames(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kNamesShown; ++i) {
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  }
  if (names.size() > kNamesShown) text += Concat(" and ", names.size() - kNamesShown, " more");
  return text;
}

StatusOr<std::vector<EntryMatch>> MatchEntries(Model& model, const WeightFiles& weights,
                                               std::vector<nn::Parameter*>* fresh) {
  const Family& family = **FamilyOf(model.config());
  const std::vector<nn::Parameter*> parameters = model.Parameters();
  Ties ties = TiesOf(parameters);
  const std::map<std::string, LinearLayout> layouts = nn::QuantizableWeights(model);
  std::vector<EntryMatch> matches;
  std::vector<std::string> missing;
  std::set<std::string> known;
  const std::optional<Vocabulary> grown = GrownVocabulary(model, weights);
  for (nn::Parameter* parameter : parameters) {
    std::vector<std::string> names = NamesOf(family, *parameter, weights);
    known.insert(names.begin(), names.end());
    if (parameter->tied_to != nullptr) continue;
    for (const nn::Parameter* other : ties[parameter]) {
      for (std::string& name : NamesOf(family, *other, weights)) names.push_back(std::move(name));
    }
    const std::vector<std::string> present = Present(names, weights);
    const bool replaceable = fresh != nullptr && IsHead(family, parameter->name);
    if (present.empty()) {
      if (replaceable) {
        fresh->push_back(parameter);
      } else {
        missing.push_back(parameter->name);
      }
      continue;
    }
    TESSERA_ASSIGN_OR_RETURN(const std::string entry, ChooseEntry(family, present, weights));
    const EntryMatch match = {parameter, entry};
    TESSERA_ASSIGN_OR_RETURN(const Shape expected, ExpectedShape(match, weights, layouts));
    if (replaceable && !Fits(match, weights, expected, grown)) {
      fresh->push_back(parameter);
    } else {
      matches.push_back(match);
    }
  }
  TESSERA_RETURN_IF_ERROR(CheckNothingIsLeft(model, family, weights, known));
  if (!missing.empty()) {
    return Misfit(model, family, weights, weights.folder(),
                  Concat(missing.size(), missing.size() == 1 ? " tensor is" : " tensors are",
                         " missing: ", QuotedNames(missing)));
  }
  for (const EntryMatch& match : matches) {
    TESSERA_ASSIGN_OR_RETURN(const Shape expected, ExpectedShape(match, weights, layouts));
    TESSERA_RETURN_IF_ERROR(CheckMatch(match, weights, expected, grown));
  }
  return matches;
}

StatusOr<Pairs> PairsInFiles(Model& model, const WeightFiles& weights) {
  const Family& family = **FamilyOf(model.config());
  Pairs pairs = Pairs::kOne;
  for (const auto& [source, tied] : TiesOf(model.Parameters())) {
    const std::vector<std::string> names = NamesOf(family, *source, weights);
    const std::vector<std::string> sources = Present(names, weights);
    if (sources.empty()) continue;
    for (const nn::Parameter* parameter : tied) {
      for (const std::string& name : Present(NamesOf(family, *parameter, weights), weights)) {
        // Another name of the source is no use of its own.
        if (std::find(names.begin(), names.end(), ParameterOfEntry(name)) != names.end()) continue;
        TESSERA_ASSIGN_OR_RETURN(const bool same, weights.SameValues(sources[0], name));
        if (!same) return Pairs::kDiffer;
        pairs = Pairs::kEqual;
      }
    }
  }
  return pairs;
}

}  // namespace tessera::models
