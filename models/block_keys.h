// SPDX-License-Identifier: Apache-2.0
// What a block of a model takes of the bundle that reaches it and what it gives on, by declaration.
//
//   BlockKeys Bigram::keys_of_block(int block) const {
//     if (block == 0) return {.takes = {keys::kInputIds}, .gives = {keys::kHidden}};
//     return {.takes = {keys::kHidden}, .may_take = {keys::kTargets}, .gives = {keys::kLoss}};
//   }
//
// What no block drops is passed along. A model, and the chunks of a pipeline, are checked when they
// are built: a block that takes what no block before it gives is refused by name.
#ifndef TESSERA_MODELS_BLOCK_KEYS_H_
#define TESSERA_MODELS_BLOCK_KEYS_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/bundle.h"

namespace tessera::models {

// Names of keys, each once, in order.
class KeyNames {
 public:
  KeyNames() = default;
  KeyNames(std::initializer_list<TensorKey> keys);
  explicit KeyNames(const std::vector<TensorKey>& keys);
  explicit KeyNames(const std::vector<std::string>& names);

  bool has(std::string_view name) const;
  void Add(const std::string& name);
  void Add(const TensorKey& key) { Add(std::string(key.name())); }
  void Remove(std::string_view name);
  bool empty() const { return names_.empty(); }
  const std::vector<std::string>& names() const { return names_; }
  // "input_ids, labels".
  std::string Text() const;

 private:
  std::vector<std::string> names_;
};

struct BlockKeys {
  KeyNames takes = {};     // must be there
  KeyNames may_take = {};  // means something where it is there
  KeyNames gives = {};
  KeyNames drops = {};  // is not passed along
};

// Blocks one after the other as one.
BlockKeys InSequence(const std::vector<BlockKeys>& blocks);

// InvalidArgument, which names the part ("block 3") and the key, where a part but the first takes
// what neither the inputs of the first nor the parts before it give. Returns all that the parts
// take from outside.
StatusOr<KeyNames> InputsOf(const std::vector<BlockKeys>& parts, const char* part);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_BLOCK_KEYS_H_
