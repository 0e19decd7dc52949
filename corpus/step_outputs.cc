// SPDX-License-Identifier: Apache-2.0
#include "corpus/step_outputs.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "base/open_file.h"
#include "base/output_files.h"
#include "nlohmann/json.hpp"

namespace tessera::corpus {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Options that name files which the step writes; others that name files name inputs.
constexpr const char* kOutputKeys[] = {"output", "dropped", "pairs"};

std::vector<std::string> TextsIn(const json& value) {
  std::vector<std::string> texts;
  if (value.is_string()) texts.push_back(value.get<std::string>());
  if (!value.is_array()) return texts;
  for (const json& element : value) {
    if (element.is_string()) texts.push_back(element.get<std::string>());
  }
  return texts;
}

// The files that an output's name stands for.
std::vector<std::string> FilesOf(const std::string& output, StepOutput kind, const json& options) {
  if (kind == StepOutput::kTokens) return {output + ".bin", output + ".idx"};
  const size_t place = output.find("{}");
  if (kind != StepOutput::kParts || place == std::string::npos) return {output};
  std::vector<std::string> files;
  for (const std::string& part : TextsIn(options.value("parts", json()))) {
    files.push_back(std::string(output).replace(place, 2, part.substr(0, part.find('='))));
  }
  return files;
}

// A step's files grow beside their journal, and get their names in the end. Where the output is a
// pipe or a device, that would replace it: /dev/stdout by a file.
Status CheckIsFile(const std::string& path) {
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  if (path == "-" || NamedDescriptor(path) >= 0 || fs::is_other(there)) {
    return InvalidArgument(path, ": is no file; a step writes files alone, which it can continue",
                           path == "-" ? " (./- is a file of that name)" : "");
  }
  const std::string name = fs::path(path).filename().string();
  if (name.empty() || name == ".bin" || name == ".idx") {
    return InvalidArgument(path, ": the output has no name behind its folder");
  }
  return OkStatus();
}

bool SaysTessera(const std::string& path) {
  constexpr size_t kHead = 4096;
  const StatusOr<std::string> text = ReadFile(path);
  return text.ok() && text->substr(0, kHead).find("tessera") != std::string::npos;
}

}  // namespace

struct StepOutputs::Locks {
  std::vector<std::optional<OutputLock>> held;
};

StepOutputs::StepOutputs() : locks_(std::make_unique<Locks>()) {}
StepOutputs::~StepOutputs() = default;

StatusOr<std::shared_ptr<StepOutputs>> StepOutputs::Take(const json& options, StepOutput kind,
                                                         const RunContext& context) {
  std::shared_ptr<StepOutputs> taken(new StepOutputs);
  TESSERA_RETURN_IF_ERROR(OnFirstRank(context, [&]() -> Status {
    std::vector<std::string> inputs;
    // The output itself first: its journal is the step's.
    std::vector<std::string> files;
    for (const std::string& text : TextsIn(options.value("output", json()))) {
      if (!text.empty()) files = FilesOf(text, kind, options);
    }
    for (const auto& [key, value] : options.items()) {
      const bool written = std::ranges::find(kOutputKeys, key) != std::end(kOutputKeys);
      for (const std::string& text : TextsIn(value)) {
        if (text.empty() || key == "output") continue;
        if (written) {
          files.push_back(text);
        } else if (PathExists(text)) {
          inputs.push_back(text);
        }
      }
    }
    if (files.empty()) return OkStatus();  // which the step refuses
    for (const std::string& file : files) TESSERA_RETURN_IF_ERROR(CheckIsFile(file));
    std::vector<std::string> all = files;
    for (const std::string& file : files) {
      for (const char* end : {".part", ".journal"}) all.push_back(file + end);
    }
    TESSERA_RETURN_IF_ERROR(RefuseInputs(all, inputs));
    const std::string journal = files[0] + ".journal";
    // A run that was killed has left its lock beside its folder.
    const std::string& output = options.at("output").get_ref<const std::string&>();
    const std::string folder = output + ".work";
    if (PathExists(folder) && !PathExists(files[0] + ".lock") && !PathExists(journal)) {
      return Failure(StatusCode::kAlreadyExists, folder,
                     ": exists, and no run of this step made it; move it away, since the step ",
                     "removes that folder");
    }
    const std::set<std::string> own = FilesInJournal(journal);
    const ClaimOptions claim = {.overwrite = options.value("overwrite", false),
                                .make_folders = true,
                                .is_own = [&](const std::string& file) {
                                  return own.contains(file) ||
                                         (kind == StepOutput::kPage && SaysTessera(file));
                                }};
    const std::set<std::string> distinct(files.begin(), files.end());
    for (const std::string& file : distinct) {
      std::optional<OutputLock>& lock = taken->locks_->held.emplace_back();
      TESSERA_RETURN_IF_ERROR(ClaimOutput(file, claim, &lock));
      if (!lock) {
        return InvalidArgument(file,
                               ": is no file; a step replaces its outputs and keeps a journal ",
                               "beside them, so give it a file");
      }
      TESSERA_RETURN_IF_ERROR(RemoveHalfWritten(file + ".journal"));
    }
    // A folder that the step reads and replaces: what another added meanwhile would be lost.
    for (const std::string& known : TextsIn(options.value("fingerprints", json()))) {
      if (known.empty()) continue;
      const ClaimOptions replaced = {.overwrite = true, .make_folders = true};
      TESSERA_RETURN_IF_ERROR(ClaimOutput(known, replaced, &taken->locks_->held.emplace_back()));
    }
    return OkStatus();
  }));
  return taken;
}

}  // namespace tessera::corpus
