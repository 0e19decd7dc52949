// SPDX-License-Identifier: Apache-2.0
// `tessera inspect`: what is in a file or a folder, and whether it is whole.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/printable_text.h"
#include "core/cpu_isa.h"
#include "core/safetensors.h"
#include "core/thread_pool.h"
#include "data/dataset/indexed_dataset.h"
#include "data/dataset/record_input.h"
#include "data/tokenizer/tokenizer.h"
#include "dist/checkpoint/checkpoint.h"
#include "models/hub/adapter_config.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/gguf/gguf_rotary.h"
#include "models/hub/load_model.h"
#include "models/hub/other_checkpoints.h"
#include "models/hub/weight_files.h"
#include "models/model.h"
#include "models/open/run_folder.h"
#include "nlohmann/json.hpp"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/gpus.h"
#include "tools/inspect_table.h"
#include "tools/named_tensors.h"
#include "tools/settings.h"

namespace tessera::tools {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  return "[" + absl::StrJoin(shape, ", ") + "]";
}

// Names that are longer stand out of the column, so that one of them does not widen all lines.
constexpr size_t kWidestName = 80;
constexpr size_t kLongestName = 1000;

// At least `width` characters, the last of them a space.
std::string Padded(const std::string& name, size_t width) {
  std::string text = PrintableLine(name, kLongestName);
  text.resize(std::max(width, text.size() + 1), ' ');
  return text;
}

int64_t Elements(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return n;
}

// How many elements are infinite or not a number; 0 for integers. Reads every byte.
int64_t CountNotFinite(const TensorView& view) {
  if (!IsFloating(view.dtype)) return 0;
  int64_t count = 0;
  DispatchFloat(view.dtype, "inspect", [&](auto zero) {
    using T = decltype(zero);
    for (int64_t at = 0; at < view.nbytes; at += static_cast<int64_t>(sizeof(T))) {
      T value;
      std::memcpy(&value, view.data + at, sizeof(T));
      if (!std::isfinite(static_cast<double>(value))) ++count;
    }
  });
  return count;
}

// The table of one file's tensors, appended to `out`.
Status DescribeTensors(const models::WeightFile& file, std::string* out) {
  int64_t elements = 0;
  int64_t bytes = 0;
  int64_t not_finite = 0;
  size_t width = 6;
  for (const models::WeightEntry& entry : file.entries()) {
    width = std::max(width, std::min(entry.name.size(), kWidestName));
  }
  *out += file.path() + "\n";
  for (const auto& [key, value] : file.metadata()) {
    *out += Concat("  metadata ", PrintableLine(Concat(key, ": ", value), kLongestName), "\n");
  }
  for (const models::WeightEntry& entry : file.entries()) {
    *out += "  " + Padded(entry.name, width + 2) + Padded(entry.dtype, 8) + ShapeText(entry.shape);
    elements += Elements(entry.shape);
    bytes += entry.nbytes;
    if (ParseSafetensorsDType(entry.dtype)) {
      std::vector<std::byte> made;
      TESSERA_ASSIGN_OR_RETURN(const TensorView view, file.Get(entry.name, &made));
      const int64_t bad = CountNotFinite(view);
      if (bad > 0) *out += Concat("  ", bad, " of ", Elements(entry.shape), " are not finite");
      not_finite += bad;
    }
    *out += "\n";
  }
  *out += Concat("  ", file.entries().size(), " tensors, ", WithThousands(elements), " elements, ",
                 WithThousands(bytes), " bytes; the file is whole",
                 not_finite > 0 ? Concat(", ", not_finite, " values are not finite") : "", "\n");
  return OkStatus();
}

Status InspectFile(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const models::WeightFile file, models::WeightFile::Open(path));
  std::string report;
  TESSERA_RETURN_IF_ERROR(DescribeTensors(file, &report));
  return WriteOut(report);
}

// A value of a GGUF file's metadata; of a list, how long it is.
std::string ValueText(const models::GgufValue& value) {
  return std::visit(
      [](const auto& held) -> std::string {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, models::GgufArray>) {
          return std::visit(
              [](const auto& elements) -> std::string {
                if constexpr (std::is_same_v<decltype(elements), const models::GgufNoArray&>) {
                  return "";
                } else {
                  return Concat("a list of ", WithThousands(std::ssize(elements)));
                }
              },
              held);
        } else if constexpr (std::is_same_v<T, bool>) {
          return held ? "true" : "false";
        } else if constexpr (std::is_integral_v<T>) {
          return std::to_string(held);
        } else {
          return Concat(held);
        }
      },
      value);
}

