// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/data_folder.h"

#include <fnmatch.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "base/nearest_name.h"
#include "data/dataset/record_input.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Splits = std::map<std::string, std::vector<std::string>>;  // files by split, sorted
using Configs = std::map<std::string, Splits>;

// What a path of a split says.
struct Named {
  std::string folder;
  std::string config;
  std::string split;
};

std::optional<Named> NamedBy(const std::string& path) {
  const size_t open = path.rfind('[');
  if (open == std::string::npos || !path.ends_with(']') || PathExists(path)) return std::nullopt;
  Named named;
  named.folder = path.substr(0, open);
  named.split = path.substr(open + 1, path.size() - open - 2);
  if (const size_t colon = named.split.find(':'); colon != std::string::npos) {
    named.config = named.split.substr(0, colon);
    named.split.erase(0, colon + 1);
  }
  return IsDirectory(named.folder) ? std::optional(named) : std::nullopt;
}

// Whether `path`, all links followed, is `folder` or below it.
bool LiesWithin(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  const fs::path whole = fs::canonical(folder, error);
  const fs::path target = fs::canonical(path, error);
  return std::mismatch(whole.begin(), whole.end(), target.begin(), target.end()).first ==
         whole.end();
}

// FilesBelow, as paths within the folder.
StatusOr<std::vector<std::string>> PathsWithin(const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> files, FilesBelow(folder));
  for (std::string& file : files) file = fs::path(file).lexically_relative(folder).string();
  return files;
}

