// SPDX-License-Identifier: Apache-2.0
#include "dist/pipeline/stage.h"

#include <algorithm>
#include <utility>

#include "autograd/autograd.h"
#include "base/error.h"
#include "base/json_text.h"
#include "models/family.h"
#include "nlohmann/json.hpp"
#include "optim/modules/module_parameters.h"

namespace tessera::dist {
namespace {

std::vector<Chunk> ChunksOf(const std::vector<std::unique_ptr<models::Model>>& models) {
  std::vector<Chunk> chunks;
  for (const auto& owned : models) {
    models::Model* model = owned.get();
    std::vector<models::BlockKeys> blocks;
    const auto [first, end] = model->block_range();
    for (int block = first; block < end; ++block) blocks.push_back(model->keys_of_block(block));
    chunks.push_back(
        {.modules = {model},
         .run = [model](const models::Bundle& in,
                        const models::RunOptions& options) { return model->Run(in, options); },
         .keys = models::InSequence(blocks)});
  }
  return chunks;
}

std::vector<nn::Parameter*> ParametersOf(const Chunk& chunk) {
  std::vector<nn::Parameter*> parameters;
  for (nn::Module* module : chunk.modules) {
    for (nn::Parameter* p : module->Parameters()) parameters.push_back(p);
  }
  return parameters;
}

const nn::Parameter& SourceOf(const nn::Parameter& p) {
  return p.tied_to == nullptr ? p : SourceOf(*p.tied_to);
}

// Every rank's text, in the order of the ranks.
std::vector<std::string> ShareTexts(const std::string& mine, Communicator& group) {
  const int64_t ranks = group.size();
  const Tensor length = Tensor::FromVector<int64_t>({std::ssize(mine)}, {1});
  const Tensor lengths = Empty({ranks}, DType::kInt64);
  group.AllGather(lengths, length)->Wait();
  const int64_t longest = std::max<int64_t>(
      1, *std::max_element(lengths.data<int64_t>(), lengths.data<int64_t>() + ranks));
  std::vector<uint8_t> bytes(mine.begin(), mine.end());
  bytes.resize(static_cast<size_t>(longest));
  const Tensor all = Empty({ranks, longest}, DType::kUInt8);
  group.AllGather(all, Tensor::FromVector(bytes, {longest}))->Wait();
  std::vector<std::string> texts;
  for (int64_t r = 0; r < ranks; ++r) {
    const auto* from = reinterpret_cast<const char*>(all.data<uint8_t>() + r * longest);
    texts.emplace_back(from, static_cast<size_t>(lengths.data<int64_t>()[r]));
  }
  return texts;
}

}  // namespace

Stage::Stage(std::vector<std::unique_ptr<models::Model>> models, Group pp)
    : Stage(ChunksOf(models), std::move(pp)) {
  models_ = std::move(models);
}

Stage::Stage(std::vector<Chunk> chunks, Group pp) : chunks_(std::move(chunks)), pp_(std::move(pp)) {
  TESSERA_CHECK(!chunks_.empty(), "pipeline", "rank ", pp_->rank(), " has no chunk");
  ShareReplicas();
  ExchangeNames();
  CheckKeys();
}

void Stage::CheckKeys() const {
  nlohmann::json mine = nlohmann::json::array();
  for (const Chunk& chunk : chunks_) {
    if (!chunk.keys) {
      mine.push_back(nullptr);
      continue;
    }
    mine.push_back({chunk.keys->takes.names(), chunk.keys->may_take.names(),
                    chunk.keys->gives.names(), chunk.keys->drops.names()});
  }
  const std::vector<std::string> texts = ShareTexts(mine.dump(), *pp_);
  std::vector<models::BlockKeys> chunks;
  for (size_t local = 0; local < chunks_.size(); ++local) {
    for (const std::string& text : texts) {
      const auto told = ParseJson(text, "keys of a stage").value();
      if (local >= told.size() || told[local].is_null()) return;
      const auto names = [&](size_t i) {
        return models::KeyNames(told[local].at(i).get<std::vector<std::string>>());
      };
      chunks.push_back(
          {.takes = names(0), .may_take = names(1), .gives = names(2), .drops = names(3)});
    }
  }
  const Status fits = models::InputsOf(chunks, "chunk").status();
  TESSERA_CHECK(fits.ok(), "pipeline", Message(fits));
}

// A weight that an earlier chunk of this rank holds as well: one storage, uses of their own.
void Stage::ShareReplicas() {
  std::map<std::string, nn::Parameter*> held;
  for (const Chunk& chunk : chunks_) {
    const std::vector<nn::Parameter*> parameters = ParametersOf(chunk);
    for (nn::Parameter* p : parameters) {
      if (p->tied_to != nullptr) continue;
      const auto [first, fresh] = held.emplace(p->name, p);
      if (fresh) continue;
      TESSERA_CHECK(first->second != p, "pipeline", "two chunks of rank ", rank(),
                    " have one module, that of '", p->name, "'");
      for (nn::Parameter* use : parameters) {
        if (use != p && use->tied_to != p) continue;
        const bool trains = RequiresGrad(use->tensor);
        use->tensor = first->second->tensor.Detach();
        if (trains) RequireGrad(use->tensor);
        use->tied_to = first->second;
      }
    }
  }
}

namespace {

// A parameter, or a use of one that is tied, as its rank tells the others of it.
struct Told {
  int rank;
  int chunk;  // of the whole model
  std::string weight;
  bool tied;      // by name: a replica's own leaf is the weight's own use
  int64_t local;  // its number among the rank's parameters
};

std::vector<Told> ReadTold(const std::vector<std::string>& texts) {
  std::vector<Told> all;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const auto list = ParseJson(texts[rank], "parameters of a stage").value_or(nullptr);
    TESSERA_CHECK(list.is_array(), "pipeline", "rank ", rank, " told no list of parameters");
    for (const auto& entry : list) {
      all.push_back({.rank = static_cast<int>(rank),
                     .chunk = entry.at(0).get<int>(),
                     .weight = entry.at(1).get<std::string>(),
                     .tied = entry.at(2).get<bool>(),
                     .local = entry.at(3).get<int64_t>()});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Told& a, const Told& b) { return a.chunk < b.chunk; });
  return all;
}

}  // namespace

