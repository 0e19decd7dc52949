// SPDX-License-Identifier: Apache-2.0
#include "models/block_keys.h"

#include <algorithm>

namespace tessera::models {

KeyNames::KeyNames(std::initializer_list<TensorKey> keys) {
  for (const TensorKey& key : keys) Add(key);
}

KeyNames::KeyNames(const std::vector<TensorKey>& keys) {
  for (const TensorKey& key : keys) Add(key);
}

KeyNames::KeyNames(const std::vector<std::string>& names) {
  for (const std::string& name : names) Add(name);
}

bool KeyNames::has(std::string_view name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

void KeyNames::Add(const std::string& name) {
  if (!has(name)) names_.push_back(name);
}

void KeyNames::Remove(std::string_view name) { std::erase(names_, name); }

std::string KeyNames::Text() const {
  std::string text;
  for (const std::string& name : names_) text += (text.empty() ? "" : ", ") + name;
  return text;
}

BlockKeys InSequence(const std::vector<BlockKeys>& blocks) {
  BlockKeys all;
  for (const BlockKeys& block : blocks) {
    for (const std::string& name : block.takes.names()) {
      if (!all.gives.has(name)) all.takes.Add(name);
    }
    for (const std::string& name : block.may_take.names()) {
      if (!all.gives.has(name) && !IsLocalName(name)) all.may_take.Add(name);
    }
    for (const std::string& name : block.drops.names()) {
      all.gives.Remove(name);
      all.drops.Add(name);
    }
    for (const std::string& name : block.gives.names()) {
      all.gives.Add(name);
      all.drops.Remove(name);
    }
  }
  return all;
}

StatusOr<KeyNames> InputsOf(const std::vector<BlockKeys>& parts, const char* part) {
  KeyNames inputs;
  KeyNames there;  // inputs and what was given, less what was dropped
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const std::string& name : parts[i].takes.names()) {
      if (there.has(name)) continue;
      if (i > 0) {
        return InvalidArgument(part, " ", i, " takes '", name, "', which no ", part,
                               " before it gives; there are: ", there.Text());
      }
      inputs.Add(name);
      there.Add(name);
    }
    for (const std::string& name : parts[i].may_take.names()) {
      if (!there.has(name) && !IsLocalName(name)) inputs.Add(name);
    }
    for (const std::string& name : parts[i].drops.names()) there.Remove(name);
    for (const std::string& name : parts[i].gives.names()) there.Add(name);
  }
  return inputs;
}

}  // namespace tessera::models