std::string Words(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}
template <typename Value>
std::vector<std::string> NamesOf(const std::map<std::string, Value>& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

// ---- What `save_to_disk` writes -----------------------------------------------------------------

constexpr std::string_view kDictName = "dataset_dict.json";

StatusOr<json> JsonIn(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseJson(text, path);
}

StatusOr<std::vector<std::string>> FilesOfState(const std::string& folder) {
  const std::string path = JoinPath(folder, "state.json");
  TESSERA_ASSIGN_OR_RETURN(const json state, JsonIn(path));
  std::vector<std::string> files;
  const json list = state.is_object() ? state.value("_data_files", json()) : json();
  for (const json& file : list) {
    const json name = file.is_object() ? file.value("filename", json()) : json();
    if (!name.is_string()) return InvalidArgument(path, ": '_data_files' has no 'filename'");
    files.push_back(JoinPath(folder, name.get<std::string>()));
  }
  if (files.empty()) return InvalidArgument(path, ": no '_data_files'");
  // Older versions kept a shuffled or filtered data set as rows of the whole one.
  const json indices = state.value("_indices_data_files", json());
  if (!indices.is_null() && !indices.empty()) {
    return InvalidArgument(path,
                           ": the rows are chosen by indices beside them; save the data set "
                           "again after `flatten_indices()`");
  }
  return files;
}

StatusOr<std::vector<std::string>> SplitsOfSaved(const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(const json dict, JsonIn(JoinPath(folder, kDictName)));
  std::vector<std::string> splits;
  for (const json& split : dict.is_object() ? dict.value("splits", json()) : json()) {
    if (split.is_string()) splits.push_back(split.get<std::string>());
  }
  return splits;
}

StatusOr<std::vector<std::string>> FilesOfSaved(const Named& named) {
  if (!named.config.empty()) {
    return InvalidArgument(named.folder, ": was saved without configurations; there is no '",
                           named.config, "'");
  }
  if (!PathExists(JoinPath(named.folder, kDictName))) {
    return InvalidArgument(named.folder, ": was saved as one data set without splits; leave out '",
                           named.split, "'");
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> splits, SplitsOfSaved(named.folder));
  if (std::find(splits.begin(), splits.end(), named.split) == splits.end()) {
    return InvalidArgument(named.folder, ": no split '", named.split, "'",
                           DidYouMean(named.split, splits), "; there are: ", Words(splits));
  }
  return FilesOfState(JoinPath(named.folder, named.split));
}

// ---- What README.md says ------------------------------------------------------------------------

bool Matches(const std::string& pattern, const std::string& file) {
  // "**" stands for folders as well.
  const int flags = pattern.find("**") == std::string::npos ? FNM_PATHNAME : 0;
  return fnmatch(pattern.c_str(), file.c_str(), flags) == 0;
}

std::vector<std::string> TextsOf(const YAML::Node& node) {
  std::vector<std::string> texts;
  if (node.IsScalar()) texts.push_back(node.as<std::string>());
  for (size_t i = 0; node.IsSequence() && i < node.size(); ++i) {
    if (node[i].IsScalar()) texts.push_back(node[i].as<std::string>());
  }
  return texts;
}

// The splits of one configuration.
Splits SplitsOf(const YAML::Node& config, const std::vector<std::string>& files,
                const std::string& folder) {
  const YAML::Node listed = config["data_files"];
  const std::string under = config["data_dir"] ? config["data_dir"].as<std::string>() : "";
  Splits splits;
  // What was not downloaded is no error until it is asked for.
  const auto add = [&](const std::string& split, const YAML::Node& paths) {
    for (const std::string& text : TextsOf(paths)) {
      const std::string pattern = under.empty() ? text : JoinPath(under, text);
      for (const std::string& file : files) {
        if (Matches(pattern, file)) splits[split].push_back(JoinPath(folder, file));
      }
    }
  };
  if (!listed) return splits;
  const bool by_split = listed.IsSequence() && listed.size() > 0 && listed[0].IsMap();
  if (!by_split) add("train", listed);
  for (size_t i = 0; by_split && i < listed.size(); ++i) {
    const YAML::Node split = listed[i]["split"];
    if (split) add(split.as<std::string>(), listed[i]["path"]);
  }
  return splits;
}

// nullopt: README.md says nothing of files.
StatusOr<std::optional<Configs>> ConfigsOfReadme(const std::string& folder,
                                                 const std::vector<std::string>& files,
                                                 std::string* preferred) {
  const std::string path = JoinPath(folder, "README.md");
  if (!PathExists(path)) return std::optional<Configs>();
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const size_t end = text.find("\n---", 3);
  if (!text.starts_with("---") || end == std::string::npos) return std::optional<Configs>();
  try {
    const YAML::Node card = YAML::Load(text.substr(3, end - 3));
    const YAML::Node listed = card.IsMap() ? card["configs"] : YAML::Node();
    if (!listed || !listed.IsSequence()) return std::optional<Configs>();
    Configs configs;
    for (size_t i = 0; i < listed.size(); ++i) {
      const YAML::Node config = listed[i];
      const std::string name =
          config["config_name"] ? config["config_name"].as<std::string>() : "default";
      configs[name] = SplitsOf(config, files, folder);
      if (config["default"] && config["default"].as<bool>()) *preferred = name;
    }
    return std::optional(std::move(configs));
  } catch (const YAML::Exception& wrong) {
    return InvalidArgument(path, ": its YAML is wrong: ", wrong.what());
  }
}

// ---- Names of files -----------------------------------------------------------------------------

// The split that a word means: "train", "validation", "test"; empty: none.
std::string SplitOfWord(std::string_view word) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kWords = {{
      {"train", "train"},
      {"training", "train"},
      {"validation", "validation"},
      {"valid", "validation"},
      {"val", "validation"},
      {"dev", "validation"},
      {"test", "test"},
      {"testing", "test"},
      {"eval", "test"},
  }};
  for (const auto& [text, split] : kWords) {
    if (word == text) return std::string(split);
  }
  return "";
}

