// SPDX-License-Identifier: Apache-2.0
// Bytes per second of tokenizers on real text, on one thread, from the files of transformers 4
// (vocab.json and merges.txt, vocab.txt) and from tokenizer.json alone, as 5 has it:
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
#include "data/tokenizer/tokenizer.h"

namespace tessera::data {
namespace {

std::string SharedData() {
  const char* const shared = std::getenv("TESSERA_SHARED_DATA");
  return shared == nullptr ? "." : shared;
}

// The tokenizer of a folder; `whole`: of a tokenizer.json that is made of it.
StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& folder, bool whole) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(folder));
  if (!whole) return tokenizer;
  const std::string copy = std::filesystem::temp_directory_path() / "tokenizer_benchmark";
  TESSERA_RETURN_IF_ERROR(RemoveAll(copy));
  TESSERA_RETURN_IF_ERROR(MakeDirectories(copy));
  TESSERA_RETURN_IF_ERROR(tokenizer->Save(copy));
  for (const char* name : {"vocab.json", "merges.txt", "vocab.txt"}) {
    TESSERA_RETURN_IF_ERROR(RemoveAll(JoinPath(copy, name)));
  }
  return LoadTokenizer(copy);
}

void Encode(benchmark::State& state, const char* folder, bool whole, const char* file) {
  SetNumThreads(1);
  const auto tokenizer = Load(JoinPath(SharedData(), folder), whole);
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
  for (const char* folder : {"gpt2", "bert"}) {
    for (const char* file : {"text/tinyshakespeare.txt", "text/botchan.txt"}) {
      for (const bool whole : {false, true}) {
        benchmark::RegisterBenchmark(
            Concat(folder, whole ? "/tokenizer.json/" : "/vocabulary/", file).c_str(),
            [=](benchmark::State& state) { Encode(state, folder, whole, file); })
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}
const bool registered = (Register(), true);

}  // namespace
}  // namespace tessera::data
