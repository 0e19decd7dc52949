#include "train/run_setup.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "core/file.h"
#include "core/thread_pool.h"
#include "data/dataset/indexed_dataset.h"
#include "data/dataset/packed_dataset.h"
#include "data/dataset/tokenize.h"
#include "dist/comm/agreement.h"
#include "models/hub/load_model.h"
#include "train/agreement.h"

namespace tessera::train {
namespace {

using data::DataPart;
using data::IndexedDataset;

data::TextInputOptions TextOptions(const std::string& json_key) {
  data::TextInputOptions options;
  options.json_key = json_key;
  return options;
}

// Text or a ready dataset, as one stream of tokens.
absl::StatusOr<std::shared_ptr<const IndexedDataset>> OpenData(const std::string& path,
                                                               const data::Tokenizer* tokenizer,
                                                               const std::string& cache_prefix,
                                                               const std::string& json_key) {
  if (const auto prefix = data::IndexedDatasetPrefix(path)) return IndexedDataset::Open(*prefix);
  if (tokenizer == nullptr) {
    return InvalidArgument(path, ": text needs a tokenizer; give --tokenizer");
  }
  TESSERA_RETURN_IF_ERROR(MakeDirectories(cache_prefix.substr(0, cache_prefix.rfind('/'))));
  data::TokenizeOptions options;
  options.input = TextOptions(json_key);
  TESSERA_RETURN_IF_ERROR(
      data::TokenizeToIndexedDataset(*tokenizer, {path}, cache_prefix, options).status());
  return IndexedDataset::Open(cache_prefix);
}

absl::StatusOr<std::shared_ptr<const data::Dataset>> Pack(
    std::shared_ptr<const IndexedDataset> tokens, const data::PackedDatasetOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(auto packed, data::PackedDataset::Create(std::move(tokens), options));
  return std::shared_ptr<const data::Dataset>(std::move(packed));
}

// The tokenizer that the configuration names, or the model's own.
absl::StatusOr<std::unique_ptr<data::Tokenizer>> FindTokenizer(const RunConfig& config,
                                                               const models::Preset* preset) {
  std::string spec = config.tokenizer;
  if (spec.empty() && preset != nullptr) spec = preset->tokenizer;
  if (spec.empty() && preset == nullptr) spec = config.model;
  if (spec.empty()) {
    if (data::IndexedDatasetPrefix(config.data)) return nullptr;
    return InvalidArgument(
        "model '", config.model,
        "' comes without a tokenizer; give --tokenizer (a folder, byte or char)");
  }
  if (data::IndexedDatasetPrefix(config.data)) return data::LoadTokenizer(spec);
  return data::MakeTokenizer(spec, {config.data}, TextOptions(config.json_key));
}

// A preset's configuration with the tokenizer's vocabulary.
nlohmann::json PresetConfig(const models::Preset& preset, const data::Tokenizer* tokenizer) {
  nlohmann::json json = preset.config;
  if (tokenizer == nullptr) return json;
  json["vocab_size"] = tokenizer->vocab_size();
  const auto eos = tokenizer->eos_id();
  json["eos_token_id"] = eos ? nlohmann::json(*eos) : nlohmann::json();
  json["bos_token_id"] = json["eos_token_id"];
  return json;
}

absl::StatusOr<nn::BuildContext> ContextFor(const RunConfig& config, const dist::Mesh& mesh) {
  nn::BuildContext context;
  context.dtype = *ParseDType(config.dtype);
  TESSERA_ASSIGN_OR_RETURN(context.device, Device::Parse(config.device));
  TESSERA_RETURN_IF_ERROR(CheckDeviceAvailable(context.device));
  context.seed = static_cast<uint64_t>(config.seed);
  context.tensor_parallel = mesh.tp();
  context.sequence_parallel = config.sequence_parallel;
  return context;
}

absl::Status FillInModelDefaults(const models::Model& model, RunConfig* config) {
  const int64_t positions = model.max_positions();
  if (config->seq_len == 0) config->seq_len = positions;
  if (positions > 0 && config->seq_len > positions) {
    return InvalidArgument("seq_len ", config->seq_len, " is longer than the model's ", positions,
                           " positions");
  }
  if (config->seq_len <= 0)
    return InvalidArgument("this model has no seq_len of its own; give one");
  return absl::OkStatus();
}

}  // namespace

namespace {

// The host's name and the processors this rank may use: ranks with the same share them.
std::string Place() {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  std::string place = host;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) return place;
  place += ' ';
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &cpus)) place += Concat(i, ",");
  }
  return place;
}

