// SPDX-License-Identifier: Apache-2.0
#include "train/plan/plan.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "autograd/autograd.h"
#include "base/error.h"
#include "base/file.h"
#include "core/device.h"
#include "core/memory_use.h"
#include "data/preference/preference_dataset.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/checkpoint/rank_writer.h"
#include "dist/dry_run/dry_run.h"
#include "dist/pipeline/partition.h"
#include "dist/store/host_memory.h"
#include "models/family.h"
#include "nlohmann/json.hpp"
#include "nn/router.h"
#include "train/engine/engine_options.h"
#include "train/plan/assumed_data.h"
#include "train/plan/links.h"
#include "train/ranks/rank_place.h"
#include "train/run/run_setup.h"
#include "train/trainer.h"

namespace tessera::train {
namespace {

using dist::RankMeter;
using nlohmann::json;
using nlohmann::ordered_json;

// Throws, so that the stages that run beside this one end.
void OrThrow(const Status& status) { TESSERA_CHECK(status.ok(), "plan", Message(status)); }

constexpr char kStep[] = "step";

const char* PhaseName(RunPhase phase) {
  switch (phase) {
    case RunPhase::kStart:
      return "start";
    case RunPhase::kData:
    case RunPhase::kFirstStep:
    case RunPhase::kStep:
      return kStep;
    case RunPhase::kEvaluation:
      return "evaluation";
    case RunPhase::kSave:
      break;
  }
  return "save";
}

// --- One rank ------------------------------------------------------------------------------------

struct WholeTensor {
  int64_t elements = 0;
  int64_t bytes = 0;
};

// What a rehearsal of a rank finds besides its plan.
struct Rehearsed {
  RankPlan plan;
  SentBytes sent;
  std::vector<dist::HeldPiece> pieces;
  std::map<std::string, WholeTensor> tensors;  // of the checkpoint
  std::vector<std::string> trained;            // parameters
  int64_t tokens = 0;
  int64_t total_steps = 0;
  double steps_per_epoch = 0;
};

RankAxes AxesOf(const dist::Mesh& mesh) {
  return {.rank = mesh.world()->rank(),
          .dp = mesh.dp()->rank(),
          .pp = mesh.pp()->rank(),
          .tp = mesh.tp()->rank(),
          .cp = mesh.cp()->rank(),
          .ep = mesh.ep()->rank()};
}

// Of gradients that are kept whole until the update, or of this rank's share of them. Shares that
// are off-loaded are the host's.
int64_t GradientBytes(models::Model& model, const dist::Mesh& mesh, const EngineOptions& options) {
  const dist::ZeroOptions& store = options.store;
  const bool is_share = store.shards_gradients();
  const double here = is_share && store.offload_optimizer ? 1 - store.offload_fraction : 1;
  int64_t bytes = 0;
  for (const nn::Parameter* p : model.Parameters()) {
    if (p->elsewhere || p->tied_to != nullptr || !p->can_train) continue;
    if (!RequiresGrad(p->tensor)) continue;
    const int64_t ranks = p->expert_group != nullptr ? mesh.edp()->size() : mesh.dp()->size();
    int64_t elements = p->tensor.numel();
    if (is_share) elements = (elements + ranks - 1) / ranks;
    const int64_t width = DTypeSize(GradDType(p->tensor));
    bytes += static_cast<int64_t>(static_cast<double>(elements * width) * here);
  }
  return bytes;
}

// Runs on one rank of a dry run.
class RankRehearsal {
 public:
  RankRehearsal(const OpenedRun& run, const dist::Mesh& mesh, RankMeter& meter,
                const Device& device)
      : run_(run), mesh_(mesh), meter_(meter), device_(device) {}

  Rehearsed Run() {
    RankPlan& plan = found_.plan;
    plan.axes = AxesOf(mesh_);
    StatusOr<std::unique_ptr<models::Model>> model = run_.build(mesh_, device_);
    OrThrow(model.status());
    // Shapes of whole models, which building needs, are on meta in a real run, too.
    plan.parameters_bytes = meter_.current_bytes(device_);
    plan.peaks["load"] = plan.parameters_bytes;
    meter_.ResetPeaks();
    Trainer trainer(run_.setup->config, **model, run_.setup->data, mesh_);
    OrThrow(trainer.Rehearse([&](RunPhase phase) { PhaseEnded(phase, &trainer); }));
    found_.total_steps = trainer.state().total_steps;
    found_.steps_per_epoch = trainer.steps_per_epoch();
    SplitPeak(**model);
    return std::move(found_);
  }

