// SPDX-License-Identifier: Apache-2.0
// Bytes per second of tokenizers on real text, on one thread, from the files of transformers 4
// (vocab.json and merges.txt, vocab.txt), from tokenizer.json alone, as 5 has it, and with patterns
// of other tokenizers in it:
//
//   TESSERA_SHARED_DATA=<folder> bazel run -c opt //data/tokenizer:tokenizer_benchmark
//
// The folder has gpt2/encoder.json, gpt2/vocab.bpe, bert/vocab.txt and text/*.txt.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "base/file.h"
#include "core/thread_pool.h"
#include "data/tokenizer/split_patterns.h"
#include "data/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

std::string SharedData() {
  const char* const shared = std::getenv("TESSERA_SHARED_DATA");
  return shared == nullptr ? "." : shared;
}

// Where the tokenizer is read from: the folder as it is, or a tokenizer.json that is made of it,
// with the pattern of another tokenizer perhaps.
struct Source {
  const char* name;
  bool whole = true;
  std::string_view pattern = {};
};

constexpr Source kVocabulary = {"vocabulary", /*whole=*/false};
constexpr Source kWhole = {"tokenizer.json"};
constexpr Source kLlama3 = {"llama3_pattern", true, kLlama3Pattern};
constexpr Source kO200k = {"o200k_pattern", true, kO200kPattern};
// One that a regular expression is compiled of.
constexpr Source kOther = {"other_pattern", true, R"(\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+)"};

StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& folder, const Source& source) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(folder));
  if (!source.whole) return tokenizer;
  const std::string copy = std::filesystem::temp_directory_path() / "tokenizer_benchmark";
  TESSERA_RETURN_IF_ERROR(RemoveAll(copy));
  TESSERA_RETURN_IF_ERROR(MakeDirectories(copy));
  TESSERA_RETURN_IF_ERROR(tokenizer->Save(copy));
  for (const char* name : {"vocab.json", "merges.txt", "vocab.txt"}) {
    TESSERA_RETURN_IF_ERROR(RemoveAll(JoinPath(copy, name)));
  }
  if (source.pattern.empty()) return LoadTokenizer(copy);
  TESSERA_RETURN_IF_ERROR(RemoveAll(JoinPath(copy, "tokenizer_config.json")));
  const std::string path = JoinPath(copy, "tokenizer.json");
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  nlohmann::ordered_json root = nlohmann::ordered_json::parse(text);
  using Json = nlohmann::ordered_json;
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", source.pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}};
  TESSERA_RETURN_IF_ERROR(WriteFileAtomically(path, root.dump()));
  return LoadTokenizer(copy);
}

void Encode(benchmark::State& state, const char* folder, const Source& source, const char* file) {
  SetNumThreads(1);
  const auto tokenizer = Load(JoinPath(SharedData(), folder), source);
  const auto text = ReadFile(JoinPath(SharedData(), file));
  if (!tokenizer.ok() || !text.ok()) {
    state.SkipWithError("set TESSERA_SHARED_DATA to a folder with gpt2/, bert/ and text/");
    return;
  }
  size_t ids = 0;
  for (auto _ : state) ids = (*tokenizer)->Encode(*text).size();
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text->size()));
  state.counters["ids"] = static_cast<double>(ids);
}

void Register() {
  for (const char* file : {"text/tinyshakespeare.txt", "text/botchan.txt"}) {
    const auto add = [file](const char* folder, const Source& source) {
      benchmark::RegisterBenchmark(
          Concat(folder, "/", source.name, "/", file).c_str(),
          [=](benchmark::State& state) { Encode(state, folder, source, file); })
          ->Unit(benchmark::kMillisecond);
    };
    for (const Source& source : {kVocabulary, kWhole}) {
      for (const char* folder : {"gpt2", "bert"}) add(folder, source);
    }
    for (const Source& source : {kLlama3, kO200k, kOther}) add("gpt2", source);
  }
}
const bool registered = (Register(), true);

}  // namespace
}  // namespace tessera::data
