// SPDX-License-Identifier: Apache-2.0
// `tessera convert`, `tessera quantize` and `tessera merge`: weights of other formats, as small
// integers, and with an adapter, into a model's folder.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/output_files.h"
#include "core/dtype.h"
#include "models/hub/adapter_config.h"
#include "models/hub/convert_model.h"
#include "models/hub/gguf/convert_gguf.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/gguf/gguf_types.h"
#include "models/hub/load_model.h"
#include "models/hub/save_model.h"
#include "models/hub/weight_files.h"
#include "nlohmann/json.hpp"
#include "ops/quantized/quantized_matrix.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/scratch_directory.h"
#include "tools/settings.h"
#include "train/report/progress.h"

namespace tessera::tools {
namespace {

struct ConvertFlags {
  std::string from;
  std::string to;
  std::string adapter;
  std::string base;  // of an adapter that becomes a file
  std::string dtype;
  std::string quantize;
  std::string shard_size = "5GB";
  bool overwrite = false;
};

// "5GB", "300 MB", "4GiB", "1000000".
std::optional<int64_t> ParseBytes(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number <= 0) return std::nullopt;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  struct Unit {
    std::string_view name;
    int64_t bytes;
  };
  for (const Unit& known : {Unit{"", 1},
                            {"B", 1},
                            {"KB", 1000},
                            {"MB", 1000 * 1000},
                            {"GB", 1000 * 1000 * 1000},
                            {"KiB", 1 << 10},
                            {"MiB", 1 << 20},
                            {"GiB", 1 << 30}}) {
    if (unit == known.name && number <= INT64_MAX / known.bytes) return number * known.bytes;
  }
  return std::nullopt;
}

// By its name, in any case.
bool IsGguf(const std::string& path) {
  constexpr std::string_view kEnd = ".gguf";
  return path.size() >= kEnd.size() &&
         std::equal(kEnd.rbegin(), kEnd.rend(), path.rbegin(), [](char a, char b) {
           return a == std::tolower(static_cast<unsigned char>(b));
         });
}

Status Claim(const ConvertFlags& flags, std::optional<OutputLock>* lock) {
  ClaimOptions claim = {.reads = {flags.from, flags.adapter, flags.base},
                        .overwrite = flags.overwrite,
                        .make_folders = true};
  if (IsGguf(flags.to)) {
    claim.is_own = models::IsConvertedGguf;
  } else {
    TESSERA_RETURN_IF_ERROR(flags.overwrite ? models::CheckReplaceableModel(flags.to)
                                            : models::CheckIsNew(flags.to));
  }
  return ClaimOutput(flags.to, claim, lock);
}

// "270 MB".
std::string Size(int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB"};
  auto size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 999.5 && unit + 1 < std::size(kUnits); ++unit) size /= 1000;
  return absl::StrFormat("%.*f %s", unit > 0 && size < 9.95 ? 1 : 0, size, kUnits[unit]);
}

// "wrote 272 tensors, 270 MB, to out/model.safetensors".
std::string ClosingLine(const models::TensorsWritten& written, const std::string& to) {
  const std::string where = IsGguf(to)          ? to
                            : written.files > 1 ? Concat(written.files, " files in ", to)
                                                : JoinPath(to, models::kWeightsName);
  return Concat("wrote ", written.tensors, written.tensors == 1 ? " tensor, " : " tensors, ",
                Size(written.bytes), ", to ", where, "\n");
}

// PEFT's folder, which has no model.
bool IsAdapter(const std::string& folder) {
  return PathExists(JoinPath(folder, models::kAdapterConfigName)) &&
         !PathExists(JoinPath(folder, "config.json"));
}

Status ConvertAdapter(const ConvertFlags& flags, const models::WriteWatch& watch) {
  if (!IsGguf(flags.to)) {
    return InvalidArgument(flags.from,
                           ": is an adapter, which becomes a .gguf file here, or a part "
                           "of a model by `tessera merge`");
  }
  for (const auto& [flag, given] :
       {std::pair{"--dtype", !flags.dtype.empty()},
        {"--shard-size", flags.shard_size != ConvertFlags().shard_size}}) {
    if (given) {
      return InvalidArgument(flag, " means nothing to an adapter's file: its matrices are float32");
    }
  }
  std::string base = flags.base;
  if (base.empty()) {
    TESSERA_ASSIGN_OR_RETURN(const auto config, models::AdapterConfig::Read(flags.from));
    base = config.base_model_name_or_path;
    if (base.empty() || !PathExists(base)) {
      return InvalidArgument("--base is needed: the model that ", flags.from, " is for");
    }
  }
  std::optional<OutputLock> lock;
  TESSERA_RETURN_IF_ERROR(Claim(flags, &lock));
  TESSERA_ASSIGN_OR_RETURN(const std::string folder, FolderOrArchive(base));
  return models::ConvertAdapterToGguf(flags.from, folder, flags.to, watch);
}