 private:
  // On the CPU what steers the program (flags, layouts of messages) is in the same memory. What is
  // larger was made there and copied to meta, and is one tensor in a real run.
  int64_t Peak() const {
    constexpr int64_t kMostControl = 8192;  // tests/parallel/meta_test.cc
    const int64_t control =
        device_.target == DeviceType::kCpu ? meter_.peak_bytes(Device::Cpu()) : 0;
    return meter_.peak_bytes(device_) + std::min(control, kMostControl);
  }

  void EndPhase(const std::string& name) {
    int64_t& peak = found_.plan.peaks[name];
    if (name == kStep && Peak() > peak) step_uses_ = meter_.peak_uses(device_);
    peak = std::max(peak, Peak());
    int64_t host = meter_.peak_bytes(dist::HostMemoryOf(device_));
    if (device_.target != DeviceType::kCpu) host += meter_.peak_bytes(Device::Cpu());
    found_.plan.host_bytes = std::max(found_.plan.host_bytes, host);
    meter_.ResetPeaks();
  }

  void PhaseEnded(RunPhase phase, Trainer* trainer) {
    RankPlan& plan = found_.plan;
    // Batches were made beside the device that is imitated. A run of one step has no second one.
    if (phase == RunPhase::kData) {
      plan.data_bytes = std::max(plan.data_bytes, meter_.current_bytes(device_) - held_);
      return meter_.ResetPeaks();
    }
    if (phase == RunPhase::kStep && trainer->state().total_steps == 1) meter_.ResetPeaks();
    EndPhase(PhaseName(phase));
    if (phase == RunPhase::kStart) {
      held_ = meter_.current_bytes(device_);
    } else if (phase == RunPhase::kFirstStep) {
      meter_.Clear();
      held_ = meter_.current_bytes(device_);
    } else if (phase == RunPhase::kStep) {
      found_.tokens = trainer->state().tokens;
      ReadCalls();
      ReadTensors(trainer->CheckpointTensors());
      meter_.ResetPeaks();
    }
  }

  void ReadCalls() {
    for (const dist::CommCall& call : meter_.calls()) {
      if (call.ranks == 1) continue;
      dist::CommTotals& totals = found_.plan.communication[call.group];
      ++totals.calls;
      totals.payload += call.payload;
      totals.sent += call.sent;
      totals.received += call.received;
      AddCall(call, mesh_, &found_.sent);
    }
  }

  void ReadTensors(const std::vector<dist::CheckpointTensor>& tensors) {
    found_.pieces = dist::HeldPieces(tensors);
    for (const dist::CheckpointTensor& t : tensors) {
      const int64_t elements = t.placement.global_shape().numel();
      found_.tensors[t.name] = {elements,
                                elements * static_cast<int64_t>(DTypeSize(t.tensor.dtype()))};
      const bool state = !t.name.starts_with("model.");
      if (state && t.tensor.device() == device_) found_.plan.states_bytes += t.tensor.nbytes();
    }
  }

  void SplitPeak(models::Model& model) {
    RankPlan& plan = found_.plan;
    for (const nn::Parameter* p : model.Parameters()) {
      if (RequiresGrad(p->tensor)) found_.trained.push_back(p->name);
    }
    for (const auto& [name, peak] : plan.peaks) plan.peak_bytes = std::max(plan.peak_bytes, peak);
    StatusOr<EngineOptions> options = EngineOptionsOf(run_.setup->config, mesh_);
    OrThrow(options.status());
    plan.buckets_bytes = step_uses_.buckets;
    plan.workspaces_bytes = step_uses_.workspaces;
    const int64_t held = plan.parameters_bytes + plan.states_bytes + plan.data_bytes +
                         plan.buckets_bytes + plan.workspaces_bytes;
    const int64_t left = std::max<int64_t>(0, plan.peaks[kStep] - held);
    plan.gradients_bytes = std::min(left, GradientBytes(model, mesh_, *options));
    plan.activations_bytes = left - plan.gradients_bytes;
  }

