// SPDX-License-Identifier: Apache-2.0
// The records of the tape. Operations and users need autograd/autograd.h only.
#ifndef TESSERA_AUTOGRAD_ENGINE_H_
#define TESSERA_AUTOGRAD_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autograd.h"

namespace tessera {

class Node;

// Hooks in order of addition. While they are visited, they may be added and removed.
class HookSetBase {
 public:
  virtual ~HookSetBase() = default;
  virtual void Remove(int id) = 0;
};

// The hooks of one kind on one tensor.
template <typename Hook>
class HookSet final : public HookSetBase {
 public:
  int Add(Hook hook) {
    hooks_[next_id_] = std::make_shared<const Hook>(std::move(hook));
    return next_id_++;
  }
  void Remove(int id) override { hooks_.erase(id); }
  bool empty() const { return hooks_.empty(); }
  template <typename Visitor>
  void Visit(const Visitor& visitor) const {
    for (auto it = hooks_.begin(); it != hooks_.end();) {
      const int id = it->first;
      const std::shared_ptr<const Hook> hook = it->second;
      visitor(*hook);
      it = hooks_.upper_bound(id);
    }
  }

 private:
  std::map<int, std::shared_ptr<const Hook>> hooks_;
  int next_id_ = 0;
};

// nullptr where no hook was ever added.
template <typename Hook>
using Hooks = std::shared_ptr<HookSet<Hook>>;

// Adds to a set that is made by the first hook.
template <typename Hook>
HookHandle AddHook(Hooks<Hook>* hooks, Hook hook) {
  if (*hooks == nullptr) *hooks = std::make_shared<HookSet<Hook>>();
  return HookHandle(*hooks, (*hooks)->Add(std::move(hook)));
}

// Whether there is a hook to call.
template <typename Hook>
bool Hooked(const Hooks<Hook>& hooks) {
  return hooks != nullptr && !hooks->empty();
}

// What a tensor that takes part carries: its producer, or, for a leaf, its gradient.
class GradRecord final : public AutogradRecord, public std::enable_shared_from_this<GradRecord> {
 public:
  // The producing node and which of its outputs this is; nullptr for a leaf.
  std::shared_ptr<Node> node;
  int output = 0;
  std::shared_ptr<GradRecord> following;  // ~Node's list of those to be destroyed

  // Leaves only. The leaf itself is kept without its record, as what hooks are given.
  Tensor leaf;
  Tensor grad;
  std::function<Tensor()> buffer;  // where the gradient is to lie, asked once it comes
  DType grad_dtype = DType::kFloat32;
  Hooks<TensorHook> grad_hooks;
  Hooks<CompleteHook> complete_hooks;
};

// What made a node: the operation, and the path of the module whose Forward called it.
struct Origin {
  const char* name = "";
  std::shared_ptr<const std::string> module_path;  // nullptr: none did
};

// "'mul' in transformer.h.0.attn".
TextBuilder& operator<<(TextBuilder& text, const Origin& origin);

// What an operation left on the tape: how gradients go from its outputs to its inputs.
class Node {
 public:
  ~Node();

  Origin origin;
  uint64_t sequence = 0;                            // order of creation, over all threads
  std::vector<std::shared_ptr<GradRecord>> inputs;  // nullptr: does not take part
  std::vector<Hooks<TensorHook>> output_hooks;
  // Shape and dtype of each output, to check gradients against.
  std::vector<std::pair<Shape, DType>> outputs;
  GradFn start;  // may be empty: called once before `backward`, early where that helps
  GradFn backward;
  std::vector<int> weight_inputs;
  std::shared_ptr<GradFn> weight_backward;  // shared with a queue that outlives the node's run
  bool spent = false;
};

// Throws Error for a buffer that gradients of the leaf cannot lie in.
void CheckBuffer(const GradRecord& record, const Tensor& buffer);

// What a tensor carries; nullptr where it takes no part.
inline GradRecord* RecordOf(const Tensor& t) {
  return t.defined() ? static_cast<GradRecord*>(t.record().get()) : nullptr;
}

}  // namespace tessera

#endif  // TESSERA_AUTOGRAD_ENGINE_H_
