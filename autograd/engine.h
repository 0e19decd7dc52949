// The records of the tape. Operations and users need autograd/autograd.h only.
#ifndef TESSERA_AUTOGRAD_ENGINE_H_
#define TESSERA_AUTOGRAD_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/autograd.h"

namespace tessera {

class Node;

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
  std::vector<TensorHook> leaf_hooks;
  std::map<int, CompleteHook> complete_hooks;
  int next_hook_id = 0;
};

class Node {
 public:
  ~Node();

  const char* name = "";
  uint64_t sequence = 0;                            // order of creation, over all threads
  std::vector<std::shared_ptr<GradRecord>> inputs;  // nullptr: does not take part
  std::vector<std::vector<TensorHook>> output_hooks;
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

inline GradRecord* RecordOf(const Tensor& t) {
  return t.defined() ? static_cast<GradRecord*>(t.record().get()) : nullptr;
}

}  // namespace tessera

#endif  // TESSERA_AUTOGRAD_ENGINE_H_
