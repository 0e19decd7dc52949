#include "train/update/pipeline_norm.h"

#include <utility>

#include "dist/pipeline/pipelined_model.h"
#include "ops/view/view.h"
#include "optim/clip.h"

namespace tessera::train {

const dist::Stage* StageOf(models::Model& model) {
  auto* pipelined = dynamic_cast<dist::PipelinedModel*>(&model);
  return pipelined == nullptr ? nullptr : &pipelined->stage();
}

Tensor SquaredNormOverStages(const dist::Stage& stage,
                             const std::vector<optim::Parameter>& parameters,
                             const std::function<bool(const optim::Parameter&)>& counted) {
  const Device device = optim::CommonDevice(parameters);
  // How many chunks each parameter of the model has, and so where they begin.
  std::vector<int64_t> chunks(static_cast<size_t>(stage.num_parameters()), 0);
  std::vector<std::pair<size_t, Tensor>> mine;
  for (const optim::Parameter& p : parameters) {
    const Tensor grad = optim::GradOrNone(p.tensor);
    if (!grad.defined() || !stage.Owns(p.name) || !counted(p)) continue;
    const auto index = static_cast<size_t>(stage.IndexOf(p.name));
    const Tensor sums = optim::ChunkSquareSums({grad}, device);
    chunks[index] = sums.numel();
    mine.push_back({index, sums});
  }
  const Tensor counts = Tensor::FromVector<int64_t>(chunks, {std::ssize(chunks)});
  stage.group()->AllReduce(counts, ReduceOp::kSum)->Wait();
  std::vector<int64_t> begins = {0};
  for (const int64_t count : counts.ToVector<int64_t>()) begins.push_back(begins.back() + count);
  // Every chunk is one rank's; the others add zero, which changes no bit.
  const Tensor all = Zeros({begins.back()}, DType::kFloat64, device);
  for (const auto& [index, sums] : mine) {
    CopyInto(Slice(all, 0, begins[index], sums.numel()), sums);
  }
  stage.group()->AllReduce(all, ReduceOp::kSum)->Wait();
  return optim::CombineSquareSums(all);
}

}  // namespace tessera::train