// The words of a name: "train-00000-of-00002.parquet" begins with "train".
std::vector<std::string> WordsOf(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

Configs ConfigsOfNames(const std::string& folder, const std::vector<std::string>& files) {
  Configs configs;
  for (const std::string& file : files) {
    if (!IsTable(file) && !file.ends_with(".txt")) continue;
    std::string config;
    std::string split;
    const fs::path path(file);
    for (const fs::path& part : path) {
      for (const std::string& word : WordsOf(part.string())) {
        if (split.empty()) split = SplitOfWord(word);
      }
      if (!split.empty()) break;
      const bool inside = part != path.filename() && part.string() != "data";
      if (inside) config = config.empty() ? part.string() : JoinPath(config, part.string());
    }
    if (split.empty()) split = "train";
    configs[config.empty() ? "default" : config][split].push_back(JoinPath(folder, file));
  }
  return configs;
}

StatusOr<std::vector<std::string>> FilesOfSplit(const Named& named) {
  if (PathExists(JoinPath(named.folder, kDictName)) ||
      PathExists(JoinPath(named.folder, "state.json"))) {
    return FilesOfSaved(named);
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> files, PathsWithin(named.folder));
  std::string config = named.config;
  std::string preferred = "default";
  TESSERA_ASSIGN_OR_RETURN(std::optional<Configs> configs,
                           ConfigsOfReadme(named.folder, files, &preferred));
  if (!configs) configs = ConfigsOfNames(named.folder, files);
  if (configs->empty()) return NotFound(named.folder, ": no files of data there");
  if (config.empty()) config = configs->size() == 1 ? configs->begin()->first : preferred;
  const auto found = configs->find(config);
  if (found == configs->end()) {
    const std::vector<std::string> names = NamesOf(*configs);
    const std::string what = named.config.empty() ? std::string("which configuration is not said")
                                                  : Concat("no configuration '", config, "'");
    return InvalidArgument(named.folder, ": ", what, DidYouMean(config, names),
                           "; there are: ", Words(names));
  }
  auto split = found->second.find(named.split);
  if (split == found->second.end()) split = found->second.find(SplitOfWord(named.split));
  if (split != found->second.end() && !split->second.empty()) return split->second;
  Splits there = found->second;
  std::erase_if(there, [](const auto& entry) { return entry.second.empty(); });
  const std::vector<std::string> names = NamesOf(there);
  return InvalidArgument(named.folder, ": no split '", named.split, "'",
                         DidYouMean(named.split, names), "; there are: ", Words(names));
}

}  // namespace

std::string SplitPath(const std::string& folder, const std::string& split,
                      const std::string& config) {
  if (split.empty()) return folder;
  return Concat(folder, "[", config.empty() ? "" : config + ":", split, "]");
}

bool NamesSplit(const std::string& path) { return NamedBy(path).has_value(); }

StatusOr<std::vector<std::string>> FilesOfData(const std::string& path) {
  if (const auto named = NamedBy(path)) return FilesOfSplit(*named);
  // One data set that `save_to_disk` wrote.
  if (IsDirectory(path) && PathExists(JoinPath(path, "state.json"))) return FilesOfState(path);
  if (IsDirectory(path) && PathExists(JoinPath(path, kDictName))) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> splits, SplitsOfSaved(path));
    return InvalidArgument(path, ": a data set with splits; name one of them, as ",
                           SplitPath(path, splits.empty() ? "train" : splits[0]),
                           "; there are: ", Words(splits));
  }
  return std::vector<std::string>{path};
}

std::string FirstFileOfData(const std::string& path) {
  const auto files = FilesOfData(path);
  return files.ok() ? files->front() : path;
}

StatusOr<std::vector<std::string>> FilesBelow(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> files;
  fs::recursive_directory_iterator at(folder, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const fs::path& path = at->path();
    std::error_code ignored;
    if (path.filename().string().starts_with('.')) {
      if (at->is_directory(ignored)) at.disable_recursion_pending();
    } else if (at->is_regular_file(ignored)) {
      files.push_back(path.string());
    } else if (at->is_symlink(ignored)) {
      const std::string target = fs::read_symlink(path, ignored).string();
      if (at->is_directory(ignored) && !LiesWithin(path, folder)) {
        return InvalidArgument(path.string(), ": a link to the folder '", target,
                               "', which is not read; name that folder itself, or remove the link");
      }
      if (!at->exists(ignored)) {
        return InvalidArgument(path.string(), ": a link to '", target,
                               "', which does not exist; mend or remove the link");
      }
    }
  }
  if (error) return NotFound(folder, ": ", error.message());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace tessera::data
