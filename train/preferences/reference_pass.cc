// SPDX-License-Identifier: Apache-2.0
#include "train/preferences/reference_pass.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autocast.h"
#include "autograd/autograd.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/mounted_folder.h"
#include "core/safetensors.h"
#include "data/dataset/token_cache.h"
#include "data/preference/preference_dataset.h"
#include "models/hub/load_model.h"
#include "models/hub/weight_file.h"
#include "models/model_keys.h"
#include "models/open/model_folder.h"
#include "nlohmann/json.hpp"
#include "train/engine/engine.h"
#include "train/engine/engine_options.h"
#include "train/preferences/preference_loss.h"
#include "train/ranks/agreement.h"
#include "train/ranks/rank_model.h"
#include "train/report/step_report.h"

namespace tessera::train {
namespace {

using data::PreferenceDataset;
using nlohmann::json;

constexpr char kTensor[] = "log_probabilities";
constexpr char kMadeFrom[] = "made_from";

// --- The model -----------------------------------------------------------------------------------

// A model that judges, and how it is run.
struct Judge {
  models::Model* model;
  bool forward_is_collective = false;
  int adapter = 0;
  // Of a folder's.
  std::unique_ptr<models::Model> loaded = nullptr;
  std::unique_ptr<Engine> engine = nullptr;  // gathers what is cut
};

int64_t LongestRow(const TaskData& data) {
  int64_t longest = 0;
  for (const std::shared_ptr<PreferenceDataset>& pairs : data.preferences) {
    for (int64_t i = 0; i < pairs->size(); ++i) longest = std::max(longest, *pairs->length_of(i));
  }
  return longest;
}

// Whether a folder's model can read what the one that trains reads.
Status CheckJudge(const models::Model& judge, const models::Model& trained, const TaskData& data) {
  const std::string& folder = data.reference_model;
  if (judge.vocab_size() < trained.vocab_size()) {
    return InvalidArgument("reference_model: '", folder, "' has ", judge.vocab_size(),
                           " words, the model that trains ", trained.vocab_size());
  }
  const int64_t positions = judge.max_positions();
  const int64_t longest = LongestRow(data);
  if (positions > 0 && longest > positions) {
    return InvalidArgument("reference_model: '", folder, "' has ", positions,
                           " positions, the longest pair ", longest, " tokens in a row");
  }
  return OkStatus();
}

// The model of `data.reference_model`, a folder or a file that holds one, on this rank; none of it
// trains.
StatusOr<Judge> LoadJudge(const RunConfig& run, const TaskData& data, const models::Model& trained,
                          const dist::Mesh& mesh) {
  std::optional<MountedFolder> mounted;  // what is loaded outlives it
  std::string folder;
  const auto described = [&]() -> StatusOr<json> {
    TESSERA_ASSIGN_OR_RETURN(folder, models::ModelFolderAt(data.reference_model, &mounted));
    if (!IsDirectory(folder)) {
      return InvalidArgument("reference_model: '", folder, "' is no folder of a model");
    }
    return models::ReadModelConfig(folder);
  }();
  RunConfig config = run;
  config.model = folder;
  config.adapter.clear();
  TESSERA_RETURN_IF_ERROR(Agree(mesh, described.status()));
  const auto build = BuildContextOf(config, mesh, trained.build().device);
  TESSERA_RETURN_IF_ERROR(Agree(mesh, build.status()));
  const auto load_part = [&](const nn::BuildContext& part) {
    return models::LoadModel(folder, {.build = part, .require_weights = true, .map_weights = true});
  };
  Judge judge = {.model = nullptr};
  TESSERA_ASSIGN_OR_RETURN(
      judge.loaded,
      BuildRankModel(config, mesh, *build, dist::BlocksOf(*described, *build), load_part));
  judge.model = judge.loaded.get();
  TESSERA_RETURN_IF_ERROR(Agree(mesh, CheckJudge(*judge.model, trained, data)));
  judge.model->VisitParameters([](nn::Parameter& p) { DropGrad(p.tensor); });
  TESSERA_ASSIGN_OR_RETURN(const EngineOptions options, EngineOptionsOf(config, mesh));
  judge.forward_is_collective = mesh.ep()->size() > 1;
  if (options.store.shards_parameters()) {
    judge.engine = std::make_unique<Engine>(*judge.model, mesh, options);
    judge.forward_is_collective = judge.engine->store().forward_is_collective();
  }
  return judge;
}

StatusOr<Judge> FindJudge(const RunConfig& config, const TaskData& data, models::Model& model,
                          const dist::Mesh& mesh) {
  if (!data.reference_model.empty()) return LoadJudge(config, data, model, mesh);
  TESSERA_ASSIGN_OR_RETURN(const dist::ZeroOptions policy, config.zero_options());
  Judge judge = {.model = &model};
  judge.forward_is_collective =
      mesh.ep()->size() > 1 || (policy.shards_parameters() && mesh.dp()->size() > 1);
  judge.adapter = nn::ForwardContext::kNoAdapter;
  return judge;
}

// --- The pass ------------------------------------------------------------------------------------

// Of the pairs [begin, end): two numbers each.
StatusOr<std::vector<double>> JudgeBatch(const Judge& judge, const PreferenceDataset& pairs,
                                         int64_t begin, int64_t end) {
  std::vector<data::Sample> samples;
  for (int64_t i = begin; i < end; ++i) samples.push_back({.index = i, .position = i});
  TESSERA_ASSIGN_OR_RETURN(const data::Batch batch, pairs.MakeBatch(samples));
  models::RunOptions options;
  options.loss_reduction = LossReduction::kNone;
  options.keep_logits = false;
  options.context.adapter = judge.adapter;
  models::Bundle inputs = OnDevice(batch.tensors, judge.model->build().device);
  inputs.erase(keys::kReferenceLogProbabilities);  // of an earlier pass
  const models::Bundle outputs = judge.model->Run(inputs, options);
  return CopyTo(SequenceLogProbabilities(outputs.at(keys::kLoss)), Device::Cpu())
      .ToVector<double>();
}

// Batches go round the data-parallel ranks.
StatusOr<std::vector<double>> JudgeAll(const Judge& judge, const PreferenceDataset& pairs,
                                       int64_t batch_size, const dist::Mesh& mesh,
                                       const std::function<bool()>& stops) {
  const NoGrad no_grad;
  const int64_t ranks = mesh.dp()->size();
  const int64_t batches = (pairs.size() + batch_size - 1) / batch_size;
  std::vector<double> all;
  for (int64_t round = 0; round * ranks < batches; ++round) {
    const int64_t number = round * ranks + mesh.dp()->rank();
    std::vector<double> mine;
    Status status;
    if (number < batches || judge.forward_is_collective) {
      const int64_t begin = std::min(number, batches - 1) * batch_size;
      auto found = JudgeBatch(judge, pairs, begin, std::min(begin + batch_size, pairs.size()));
      status = found.status();
      if (found.ok()) mine = *std::move(found);
    }
    if (stops != nullptr && stops()) {
      status.Update(Failure(StatusCode::kCancelled, "the reference pass was stopped"));
    }
    TESSERA_RETURN_IF_ERROR(Agree(mesh, status));
    mine.resize(static_cast<size_t>(2 * batch_size));
    const std::vector<double> gathered = GatherOverData(mine, mesh);
    all.insert(all.end(), gathered.begin(), gathered.end());
  }
  all.resize(static_cast<size_t>(2 * pairs.size()));
  return all;
}

// --- The file ------------------------------------------------------------------------------------

// A folder's files of weights, as far as the disk tells them from others.
json DescribeWeights(const std::string& folder) {
  json files = json::array();
  if (!IsDirectory(folder)) {  // a file that holds one
    const auto described = data::DescribeFiles({folder});
    return described.ok() ? *described : json(folder);
  }
  const auto names = ListDirectory(folder);
  if (!names.ok()) return files;
  for (const std::string& name : *names) {
    if (!name.ends_with(".safetensors") && !models::WeightFile::IsTorchName(name)) continue;
    const auto described = data::DescribeFiles({JoinPath(folder, name)});
    files.push_back(described.ok() ? *described : json(name));
  }
  return files;
}

// All that the numbers of some pairs depend on.
std::string DependsOn(const RunConfig& config, const TaskData& data, const models::Model& model,
                      const PreferenceDataset& pairs) {
  const bool other = !data.reference_model.empty();
  const std::string& folder = other ? data.reference_model : config.model;
  json key = {{"pairs", pairs.made_from()},
              {"folder", folder},
              {"weights", PathExists(folder) ? DescribeWeights(folder) : json(config.seed)},
              {"dtype", config.dtype},
              {"autocast", config.autocast}};
  // A model with the same weights and another configuration gives other numbers.
  key["config"] = other ? ReadJsonFile(folder + "/config.json").value_or(nullptr) : model.config();
  if (!other && IsDirectory(config.adapter)) key["adapter"] = DescribeWeights(config.adapter);
  return key.dump();
}

std::optional<std::vector<double>> ReadNumbers(const std::string& path, const std::string& key,
                                               const PreferenceDataset& pairs) {
  const auto file = SafetensorsFile::Open(path);
  if (!file.ok() || !file->metadata().contains(kMadeFrom) ||
      file->metadata().at(kMadeFrom) != key) {
    return std::nullopt;
  }
  const auto view = file->Get(kTensor);
  if (!view.ok() || view->dtype != DType::kFloat64 ||
      view->shape != std::vector<int64_t>{pairs.size(), 2}) {
    return std::nullopt;
  }
  std::vector<double> numbers(static_cast<size_t>(2 * pairs.size()));
  std::memcpy(numbers.data(), view->data, static_cast<size_t>(view->nbytes));
  return numbers;
}

Status WriteNumbers(const std::string& path, const std::string& key,
                    const std::vector<double>& numbers) {
  const TensorView view = {.dtype = DType::kFloat64,
                           .shape = {std::ssize(numbers) / 2, 2},
                           .data = reinterpret_cast<const std::byte*>(numbers.data()),
                           .nbytes = std::ssize(numbers) * static_cast<int64_t>(sizeof(double))};
  return WriteSafetensors(path, {{kTensor, view}}, {{kMadeFrom, key}});
}

// Rank 0's, where its disk has them. Collective.
std::optional<std::vector<double>> FindNumbers(const std::string& path, const std::string& key,
                                               const PreferenceDataset& pairs,
                                               const dist::Mesh& mesh) {
  std::optional<std::vector<double>> found;
  if (mesh.world()->rank() == 0) found = ReadNumbers(path, key, pairs);
  if (mesh.world()->size() == 1) return found;
  if (GreatestOf(found ? 1 : 0, mesh) == 0) return std::nullopt;
  std::vector<double> numbers(static_cast<size_t>(2 * pairs.size()));
  if (found) numbers = *std::move(found);
  const Tensor shared = Tensor::FromVector(numbers, {std::ssize(numbers)});
  mesh.world()->Broadcast(shared, 0)->Wait();
  return shared.ToVector<double>();
}

}  // namespace

Status JudgePreferences(const RunConfig& config, const TaskData& data, models::Model& model,
                        const dist::Mesh& mesh, const std::function<bool()>& stops) {
  const AutocastScope autocast(config.product_dtype());
  std::optional<Judge> judge;
  for (const std::shared_ptr<PreferenceDataset>& pairs : data.preferences) {
    const std::string path = pairs->cache() + ".reference.safetensors";
    const std::string key = DependsOn(config, data, model, *pairs);
    std::optional<std::vector<double>> numbers = FindNumbers(path, key, *pairs, mesh);
    if (!numbers) {
      if (!judge) {
        TESSERA_ASSIGN_OR_RETURN(judge, FindJudge(config, data, model, mesh));
      }
      TESSERA_ASSIGN_OR_RETURN(numbers, JudgeAll(*judge, *pairs, config.batch_size, mesh, stops));
      TESSERA_RETURN_IF_ERROR(
          Agree(mesh, mesh.world()->rank() == 0 ? WriteNumbers(path, key, *numbers) : OkStatus()));
    }
    pairs->SetReference(*std::move(numbers));
  }
  return OkStatus();
}

}  // namespace tessera::train
