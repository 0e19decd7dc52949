// SPDX-License-Identifier: Apache-2.0
// How long it takes until a model and its tokenizer can be used: a folder of GPT-2 124M with random
// weights and OpenAI's tokenizer, the page cache warm.
//
//   TESSERA_SHARED_DATA=../shared/data bazel run -c opt //models/hub:load_benchmark
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>

#include "base/file.h"
#include "data/tokenizer/tokenizer.h"
#include "models/family.h"
#include "models/hub/load_model.h"
#include "models/hub/save_model.h"

namespace tessera::models {
namespace {

Status MakeFolder(const std::string& shared, const std::string& folder) {
  TESSERA_RETURN_IF_ERROR(RemoveAll(folder));
  TESSERA_ASSIGN_OR_RETURN(const auto model, BuildModel(FindPreset("gpt2")->config, {.seed = 1}));
  TESSERA_RETURN_IF_ERROR(SaveModel(*model, folder));
  for (const auto& [from, to] :
       {std::pair("encoder.json", "vocab.json"), {"vocab.bpe", "merges.txt"}}) {
    TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(JoinPath(shared, from)));
    TESSERA_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(folder, to), text));
  }
  // The same tokenizer as one tokenizer.json.
  TESSERA_ASSIGN_OR_RETURN(const auto tokenizer, data::LoadTokenizer(folder));
  const std::string whole = folder + "/whole";
  TESSERA_RETURN_IF_ERROR(MakeDirectories(whole));
  TESSERA_RETURN_IF_ERROR(tokenizer->Save(whole));
  for (const char* name : {"vocab.json", "merges.txt"}) {
    TESSERA_RETURN_IF_ERROR(RemoveAll(JoinPath(whole, name)));
  }
  return OkStatus();
}

// Made by the first benchmark; "" where there are no tokenizer files.
const std::string& Folder() {
  static const auto* const folder = new std::string([] {
    const char* shared = getenv("TESSERA_SHARED_DATA");
    std::string path = std::filesystem::temp_directory_path() / "tessera_load_benchmark";
    const Status made = MakeFolder(JoinPath(shared == nullptr ? "." : shared, "gpt2"), path);
    return made.ok() ? path : std::string();
  }());
  return *folder;
}

void LoadWeights(benchmark::State& state, bool map) {
  for (auto _ : state) {
    const auto model = LoadModel(Folder(), {.require_weights = true, .map_weights = map});
    if (!model.ok()) return state.SkipWithError(Message(model.status()).c_str());
  }
}

void LoadTokenizerOf(benchmark::State& state, const char* below) {
  for (auto _ : state) {
    const auto tokenizer = data::LoadTokenizer(Folder() + below);
    if (!tokenizer.ok()) return state.SkipWithError(Message(tokenizer.status()).c_str());
    benchmark::DoNotOptimize((*tokenizer)->Encode("Hello world"));
  }
}

// Mapped weights, and beside them, on a thread, the tokenizer, which has encoded a text.
void LoadBoth(benchmark::State& state, const char* below) {
  for (auto _ : state) {
    auto tokenizer = std::async(std::launch::async, [&] {
      auto loaded = data::LoadTokenizer(Folder() + below);
      if (loaded.ok()) benchmark::DoNotOptimize((*loaded)->Encode("Hello world"));
      return loaded;
    });
    const auto model = LoadModel(Folder(), {.require_weights = true, .map_weights = true});
    if (!tokenizer.get().ok() || !model.ok()) {
      return state.SkipWithError("set TESSERA_SHARED_DATA to a folder with gpt2/");
    }
  }
}

BENCHMARK_CAPTURE(LoadWeights, mapped, true)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(LoadWeights, copied, false)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(LoadTokenizerOf, vocab_and_merges, "")
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(LoadTokenizerOf, tokenizer_json, "/whole")
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(LoadBoth, vocab_and_merges, "")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(LoadBoth, tokenizer_json, "/whole")->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace tessera::models
