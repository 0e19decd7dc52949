// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/fault_run.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "tests/process/process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string ShimPath() {
  return std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") +
         "/tests/faults/libshim.so";
}

std::string Normal(const std::string& name, const std::string& bytes) {
  static const std::regex clock(R"re("(tokens_per_second|peak_bytes|seconds)":[^,}]*)re");
  // A checkpoint says how long its epoch has taken, and has a checksum over what it says. The
  // digest of data that could not be looked at is left out.
  static const std::regex index(R"re("(seconds|crc32c|data_digest)":[^,}]*,?\s*)re");
  if (name.ends_with("checkpoint.json")) return std::regex_replace(bytes, index, "");
  if (name.ends_with(".jsonl")) return std::regex_replace(bytes, clock, "");
  if (name.ends_with(".journal")) return "";  // how far a pass was when it was last written
  return bytes;
}

}  // namespace

std::string Name(const Fault& fault, size_t at) {
  return fault.kinds + " " + fault.how + " at call " + std::to_string(at) +
         (fault.onwards ? " and all behind it" : "") +
         (fault.rank.empty() ? "" : " of rank " + fault.rank);
}

FaultScope::FaultScope(const Fault& fault, size_t at, const std::string& log) {
  fs::remove(log);
  variables_ = {{"LD_PRELOAD", ShimPath()},
                {"TESSERA_FAULT", fault.kinds},
                {"TESSERA_FAULT_PROGRAM", "tessera"},
                {"TESSERA_FAULT_LOG", log}};
  if (!fault.under.empty()) variables_["TESSERA_FAULT_UNDER"] = fault.under;
  if (!fault.rank.empty()) variables_["TESSERA_FAULT_RANK"] = fault.rank;
  if (!fault.where.empty()) variables_["TESSERA_FAULT_IF"] = fault.where;
  if (!fault.once.empty()) variables_["TESSERA_FAULT_ONCE"] = fault.once;
  if (fault.above > 0) variables_["TESSERA_FAULT_ABOVE"] = std::to_string(fault.above);
  if (at > 0) {
    variables_["TESSERA_FAULT_AT"] = std::to_string(at) + (fault.onwards ? "+" : "");
    variables_["TESSERA_FAULT_HOW"] = fault.how;
  }
  for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
}

FaultScope::~FaultScope() {
  for (const auto& [name, value] : variables_) unsetenv(name.c_str());
}

std::vector<std::string> LoggedCalls(const std::string& log) {
  std::vector<std::string> lines;
  std::ifstream in(log);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

void WriteTinyModel(const std::string& root) {
  fs::create_directories(root + "/tiny");
  std::ofstream text(root + "/text.txt");
  for (int i = 0; i < 100; ++i) text << "line " << i % 17 << " of the song\n";
  std::ofstream(root + "/tiny/config.json")
      << R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 257,)"
      << R"( "n_positions": 32, "n_embd": 32, "n_layer": 1, "n_head": 2})";
}

std::vector<size_t> PlacesOf(size_t count, size_t few, size_t row) {
  const char* walks = std::getenv("TESSERA_FAULT_WALKS");
  size_t places = walks == nullptr ? few : std::strtoull(walks, nullptr, 10);
  if (walks != nullptr && std::string(walks) == "all") places = count;
  places = std::min(places, count);
  std::vector<size_t> chosen;
  for (size_t i = 0; i < places; ++i) {
    // 0.618...: any two rows begin far from each other.
    const double begin = 0.6180339887 * static_cast<double>(row + 1);
    const double at =
        (static_cast<double>(i) + begin - static_cast<double>(static_cast<size_t>(begin))) /
        static_cast<double>(places);
    chosen.push_back(std::min(count, 1 + static_cast<size_t>(at * static_cast<double>(count))));
  }
  return chosen;
}

Tree TreeOf(const std::string& path) {
  Tree tree;
  if (fs::is_regular_file(path)) tree[""] = Normal(path, ReadText(path));
  if (!fs::is_directory(path)) return tree;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    const std::string name = fs::relative(entry.path(), path);
    if (name.ends_with(".lock")) continue;  // of a killed process it holds nobody up
    if (entry.is_directory()) {
      tree[name + "/"] = "";
    } else {
      tree[name] = Normal(name, ReadText(entry.path()));
    }
  }
  return tree;
}

std::string Difference(const Tree& tree, const Tree& wanted) {
  std::string text;
  for (const auto& [name, bytes] : wanted) {
    const auto found = tree.find(name);
    if (found == tree.end()) {
      text += "'" + name + "' is missing; ";
    } else if (found->second != bytes) {
      text += "'" + name + "' differs (" + std::to_string(found->second.size()) + " bytes, not " +
              std::to_string(bytes.size()) + "); ";
    }
  }
  for (const auto& [name, bytes] : tree) {
    if (!wanted.contains(name)) text += "'" + name + "' is there; ";
  }
  return text.substr(0, 600);
}

}  // namespace tessera