// From the header alone: models that are not run here, and types that are not read, are listed too.
Status InspectGguf(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const models::GgufFile file, models::GgufFile::Open(path));
  std::string architecture, name;
  TESSERA_RETURN_IF_ERROR(file.Read("general.architecture", &architecture));
  TESSERA_RETURN_IF_ERROR(file.Read("general.name", &name));
  std::string metadata, tensors;
  for (const auto& [key, value] : file.metadata()) {
    metadata += Concat("  metadata ",
                       PrintableLine(Concat(key, ": ", ValueText(value)), kLongestName), "\n");
  }
  int64_t parameters = 0;
  int64_t bytes = 0;
  size_t width = 6;
  std::map<std::string_view, int64_t> types;
  for (const models::GgufTensor& tensor : file.tensors()) {
    width = std::max(width, std::min(tensor.name.size(), kWidestName));
  }
  for (const models::GgufTensor& tensor : file.tensors()) {
    if (!models::IsGgufFactors(tensor.name)) parameters += Elements(tensor.shape);
    bytes += tensor.nbytes;
    ++types[tensor.type.name];
    tensors += Concat("  ", Padded(tensor.name, width + 2),
                      Padded(std::string(tensor.type.name), 9), ShapeText(tensor.shape), "\n");
  }
  const std::string counts = absl::StrJoin(types, ", ", [](std::string* out, const auto& type) {
    *out += Concat(type.second, " ", type.first);
  });
  return WriteOut(
      Concat(PrintableLine(Concat(path, ": GGUF, ", architecture, name.empty() ? "" : ", ", name),
                           kLongestName),
             ", ", WithThousands(parameters), " parameters\n", metadata, tensors, "  ",
             file.tensors().size(), " tensors (", counts, "), ", WithThousands(bytes),
             " bytes; the file is whole\n"));
}

Status InspectModel(const std::string& folder) {
  const bool has_weights = models::WeightFiles::Exist(folder);
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<models::Model> model,
                           models::LoadModel(folder, {.build = {.device = Device::Meta()}}));
  std::string report = Concat(folder, ": ", model->config().at("model_type").get<std::string>(),
                              ", ", WithThousands(model->ParameterCount()),
                              " parameters, vocabulary of ", WithThousands(model->vocab_size()),
                              ", ", WithThousands(model->max_positions()), " positions\n");
  if (has_weights) {
    TESSERA_ASSIGN_OR_RETURN(const models::WeightFiles weights, models::WeightFiles::Open(folder));
    for (const models::WeightFile& file : weights.files()) {
      TESSERA_RETURN_IF_ERROR(DescribeTensors(file, &report));
    }
    report += "weights: every parameter is there, with the shape that config.json gives\n";
  } else {
    report += model->Summary() + "weights: none\n";
  }
  const auto tokenizer = data::LoadTokenizer(folder);
  if (tokenizer.ok()) {
    report += Concat("tokenizer: ", WithThousands((*tokenizer)->vocab_size()), " ids\n");
  } else if (tokenizer.status().code() == StatusCode::kNotFound) {
    report += "tokenizer: none\n";
  } else {
    return tokenizer.status();
  }
  return WriteOut(report);
}

Status InspectAdapter(const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(const auto config, models::AdapterConfig::Read(folder));
  std::string path = JoinPath(folder, std::string(models::kAdapterWeightsName));
  if (!PathExists(path)) path = JoinPath(folder, "adapter_model.bin");
  TESSERA_ASSIGN_OR_RETURN(const models::WeightFile file, models::WeightFile::Open(path));
  const char* const kind = config.use_dora ? "dora" : config.use_rslora ? "rslora" : "lora";
  std::string report =
      Concat(folder, ": an adapter, ",
             config.prefix ? "prefix"
                           : Concat(kind, " of rank ", config.r, ", alpha ", config.lora_alpha));
  if (const std::string& base = config.base_model_name_or_path; !base.empty()) {
    report += ", of " + PrintableLine(base, kLongestName);
  }
  report += "\n";
  TESSERA_RETURN_IF_ERROR(DescribeTensors(file, &report));
  return WriteOut(report);
}

Status InspectDataset(const std::string& prefix) {
  TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<const data::IndexedDataset> dataset,
                           data::IndexedDataset::Open(prefix));
  return WriteOut(Concat(prefix, ": a token dataset, ", WithThousands(dataset->num_tokens()),
                         " tokens in ", WithThousands(dataset->num_sequences()), " sequences and ",
                         WithThousands(dataset->num_documents()),
                         " documents; the index is whole\n"));
}

