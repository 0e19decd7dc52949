// SPDX-License-Identifier: Apache-2.0
// Leaves, modes, recording and hooks: everything that does not run the tape.
#include <utility>

#include "autograd/engine.h"
#include "autograd/tape_watcher.h"
#include "core/raw_kernels.h"

namespace tessera {
namespace {

std::atomic<uint64_t> next_sequence{1};

// For core/tensor.h, whose functions write.
[[maybe_unused]] const bool told_core = [] {
  is_result_of_tape = [](const AutogradRecord& record) {
    return static_cast<const GradRecord&>(record).node != nullptr;
  };
  return true;
}();

GradRecord& LeafRecord(const Tensor& t, const char* operation) {
  GradRecord* record = RecordOf(t);
  TESSERA_CHECK(record != nullptr && record->node == nullptr, operation, t,
                " is not a leaf that requires a gradient");
  return *record;
}

}  // namespace

// Long chains are taken apart with a list, since nested destructors would exhaust the stack. The
// records are its links: a destructor may not ask for memory.
Node::~Node() {
  static constinit thread_local std::shared_ptr<GradRecord>* list = nullptr;
  std::shared_ptr<GradRecord> own_list;
  const bool outermost = list == nullptr;
  if (outermost) list = &own_list;
  // Functions hold tensors, and these the records of inputs.
  start = nullptr;
  backward = nullptr;
  weight_backward = nullptr;
  for (auto& input : inputs) {
    if (input.use_count() == 1 && input->node != nullptr) {
      input->following = std::move(*list);
      *list = std::move(input);
    }
    input = nullptr;  // others hold it too: it goes with the last of them
  }
  if (!outermost) return;
  while (own_list != nullptr) {
    const std::shared_ptr<GradRecord> record = std::move(own_list);
    own_list = std::move(record->following);
  }
  list = nullptr;
}

Tensor RequireGrad(const Tensor& t) {
  return RequireGrad(t, IsHalf(t.dtype()) ? DType::kFloat32 : t.dtype());
}

Tensor RequireGrad(const Tensor& t, DType grad_dtype) {
  TESSERA_CHECK(IsFloating(t.dtype()), "require_grad", t, " has no gradient: not a floating dtype");
  TESSERA_CHECK(!t.storage()->read_only(), "require_grad", t,
                " cannot be trained: its bytes are only read (a mapped file, or a const pointer)");
  TESSERA_CHECK(t.record() == nullptr || RecordOf(t)->node == nullptr, "require_grad", t,
                " is the result of an operation; detach it first");
  if (t.record() == nullptr) {
    auto record = std::make_shared<GradRecord>();
    record->leaf = t.Detach();
    t.set_record(std::move(record));
  }
  RecordOf(t)->grad_dtype = grad_dtype;
  return t;
}

void DropGrad(const Tensor& leaf) {
  TESSERA_CHECK(leaf.record() == nullptr || RecordOf(leaf)->node == nullptr, "drop_grad", leaf,
                " is the result of an operation");
  leaf.set_record(nullptr);
}

bool RequiresGrad(const Tensor& t) { return RecordOf(t) != nullptr; }

bool IsLeaf(const Tensor& t) {
  const GradRecord* record = RecordOf(t);
  return record != nullptr && record->node == nullptr;
}

Tensor Grad(const Tensor& leaf) { return LeafRecord(leaf, "grad").grad; }

void SetGrad(const Tensor& leaf, const Tensor& grad) {
  GradRecord& record = LeafRecord(leaf, "set_grad");
  TESSERA_CHECK(!grad.defined() || grad.shape() == leaf.shape(), "set_grad", "gradient ", grad,
                " for ", leaf);
  record.grad = grad;
  record.buffer = nullptr;
}

void CheckBuffer(const GradRecord& record, const Tensor& buffer) {
  TESSERA_CHECK(buffer.shape() == record.leaf.shape() && buffer.dtype() == record.grad_dtype,
                "set_grad_buffer", "buffer ", buffer, " for ", record.leaf, " with gradients in ",
                record.grad_dtype);
}

void SetGradBuffer(const Tensor& leaf, const Tensor& buffer) {
  CheckBuffer(LeafRecord(leaf, "set_grad_buffer"), buffer);
  SetGradBuffer(leaf, [buffer] { return buffer; });
}

void SetGradBuffer(const Tensor& leaf, std::function<Tensor()> buffer) {
  GradRecord& record = LeafRecord(leaf, "set_grad_buffer");
  record.grad = Tensor();
  record.buffer = std::move(buffer);
}

DType GradDType(const Tensor& leaf) { return LeafRecord(leaf, "grad_dtype").grad_dtype; }

namespace {

template <typename Tensors>
bool AnyTakesPart(const Tensors& inputs) {
  if (!GradEnabled()) return false;
  bool any = false;
  for (const Tensor& t : inputs) {
    if (!t.defined()) continue;
    any = any || t.record() != nullptr;
    TESSERA_CHECK(t.severed_by() == nullptr, "tape", t, " was made by ", t.severed_by(),
                  ", off the tape, from a tensor that needs a gradient, which would lose it; use "
                  "Reshape, Slice, Permute, BroadcastTo, Contiguous, Cast or ToDevice, or call "
                  "Detach() where no gradient is wanted");
  }
  return any;
}

}  // namespace

bool AnyRequiresGrad(std::initializer_list<Tensor> inputs) { return AnyTakesPart(inputs); }

bool AnyRequiresGrad(const std::vector<Tensor>& inputs) { return AnyTakesPart(inputs); }

namespace {

std::shared_ptr<Node> NewNode(const char* name, const std::vector<Tensor>& inputs,
                              const std::vector<Tensor>& outputs, GradFn backward) {
  auto node = std::make_shared<Node>();
  node->origin.name = name;
  const auto* const module_path = ExecutionContext::Current().module_path;
  if (module_path != nullptr) node->origin.module_path = *module_path;
  node->sequence = next_sequence.fetch_add(1, std::memory_order_relaxed);
  for (const Tensor& input : inputs) {
    node->inputs.push_back(input.defined() ? std::static_pointer_cast<GradRecord>(input.record())
                                           : nullptr);
  }
  node->backward = std::move(backward);
  node->output_hooks.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    TESSERA_CHECK(outputs[i].record() == nullptr, name, "an output already takes part");
    node->outputs.emplace_back(outputs[i].shape(), outputs[i].dtype());
    if (!IsFloating(outputs[i].dtype())) continue;
    auto record = std::make_shared<GradRecord>();
    record->node = node;
    record->output = static_cast<int>(i);
    outputs[i].set_record(std::move(record));
  }
  if (TapeWatcher* const watcher = TapeWatcher::Current()) {
    watcher->SeeResults(node->origin, inputs, outputs);
  }
  return node;
}

}  // namespace

