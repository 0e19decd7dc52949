// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "base/file.h"
#include "base/options.h"
#include "core/thread_communicator.h"
#include "train/foreign/run_keys.h"
#include "train/ranks/run_on_ranks.h"
#include "train/run/run_setup.h"
#include "train/trace/digest.h"
#include "train/trace/traced_tensor.h"
#include "train/trainer.h"

namespace tessera::train {
namespace {

StatusOr<std::vector<TensorPart>> RetakeOnRank(const RunConfig& config, const TracedTensor& wanted,
                                               const dist::Group& world) {
  TESSERA_ASSIGN_OR_RETURN(const dist::Mesh mesh, MakeMesh(config, world));
  TESSERA_ASSIGN_OR_RETURN(const RunSetup setup, PrepareRun(config, mesh));
  Trainer trainer(setup.config, *setup.model, setup.data, mesh);
  return trainer.Retake(wanted);
}

// Writes the part's elements where they are in the whole tensor.
void CopyPart(const TensorPart& part, const Tensor& whole) {
  const Tensor from = part.data.ContiguousCopy();
  int64_t at = from.offset();
  for (const Box& box : dist::BoxesOf(part.piece)) {
    CopyInto(BoxView(whole, box), from.AsStrided(box.size, ContiguousStrides(box.size), at));
    at += box.size.numel();
  }
}

}  // namespace

TensorPart WholePart(const std::string& name, const Tensor& t) {
  const Shape zero(std::vector<int64_t>(static_cast<size_t>(t.ndim()), 0));
  return {.name = name,
          .data = CopyTo(t.Detach(), Device::Cpu()).ContiguousCopy(),
          .piece = {.box = {zero, t.shape()}},
          .whole = t.shape()};
}

std::vector<TensorPart> PartsOf(const dist::CheckpointTensor& t) {
  std::vector<TensorPart> parts;
  for (const dist::LocalPart& local : dist::LocalParts(t)) {
    const Tensor data = EmptyLike(CopyTo(local.data.Detach(), Device::Cpu()));
    CopyInto(data, CopyTo(local.data.Detach(), Device::Cpu()));
    parts.push_back(
        {.name = t.name, .data = data, .piece = local.piece, .whole = t.placement.global_shape()});
  }
  return parts;
}

std::vector<RetakenTensor> Assemble(const std::vector<TensorPart>& parts) {
  std::vector<RetakenTensor> tensors;
  std::vector<std::vector<Box>> missing;  // of each
  std::map<std::string, size_t> number;
  for (const TensorPart& part : parts) {
    const auto [found, is_new] = number.try_emplace(part.name, tensors.size());
    if (is_new) {
      const TensorPart all = WholePart(part.name, Empty(part.whole, part.data.dtype()));
      tensors.push_back({part.name, all.data});
      missing.push_back({all.piece.box});
    }
    CopyPart(part, tensors[found->second].data);
    for (const Box& box : dist::BoxesOf(part.piece)) dist::Subtract(box, &missing[found->second]);
  }
  std::vector<RetakenTensor> whole;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (dist::CountElements(missing[i]) == 0) whole.push_back(std::move(tensors[i]));
  }
  return whole;
}

Shape IndexOf(int64_t i, const Shape& shape) {
  Shape index = shape;
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    index[d] = i % shape[d];
    i /= shape[d];
  }
  return index;
}

StatusOr<std::vector<RetakenTensor>> Retake(const std::string& out, const TracedTensor& wanted) {
  RunConfig config;
  TESSERA_RETURN_IF_ERROR(ReadRunConfig(JoinPath(out, "config.json"), &config));
  config.out = out;
  // Whole gradients have the same bits as cut ones, or another norm, which shows it.
  if (wanted.kind == TracedTensor::Kind::kGradients) {
    for (const Option& option : ZeroConfig::Table().options()) config.Unset(option.key);
    config.Unset("env_type");  // it may ask for zero
  }
  std::mutex mutex;
  Status status;
  std::map<int, std::vector<TensorPart>> taken;  // by rank
  RunRanks(static_cast<int>(wanted.ranks), [&](const std::shared_ptr<Communicator>& world) {
    const Status mine = Guarded([&]() -> Status {
      TESSERA_ASSIGN_OR_RETURN(std::vector<TensorPart> parts, RetakeOnRank(config, wanted, world));
      const std::scoped_lock lock(mutex);
      taken[world->rank()] = std::move(parts);
      return OkStatus();
    });
    const std::scoped_lock lock(mutex);
    if (status.ok()) status = mine;
  });
  TESSERA_RETURN_IF_ERROR(status);
  std::vector<TensorPart> parts;
  for (auto& [rank, own] : taken) {
    parts.insert(parts.end(), std::make_move_iterator(own.begin()),
                 std::make_move_iterator(own.end()));
  }
  std::vector<RetakenTensor> whole = Assemble(parts);
  if (wanted.kind == TracedTensor::Kind::kState && !whole.empty() &&
      DigestOf(whole.front().data) != wanted.digest) {
    whole.clear();
  }
  // From the model's end, about as the backward pass reaches them.
  if (wanted.kind == TracedTensor::Kind::kGradients) std::reverse(whole.begin(), whole.end());
  return whole;
}

}  // namespace tessera::train
