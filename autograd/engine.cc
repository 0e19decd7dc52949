// SPDX-License-Identifier: Apache-2.0
#include "autograd/engine.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "autograd/autocast.h"
#include "autograd/tape_watcher.h"
#include "core/profiler.h"

namespace tessera {

// One backward pass. Lives on while queued weight gradients of the pass are left, since they too
// count towards "this leaf's gradient is complete".
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  explicit Engine(const BackwardOptions& options) : options_(options) {}

  void Run(const std::vector<Tensor>& roots, const std::vector<Tensor>& grads) {
    const NoGrad no_grad;
    const SavedTensorScope no_hooks(nullptr);
    Collect(roots);
    for (size_t i = 0; i < roots.size(); ++i) Seed(roots[i], grads[i]);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const std::shared_ptr<Node>& node = nodes_[i];
      next_ = i + 1 < nodes_.size() ? nodes_[i + 1].get() : nullptr;
      auto found = flowing_.find(node.get());
      if (found == flowing_.end()) {
        // No gradient reached it: its leaves get nothing from it.
        for (const auto& input : node->inputs) Settle(input, Tensor());
        continue;
      }
      std::vector<Tensor> output_grads;
      for (Flow& flow : found->second) output_grads.push_back(std::move(flow.sum));
      flowing_.erase(found);
      RunNode(*node, std::move(output_grads));
    }
  }

  // What has come for a record, where more may be added to it in place; undefined where not.
  Tensor SumOf(const GradRecord& record) {
    if (record.node == nullptr) {
      return AddsAtOnce() && !Hooked(record.grad_hooks) ? record.grad : Tensor();
    }
    const auto found = flowing_.find(record.node.get());
    if (found == flowing_.end()) return Tensor();
    Flow& flow = found->second[record.output];
    flow.owned = flow.owned || (flow.sum.defined() && IsWholeAndExclusive(flow.sum));
    return flow.owned ? flow.sum : Tensor();
  }

 private:
  // The gradient of one output of a node that has not run yet.
  struct Flow {
    Tensor sum;
    bool owned = false;  // made by this pass, so that it may be added into
  };

  // All nodes the roots depend on, latest first, and the number of contributions each leaf awaits.
  void Collect(const std::vector<Tensor>& roots) {
    std::vector<std::shared_ptr<Node>> stack;
    std::unordered_set<Node*> seen;
    const auto visit = [&](const std::shared_ptr<GradRecord>& record) {
      if (record == nullptr) return;
      if (record->node == nullptr) {
        ++awaited_[record.get()];
      } else if (seen.insert(record->node.get()).second) {
        stack.push_back(record->node);
      }
    };
    for (const Tensor& root : roots) {
      visit(std::static_pointer_cast<GradRecord>(root.record()));
    }
    while (!stack.empty()) {
      nodes_.push_back(std::move(stack.back()));
      stack.pop_back();
      const Node& node = *nodes_.back();
      TESSERA_CHECK(!node.spent, "backward", "the graph through ", node.origin,
                    " has been run already; keep it with retain_graph");
      for (const auto& input : node.inputs) visit(input);
    }
    std::sort(nodes_.begin(), nodes_.end(),
              [](const auto& a, const auto& b) { return a->sequence > b->sequence; });
  }

  void Seed(const Tensor& root, const Tensor& grad) {
    const auto record = std::static_pointer_cast<GradRecord>(root.record());
    Tensor seed = grad;
    if (!seed.defined()) {
      TESSERA_CHECK(root.numel() == 1, "backward", "root ", root,
                    " has more than one element and no gradient was given");
      seed = Full(root.shape(), 1.0, root.dtype(), root.device());
    }
    TESSERA_CHECK(seed.shape() == root.shape(), "backward", "gradient ", seed, " for root ", root);
    if (seed.dtype() != root.dtype()) seed = CastCopy(seed, root.dtype());
    Deliver(record, seed);
  }

  void RunNode(Node& node, std::vector<Tensor> grads) {
    for (size_t i = 0; i < grads.size(); ++i) RunHooks(node.output_hooks[i], &grads[i]);
    if (TapeWatcher* const watcher = TapeWatcher::Current())
      watcher->SeeArriving(node.origin, grads);
    const auto shared_grads = std::make_shared<std::vector<Tensor>>(std::move(grads));
    const auto records = std::make_shared<std::vector<std::shared_ptr<GradRecord>>>(node.inputs);
    if (node.start && started_ != &node) CallStart(node, *shared_grads);
    const bool split = node.weight_backward != nullptr;
    const bool queued = split && options_.weight_queue != nullptr && WeightsAreLeaves(node);

    std::vector<bool> is_weight(node.inputs.size(), false);
    for (int i : node.weight_inputs) is_weight[i] = true;
    std::vector<bool> inputs_only = is_weight;
    inputs_only.flip();
    Call(node.backward, *shared_grads, *records, inputs_only, node.origin);
    if (split) {
      auto work = [self = shared_from_this(), fn = node.weight_backward, shared_grads, records,
                   is_weight, origin = node.origin] {
        const NoGrad no_grad;
        const SavedTensorScope no_hooks(nullptr);
        self->Call(*fn, *shared_grads, *records, is_weight, origin);
      };
      if (queued) {
        options_.weight_queue->work_.push_back([self = shared_from_this(), work = std::move(work)] {
          self->in_queue_ = true;
          work();
          self->in_queue_ = false;
        });
      } else {
        StartNext();
        work();
      }
    }
    if (!options_.retain_graph) {
      node.start = nullptr;
      node.backward = nullptr;
      node.weight_backward = nullptr;
      node.spent = true;
    }
  }

  // Begins the communication of the node that runs next: whatever feeds it was created after it and
  // has run, so its gradient is whole. Where a hook may replace that gradient it has to wait.
  void StartNext() {
    if (next_ == nullptr || !next_->start || next_->spent) return;
    for (const auto& hooks : next_->output_hooks) {
      if (Hooked(hooks)) return;
    }
    const auto found = flowing_.find(next_);
    if (found == flowing_.end()) return;
    std::vector<Tensor> grads;
    for (const Flow& flow : found->second) grads.push_back(flow.sum);
    CallStart(*next_, grads);
    started_ = next_;
  }

  static void CallStart(const Node& node, const std::vector<Tensor>& grads) {
    std::vector<bool> needs;
    for (const auto& input : node.inputs) needs.push_back(input != nullptr);
    std::vector<Tensor> none(node.inputs.size());
    std::vector<bool> answered(node.inputs.size());
    GradContext context;
    context.grads_ = &grads;
    context.needs_ = &needs;
    context.results_ = &none;
    context.answered_ = &answered;
    Attributed(node.origin, [&] { node.start(context); });
  }

  static bool WeightsAreLeaves(const Node& node) {
    return std::all_of(node.weight_inputs.begin(), node.weight_inputs.end(), [&](int i) {
      return node.inputs[i] == nullptr || node.inputs[i]->node == nullptr;
    });
  }

  // What goes wrong in a gradient function is told with the operation and module of its node.
  template <typename Body>
  static void Attributed(const Origin& origin, const Body& body) {
    try {
      body();
    } catch (const OutOfMemoryError&) {
      throw;
    } catch (const CancelledError&) {
      throw;
    } catch (const Error& error) {
      throw Error(error.operation(), Concat(error.detail(), " (in the gradient of ", origin, ")"));
    }
  }

  // Runs one gradient function for the inputs in `mine` and passes its results on.
  void Call(const GradFn& fn, const std::vector<Tensor>& grads,
            const std::vector<std::shared_ptr<GradRecord>>& records, const std::vector<bool>& mine,
            const Origin& origin) {
    std::vector<bool> needs(records.size());
    bool any = false;
    for (size_t i = 0; i < records.size(); ++i) {
      needs[i] = mine[i] && records[i] != nullptr;
      any = any || needs[i];
    }
    std::vector<Tensor> results(records.size());
    std::vector<bool> answered(records.size());
    TapeWatcher* const watcher = TapeWatcher::Current();
    if (any) {
      const ProfileSpan span("backward", origin.name);
      const AutocastScope no_autocast(DType::kFloat32);
      GradContext context;
      context.grads_ = &grads;
      context.needs_ = &needs;
      context.results_ = &results;
      context.answered_ = &answered;
      if (watcher == nullptr) {
        context.engine_ = this;
        context.records_ = &records;
      }
      Attributed(origin, [&] { fn(context); });
    }
    for (size_t i = 0; i < records.size(); ++i) {
      if (!needs[i]) continue;
      TESSERA_CHECK(answered[i], "backward", "the gradient of ", origin,
                    " says nothing for its input ", i, " of shape ", ShapeOf(*records[i]),
                    ", which needs one; where there is none, set(", i, ", Tensor()) says so");
      if (!results[i].defined()) {
        Settle(records[i], Tensor());
        continue;
      }
      CheckGrad(*records[i], results[i], origin);
      if (watcher != nullptr) watcher->SeeGradient(origin, i, results[i], grads);
      Tensor grad = std::move(results[i]);
      Deliver(records[i], std::move(grad));
    }
  }

  static const Shape& ShapeOf(const GradRecord& record) {
    return record.node == nullptr ? record.leaf.shape() : record.node->outputs[record.output].first;
  }

  static void CheckGrad(const GradRecord& record, const Tensor& grad, const Origin& origin) {
    const Shape& shape = ShapeOf(record);
    TESSERA_CHECK(grad.shape() == shape, "backward", "the gradient of ", origin, " gave ", grad,
                  " for an input of shape ", shape);
  }

  // What a hook returns is read as the gradient it replaces: operations promote, so that its dtype
  // may be wider.
  static void RunHooks(const Hooks<TensorHook>& hooks, Tensor* grad) {
    if (hooks == nullptr || !grad->defined()) return;
    hooks->Visit([grad](const TensorHook& hook) {
      Tensor replaced = hook(*grad);
      if (!replaced.defined()) return;
      TESSERA_CHECK(replaced.shape() == grad->shape() && replaced.device() == grad->device(),
                    "grad_hook", "a hook was given the gradient ", *grad, " and returned ",
                    replaced, "; return one of the same shape on the same device");
      if (replaced.dtype() != grad->dtype()) replaced = CastCopy(replaced, grad->dtype());
      *grad = std::move(replaced);
    });
  }

  void Deliver(const std::shared_ptr<GradRecord>& record, Tensor grad) {
    if (record->node == nullptr) {
      Settle(record, std::move(grad));
      return;
    }
    std::vector<Flow>& flows = flowing_[record->node.get()];
    if (flows.empty()) flows.resize(record->node->outputs.size());
    AddToFlow(&flows[record->output], std::move(grad),
              record->node->outputs[record->output].second);
  }

  static void AddToFlow(Flow* flow, Tensor grad, DType dtype) {
    if (grad.dtype() != dtype) grad = CastCopy(grad, dtype);
    if (!flow->sum.defined()) {
      flow->sum = std::move(grad);
      return;
    }
    // The first contribution may be a view of what another node still reads.
    if (!flow->owned) {
      Tensor copy = EmptyLike(flow->sum);
      CopyInto(copy, flow->sum);
      flow->sum = std::move(copy);
      flow->owned = true;
    }
    AddInto(flow->sum, grad);
  }

  // Whether contributions to leaves are added as they come, rather than wait in the queue.
  bool AddsAtOnce() const {
    return options_.weight_queue == nullptr || !options_.queue_leaf_gradients || in_queue_;
  }

  // One of the contributions that a leaf awaits has come, or is known to be none (undefined).
  void Settle(const std::shared_ptr<GradRecord>& record, Tensor grad) {
    if (record == nullptr || record->node != nullptr) return;
    if (AddsAtOnce()) {
      if (grad.defined()) Contribute(record.get(), std::move(grad));
      Arrived(record.get());
      return;
    }
    options_.weight_queue->work_.push_back(
        [self = shared_from_this(), record, grad = std::move(grad)]() mutable {
          const NoGrad no_grad;
          if (grad.defined()) self->Contribute(record.get(), std::move(grad));
          self->Arrived(record.get());
        });
  }

  // Where a hook is to see the gradient of this pass, it is summed by itself.
  void Contribute(GradRecord* record, Tensor grad) {
    if (Hooked(record->grad_hooks)) {
      AddToFlow(&hooked_[record], std::move(grad), record->grad_dtype);
    } else {
      AddToLeaf(record, std::move(grad));
    }
  }

  // Whether nobody else sees the memory of a gradient, which is all of its storage.
  static bool IsWholeAndExclusive(const Tensor& grad) {
    return grad.is_contiguous() && grad.is_exclusive() &&
           grad.nbytes() == static_cast<int64_t>(grad.storage()->bytes());
  }

  static void AddToLeaf(GradRecord* record, Tensor grad) {
    if (record->grad.defined()) {
      AddInto(record->grad, grad);
      return;
    }
    if (record->buffer) {
      const Tensor buffer = std::exchange(record->buffer, nullptr)();
      CheckBuffer(*record, buffer);
      CopyInto(buffer, grad);
      record->grad = buffer;
      return;
    }
    if (IsWholeAndExclusive(grad) && grad.dtype() == record->grad_dtype) {
      record->grad = std::move(grad);
    } else {
      record->grad = CastCopy(grad, record->grad_dtype);
    }
  }

  void Arrived(GradRecord* record) {
    if (--awaited_[record] > 0) return;
    const auto hooked = hooked_.find(record);
    if (hooked != hooked_.end()) {
      Tensor grad = std::move(hooked->second.sum);
      hooked_.erase(hooked);
      RunHooks(record->grad_hooks, &grad);
      AddToLeaf(record, std::move(grad));
    }
    if (!Hooked(record->complete_hooks)) return;
    const Tensor leaf = record->leaf.Detach();
    leaf.set_record(record->shared_from_this());
    record->complete_hooks->Visit([&leaf](const CompleteHook& hook) { hook(leaf); });
  }

  const BackwardOptions options_;
  std::vector<std::shared_ptr<Node>> nodes_;
  Node* next_ = nullptr;           // runs after the present one
  const Node* started_ = nullptr;  // whose `start` was called early
  bool in_queue_ = false;          // queued work is running: leaves get their gradients now
  std::unordered_map<Node*, std::vector<Flow>> flowing_;
  std::unordered_map<GradRecord*, Flow> hooked_;  // of leaves with hooks: what this pass gave
  std::unordered_map<GradRecord*, int64_t> awaited_;
};

Tensor GradContext::accumulator(int input) const {
  const bool leaf = records_ != nullptr && needs(input) && (*records_)[input]->node == nullptr;
  return leaf ? collected(input) : Tensor();
}

Tensor GradContext::collected(int input) const {
  if (engine_ == nullptr || !needs(input)) return Tensor();
  Tensor sum = engine_->SumOf(*(*records_)[input]);
  if (sum.defined()) (*answered_)[input] = true;
  return sum;
}

void WeightGradQueue::Run(size_t count) {
  for (; count > 0 && !work_.empty(); --count) {
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    work();
  }
}

void Backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& grads,
              const BackwardOptions& options) {
  TESSERA_CHECK(roots.size() == grads.size(), "backward", roots.size(), " roots and ", grads.size(),
                " gradients");
  for (const Tensor& root : roots) {
    TESSERA_CHECK(RequiresGrad(root), "backward", "root ", root, " does not depend on any leaf");
  }
  std::make_shared<Engine>(options)->Run(roots, grads);
}

void Backward(const Tensor& root, const BackwardOptions& options) {
  Backward({root}, {Tensor()}, options);
}

}  // namespace tessera