void Record(const char* name, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
            GradFn backward) {
  NewNode(name, inputs, outputs, std::move(backward));
}

void RecordSplit(const char* name, const std::vector<Tensor>& inputs,
                 const std::vector<Tensor>& outputs, GradFn input_backward,
                 std::vector<int> weight_inputs, GradFn weight_backward) {
  const auto node = NewNode(name, inputs, outputs, std::move(input_backward));
  node->weight_inputs = std::move(weight_inputs);
  node->weight_backward = std::make_shared<GradFn>(std::move(weight_backward));
}

void RecordStarted(const char* name, const std::vector<Tensor>& inputs,
                   const std::vector<Tensor>& outputs, GradFn start, GradFn finish) {
  NewNode(name, inputs, outputs, std::move(finish))->start = std::move(start);
}

void HookHandle::Remove() {
  if (const auto hooks = hooks_.lock()) hooks->Remove(id_);
}

HookHandle AddGradHook(const Tensor& t, TensorHook hook) {
  GradRecord* record = RecordOf(t);
  TESSERA_CHECK(record != nullptr, "add_grad_hook", t, " does not require a gradient");
  const bool leaf = record->node == nullptr;
  return AddHook(leaf ? &record->grad_hooks : &record->node->output_hooks[record->output],
                 std::move(hook));
}

HookHandle AddGradCompleteHook(const Tensor& leaf, CompleteHook hook) {
  return AddHook(&LeafRecord(leaf, "add_grad_complete_hook").complete_hooks, std::move(hook));
}

TextBuilder& operator<<(TextBuilder& text, const Origin& origin) {
  text << "'" << origin.name << "'";
  if (origin.module_path != nullptr) text << " in " << *origin.module_path;
  return text;
}

}  // namespace tessera
