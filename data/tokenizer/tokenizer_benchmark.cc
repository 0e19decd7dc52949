// Bytes per second of GPT-2's tokenizer on real text, on one thread:
//
//   TESSERA_SHARED_DATA=<folder> bazel run -c opt //data/tokenizer:tokenizer_benchmark
//
// The folder has gpt2/encoder.json, gpt2/vocab.bpe and text/*.txt.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "core/file.h"
#include "core/thread_pool.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::data {
namespace {

void Gpt2Encode(benchmark::State& state, const char* file) {
  SetNumThreads(1);
  const char* const shared = std::getenv("TESSERA_SHARED_DATA");
  const std::string folder = shared == nullptr ? "." : shared;
  const auto tokenizer = LoadTokenizer(folder + "/gpt2");
  const auto text = ReadFile(folder + "/" + file);
  if (!tokenizer.ok() || !text.ok()) {
    state.SkipWithError("set TESSERA_SHARED_DATA to a folder with gpt2/ and text/");
    return;
  }
  size_t ids = 0;
  for (auto _ : state) ids = (*tokenizer)->Encode(*text).size();
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text->size()));
  state.counters["ids"] = static_cast<double>(ids);
}
BENCHMARK_CAPTURE(Gpt2Encode, tinyshakespeare, "text/tinyshakespeare.txt")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Gpt2Encode, botchan, "text/botchan.txt")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tessera::data