  const OpenedRun& run_;
  const dist::Mesh& mesh_;
  RankMeter& meter_;
  const Device device_;
  Rehearsed found_;
  int64_t held_ = 0;    // before the step under way
  UseBytes step_uses_;  // at the peak of the step
};

// --- All ranks -----------------------------------------------------------------------------------

// The places of an axis that are rehearsed for all of them: the first and the last.
std::vector<int> Ends(int size) {
  return size == 1 ? std::vector<int>{0} : std::vector{0, size - 1};
}

std::vector<int> All(int size) {
  std::vector<int> all;
  for (int i = 0; i < size; ++i) all.push_back(i);
  return all;
}

// Those of a data-parallel axis: the first rank with each share of the experts, and the last of
// all.
std::vector<int> DataEnds(const dist::MeshSizes& sizes, int dp) {
  std::vector<int> places;
  for (int e = 0; e < sizes.ep; ++e) places.push_back(e * (dp / sizes.ep));
  if (places.back() != dp - 1) places.push_back(dp - 1);
  return places;
}

// Who stands for a place: itself, or the nearest below.
int StandsFor(const std::vector<int>& places, int place) {
  return *std::prev(std::upper_bound(places.begin(), places.end(), place));
}

struct AllRehearsed {
  std::map<std::vector<int>, Rehearsed> by_place;  // of {pp, dp, tp}
  bool complete = false;                           // every rank itself
};

StatusOr<AllRehearsed> RehearseRanks(const OpenedRun& run, const PlanOptions& options,
                                     const Device& device) {
  const RunConfig& config = run.setup->config;
  const dist::MeshSizes sizes = config.mesh_sizes();
  const int dp = options.ranks / (sizes.tp * sizes.pp);
  AllRehearsed all;
  all.complete = dp * sizes.tp <= options.rehearse_all;
  std::mutex mutex;
  for (const int d : all.complete ? All(dp) : DataEnds(sizes, dp)) {
    for (const int t : all.complete ? All(sizes.tp) : Ends(sizes.tp)) {
      const dist::DryRunRanks ranks = {.sizes = sizes,
                                       .world_size = options.ranks,
                                       .dp_rank = d,
                                       .tp_rank = t,
                                       .device = device};
      try {
        dist::DryRun(ranks, [&](const dist::Mesh& mesh, RankMeter& meter) {
          Rehearsed found = RankRehearsal(run, mesh, meter, device).Run();
          const std::lock_guard<std::mutex> lock(mutex);
          all.by_place[{mesh.pp()->rank(), d, t}] = std::move(found);
        });
      } catch (const Error& error) {
        return InvalidArgument(error.what());
      }
    }
  }
  return all;
}

// Every rank of the run, by its number.
std::vector<RankPlan> ListRanks(const AllRehearsed& all, const dist::MeshSizes& sizes, int ranks) {
  std::vector<int> dp_places, tp_places;
  for (const auto& [place, found] : all.by_place) {
    dp_places.push_back(place[1]);
    tp_places.push_back(place[2]);
  }
  for (std::vector<int>* places : {&dp_places, &tp_places}) {
    std::sort(places->begin(), places->end());
    places->erase(std::unique(places->begin(), places->end()), places->end());
  }
  std::vector<RankPlan> list;
  for (int rank = 0; rank < ranks; ++rank) {
    const dist::Mesh mesh(sizes, ranks, rank, dist::LoneRankCommunicator);
    const Rehearsed& found =
        all.by_place.at({mesh.pp()->rank(), StandsFor(dp_places, mesh.dp()->rank()),
                         StandsFor(tp_places, mesh.tp()->rank())});
    RankPlan plan = found.plan;
    plan.axes = AxesOf(mesh);
    plan.links = LinksOf(found.sent, mesh);
    list.push_back(std::move(plan));
  }
  return list;
}

// Of all tensors of a checkpoint. States that only ranks hold for which others stand are as wide,
// for each element of their parameter, as those of the same name that are seen.
int64_t CheckpointBytes(const AllRehearsed& all) {
  constexpr char kStates[] = "optimizer.";
  std::map<std::string, WholeTensor> tensors;
  std::set<std::string> trained;
  for (const auto& [place, found] : all.by_place) {
    tensors.insert(found.tensors.begin(), found.tensors.end());
    trained.insert(found.trained.begin(), found.trained.end());
  }
  std::map<std::string, int64_t> widths;  // of states by name
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    bytes += tensor.bytes;
    const size_t dot = name.rfind('.');
    if (!name.starts_with(kStates) || tensor.elements == 0) continue;
    const auto weight =
        tensors.find("model." + name.substr(sizeof(kStates) - 1, dot - (sizeof(kStates) - 1)));
    if (weight == tensors.end() || weight->second.elements != tensor.elements) continue;
    widths[name.substr(dot)] = tensor.bytes / tensor.elements;
  }
  for (const std::string& parameter : trained) {
    const auto weight = tensors.find("model." + parameter);
    if (weight == tensors.end()) continue;
    for (const auto& [state, width] : widths) {
      if (!tensors.contains(kStates + parameter + state)) bytes += weight->second.elements * width;
    }
  }
  return bytes;
}

// What each rank writes; where not all were rehearsed, an equal share of it all.
void ShareOutCheckpoint(const AllRehearsed& all, Plan* plan) {
  plan->checkpoint_bytes = CheckpointBytes(all);
  std::vector<std::vector<dist::HeldPiece>> held(plan->ranks.size());
  for (size_t r = 0; r < held.size() && all.complete; ++r) {
    const RankAxes& axes = plan->ranks[r].axes;
    held[r] = all.by_place.at({axes.pp, axes.dp, axes.tp}).pieces;
  }
  for (size_t r = 0; r < held.size(); ++r) {
    RankPlan& rank = plan->ranks[r];
    rank.checkpoint_bytes = plan->checkpoint_bytes / std::ssize(held);
    if (!all.complete) continue;
    rank.checkpoint_bytes = 0;
    for (const dist::HeldPiece& piece : dist::WrittenPieces(held, r)) {
      rank.checkpoint_bytes += piece.bytes;
    }
  }
}

// A copy of what a rank writes stays from its first saving on.
void CountSavedCopies(const RunConfig& config, const Device& device, Plan* plan) {
  if (!config.async_save) return;
  const bool steps_follow = config.save_strategy == "epoch" ||
                            (config.save_strategy == "steps" && config.save_interval > 0 &&
                             StepsOf(config.save_interval, plan->total_steps) < plan->total_steps);
  for (RankPlan& rank : plan->ranks) {
    int64_t& bytes = device.target == DeviceType::kCpu ? rank.peak_bytes : rank.host_bytes;
    const int64_t beside = steps_follow || device.target != DeviceType::kCpu
                               ? bytes
                               : std::max(rank.peaks["save"], bytes - rank.checkpoint_bytes);
    bytes = beside + rank.checkpoint_bytes;
  }
}

// --- Work ----------------------------------------------------------------------------------------

// Multiply-adds of all blocks for a token: of the tokens' experts, as many as a token goes to.
struct Work {
  double products = 0;
  double frozen = 0;       // of weights that have no gradient
  double of_one_pass = 0;  // of the blocks that recomputation runs again
  std::vector<double> blocks;
};

StatusOr<Work> WorkPerToken(const json& model, int64_t tokens,
                            const std::set<std::string>& trained) {
  nn::BuildContext dry;
  dry.device = Device::Meta();
  dry.initialise = false;
  TESSERA_ASSIGN_OR_RETURN(const models::Family* const family, models::FamilyOf(model));
  dist::BlockBuilder blocks = dist::BlocksOf(model, dry);
  // Where blocks are not built one by one, the whole stands for each, and all count alike.
  if (!family->has_stages) {
    blocks = [&](int, int, Device) { return models::BuildModel(model, dry); };
  }
  TESSERA_ASSIGN_OR_RETURN(std::vector<double> costs, dist::ComputedBlockCosts(blocks, tokens));
  if (!family->has_stages) {
    for (double& cost : costs) cost /= static_cast<double>(costs.size());
  }
  Work work;
  for (size_t b = 0; b < costs.size(); ++b) {
    work.products += costs[b];
    if (b > 0 && b + 1 < costs.size()) work.of_one_pass += costs[b];
  }
  TESSERA_ASSIGN_OR_RETURN(const auto whole, models::BuildModel(model, dry));
  double idle = 0;  // a share of each layer's experts
  whole->VisitModules([&](nn::Module& m) {
    if (const auto* router = dynamic_cast<const nn::Router*>(&m)) {
      idle = 1 - static_cast<double>(router->config().experts_per_token) /
                     static_cast<double>(router->config().num_experts);
    }
  });
  double experts = 0, frozen = 0;
  whole->VisitModules([&](nn::Module& m) {
    const bool expert = idle > 0 && m.path().find(".experts.") != std::string::npos;
    for (const auto& p : m.own_parameters()) {
      const auto elements = static_cast<double>(p->placement.global_shape().numel());
      if (expert) experts += elements;
      const bool trains = trained.contains(p->name) ||
                          (p->tied_to != nullptr && trained.contains(p->tied_to->name));
      if (!m.looks_up() && !trains) frozen += elements * (expert ? 1 - idle : 1);
    }
  });
  work.products -= idle * experts;
  work.of_one_pass -= idle * experts;
  frozen *= static_cast<double>(dist::PlacesOfToken(*whole));
  // A token is read by one of the two sides.
  const double sides = whole->encoder_decoder() != nullptr ? 2 : 1;
  return Work{work.products / sides, frozen / sides, work.of_one_pass / sides, costs};
}

}  // namespace

