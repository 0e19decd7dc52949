#include "dist/ddp/replicas.h"

#include <utility>
#include <vector>

#include "autograd/autograd.h"

namespace tessera::dist {

void BroadcastParameters(nn::Module& model, const std::shared_ptr<Communicator>& group) {
  if (group->size() == 1) return;
  const NoGrad no_grad;
  std::vector<CommHandlePtr> travelling;
  model.VisitParameters([&](nn::Parameter& p) {
    if (p.tied_to != nullptr) return;
    const Tensor whole = p.tensor.Detach();
    travelling.push_back(group->Broadcast(whole, 0));
  });
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

void SumPartialGradients(nn::Module& model) {
  const NoGrad no_grad;
  std::vector<Message> messages;
  model.VisitParameters([&](nn::Parameter& p) {
    if (p.gradient_group == nullptr || p.gradient_group->size() == 1) return;
    const Tensor grad = RequiresGrad(p.tensor) ? Grad(p.tensor) : Tensor();
    if (!grad.defined()) return;
    for (Message& message : messages) {
      if (message.group == p.gradient_group && message.dtype == grad.dtype()) {
        message.grads.push_back(grad);
        return;
      }
    }
    messages.push_back({p.gradient_group, grad.dtype(), {grad}});
  });
  for (const Message& message : messages) {
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