// What the flags ask of the weights.
StatusOr<models::ConvertOptions> OptionsOf(const ConvertFlags& flags) {
  models::ConvertOptions options;
  if (!flags.dtype.empty()) {
    options.dtype = ParseDType(flags.dtype);
    if (!options.dtype || !IsFloating(*options.dtype)) {
      return InvalidArgument("--dtype: '", flags.dtype,
                             "' is none of float32, bfloat16, float16 and float64");
    }
    if (IsGguf(flags.to) && models::GgufTypeOf(*options.dtype) == nullptr) {
      return InvalidArgument("--dtype: GGUF files have no weights of ", *options.dtype);
    }
  }
  if (!flags.quantize.empty()) {
    options.quantize = ParseQuantType(flags.quantize);
    if (!options.quantize) {
      return InvalidArgument("--type: '", flags.quantize, "' is none of ", QuantTypeNames());
    }
    if (IsGguf(flags.to) && models::GgufTypeOf(*options.quantize) == nullptr) {
      return InvalidArgument("--type: GGUF files have no ", flags.quantize);
    }
  }
  const std::optional<int64_t> bytes = ParseBytes(flags.shard_size);
  if (!bytes) {
    return InvalidArgument("--shard-size: '", flags.shard_size,
                           "' is no size such as 5GB, 300MB or 4GiB");
  }
  options.max_shard_bytes = *bytes;
  options.adapter = flags.adapter;
  options.overwrite = flags.overwrite;
  return options;
}

// Of a folder as it is, or by way of the changed model as a folder beside the file.
Status WriteGguf(const std::string& from, const ConvertFlags& flags, models::ConvertOptions options,
                 const models::WriteWatch& watch) {
  const DType dtype = options.dtype.value_or(DType::kFloat16);
  bool changes = options.quantize || !options.adapter.empty() || !IsDirectory(from);
  if (!changes && options.dtype) {
    TESSERA_ASSIGN_OR_RETURN(const nlohmann::json config, models::ReadModelConfig(from));
    changes = config.contains("quantization_config");
  }
  if (!changes) return models::ConvertToGguf(from, flags.to, dtype, watch);
  // Numbers are rounded once, in the file, and those that stay wide there not at all.
  if (options.dtype) options.dtype = DType::kFloat32;
  const ScratchDirectory folder(Concat(flags.to, ".tmp-", getpid(), "-0"));
  const Status made = models::ConvertModel(from, folder.path(), options);
  if (const std::string said(made.ok() ? "" : Message(made)); said.starts_with(folder.path())) {
    return Failure(made.code(), flags.to, said.substr(folder.path().size()));
  }
  TESSERA_RETURN_IF_ERROR(made);
  return models::ConvertToGguf(folder.path(), flags.to, dtype, watch);
}

Status Convert(const ConvertFlags& flags, const models::WriteWatch& watch) {
  TESSERA_RETURN_IF_ERROR(RefuseStandardOutput("the output", flags.to));
  std::optional<OutputLock> lock;
  const bool from_gguf = IsGguf(flags.from) || models::IsGgufFile(flags.from);
  const bool changes = !flags.quantize.empty() || !flags.adapter.empty() || !flags.dtype.empty();
  if (flags.quantize.empty() && flags.adapter.empty() && IsAdapter(flags.from)) {
    return ConvertAdapter(flags, watch);
  }
  if (!flags.base.empty()) return InvalidArgument("--base is of an adapter's folder");
  if (IsGguf(flags.to) && flags.shard_size != ConvertFlags().shard_size) {
    return InvalidArgument("--shard-size means nothing to a GGUF file");
  }
  TESSERA_ASSIGN_OR_RETURN(models::ConvertOptions options, OptionsOf(flags));
  TESSERA_RETURN_IF_ERROR(Claim(flags, &lock));
  // Tensors of a GGUF file keep their bytes in a folder, unless a dtype is asked for.
  if (from_gguf && !changes && !IsGguf(flags.to)) {
    return models::ConvertFromGguf(flags.from, flags.to, flags.overwrite, watch);
  }
  std::string from = flags.from;
  if (from_gguf) {
    TESSERA_ASSIGN_OR_RETURN(from, FolderOrArchive(flags.from));
  }
  if (IsGguf(flags.to)) return WriteGguf(from, flags, std::move(options), watch);
  options.watch = watch;
  return models::ConvertModel(from, flags.to, options);
}

Status RunConvert(const std::string& command, const ConvertFlags& flags) {
  models::TensorsWritten written;
  {
    train::WorkProgress progress(stderr, command, "tensors");
    TESSERA_RETURN_IF_ERROR(Convert(flags, [&](const models::TensorsWritten& now) {
      written = now;
      progress.Show(now.tensors, now.all_tensors);
    }));
  }
  return WriteOut(ClosingLine(written, flags.to));
}

