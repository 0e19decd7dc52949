// SPDX-License-Identifier: Apache-2.0
// Bytes per second of SentencePiece models on real text, on one thread, here and in the library of
// that name, whose ids must be the same:
//
//   TESSERA_SHARED_DATA=<folder> bazel run -c opt //data/tokenizer:library_benchmark
//
// The folder has sentencepiece/*.model and text/*.txt. This file includes no Status: the library's
// headers declare names of Abseil that differ from the distribution's.
#include <benchmark/benchmark.h>
#include <sentencepiece_processor.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/sentence_piece/model.h"

namespace tessera::data {
namespace {

std::string Read(const std::string& name) {
  const char* const shared = std::getenv("TESSERA_SHARED_DATA");
  std::ifstream in(std::string(shared == nullptr ? "." : shared) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return lines;
}

void Encode(benchmark::State& state, const std::string& name, bool library) {
  const std::string bytes = Read(name);
  const std::string text = Read("text/tinyshakespeare.txt");
  std::string error;
  const auto ours = SentencePieceModel::Parse(bytes, &error);
  sentencepiece::SentencePieceProcessor theirs;
  if (text.empty() || ours == nullptr || !theirs.LoadFromSerializedProto(bytes).ok()) {
    state.SkipWithError("set TESSERA_SHARED_DATA to a folder with sentencepiece/ and text/");
    return;
  }
  const std::vector<std::string_view> lines = Lines(text);
  const auto encode = [&](std::string_view line, bool by_library, std::vector<int>* ids) {
    ids->clear();
    if (by_library) {
      theirs.Encode(line, ids).IgnoreError();
    } else {
      ours->Encode(line, ids);
    }
  };
  std::vector<int> ids, others;
  for (const std::string_view line : lines) {
    encode(line, false, &ids);
    encode(line, true, &others);
    if (ids != others) {
      state.SkipWithError("the library has other ids");
      return;
    }
  }
  for (auto _ : state) {
    for (const std::string_view line : lines) encode(line, library, &ids);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

const bool registered = [] {
  for (const std::string model : {"albert_spiece", "test_model", "test_ja_model",
                                  "test_sentencepiece_bpe", "test_sentencepiece"}) {
    for (const bool library : {false, true}) {
      benchmark::RegisterBenchmark((model + (library ? "/library" : "/tessera")).c_str(),
                                   [=](benchmark::State& state) {
                                     Encode(state, "sentencepiece/" + model + ".model", library);
                                   })
          ->Unit(benchmark::kMillisecond);
    }
  }
  return true;
}();

}  // namespace
}  // namespace tessera::data