std::string HostOf(const std::string& place) { return place.substr(0, place.find(' ')); }

// Threads of this rank where none are asked for: its share of the processors.
int DefaultThreads(const std::vector<std::string>& places, int rank) {
  const auto sharing =
      static_cast<int>(std::count(places.begin(), places.end(), places[static_cast<size_t>(rank)]));
  return std::max(1, AvailableCores() / sharing);
}

bool LeadsItsHost(const std::vector<std::string>& places, int rank) {
  for (int r = 0; r < rank; ++r) {
    if (HostOf(places[static_cast<size_t>(r)]) == HostOf(places[static_cast<size_t>(rank)])) {
      return false;
    }
  }
  return true;
}

absl::Status BuildTheModel(const models::Preset* preset, const dist::Mesh& mesh, RunSetup* setup) {
  RunConfig& config = setup->config;
  TESSERA_ASSIGN_OR_RETURN(const nn::BuildContext context, ContextFor(config, mesh));
  TESSERA_ASSIGN_OR_RETURN(setup->tokenizer, FindTokenizer(config, preset));
  if (preset != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(
        setup->model, models::BuildModel(PresetConfig(*preset, setup->tokenizer.get()), context));
  } else {
    models::LoadOptions load;
    load.build = context;
    load.require_weights = false;
    TESSERA_ASSIGN_OR_RETURN(setup->model, models::LoadModel(config.model, load));
  }
  models::Model& model = *setup->model;
  TESSERA_RETURN_IF_ERROR(CheckIsCausal(model));
  if (setup->tokenizer != nullptr && setup->tokenizer->vocab_size() > model.vocab_size()) {
    return InvalidArgument("the tokenizer's ", setup->tokenizer->vocab_size(),
                           " ids do not fit the model's vocabulary of ", model.vocab_size());
  }
  TESSERA_RETURN_IF_ERROR(FillInModelDefaults(model, &config));
  if (config.dropout >= 0) model.SetDropout(config.dropout);
  model.set_checkpoint_activations(config.checkpoint_activations);
  return absl::OkStatus();
}

absl::Status OpenTheData(RunSetup* setup) {
  const RunConfig& config = setup->config;
  data::PackedDatasetOptions pack;
  pack.seq_len = config.seq_len;
  pack.vocab_size = setup->model->vocab_size();
  pack.reset_at_documents = config.reset_at_documents;
  TESSERA_ASSIGN_OR_RETURN(const auto tokens,
                           OpenData(config.data, setup->tokenizer.get(),
                                    JoinPath(config.out, "data/train"), config.json_key));
  if (!config.val_data.empty()) {
    TESSERA_ASSIGN_OR_RETURN(setup->train_data, Pack(tokens, pack));
    TESSERA_ASSIGN_OR_RETURN(const auto held_out,
                             OpenData(config.val_data, setup->tokenizer.get(),
                                      JoinPath(config.out, "data/val"), config.json_key));
    TESSERA_ASSIGN_OR_RETURN(setup->val_data, Pack(held_out, pack));
    return absl::OkStatus();
  }
  pack.validation_fraction = config.val_fraction;
  pack.part = config.val_fraction > 0 ? DataPart::kTrain : DataPart::kAll;
  TESSERA_ASSIGN_OR_RETURN(setup->train_data, Pack(tokens, pack));
  if (config.val_fraction > 0) {
    pack.part = DataPart::kValidation;
    TESSERA_ASSIGN_OR_RETURN(setup->val_data, Pack(tokens, pack));
  }
  return absl::OkStatus();
}

