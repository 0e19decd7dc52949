// SPDX-License-Identifier: Apache-2.0
// Forward passes and generated tokens of a model, timed on request: the side of Tessera in
// bench/generate_speed.py and bench/forward_speed.py.
//
//   bazel build //bench:inference
//   echo generate 1 16 64 | bazel-bin/bench/inference --model gpt2 --dtype q8_0
//
// Prints "start" once the model is there. Then, for each line of standard input, one line of JSON:
//
//   generate ROWS PROMPT NEW   greedily NEW tokens for ROWS prompts of PROMPT tokens: the seconds
//                              to the first token of each ("prompt_seconds"), those of the others
//                              ("seconds"), the CPU allocator's calls and the pages that the system
//                              gave ("allocations", "faults") in the last quarter of the tokens
//   forward ROWS TOKENS TIMES  passes without gradients: the "seconds" of each
//   read MIB TIMES             a buffer of MIB MiB is read by all threads: the "seconds" of each
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "autograd/autograd.h"
#include "bench/random_inputs.h"
#include "core/allocator.h"
#include "core/thread_pool.h"
#include "models/family.h"
#include "models/generation/generate.h"
#include "models/hub/load_model.h"
#include "models/hub/save_model.h"
#include "models/model.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "nn/packed_weight.h"
#include "ops/quantized/quantized_matrix.h"

namespace tessera {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t Faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

Status Generate(const models::Model& model, int64_t rows, int64_t prompt, int64_t tokens) {
  std::vector<std::vector<int64_t>> prompts(static_cast<size_t>(rows));
  for (size_t row = 0; row < prompts.size(); ++row) {
    for (int64_t i = 0; i < prompt; ++i) {
      prompts[row].push_back((31 * i + 7 * static_cast<int64_t>(row)) % model.vocab_size());
    }
  }
  models::GenerationConfig config;
  config.max_new_tokens = tokens;
  config.do_sample = false;
  const Allocator& allocator = Allocator::For(Device::Cpu());
  const int64_t quiet = rows * (tokens - tokens / 4);
  int64_t chosen = 0;
  int64_t allocations = 0;
  int64_t faults = 0;
  double first = 0;
  models::GenerateOptions options;
  options.on_token = [&](int64_t, int64_t, std::string_view) {
    ++chosen;
    if (chosen == rows) first = Now();
    if (chosen == quiet) {
      allocations = allocator.stats().allocations;
      faults = Faults();
    }
    return OkStatus();
  };
  const double begin = Now();
  TESSERA_RETURN_IF_ERROR(models::Generate(model, prompts, config, options).status());
  const double end = Now();
  std::printf(
      "{\"prompt_seconds\": %.6f, \"seconds\": %.6f, \"allocations\": %ld, \"faults\": %ld}\n",
      first - begin, end - first, allocator.stats().allocations - allocations, Faults() - faults);
  return OkStatus();
}

void Forward(models::Model& model, int64_t rows, int64_t tokens, int64_t times) {
  models::Bundle inputs = RandomInputs(model, rows, tokens);
  if (model.config().at("model_type") == "t5") {
    inputs.set(keys::kDecoderInputIds, inputs.at(keys::kLabels));
  }
  inputs.erase(keys::kTargets);
  inputs.erase(keys::kLabels);
  const NoGrad no_grad;
  std::string seconds;
  for (int64_t i = 0; i < times; ++i) {
    const double begin = Now();
    model.Run(inputs, {});
    seconds += (i > 0 ? ", " : "") + std::to_string(Now() - begin);
  }
  std::printf("{\"seconds\": [%s]}\n", seconds.c_str());
}

// The sum of a part of a buffer, read as four streams that are fetched ahead: of the ways that were
// tried the fastest (docs/benchmarks/).
uint64_t Sum(const uint64_t* data, int64_t count) {
  constexpr int64_t kStreams = 4;
  constexpr int64_t kLine = 8;
  constexpr int64_t kAhead = 16 * kLine;
  uint64_t sums[kLine] = {};
  const int64_t stream = count / kStreams / kLine * kLine;
  for (int64_t i = 0; i < stream; i += kLine) {
    for (int64_t s = 0; s < kStreams; ++s) {
      const uint64_t* const line = data + s * stream + i;
      __builtin_prefetch(line + kAhead);
      for (int64_t j = 0; j < kLine; ++j) sums[j] += line[j];
    }
  }
  return std::accumulate(sums, sums + kLine, uint64_t{0});
}

void Read(int64_t mebibytes, int64_t times) {
  const std::vector<uint64_t> buffer(static_cast<size_t>(mebibytes) << 17, 1);
  const int64_t share = std::ssize(buffer) / NumThreads();
  std::atomic<uint64_t> sum{0};
  std::string seconds;
  for (int64_t i = 0; i < times; ++i) {
    const double begin = Now();
    ParallelFor(NumThreads(), 1, [&](int64_t thread, int64_t end) {
      for (; thread < end; ++thread) sum += Sum(buffer.data() + thread * share, share);
    });
    seconds += (i > 0 ? ", " : "") + std::to_string(Now() - begin);
  }
  std::printf("{\"seconds\": [%s], \"sum\": %lu}\n", seconds.c_str(), sum.load());
}

Status Serve(models::Model& model) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what;
    int64_t rows = 0;
    int64_t tokens = 0;
    int64_t count = 0;
    words >> what >> rows >> tokens >> count;
    if (what == "generate") {
      TESSERA_RETURN_IF_ERROR(Generate(model, rows, tokens, count));
    } else if (what == "forward") {
      Forward(model, rows, tokens, count);
    } else if (what == "read") {
      Read(rows, tokens);
    } else {
      return InvalidArgument("'", line, "' is not generate, forward or read");
    }
    std::fflush(stdout);
  }
  return OkStatus();
}

Status Run(const std::string& folder, const std::string& dtype, const std::string& save) {
  models::LoadOptions options;
  options.map_weights = true;
  if (const auto type = ParseDType(dtype)) {
    options.build.dtype = *type;
  } else {
    options.quantize = ParseQuantType(dtype);
    if (!options.quantize) return InvalidArgument("--dtype: no dtype '", dtype, "'");
  }
  TESSERA_ASSIGN_OR_RETURN(const auto model, models::LoadModel(folder, options));
  if (!save.empty()) return models::SaveModel(*model, save);
  // As OpenModel does.
  if (!models::Generates(*model)) nn::PackWeights(*model);
  std::printf("start\n");
  std::fflush(stdout);
  return Serve(*model);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  std::string model = "gpt2";
  std::string dtype = "float32";
  std::string save;
  int threads = 1;
  CLI::App app("Times inference; see the head of bench/inference.cc.");
  app.add_option("--model", model, "a preset (random weights), or a folder");
  app.add_option("--dtype", dtype, "float32, bfloat16, float16, " + tessera::QuantTypeNames());
  app.add_option("--threads", threads, "threads")->check(CLI::PositiveNumber);
  app.add_option("--save", save, "write the model into this folder, and end");
  CLI11_PARSE(app, argc, argv);
  tessera::SetNumThreads(threads);
  const tessera::Status status = tessera::Run(model, dtype, save);
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", tessera::Message(status).c_str());
  return status.ok() ? 0 : 1;
}
