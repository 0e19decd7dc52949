// SPDX-License-Identifier: Apache-2.0
// `tessera embed`: a vector for each text of a file.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/open_file.h"
#include "base/output_files.h"
#include "models/open/open_model.h"
#include "nlohmann/json.hpp"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/settings.h"
#include "tools/text_lines.h"
#include "train/report/progress.h"

namespace tessera::tools {
namespace {

// Texts whose vectors are held at once: enough of like length for full passes.
constexpr size_t kChunk = 1024;

struct EmbedFlags : ComputeFlags {
  std::string model;
  std::string input;
  std::string output;
  std::string json_key = "text";
  std::string adapter;
  std::string tokenizer;
  std::optional<std::string> prompt;
  std::string prompt_name;
  std::optional<bool> normalize;
  int64_t dimensions = 0;
  int64_t max_tokens = 0;
  bool overwrite = false;
};

// The header of NumPy's format 1.0 for float32 rows one after the other.
std::string NpyHeader(size_t rows, size_t columns) {
  std::string text =
      Concat("{'descr': '<f4', 'fortran_order': False, 'shape': (", rows, ", ", columns, "), }");
  constexpr size_t kBefore = 10;  // magic, version, and the length of the text
  constexpr size_t kUnit = 64;    // at which the numbers begin
  text.append(kUnit - (kBefore + text.size() + 1) % kUnit, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

std::string JsonLine(const std::string& text, const std::vector<float>& vector) {
  const nlohmann::ordered_json line = {{"text", text}, {"embedding", vector}};
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

bool IsJsonLines(const std::string& path) {
  return path.ends_with(".jsonl") || path.ends_with(".ndjson") || NamedDescriptor(path) >= 0;
}

StatusOr<models::OpenedModel> Open(const EmbedFlags& flags) {
  TESSERA_ASSIGN_OR_RETURN(const nn::BuildContext build, ApplyComputeFlags(flags));
  models::OpenOptions options = {.load = {.build = build, .require_weights = true, .warn = WarnOf},
                                 .tokenizer_folder = flags.tokenizer};
  options.load.quantize = QuantizeOf(flags);
  if (!flags.adapter.empty()) options.load.adapters = {flags.adapter};
  return models::OpenModel(flags.model, options);
}

Status RunEmbed(EmbedFlags flags) {
  flags.output = OutputPath(flags.output);
  const bool json = IsJsonLines(flags.output);
  if (!json && !flags.output.ends_with(".npy")) {
    return InvalidArgument("--output ", flags.output, ": must end in .npy or .jsonl");
  }
  if (flags.prompt && !flags.prompt_name.empty()) {
    return InvalidArgument("give --prompt or --prompt-name, not both");
  }
  std::optional<OutputLock> lock;
  std::vector<std::string> reads = {flags.model, flags.adapter, flags.tokenizer};
  if (flags.input != "-") reads.push_back(flags.input);
  TESSERA_RETURN_IF_ERROR(
      ClaimOutput(flags.output, {.reads = reads, .overwrite = flags.overwrite}, &lock));
  TESSERA_ASSIGN_OR_RETURN(const TextLines lines, TextLines::Read(flags.input, flags.json_key));
  TESSERA_ASSIGN_OR_RETURN(const models::OpenedModel opened, Open(flags));
  TESSERA_ASSIGN_OR_RETURN(const models::TextEncoder encoder, opened.encoder);
  const models::Model& model = *opened.model;
  if (const Status embeds = encoder.CheckEmbeds(model); !embeds.ok()) {
    return InvalidArgument(flags.model, ": ", Message(embeds));
  }
  models::TextOptions reading = {.prompt = flags.prompt, .max_tokens = flags.max_tokens};
  if (!flags.prompt_name.empty()) {
    TESSERA_ASSIGN_OR_RETURN(reading.prompt, encoder.PromptOf(flags.prompt_name));
  }
  const models::EmbedOptions making = {.normalise = flags.normalize,
                                       .dimensions = flags.dimensions};
  const auto size =
      static_cast<size_t>(flags.dimensions > 0 ? flags.dimensions : encoder.size(model));
  TESSERA_ASSIGN_OR_RETURN(AtomicFile out, AtomicFile::Create(flags.output));
  if (!json) TESSERA_RETURN_IF_ERROR(out.Append(NpyHeader(lines.texts.size(), size)));
  {
    train::WorkProgress progress(stderr, "embed", "texts");
    for (size_t begin = 0; begin < lines.texts.size(); begin += kChunk) {
      const size_t end = std::min(begin + kChunk, lines.texts.size());
      std::vector<models::EncodedText> rows;
      for (size_t i = begin; i < end; ++i) {
        auto row = encoder.TextOf(model, *opened.tokenizer, lines.texts[i], reading);
        if (!row.ok()) {
          return InvalidArgument(lines.PlaceOf(flags.input, i), ": ", Message(row.status()));
        }
        rows.push_back(*std::move(row));
      }
      TESSERA_ASSIGN_OR_RETURN(const auto vectors, encoder.Embed(model, rows, making));
      for (size_t i = 0; i < vectors.size(); ++i) {
        const std::vector<float>& vector = vectors[i];
        TESSERA_RETURN_IF_ERROR(json ? out.Append(JsonLine(lines.texts[begin + i], vector))
                                     : out.Append(vector.data(), vector.size() * sizeof(float)));
      }
      progress.Show(static_cast<int64_t>(end), std::ssize(lines.texts));
    }
  }
  TESSERA_RETURN_IF_ERROR(out.Commit());
  return WriteOutBeside(flags.output, Concat(lines.texts.size(), " vectors of ", size,
                                             " numbers in ", flags.output, "\n"));
}

}  // namespace

void AddEmbedCommand(CLI::App& app, CommandState& state) {
  using F = EmbedFlags;
  CLI::App* command = app.add_subcommand("embed", "Write a vector for each text of a file");
  OptionTable table = OptionTable::Of<F>("Options");
  table
      .Add("model", &F::model, "a folder of sentence-transformers, or of any model of texts",
           {.type = "MODEL"})
      .Add("input", &F::input, kTextLinesHelp, {.type = "FILE"})
      .Add("output", &F::output,
           "written: .npy, a row of float32 for each text, or .jsonl, an object with `text` and "
           "`embedding` for each; -: such objects on standard output",
           {.type = "FILE"})
      .Add("json_key", &F::json_key, kTextKeyHelp, {.type = "KEY"})
      .Add("prompt", &F::prompt, "put before each text, instead of the folder's default prompt",
           {.type = "TEXT"})
      .Add("prompt_name", &F::prompt_name, "the prompt of this name in the folder instead",
           {.type = "NAME"})
      .Add("normalize", &F::normalize, "whether vectors have length 1",
           {.unset = "as modules.json says; true without one"})
      .Add("dimensions", &F::dimensions,
           "the first so many numbers of each vector, of length 1 again where the whole one is; 0: "
           "all",
           {.least = 0})
      .Add("max_tokens", &F::max_tokens,
           "longer texts are cut to so many tokens; 0: as the folder says, and an error where "
           "modules.json is missing and a text is too long for the model",
           {.least = 0})
      .Add("adapter", &F::adapter, kAdapterHelp, {.type = "DIR"})
      .Add("tokenizer", &F::tokenizer, kTokenizerHelp,
           {.type = "DIR", .unset = "the model's folder"})
      .Add("overwrite", &F::overwrite, kOverwriteHelp)
      .Include<F, ComputeFlags>();
  command->footer(
      "Examples:\n"
      "  tessera embed all-MiniLM-L6-v2 --input texts.txt --output vectors.npy\n"
      "  tessera embed e5-folder --input texts.jsonl --prompt 'query: ' --output vectors.jsonl");
  RunWith<F>(command, state, std::move(table),
             {.by_place = {"model"}, .required = {"model", "input", "output"}},
             [](const CLI::App&, const F& flags) { return RunEmbed(flags); });
}

}  // namespace tessera::tools