// "rank 3 has lr 0.001, rank 0 has 0.0003": the first key in which a rank differs from the most
// frequent configuration.
absl::Status CompareConfigurations(const std::vector<std::string>& all) {
  size_t usual = 0;
  for (size_t r = 1; r < all.size(); ++r) {
    if (std::count(all.begin(), all.end(), all[r]) >
        std::count(all.begin(), all.end(), all[usual])) {
      usual = r;
    }
  }
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r] == all[usual]) continue;
    const auto mine = nlohmann::json::parse(all[r], nullptr, false);
    const auto theirs = nlohmann::json::parse(all[usual], nullptr, false);
    for (const auto& [key, value] : theirs.items()) {
      if (!mine.contains(key) || mine[key] == value) continue;
      return InvalidArgument("rank ", r, " was started with another configuration: ", key, " is ",
                             mine[key].dump(), " there and ", value.dump(), " on rank ", usual);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckIsCausal(const models::Model& model) {
  if (model.num_cache_layers() > 0 && !model.decoder_start()) return absl::OkStatus();
  return InvalidArgument(
      "a '", model.config().value("model_type", ""),
      "' model is no causal language model, which is what this version trains and "
      "evaluates from the command line");
}

absl::StatusOr<dist::Mesh> MakeMesh(const RunConfig& config, const dist::Group& world) {
  const dist::Mesh whole(world, {});
  TESSERA_RETURN_IF_ERROR(Agree(whole, config.ValidateFor(world->size())));
  if (world->size() == 1) return whole;
  nlohmann::ordered_json json = config.ToJson();
  json.erase("threads");  // a rank's own
  TESSERA_RETURN_IF_ERROR(
      Agree(whole, CompareConfigurations(dist::GatherStrings(*world, json.dump()))));
  return dist::Mesh(world, {.tp = static_cast<int>(config.tp), .pp = static_cast<int>(config.pp)});
}

absl::StatusOr<RunSetup> PrepareRun(const RunConfig& requested, const dist::Mesh& mesh) {
  RunSetup setup;
  setup.config = requested;
  RunConfig& config = setup.config;
  const int rank = mesh.world()->rank();
  const std::vector<std::string> places = dist::GatherStrings(*mesh.world(), Place());
  SetNumThreads(config.threads > 0 ? static_cast<int>(std::min<int64_t>(config.threads, 1024))
                                   : DefaultThreads(places, rank));
  const models::Preset* preset = models::FindPreset(config.model);
  absl::Status status = config.Validate();
  if (status.ok() && preset == nullptr && !IsDirectory(config.model)) {
    status = NotFound("'", config.model,
                      "' is neither a preset (`tessera models` lists them) nor a folder");
  }
  if (status.ok()) status = BuildTheModel(preset, mesh, &setup);
  TESSERA_RETURN_IF_ERROR(Agree(mesh, status));
  // The data are made by one rank, then by those of other hosts (which find them made where hosts
  // share the directory), and opened by all.
  for (int round = 0; round < 3; ++round) {
    const int mine = rank == 0 ? 0 : LeadsItsHost(places, rank) ? 1 : 2;
    TESSERA_RETURN_IF_ERROR(Agree(mesh, round == mine ? OpenTheData(&setup) : absl::OkStatus()));
  }
  return setup;
}

absl::StatusOr<std::shared_ptr<const data::Dataset>> OpenEvaluationData(
    const std::string& data, const data::Tokenizer* tokenizer, const std::string& cache_prefix,
    int64_t seq_len, int64_t vocab_size, const std::string& json_key) {
  TESSERA_ASSIGN_OR_RETURN(auto tokens, OpenData(data, tokenizer, cache_prefix, json_key));
  data::PackedDatasetOptions pack;
  pack.seq_len = seq_len;
  pack.vocab_size = vocab_size;
  return Pack(std::move(tokens), pack);
}

}  // namespace tessera::train
