// SPDX-License-Identifier: Apache-2.0
#include "dist/activations/activation_store.h"

#include <algorithm>
#include <utility>

#include "autograd/autograd.h"
#include "autograd/recompute.h"
#include "dist/store/host_memory.h"

namespace tessera::dist {
namespace {

Tensor Range(const Tensor& flat, int64_t begin, int64_t n) {
  return flat.AsStrided({n}, {1}, flat.offset() + begin);
}

class Stored final : public PackedTensor {
 public:
  Stored(const Tensor& t, const ActivationStoreOptions& options)
      : shape_(t.shape()), device_(t.device()), group_(options.partition) {
    const NoGrad no_grad;
    const Tensor whole = t.ContiguousCopy();
    Tensor part = whole.AsStrided({whole.numel()}, {1}, whole.offset());
    if (group_ != nullptr && group_->size() > 1) {
      share_ = (whole.numel() + group_->size() - 1) / group_->size();
      const int64_t begin = std::min(whole.numel(), group_->rank() * share_);
      const int64_t count = std::min(share_, whole.numel() - begin);
      const Tensor mine = Zeros({share_}, t.dtype(), device_);
      CopyInto(Range(mine, 0, count), Range(part, begin, count));
      part = mine;
    }
    kept_ = options.offload ? CopyTo(part, HostMemoryOf(device_)) : part;
  }

  Tensor Unpack() override {
    const NoGrad no_grad;
    Tensor part = CopyTo(kept_, device_);
    if (share_ > 0) {
      const Tensor all = Empty({share_ * group_->size()}, part.dtype(), device_);
      group_->AllGather(all, part)->Wait();
      part = all;
    }
    return part.AsStrided(shape_, ContiguousStrides(shape_), part.offset());
  }

 private:
  const Shape shape_;
  const Device device_;
  const std::shared_ptr<Communicator> group_;
  int64_t share_ = 0;  // 0: not partitioned
  Tensor kept_;
};

}  // namespace

ActivationStore::ActivationStore(const ActivationStoreOptions& options) : options_(options) {}

std::unique_ptr<PackedTensor> ActivationStore::Pack(const Tensor& t) {
  if (t.numel() < options_.min_elements || !IsFloating(t.dtype())) return nullptr;
  ActivationStoreOptions mine = options_;
  if (!SavingRegionInput()) mine.partition = nullptr;
  if (!mine.offload && (mine.partition == nullptr || mine.partition->size() == 1)) return nullptr;
  return std::make_unique<Stored>(t, mine);
}

}  // namespace tessera::dist