void Stage::ExchangeNames() {
  nlohmann::json mine = nlohmann::json::array();
  std::vector<nn::Parameter*> parameters;
  for (size_t v = 0; v < chunks_.size(); ++v) {
    const int chunk = static_cast<int>(v) * stages() + rank();
    for (nn::Parameter* p : ParametersOf(chunks_[v])) {
      const std::string& weight = SourceOf(*p).name;
      mine.push_back({chunk, weight, p->name != weight, parameters.size()});
      parameters.push_back(p);
    }
  }
  const std::vector<Told> all = ReadTold(ShareTexts(mine.dump(), *pp_));
  std::map<std::string, std::vector<const Told*>> by_weight;
  std::vector<std::string> order;
  for (const Told& told : all) {
    std::vector<const Told*>& uses = by_weight[told.weight];
    if (uses.empty()) {
      places_[told.weight] = {.index = std::ssize(order), .owner = told.rank};
      order.push_back(told.weight);
    }
    uses.push_back(&told);
  }
  for (const std::string& name : order) {
    std::vector<const Told*>& uses = by_weight[name];
    std::stable_sort(uses.begin(), uses.end(),
                     [](const Told* a, const Told* b) { return a->tied < b->tied; });
    Tie tie;
    for (const Told* told : uses) {
      Use use{.rank = told->rank};
      if (told->rank == rank()) {
        use.parameter = parameters[static_cast<size_t>(told->local)];
        tie.weight = const_cast<nn::Parameter*>(&SourceOf(*use.parameter));
      }
      tie.uses.push_back(use);
      tie.holders.push_back(told->rank);
    }
    std::sort(tie.holders.begin(), tie.holders.end());
    tie.holders.erase(std::unique(tie.holders.begin(), tie.holders.end()), tie.holders.end());
    places_[name].owner = tie.holders.front();
    if (tie.weight != nullptr && tie.holders.size() > 1) ties_.push_back(std::move(tie));
  }
}

// --- Parameters ----------------------------------------------------------------------------------

std::vector<nn::Parameter*> Stage::Parameters() const {
  std::vector<nn::Parameter*> all;
  for (const Chunk& chunk : chunks_) {
    for (nn::Parameter* p : ParametersOf(chunk)) all.push_back(p);
  }
  return all;
}

Device Stage::device() const { return optim::DeviceOf(Parameters()); }

std::vector<optim::Parameter> Stage::OptimizedParameters() const {
  return optim::ParametersOf(Parameters());
}

std::vector<nn::Parameter*> Stage::LeavesOfChunk(int local_chunk) const {
  std::vector<nn::Parameter*> leaves;
  for (nn::Parameter* p : ParametersOf(chunks_.at(static_cast<size_t>(local_chunk)))) {
    if (RequiresGrad(p->tensor) && !p->elsewhere) leaves.push_back(p);
  }
  return leaves;
}

void Stage::ZeroGrad() const {
  for (const Chunk& chunk : chunks_) {
    for (nn::Module* module : chunk.modules) module->ZeroGrad();
  }
}

