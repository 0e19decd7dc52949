// SPDX-License-Identifier: Apache-2.0
#include "autograd/recompute.h"

#include <map>
#include <utility>

#include "autograd/autograd.h"
#include "autograd/saved_tensor.h"

namespace tessera {
namespace {

using InputSavingScope = ExecutionModeScope<&ExecutionContext::saves_region_input>;

// One call of Recompute: what it takes to run again, and, after that, the tensors not yet dropped.
class Region final : public SavedTensorHooks, public std::enable_shared_from_this<Region> {
 public:
  using Fn = std::function<void(const std::vector<Tensor>&)>;

  Region(Fn fn, const std::vector<Tensor>& inputs) : fn_(std::move(fn)) {
    for (const Tensor& input : inputs) {
      {
        const InputSavingScope saving(true);
        inputs_.emplace_back(input);
      }
      roles_.push_back(!RequiresGrad(input) ? Role::kConstant
                       : IsLeaf(input)      ? Role::kLeaf
                                            : Role::kResult);
    }
  }

  void FirstRun(const std::function<void()>& first) {
    const SavedTensorScope scope(this);
    first();
  }

  // First run: the tensor is dropped, its position remembered.
  std::unique_ptr<PackedTensor> Pack(const Tensor&) override {
    alive_.push_back(true);
    return std::make_unique<Dropped>(shared_from_this(), alive_.size() - 1);
  }

 private:
  class Dropped final : public PackedTensor {
   public:
    Dropped(std::shared_ptr<Region> region, size_t index)
        : region_(std::move(region)), index_(index) {}
    ~Dropped() override { region_->Forget(index_); }
    Tensor Unpack() override { return region_->Find(index_); }

   private:
    const std::shared_ptr<Region> region_;
    const size_t index_;
  };

  // Second run: keeps what some node of the first run still waits for.
  class Keeper final : public SavedTensorHooks {
   public:
    explicit Keeper(Region* region) : region_(region) {}
    std::unique_ptr<PackedTensor> Pack(const Tensor& t) override {
      if (count < region_->alive_.size() && region_->alive_[count]) region_->tensors_[count] = t;
      ++count;
      return std::make_unique<Unused>();
    }
    size_t count = 0;

   private:
    // The second run's own nodes are never run backwards; they keep nothing.
    class Unused final : public PackedTensor {
     public:
      Tensor Unpack() override { throw Error("recompute", "the second run has no backward pass"); }
    };
    Region* const region_;
  };

  // How an input takes part: the second run's inputs must be saved in the same places.
  enum class Role { kConstant, kLeaf, kResult };

  Tensor Find(size_t index) {
    if (tensors_.count(index) == 0) RunAgain();
    const auto found = tensors_.find(index);
    TESSERA_CHECK(found != tensors_.end(), "recompute",
                  "the second run saved fewer tensors than the first");
    return found->second;
  }

  void Forget(size_t index) {
    alive_[index] = false;
    tensors_.erase(index);
  }

  void RunAgain() {
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      inputs.push_back(inputs_[i].Unpack().Detach());
      if (roles_[i] == Role::kLeaf) RequireGrad(inputs.back());
      if (roles_[i] == Role::kResult) Record("recompute", {}, {inputs.back()}, nullptr);
    }
    Keeper keeper(this);
    {
      ExecutionContext again = ExecutionContext::Current();
      again.records = true;
      again.recomputes = true;
      again.saved_tensors = &keeper;
      again.products = products_;
      const ExecutionScope scope(again);
      fn_(inputs);
    }
    TESSERA_CHECK(keeper.count == alive_.size(), "recompute", "the second run saved ", keeper.count,
                  " tensors, the first ", alive_.size());
  }

  const Fn fn_;
  const DType products_ = ExecutionContext::Current().products;
  std::vector<SavedTensor> inputs_;
  std::vector<Role> roles_;
  std::vector<bool> alive_;           // by position: whether its node still waits for it
  std::map<size_t, Tensor> tensors_;  // by position: what the second run saved
};

}  // namespace

void RunRegion(const std::function<void()>& first,
               std::function<void(const std::vector<Tensor>&)> again,
               const std::vector<Tensor>& inputs) {
  if (!GradEnabled()) return first();
  std::make_shared<Region>(std::move(again), inputs)->FirstRun(first);
}

bool InRecomputation() { return ExecutionContext::Current().recomputes; }

bool SavingRegionInput() { return ExecutionContext::Current().saves_region_input; }

}  // namespace tessera