int64_t RankPlan::SentBetweenNodes(int64_t devices_per_node) const {
  int64_t bytes = 0;
  for (const auto& [to, sent] : links) {
    if (to / devices_per_node != axes.rank / devices_per_node) bytes += sent;
  }
  return bytes;
}

int64_t Plan::peak_bytes() const {
  int64_t peak = 0;
  for (const RankPlan& rank : ranks) peak = std::max(peak, rank.peak_bytes);
  return peak;
}

int64_t Plan::host_bytes() const {
  int64_t bytes = 0;
  for (const RankPlan& rank : ranks) bytes = std::max(bytes, rank.host_bytes);
  return bytes;
}

StatusOr<Plan> MakePlan(const RunConfig& given, const PlanOptions& options) {
  RunConfig config = given;
  TESSERA_RETURN_IF_ERROR(config.ValidateFor(options.ranks));
  const bool data_assumed = LacksData(config);
  const dist::MeshSizes sizes = config.mesh_sizes();
  const int data_ranks = options.ranks / (sizes.tp * sizes.pp * sizes.cp);
  if (data_assumed) {
    TESSERA_RETURN_IF_ERROR(AssumeData(data_ranks, options.cache, &config));
  }
  StatusOr<OpenedRun> opened = OpenRun(config, options.cache);
  if (!opened.ok() && data_assumed) {
    std::string why = Message(opened.status());
    const std::string prefix = config.data[0] + ": ";
    if (why.starts_with(prefix)) why.erase(0, prefix.size());
    return Failure(opened.status().code(),
                   "data is not there, and the tokens that stand for it do ",
                   "not do for this model: ", why);
  }
  TESSERA_RETURN_IF_ERROR(opened.status());
  SetUpProcess(opened->setup->config, {.sharing = options.ranks});
  TESSERA_ASSIGN_OR_RETURN(Plan plan, PlanOf(*opened, options));
  plan.data_assumed = data_assumed;
  if (data_assumed) plan.steps_per_epoch = std::nullopt;
  return plan;
}