bool Stage::Owns(const std::string& name) const {
  const auto found = places_.find(name);
  return found != places_.end() && found->second.owner == rank();
}

std::vector<std::string> Stage::SharedWeights() const {
  std::vector<std::string> names;
  for (const Tie& tie : ties_) names.push_back(tie.weight->name);
  return names;
}

// --- Tied gradients ------------------------------------------------------------------------------

void Stage::JoinTiedGradients() const {
  JoinTiedGradients(
      [](const nn::Parameter& use) { return optim::GradOrNone(use.tensor); },
      [](const nn::Parameter& weight, const Tensor& sum) { tessera::SetGrad(weight.tensor, sum); });
  for (const Tie& tie : ties_) {
    for (const Use& use : tie.uses) {
      if (use.parameter == nullptr || use.parameter == tie.weight) continue;
      if (RequiresGrad(use.parameter->tensor)) tessera::SetGrad(use.parameter->tensor, Tensor());
    }
  }
}

// All holders go through the weights in one order, and through the uses of each.
void Stage::JoinTiedGradients(const GetGradient& get, const SetGradient& set) const {
  const NoGrad no_grad;
  for (const Tie& tie : ties_) {
    if (!RequiresGrad(tie.weight->tensor)) continue;
    const auto place = places_.find(tie.weight->name);
    Join(tie, kFirstTag + static_cast<int>(place->second.index), get, set);
  }
}

void Stage::Join(const Tie& tie, int tag, const GetGradient& get, const SetGradient& set) const {
  // This rank's uses go to every other holder, each behind a word that says how many dimensions it
  // has (-1: no gradient) and its shape.
  std::vector<std::pair<CommHandlePtr, Tensor>> under_way;
  std::vector<Tensor> grads(tie.uses.size());
  const auto send = [&](const Tensor& t) {
    for (const int holder : tie.holders) {
      if (holder != rank()) under_way.emplace_back(pp_->Send(t, holder, tag), t);
    }
  };
  DType dtype = GradDType(tie.weight->tensor);
  const Device device = tie.weight->tensor.device();
  for (size_t i = 0; i < tie.uses.size(); ++i) {
    if (tie.uses[i].parameter == nullptr) continue;
    const Tensor grad = get(*tie.uses[i].parameter);
    std::vector<int64_t> head(kMaxDims + 1, -1);
    if (grad.defined()) {
      head[0] = grad.ndim();
      std::copy(grad.shape().begin(), grad.shape().end(), head.begin() + 1);
      grads[i] = grad.dtype() == dtype ? grad.ContiguousCopy() : CastCopy(grad, dtype);
    }
    send(Tensor::FromVector(head, {kMaxDims + 1}));
    if (grad.defined() && grad.numel() > 0) send(grads[i]);
  }
  Tensor sum;
  for (size_t i = 0; i < tie.uses.size(); ++i) {
    const Use& use = tie.uses[i];
    if (use.parameter == nullptr) {
      const Tensor head = Empty({kMaxDims + 1}, DType::kInt64);
      pp_->Receive(head, use.rank, tag)->Wait();
      const int64_t* words = head.data<int64_t>();
      if (words[0] < 0) continue;
      grads[i] = Empty(Shape(words + 1, words + 1 + words[0]), dtype, device);
      if (grads[i].numel() > 0) pp_->Receive(grads[i], use.rank, tag)->Wait();
    }
    if (!grads[i].defined()) continue;
    if (sum.defined()) {
      AddInto(sum, grads[i]);
    } else {
      sum = CastCopy(grads[i], dtype);
    }
  }
  for (auto& [handle, t] : under_way) handle->Wait();
  if (sum.defined()) set(*tie.weight, sum);
}

StatusOr<Stage> BuildStage(const nlohmann::json& config, const nn::BuildContext& context,
                           const std::vector<int>& cuts, const Stage::Group& pp) {
  const int chunks = static_cast<int>(cuts.size()) - 1;
  if (chunks < 1 || chunks % pp->size() != 0) {
    return InvalidArgument("a model cut into ", chunks, " chunks has none for some of ", pp->size(),
                           " stages");
  }
  std::vector<std::unique_ptr<models::Model>> models;
  for (int chunk = pp->rank(); chunk < chunks; chunk += pp->size()) {
    nn::BuildContext mine = context;
    mine.first_block = cuts[static_cast<size_t>(chunk)];
    mine.end_block = cuts[static_cast<size_t>(chunk) + 1];
    TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<models::Model> model,
                             models::BuildModel(config, mine));
    models.push_back(std::move(model));
  }
  return Stage(std::move(models), pp);
}

}  // namespace tessera::dist
