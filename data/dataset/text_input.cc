// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/text_input.h"

#include <algorithm>
#include <filesystem>

#include "core/file.h"
#include "data/tokenizer/json_text.h"
#include "data/tokenizer/utf8.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

Status ListDirectoryFiles(const std::string& directory, std::vector<std::string>* files) {
  std::error_code error;
  fs::recursive_directory_iterator at(directory, error);
  std::vector<std::string> found;
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::error_code ignored;
    if (name.starts_with('.')) {
      if (at->is_directory(ignored)) at.disable_recursion_pending();
    } else if (at->is_regular_file(ignored)) {
      found.push_back(at->path().string());
    }
  }
  if (error) return NotFound(directory, ": ", error.message());
  std::sort(found.begin(), found.end());
  files->insert(files->end(), found.begin(), found.end());
  return OkStatus();
}

bool IsJsonLines(const std::string& path, TextFormat format) {
  if (format != TextFormat::kAuto) return format == TextFormat::kJsonLines;
  return path.ends_with(".jsonl") || path.ends_with(".ndjson");
}

Status VisitJsonLines(const std::string& path, std::string_view text, const std::string& key,
                      const DocumentVisitor& visit) {
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = Concat(path, ":", number);
    TESSERA_ASSIGN_OR_RETURN(const nlohmann::json object, ParseJson(line, where));
    if (!object.is_object()) return InvalidArgument(where, ": not a JSON object");
    const auto member = object.find(key);
    if (member == object.end() || !member->is_string()) {
      return InvalidArgument(where, ": no string \"", key, "\"");
    }
    const auto& document = member->get_ref<const std::string&>();
    if (!document.empty()) TESSERA_RETURN_IF_ERROR(visit(document, where));
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<std::string>> ListInputFiles(const std::vector<std::string>& inputs) {
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    if (!PathExists(input)) return NotFound(input, ": no such file or directory");
    if (IsDirectory(input)) {
      TESSERA_RETURN_IF_ERROR(ListDirectoryFiles(input, &files));
    } else {
      files.push_back(input);
    }
  }
  if (files.empty()) {
    return InvalidArgument(inputs.empty() ? "input" : inputs[0], ": no text files there");
  }
  return files;
}

Status ForEachDocument(const std::vector<std::string>& files, const TextInputOptions& options,
                       const DocumentVisitor& visit) {
  for (const std::string& path : files) {
    TESSERA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
    const std::string_view text(reinterpret_cast<const char*>(file.data()),
                                static_cast<size_t>(file.size()));
    const size_t bad = FindInvalidUtf8(text);
    if (bad != kNoInvalidUtf8) return InvalidArgument(path, ": invalid UTF-8 at byte ", bad);
    if (IsJsonLines(path, options.format)) {
      TESSERA_RETURN_IF_ERROR(VisitJsonLines(path, text, options.json_key, visit));
    } else if (!text.empty()) {
      TESSERA_RETURN_IF_ERROR(visit(text, path));
    }
  }
  return OkStatus();
}

}  // namespace tessera::data
