// SPDX-License-Identifier: Apache-2.0
// FlagAI's Trainer on T5: a program with a dataset, a collate function and arguments of its own.
//
//   flagai_t5 settings.json
//
//   {"env_type": "pytorch", "model_name": "t5-small", "tokenizer": "t5-small", "src_file":
//   "src.txt",
//    "tgt_file": "tgt.txt", "batch_size": 8, "lr": 2e-4, "weight_decay": 1e-3, "epochs": 10,
//    "log_interval": 10, "eval_interval": 10000, "save_interval": 1000, "save_dir": "checkpoints"}
//
// Line i of `tgt_file` is the target of line i of `src_file`; the last tenth is validated on. The
// trained model goes to `<save_dir>/model`.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/base/file.h>
#include <tessera/core/batch_keys.h>
#include <tessera/data/dataset/map_dataset.h>
#include <tessera/data/dataset/subset.h>
#include <tessera/data/tokenizer/tokenizer.h>
#include <tessera/models/generation/special_tokens.h>
#include <tessera/models/hub/load_model.h>
#include <tessera/train/config/arguments.h>
#include <tessera/train/config/run_config.h>
#include <tessera/train/foreign/run_keys.h>
#include <tessera/train/trainer.h>

#include "nlohmann/json.hpp"

namespace {

using namespace tessera;

// FlagAI: env_args.add_arg("src_file", ...).
struct TextFiles {
  std::string src_file;
  std::string tgt_file;
  int64_t max_length = 128;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<TextFiles>("Texts")
            .Add("src_file", &TextFiles::src_file, "sources, line by line")
            .Add("tgt_file", &TextFiles::tgt_file, "their targets")
            .Add("max_length", &TextFiles::max_length, "tokens of either", {.least = 2}));
    return *table;
  }
};

struct Pair {
  std::vector<int64_t> source;
  std::vector<int64_t> target;
};

StatusOr<std::vector<std::string>> ReadLines(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::vector<int64_t> Encode(const data::Tokenizer& tokenizer, const std::string& text,
                            int64_t max_length) {
  const std::vector<int32_t> ids = tokenizer.Encode(text);
  const auto room = static_cast<size_t>(max_length - 1);
  std::vector<int64_t> row(ids.begin(), ids.begin() + std::min(ids.size(), room));
  if (tokenizer.eos_id()) row.push_back(*tokenizer.eos_id());
  return row;
}

// The rows as one tensor, as long as the longest; `padding` behind the others.
template <typename Get>
Tensor Padded(std::span<const Pair> pairs, int64_t padding, Get row_of) {
  size_t longest = 0;
  for (const Pair& pair : pairs) longest = std::max(longest, row_of(pair).size());
  std::vector<int64_t> ids;
  for (const Pair& pair : pairs) {
    const std::vector<int64_t>& row = row_of(pair);
    ids.insert(ids.end(), row.begin(), row.end());
    ids.insert(ids.end(), longest - row.size(), padding);
  }
  return Tensor::FromVector(ids, {std::ssize(pairs), static_cast<int64_t>(longest)});
}

// FlagAI: trainer.train(..., collate_fn=collate_fn).
StatusOr<data::Batch> Collate(std::span<const Pair> pairs) {
  const auto source = [](const Pair& pair) { return pair.source; };
  const auto ones = [](const Pair& pair) { return std::vector<int64_t>(pair.source.size(), 1); };
  const auto target = [](const Pair& pair) { return pair.target; };
  return data::BatchOf({{keys::kInputIds, Padded(pairs, 0, source)},
                        {keys::kAttentionMask, Padded(pairs, 0, ones)},
                        {keys::kLabels, Padded(pairs, data::kIgnoreLabel, target)}});
}

StatusOr<train::TaskData> OpenData(const TextFiles& files,
                                   std::shared_ptr<const data::Tokenizer> tokenizer) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> sources, ReadLines(files.src_file));
  TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> targets, ReadLines(files.tgt_file));
  if (sources.size() != targets.size() || sources.size() < 2) {
    return InvalidArgument(files.src_file, " has ", sources.size(), " lines, ", files.tgt_file,
                           " has ", targets.size(), ": two pairs at least are needed");
  }
  const int64_t size = std::ssize(sources);
  const auto get_item = [tokenizer, sources = std::move(sources), targets = std::move(targets),
                         limit = files.max_length](int64_t index) -> StatusOr<Pair> {
    const auto i = static_cast<size_t>(index);
    return Pair{.source = Encode(*tokenizer, sources[i], limit),
                .target = Encode(*tokenizer, targets[i], limit)};
  };
  const auto all = std::make_shared<data::MapDataset<Pair>>(size, get_item, Collate);
  train::TaskData data;
  std::tie(data.train, data.validation) =
      data::SplitDataset(all, {.fraction = 0.1, .from_end = true});
  return data;
}

Status Train(const std::string& settings) {
  train::RunConfig config;
  TESSERA_RETURN_IF_ERROR(train::ReadRunConfig(settings, &config));
  TESSERA_ASSIGN_OR_RETURN(const auto files, config.Part<TextFiles>());
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<const data::Tokenizer> tokenizer,
                           data::LoadTokenizer(config.tokenizer));
  TESSERA_ASSIGN_OR_RETURN(const train::TaskData data, OpenData(files, tokenizer));
  TESSERA_ASSIGN_OR_RETURN(nlohmann::json changes, config.Overrides());
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json preset, models::ReadModelConfig(config.model));
  if (!IsDirectory(config.model)) changes.update(models::VocabularyOf(*tokenizer, preset));
  TESSERA_ASSIGN_OR_RETURN(
      const std::unique_ptr<models::Model> model,
      models::LoadModel(config.model, {.build = {.seed = static_cast<uint64_t>(config.seed)},
                                       .config_changes = changes}));
  train::Trainer trainer(config, *model, data);
  TESSERA_ASSIGN_OR_RETURN(const train::TrainResult result, trainer.Train());
  if (!result.stopped_by.empty()) return OkStatus();
  return trainer.SaveModel(JoinPath(config.out, "model"), tokenizer.get());
}

}  // namespace

int main(int argc, char** argv) {
  tessera::train::AddArguments<TextFiles>();
  const Status status =
      argc == 2 ? Train(argv[1]) : InvalidArgument("one file with the settings is needed");
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", Message(status).c_str());
  return 1;
}
