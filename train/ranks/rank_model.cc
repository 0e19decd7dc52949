// SPDX-License-Identifier: Apache-2.0
#include "train/ranks/rank_model.h"

#include <utility>
#include <vector>

#include "base/nearest_name.h"
#include "dist/pipeline/pipelined_model.h"
#include "dist/store/zero_init.h"
#include "nlohmann/json.hpp"
#include "train/ranks/agreement.h"

namespace tessera::train {
namespace {

StatusOr<std::unique_ptr<models::Model>> BuildPart(const RunConfig& config, const dist::Mesh& mesh,
                                                   nn::BuildContext build,
                                                   const ModelBuilder& build_part) {
  TESSERA_ASSIGN_OR_RETURN(const dist::ZeroOptions policy, config.zero_options());
  dist::CutWhileBuilding(policy, dist::StoreGroupsOf(mesh), &build);
  TESSERA_ASSIGN_OR_RETURN(auto model, build_part(build));
  if (config.dropout) model->SetDropout(*config.dropout);
  if (config.checkpoint_activations) {
    TESSERA_RETURN_IF_ERROR(
        model->CheckCanRecompute(config.model.empty() ? "the model" : config.model));
  }
  model->set_checkpoint_activations(config.checkpoint_activations);
  return model;
}

// Expert parallelism needs experts, on some stage; context parallelism a model that can be cut.
Status CheckLayout(const std::vector<models::Model*>& parts, const dist::Mesh& mesh) {
  if (mesh.cp()->size() > 1 && !parts[0]->cuts_sequences()) {
    return Agree(mesh, InvalidArgument("cp ", mesh.cp()->size(), ": the tokens of this model's ",
                                       "rows cannot be shared out over ranks"));
  }
  if (mesh.ep()->size() == 1) return OkStatus();
  bool found = false;
  for (models::Model* part : parts) {
    part->VisitParameters([&](nn::Parameter& p) { found = found || p.expert_group != nullptr; });
  }
  const Tensor any = Tensor::FromVector<int64_t>({found ? 1 : 0}, {1});
  mesh.pp()->AllReduce(any, ReduceOp::kMax)->Wait();
  if (any.data<int64_t>()[0] == 1) return OkStatus();
  return Agree(
      mesh, InvalidArgument("ep ", mesh.ep()->size(), ": the model has no experts to share out"));
}

// The blocks of each of this rank's chunks, cut so that all chunks cost about the same.
StatusOr<std::vector<std::unique_ptr<models::Model>>> BuildChunks(const RunConfig& config,
                                                                  const dist::Mesh& mesh,
                                                                  const nn::BuildContext& build,
                                                                  const dist::BlockBuilder& blocks,
                                                                  const ModelBuilder& build_part) {
  const dist::PipelineShape shape = config.pipeline_shape();
  TESSERA_ASSIGN_OR_RETURN(const std::vector<double> costs,
                           dist::ComputedBlockCosts(blocks, config.seq_len.value_or(0)));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int> cuts,
                           dist::CutBlocks(costs, shape.stages * shape.chunks_per_rank));
  std::vector<std::unique_ptr<models::Model>> chunks;
  for (int v = 0; v < shape.chunks_per_rank; ++v) {
    const auto chunk = static_cast<size_t>(v * shape.stages + mesh.pp()->rank());
    nn::BuildContext part = build;
    part.first_block = cuts[chunk];
    part.end_block = cuts[chunk + 1];
    TESSERA_ASSIGN_OR_RETURN(auto model, BuildPart(config, mesh, part, build_part));
    chunks.push_back(std::move(model));
  }
  return chunks;
}

}  // namespace

StatusOr<nlohmann::json> OverridesOf(const RunConfig& config, const nlohmann::json& model,
                                     const std::string& source) {
  TESSERA_ASSIGN_OR_RETURN(nlohmann::json overrides, config.Overrides());
  std::vector<std::string> known;
  for (const auto& [key, value] : model.items()) known.push_back(key);
  for (const auto& [key, value] : overrides.items()) {
    if (model.contains(key)) continue;
    return InvalidArgument("config_overrides: the configuration of ", source, " has no key '", key,
                           "'", DidYouMean(key, known));
  }
  return overrides;
}

StatusOr<nn::BuildContext> BuildContextOf(const RunConfig& config, const dist::Mesh& mesh,
                                          const std::optional<Device>& device) {
  nn::BuildContext context;
  context.dtype = *ParseDType(config.dtype);
  TESSERA_ASSIGN_OR_RETURN(context.device, Device::Parse(config.device));
  if (device) context.device = *device;
  TESSERA_RETURN_IF_ERROR(CheckDeviceAvailable(context.device));
  context.seed = static_cast<uint64_t>(config.seed);
  context.tensor_parallel = mesh.tp();
  context.sequence_parallel = config.sequence_parallel && config.tp > 1;
  if (mesh.cp()->size() > 1) context.context_parallel = mesh.cp();
  if (mesh.ep()->size() > 1) context.expert_parallel = mesh.ep();
  context.deterministic = config.deterministic;
  if (!config.grad_dtype.empty()) context.grad_dtype = ParseDType(config.grad_dtype);
  return context;
}

StatusOr<std::unique_ptr<models::Model>> BuildRankModel(const RunConfig& config,
                                                        const dist::Mesh& mesh,
                                                        const nn::BuildContext& build,
                                                        const dist::BlockBuilder& blocks,
                                                        const ModelBuilder& build_part) {
  if (mesh.pp()->size() == 1) {
    auto model = BuildPart(config, mesh, build, build_part);
    TESSERA_RETURN_IF_ERROR(Agree(mesh, model.status()));
    TESSERA_RETURN_IF_ERROR(CheckLayout({model->get()}, mesh));
    return model;
  }
  auto chunks = BuildChunks(config, mesh, build, blocks, build_part);
  TESSERA_RETURN_IF_ERROR(Agree(mesh, chunks.status()));
  std::vector<models::Model*> parts;
  for (const auto& chunk : *chunks) parts.push_back(chunk.get());
  TESSERA_RETURN_IF_ERROR(CheckLayout(parts, mesh));
  return std::make_unique<dist::PipelinedModel>(dist::Stage(*std::move(chunks), mesh.pp()));
}

}  // namespace tessera::train