// Opening a checkpoint verifies structure, sizes and checksums.
Status InspectCheckpoint(const std::string& directory) {
  TESSERA_ASSIGN_OR_RETURN(const dist::Checkpoint checkpoint, dist::Checkpoint::Open(directory));
  size_t width = 0;
  int64_t elements = 0;
  for (const auto& [name, entry] : checkpoint.entries()) {
    width = std::max(width, std::min(name.size(), kWidestName));
    elements += entry.shape.numel();
  }
  std::string report = Concat(directory, ": a checkpoint of a run after step ",
                              WithThousands(checkpoint.step()), "\n");
  for (const auto& [name, entry] : checkpoint.entries()) {
    report += Concat("  ", Padded(name, width + 2), Padded(std::string(DTypeName(entry.dtype)), 10),
                     entry.shape);
    if (entry.pieces.size() > 1) report += Concat(" in ", entry.pieces.size(), " pieces");
    report += "\n";
  }
  report += Concat("  ", checkpoint.entries().size(), " tensors, ", WithThousands(elements),
                   " elements; every checksum is right\n");
  return WriteOut(report);
}

// What to name instead of a run's folder, whose config.json is the run's; nothing of another one.
StatusOr<std::vector<std::string>> PartsOfRun(const std::string& folder) {
  const std::string path = JoinPath(folder, "config.json");
  std::vector<std::string> parts;
  if (!PathExists(path)) return parts;
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json config, ReadJsonFile(path));
  if (!models::IsRunConfig(config)) return parts;
  if (IsDirectory(JoinPath(folder, "model"))) parts.push_back(JoinPath(folder, "model"));
  const std::vector<int64_t> steps = dist::ListCheckpoints(folder);
  if (!steps.empty()) parts.push_back(dist::CheckpointPath(folder, steps.back()));
  return parts;
}

Status RunInspect(const std::string& path) {
  if (IsDirectory(path)) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> parts, PartsOfRun(path));
    if (!parts.empty()) {
      return InvalidArgument(path, ": is a run's folder; name ", absl::StrJoin(parts, " or "));
    }
    if (PathExists(JoinPath(path, "config.json"))) return InspectModel(path);
    if (PathExists(JoinPath(path, "checkpoint.json"))) return InspectCheckpoint(path);
    if (PathExists(JoinPath(path, std::string(models::kAdapterConfigName)))) {
      return InspectAdapter(path);
    }
    const std::string others = models::CheckpointOfOthersIn(path);
    return InvalidArgument(path, ": neither a model (config.json) nor a checkpoint of a run",
                           others.empty() ? "" : ", but ", others);
  }
  // Token datasets and torch's weights both end in .bin; the former have an index beside them.
  const bool has_index =
      path.ends_with(".bin") && PathExists(path.substr(0, path.size() - 4) + ".idx");
  if (PathExists(path) && !has_index && !path.ends_with(".idx")) {
    TESSERA_ASSIGN_OR_RETURN(const bool columns, data::HoldsColumns(path));
    if (columns) {
      TESSERA_ASSIGN_OR_RETURN(const std::string report, DescribeTable(path));
      return WriteOut(report);
    }
    if (models::IsGgufFile(path)) return InspectGguf(path);
    if (BeginsAsWeights(path) || path.ends_with(".safetensors")) return InspectFile(path);
    return InvalidArgument(
        path,
        ": is neither a file of weights (safetensors, GGUF, torch.save's) nor a token "
        "dataset nor a table (Parquet, Arrow)");
  }
  if (PathExists(path) || PathExists(path + ".idx")) return InspectDataset(path);
  return NotFound(path, ": no such file or directory");
}

struct InspectFlags {
  std::string path;
  bool devices = false;
};

}  // namespace

void AddInspectCommand(CLI::App& app, CommandState& state) {
  using F = InspectFlags;
  CLI::App* command = app.add_subcommand(
      "inspect", "Say what a file or folder holds, and verify it; or which devices there are");
  OptionTable table = OptionTable::Of<F>("Options");
  table
      .Add("path", &F::path,
           "a safetensors file, a GGUF file or one of torch's (.bin, .pt), a model's or adapter's "
           "folder, a "
           "checkpoint of a run, a token dataset, or a Parquet or Arrow file",
           {.type = "PATH"})
      .Add("devices", &F::devices, "list the devices that --device can name");
  command->footer(
      "Examples:\n"
      "  tessera inspect model.safetensors\n"
      "  tessera inspect out/checkpoint-1000\n"
      "  tessera inspect train-00000-of-00001.parquet\n"
      "  tessera inspect --devices");
  RunWith<F>(command, state, std::move(table), {.by_place = {"path"}},
             [](const CLI::App&, const F& flags) -> Status {
               if (flags.devices != flags.path.empty()) {
                 return InvalidArgument("inspect: either a path or --devices is needed");
               }
               if (!flags.devices) return RunInspect(flags.path);
               return WriteOut(Concat("cpu: ", NumThreads(), " threads, ", CpuIsaName(ActiveIsa()),
                                      "\n", DescribeGpus()));
             });
}

}  // namespace tessera::tools
