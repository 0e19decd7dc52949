// SPDX-License-Identifier: Apache-2.0
#include "models/hub/torch_file/state_dict.h"

#include <algorithm>
#include <optional>

#include "base/printable_text.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using Kind = PickleNode::Kind;

constexpr int kDeepest = 16;
constexpr int kMostDictItems = 1 << 20;

// A name, or the number of an optimizer's parameter.
std::optional<std::string> KeyText(const PickleNode& key) {
  if (key.kind == Kind::kText) return PrintableText(key.text);
  if (key.kind == Kind::kInt) return std::to_string(key.integer);
  return std::nullopt;
}

bool HasTensors(const Pickle& pickle, const PickleNode& dict) {
  for (size_t i = 1; i < dict.items.size(); i += 2) {
    if (pickle.at(dict.items[i]).kind == Kind::kTensor) return true;
  }
  return false;
}

const PickleNode& FindStateDict(const Pickle& pickle) {
  const PickleNode* dict = &pickle.root();
  for (int depth = 0; depth < kDeepest; ++depth) {
    const PickleNode* below = nullptr;
    for (const char* key : {"state_dict", "model_state_dict", "module", "model"}) {
      const PickleNode* found = pickle.Find(*dict, key);
      if (below == nullptr && found != nullptr && found->kind == Kind::kDict) below = found;
    }
    // A training may have a tensor beside its weights: the last loss.
    if (below == nullptr || (HasTensors(pickle, *dict) && !HasTensors(pickle, *below))) break;
    dict = below;
  }
  return *dict;
}

class Lister {
 public:
  explicit Lister(const Pickle& pickle) : pickle_(pickle) {}

  // False: too deep, or too much.
  bool Add(const PickleNode& dict, const std::string& prefix, int depth) {
    if (depth > kDeepest) return false;
    for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      if (++items_ > kMostDictItems) return false;
      const std::optional<std::string> key = KeyText(pickle_.at(dict.items[i]));
      const PickleNode& value = pickle_.at(dict.items[i + 1]);
      if (!key) continue;
      if (value.kind == Kind::kTensor) tensors_.push_back({prefix + *key, dict.items[i + 1]});
      if (value.kind == Kind::kDict && !Add(value, prefix + *key + ".", depth + 1)) return false;
    }
    return true;
  }
  std::vector<NamedTensor> take() { return std::move(tensors_); }

 private:
  const Pickle& pickle_;
  int items_ = 0;
  std::vector<NamedTensor> tensors_;
};

class ScalarReader {
 public:
  explicit ScalarReader(const Pickle& pickle) : pickle_(pickle) {}

  nlohmann::json Read(const PickleNode& node, int depth) {
    if (++items_ > kMostDictItems || depth > kDeepest) return nullptr;
    switch (node.kind) {
      case Kind::kBool:
        return node.integer != 0;
      case Kind::kInt:
        return node.integer;
      case Kind::kFloat:
        return node.real;
      case Kind::kText:
        return PrintableText(node.text);
      case Kind::kDict:
        return ReadDict(node, depth);
      case Kind::kObject:
        // A state follows the class and its arguments: argparse's is a dictionary.
        return ReadDict(pickle_.at(node.items.back()), depth);
      default:
        return nullptr;
    }
  }

 private:
  nlohmann::json ReadDict(const PickleNode& dict, int depth) {
    nlohmann::json values = nlohmann::json::object();
    if (dict.kind != Kind::kDict) return values;
    for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      const std::optional<std::string> key = KeyText(pickle_.at(dict.items[i]));
      if (!key) continue;
      nlohmann::json value = Read(pickle_.at(dict.items[i + 1]), depth + 1);
      if (!value.is_null()) values[*key] = std::move(value);
    }
    return values;
  }

  const Pickle& pickle_;
  int items_ = 0;
};

}  // namespace

StatusOr<std::vector<NamedTensor>> TensorsOfStateDict(const Pickle& pickle,
                                                      const std::string& where) {
  const PickleNode& dict = FindStateDict(pickle);
  Lister lister(pickle);
  if (dict.kind == Kind::kDict && !lister.Add(dict, "", 0)) {
    return InvalidArgument(where, ": its dictionaries are too deep, or too many, for a checkpoint");
  }
  std::vector<NamedTensor> tensors = lister.take();
  if (tensors.empty()) return InvalidArgument(where, ": holds no dictionary of tensors");
  const auto unwrap = [&](std::string_view wrapper) {
    const bool wrapped = std::all_of(tensors.begin(), tensors.end(), [&](const NamedTensor& t) {
      return t.name.size() > wrapper.size() && t.name.starts_with(wrapper);
    });
    if (!wrapped) return;
    for (NamedTensor& t : tensors) t.name.erase(0, wrapper.size());
  };
  // A LightningModule has its network as a member, most often of this name.
  if (pickle.Find(pickle.root(), "pytorch-lightning_version") != nullptr) unwrap("model.");
  unwrap("module.");
  return tensors;
}

nlohmann::json ScalarsOf(const Pickle& pickle) {
  return ScalarReader(pickle).Read(pickle.root(), 0);
}

}  // namespace tessera::models