using F = ConvertFlags;

void AddCommand(CLI::App* command, CommandState& state, OptionTable table,
                std::vector<std::string> places, std::vector<std::string> required) {
  table
      .Add("dtype", &F::dtype, "float32, bfloat16, float16 or float64",
           {.type = "TYPE", .unset = "the weights' own; float16 for matrices of a .gguf file"})
      .Add("shard_size", &F::shard_size, "most bytes of a file", {.type = "SIZE"})
      .Add("overwrite", &F::overwrite, kOverwriteHelp);
  RunWith<F>(command, state, std::move(table),
             {.by_place = std::move(places), .required = std::move(required)},
             [](const CLI::App& command, const F& flags) {
               return RunConvert(command.get_name(), flags);
             });
}

constexpr char kOutHelp[] =
    "the folder to write, which must not exist (but for --overwrite); or, by its name, a .gguf "
    "file";

void AddType(OptionTable* table, const char* unset) {
  table->Add("type", &F::quantize,
             Concat(QuantTypeNames(), "; the digit is the bits of a weight's number").c_str(),
             {.type = "TYPE", .unset = unset});
}

}  // namespace

void AddMergeCommand(CLI::App& app, CommandState& state) {
  CLI::App* command = app.add_subcommand(
      "merge", "Write a model with an adapter in its weights, as a folder or GGUF file");
  OptionTable table = OptionTable::Of<F>("Options");
  table
      .Add("base", &F::from, "the folder or GGUF file of the model that the adapter is for",
           {.type = "BASE"})
      .Add("adapter", &F::adapter, "the adapter's folder, as PEFT writes it", {.type = "ADAPTER"})
      .Add("to", &F::to, kOutHelp, {.type = "OUT"});
  AddType(&table, "dense");
  command->footer(
      "One tensor is in memory at a time.\n"
      "Examples:\n"
      "  tessera merge llama-folder runs/lora/model llama-merged\n"
      "  tessera merge llama-Q4_K_M.gguf runs/lora/model merged.gguf --type q8_0");
  AddCommand(command, state, std::move(table), {"base", "adapter", "to"},
             {"base", "adapter", "to"});
}

void AddQuantizeCommand(CLI::App& app, CommandState& state) {
  CLI::App* command = app.add_subcommand(
      "quantize", "Write a model with weights as small integers, as a folder or GGUF file");
  OptionTable table = OptionTable::Of<F>("Options");
  table.Add("from", &F::from, "a model's folder, or a GGUF file", {.type = "IN"})
      .Add("to", &F::to, kOutHelp, {.type = "OUT"});
  AddType(&table, "");
  command->footer(
      "Weights of linear layers and tables of tokens are quantised if their rows fit: the length "
      "of "
      "a\nrow is a multiple of 256 for *_k and iq4_xs, of 32 for the others, and any number for "
      "int8.\nAll other tensors have the type of --dtype. One tensor is in memory at a time.\n"
      "Example:\n"
      "  tessera quantize llama-folder llama-q8 --type q8_0");
  AddCommand(command, state, std::move(table), {"from", "to"}, {"from", "to", "type"});
}

void AddConvertCommand(CLI::App& app, CommandState& state) {
  CLI::App* command = app.add_subcommand(
      "convert",
      "Write a model's folder as safetensors, from any format that can be read, or GGUF");
  OptionTable table = OptionTable::Of<F>("Options");
  table
      .Add("from", &F::from,
           "a model's folder (safetensors, pytorch_model.bin, shards of either), a GGUF file, or a "
           "checkpoint of Megatron-LM's GPT-2 (model_optim_rng.pt); or an adapter's folder, which "
           "becomes llama.cpp's",
           {.type = "FROM"})
      .Add("to", &F::to,
           "the folder to write, which must not exist (but for --overwrite); or, by its name, a "
           ".gguf file",
           {.type = "TO"})
      .Add("base", &F::base, "the folder or GGUF file of the model that an adapter is for",
           {.type = "BASE", .unset = "the one that the adapter names"});
  command->footer(
      "One tensor is in memory at a time; nothing in the files is executed.\n"
      "Examples:\n"
      "  tessera convert chatglm-6b chatglm-6b-bf16 --dtype bfloat16\n"
      "  tessera convert release/mp_rank_00/model_optim_rng.pt gpt2-345m\n"
      "  tessera convert llama-Q8_0.gguf llama-q8\n"
      "  tessera convert runs/lora/model lora.gguf --base llama-Q8_0.gguf");
  AddCommand(command, state, std::move(table), {"from", "to"}, {"from", "to"});
}

}  // namespace tessera::tools
