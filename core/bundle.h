// SPDX-License-Identifier: Apache-2.0
// Tensors by name, and the keys that name them: what datasets make, models take and pipelines send.
//
//   inline constexpr TensorKey kDepth{"depth", KeyElements::kFloating, "[B, H, W]", "in metres"};
//   Bundle in = {{keys::kInputIds, ids}, {kDepth, depth}};
//   const Tensor& x = in.at(keys::kInputIds);
//
// A key is declared once, and a misspelt one does not compile. Keys that several floors know stand
// in core/batch_keys.h, those of models in models/model_keys.h, a family's own in its folder.
// Names that come from outside (a file, a message) go through the functions that say `Named`.
#ifndef TESSERA_CORE_BUNDLE_H_
#define TESSERA_CORE_BUNDLE_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/tensor.h"

namespace tessera {

enum class KeyElements { kInt64, kInt32, kFloating, kAny };

class TensorKey {
 public:
  constexpr TensorKey(const char* name, KeyElements elements, const char* shape,
                      const char* meaning)
      : name_(name), elements_(elements), shape_(shape), meaning_(meaning) {}

  constexpr std::string_view name() const { return name_; }
  constexpr KeyElements elements() const { return elements_; }
  constexpr std::string_view shape() const { return shape_; }      // "[B, T]"
  constexpr std::string_view meaning() const { return meaning_; }  // in words
  // Whether tensors of this dtype may be under the key.
  bool Holds(DType dtype) const;

 private:
  const char* name_;
  KeyElements elements_;
  const char* shape_;
  const char* meaning_;
};

// A name that begins with `local.` is a pipeline stage's own: what it computed for several of its
// blocks, and the next stage computes again instead of receiving it.
bool IsLocalName(std::string_view name);

// In order of insertion. Tensors may be undefined.
class Bundle {
 public:
  using Entry = std::pair<std::string, Tensor>;

  Bundle() = default;
  // Throws Error as `set` does.
  Bundle(std::initializer_list<std::pair<TensorKey, Tensor>> entries);

  bool has(const TensorKey& key) const { return FindNamed(key.name()) != nullptr; }
  // Throws Error when there is none under that key, and says what there is.
  const Tensor& at(const TensorKey& key) const;
  // Undefined when there is none.
  Tensor get(const TensorKey& key) const;
  // Throws Error for elements that the key does not hold.
  void set(const TensorKey& key, Tensor t);
  void erase(const TensorKey& key);
  const std::vector<Entry>& entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }

  const Tensor* FindNamed(std::string_view name) const;
  void SetNamed(std::string_view name, Tensor t);

 private:
  std::vector<Entry> entries_;
};

// The tensors on a device: themselves where they are there.
Bundle OnDevice(const Bundle& bundle, const Device& device);

}  // namespace tessera

#endif  // TESSERA_CORE_BUNDLE_H_
