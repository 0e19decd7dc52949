// SPDX-License-Identifier: Apache-2.0
#include "dist/store/replicas.h"

#include <algorithm>
#include <utility>

#include "autograd/autograd.h"
#include "core/memory_use.h"
#include "optim/parameter.h"

namespace tessera::dist {

void BroadcastParameters(const std::vector<nn::Parameter*>& parameters, const StoreGroups& ranks) {
  const NoGrad no_grad;
  std::vector<CommHandlePtr> travelling;
  for (const nn::Parameter* p : parameters) {
    // Frozen weights may be their file's own bytes, on every rank.
    if (p->tied_to != nullptr || p->elsewhere || p->tensor.storage()->read_only()) continue;
    const auto& group = ranks.HoldersOf(*p);
    if (group->size() > 1) travelling.push_back(group->Broadcast(p->tensor.Detach(), 0));
  }
  for (const CommHandlePtr& handle : travelling) handle->Wait();
}

namespace {

// Gradients that travel in one message.
struct Message {
  std::shared_ptr<Communicator> group;
  DType dtype;
  std::vector<Tensor> grads;
};

Tensor PlaceIn(const Tensor& flat, const Tensor& like, int64_t* offset) {
  const Tensor view = flat.AsStrided(like.shape(), ContiguousStrides(like.shape()), *offset);
  *offset += like.numel();
  return view;
}

}  // namespace

void SumPartialGradients(const std::vector<nn::Parameter*>& parameters) {
  const NoGrad no_grad;
  std::vector<Message> messages;
  for (const nn::Parameter* p : parameters) {
    if (p->gradient_group == nullptr || p->gradient_group->size() == 1) continue;
    const Tensor grad = optim::GradOrNone(p->tensor);
    if (!grad.defined()) continue;
    auto message = std::find_if(messages.begin(), messages.end(), [&](const Message& m) {
      return m.group == p->gradient_group && m.dtype == grad.dtype();
    });
    if (message == messages.end()) {
      message = messages.insert(message, {p->gradient_group, grad.dtype(), {}});
    }
    message->grads.push_back(grad);
  }
  for (const Message& message : messages) {
    const MemoryUseScope use(MemoryUse::kBucket);
    int64_t elements = 0;
    for (const Tensor& grad : message.grads) elements += grad.numel();
    const Tensor flat = Empty({elements}, message.dtype, message.grads[0].device());
    int64_t offset = 0;
    for (const Tensor& grad : message.grads) CopyInto(PlaceIn(flat, grad, &offset), grad);
    message.group->AllReduce(flat, ReduceOp::kSum)->Wait();
    offset = 0;
    for (const Tensor& grad : message.grads) CopyInto(grad, PlaceIn(flat, grad, &offset));
  }
}

}  // namespace tessera::dist