StatusOr<Plan> PlanOf(const OpenedRun& run, const PlanOptions& options) {
  const RunSetup& setup = *run.setup;
  const RunConfig& config = setup.config;
  // A run asks its reference model, later.
  for (const auto& pairs : setup.data.preferences) {
    pairs->SetReference(std::vector<double>(static_cast<size_t>(2 * pairs->size()), 0.0));
  }
  Plan plan;
  const Device device =
      Device::Meta(config.device.starts_with("cuda") ? DeviceType::kCuda : DeviceType::kCpu);
  TESSERA_ASSIGN_OR_RETURN(const AllRehearsed all, RehearseRanks(run, options, device));
  plan.config = setup.config;
  plan.task = setup.task->name;
  plan.parameter_count = setup.parameter_count;
  plan.ranks = ListRanks(all, config.mesh_sizes(), options.ranks);
  const Rehearsed& first = all.by_place.begin()->second;
  plan.tokens_per_step = first.tokens;
  plan.total_steps = first.total_steps;
  if (setup.data.train->size() != data::kUnknownSize) {
    plan.steps_per_epoch = first.steps_per_epoch;
  }
  ShareOutCheckpoint(all, &plan);
  CountSavedCopies(setup.config, device, &plan);
  std::set<std::string> trained;
  for (const auto& [place, found] : all.by_place) {
    trained.insert(found.trained.begin(), found.trained.end());
  }
  TESSERA_ASSIGN_OR_RETURN(const Work work,
                           WorkPerToken(*run.model, setup.config.seq_len.value_or(0), trained));
  // Two for a multiply-add, three for the forward pass and the two gradients, of which weights that
  // do not train have one.
  plan.flops_per_token = 6 * work.products - 2 * work.frozen;
  plan.block_costs = work.blocks;
  plan.flops_run_per_token =
      plan.flops_per_token + (setup.config.checkpoint_activations ? 2 * work.of_one_pass : 0);
  return plan;
}

}  // namespace tessera::train
