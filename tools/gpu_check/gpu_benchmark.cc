// SPDX-License-Identifier: Apache-2.0
// Times kernels and training steps on cuda:0:
//
//   gpu_benchmark <out.json> [part of a name]
//
// Prints a table and writes JSON: per case the median milliseconds of 20 runs, what they come to in
// TFLOP/s, GB/s or tokens/s, and TFLOP/s and GB/s as shares of this machine's ceilings: a large
// bfloat16 product and CUDA's own copy, measured first. After them the ten costliest kernels of
// training steps and of generation, each beside its floor: the FLOP that it has to do at the one
// ceiling, or the bytes that it has to move at the other. A case that fails is reported with its
// error, and the others run.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "base/file.h"
#include "core/allocator.h"
#include "core/cuda/runtime.h"
#include "core/cuda/stream.h"
#include "core/device_graph.h"
#include "core/profiler.h"
#include "core/random.h"
#include "models/family.h"
#include "models/generation/generate.h"
#include "models/gpt/gpt.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/attention/attention.h"
#include "ops/attention/attention_choice.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/elementwise/elementwise.h"
#include "ops/index/index.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/norm.h"
#include "ops/view/view.h"
#include "optim/adam/adam.h"
#include "optim/clip.h"
#include "optim/parameter_groups.h"

namespace tessera {
namespace {

const Device kGpu = Device::Cuda(0);

Tensor Normal(const Shape& shape, DType dtype, uint64_t seed) {
  const Tensor t = Empty(shape);
  FillNormal(t.data<float>(), t.numel(), RandomKey::FromSeed(seed), 0, {});
  return CopyTo(CastCopy(t, dtype), kGpu);
}
Tensor Ids(const Shape& shape, int64_t high, uint64_t seed) {
  const Tensor t = Empty(shape, DType::kInt64);
  const RandomKey key = RandomKey::FromSeed(seed);
  for (int64_t i = 0; i < t.numel(); ++i) {
    t.data<int64_t>()[i] = RandomBits(key, static_cast<uint64_t>(i)) % static_cast<uint64_t>(high);
  }
  return CopyTo(t, kGpu);
}

// Likewise as often as words are: one of sixteen is the same.
Tensor WordIds(const Shape& shape, int64_t high, uint64_t seed) {
  const Tensor t = Empty(shape, DType::kInt64);
  const RandomKey key = RandomKey::FromSeed(seed);
  const double range = std::log(static_cast<double>(high));
  for (int64_t i = 0; i < t.numel(); ++i) {
    const double u = UniformFloat(key, static_cast<uint64_t>(i));
    t.data<int64_t>()[i] = std::min(high, static_cast<int64_t>(std::exp(u * range))) - 1;
  }
  return CopyTo(t, kGpu);
}

// Milliseconds of `calls` runs.
double Time(const std::function<void()>& run, int calls) {
  const cuda::Event begin(/*timing=*/true);
  const cuda::Event end(/*timing=*/true);
  begin.Record(cuda::CurrentStream());
  for (int i = 0; i < calls; ++i) run();
  end.Record(cuda::CurrentStream());
  end.Synchronize();
  return end.MillisecondsSince(begin);
}

// Median milliseconds of a run. Short ones are timed several at once, or the host's launch would be
// what is measured.
double Milliseconds(const std::function<void()>& run, int runs) {
  constexpr double kLeast = 2;  // of one measurement
  constexpr int kMostCalls = 50;
  for (int i = 0; i < 3; ++i) run();
  const int calls = static_cast<int>(std::clamp(kLeast / Time(run, 1), 1.0, double{kMostCalls}));
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) times.push_back(Time(run, calls) / calls);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void ReleaseCached() {
  try {
    Allocator::For(kGpu).ReleaseCached();
  } catch (const Error&) {
    // The device failed, as what was run says.
  }
}

struct Work {
  double amount = 0;  // per run
  const char* unit = "";
  double per = 1;
};
Work Flops(double n) { return {n, "TFLOP/s", 1e12}; }
Work Bytes(double n) { return {n, "GB/s", 1e9}; }
Work Tokens(double n) { return {n, "tokens/s", 1}; }

class Report {
 public:
  explicit Report(std::string filter) : filter_(std::move(filter)) {
    std::printf("%-60s %12s %20s %10s\n", "case", "ms", "rate", "of ceiling");
  }
  // Rates in `unit` are given as shares of this one's from now on. Not subject to the filter.
  void AddCeiling(const std::string& name, const Work& work,
                  const std::function<std::function<void()>()>& prepare) {
    const std::string filter = std::exchange(filter_, "");
    Add(name, work, prepare);
    filter_ = filter;
    if (rows_.back().contains("rate")) ceilings_[work.unit] = rows_.back()["rate"];
  }
  // `prepare` makes the tensors and gives the run.
  void Add(const std::string& name, const Work& work,
           const std::function<std::function<void()>()>& prepare, int runs = 20) {
    if (name.find(filter_) == std::string::npos) return;
    nlohmann::json row = {{"name", name}};
    try {
      Allocator& allocator = Allocator::For(kGpu);
      allocator.ResetPeak();
      const std::function<void()> run = prepare();
      const double ms = Milliseconds(run, runs);
      const double rate = work.amount / (ms * 1e-3) / work.per;
      row["milliseconds"] = ms;
      row["rate"] = rate;
      row["unit"] = work.unit;
      row["peak_bytes"] = allocator.stats().peak_bytes;
      const auto ceiling = ceilings_.find(work.unit);
      const double share = ceiling == ceilings_.end() ? 0 : rate / ceiling->second;
      if (share > 0) row["of_ceiling"] = share;
      std::printf("%-60s %12.4f %10.1f %-9s %s\n", name.c_str(), ms, rate, work.unit,
                  share > 0 ? Concat(static_cast<int>(share * 100 + 0.5), " %").c_str() : "");
    } catch (const Error& error) {
      row["error"] = error.what();
      std::printf("%-60s failed: %s\n", name.c_str(), error.what());
    }
    std::fflush(stdout);
    rows_.push_back(row);
    ReleaseCached();
  }
  const nlohmann::json& rows() const { return rows_; }
  // The least milliseconds of so many FLOP, or of so many bytes; 0 where the ceiling is not known.
  double Floor(double flops, double bytes) const {
    const auto at = [&](const Work& work) {
      const auto ceiling = ceilings_.find(work.unit);
      return ceiling == ceilings_.end() ? 0 : 1e3 * work.amount / work.per / ceiling->second;
    };
    return std::max(at(Flops(flops)), at(Bytes(bytes)));
  }

 private:
  std::string filter_;
  std::map<std::string, double> ceilings_;  // by unit
  nlohmann::json rows_ = nlohmann::json::array();
};

void AddCeilings(Report* report) {
  report->AddCeiling("ceiling: product bf16 8192 cubed", Flops(2.0 * 8192 * 8192 * 8192), [] {
    const Tensor a = Normal({8192, 8192}, DType::kBFloat16, 1);
    const Tensor b = Normal({8192, 8192}, DType::kBFloat16, 2);
    return [a, b] { Matmul(a, b); };
  });
  report->AddCeiling("ceiling: cudaMemcpyAsync 1 GiB", Bytes(2.0 * (1 << 30)), [] {
    const Tensor a = Zeros({1 << 28}, DType::kFloat32, kGpu);
    const Tensor b = EmptyLike(a);
    return [a, b] {
      cuda::CheckCuda(cudaMemcpyAsync(b.raw_data(), a.raw_data(), size_t{1} << 30,
                                      cudaMemcpyDeviceToDevice, cuda::CurrentStream()),
                      "copy");
    };
  });
}

void AddProducts(Report* report) {
  struct Size {
    const char* name;
    int64_t m, n, k;
    bool b_transposed;
  };
  const Size sizes[] = {{"gpt2 c_attn 32768x2304x768", 32768, 2304, 768, false},
                        {"gpt2 c_fc 32768x3072x768", 32768, 3072, 768, false},
                        {"gpt2 c_proj 32768x768x3072", 32768, 768, 3072, false},
                        {"gpt2 lm_head 32768x50257x768", 32768, 50257, 768, true},
                        {"gpt2-xl c_fc 8192x6400x1600", 8192, 6400, 1600, false}};
  for (const Size& s : sizes) {
    report->Add(
        Concat("matmul bf16 ", s.name),
        Flops(2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k)),
        [&] {
          const Tensor a = Normal({s.m, s.k}, DType::kBFloat16, 1);
          const Tensor w =
              Normal(s.b_transposed ? Shape{s.n, s.k} : Shape{s.k, s.n}, DType::kBFloat16, 2);
          const LinearLayout layout = s.b_transposed ? LinearLayout::kOutIn : LinearLayout::kInOut;
          return [a, w, layout] { Linear(a, w, {}, layout); };
        });
  }
  report->Add("matmul float32 4096 cubed", Flops(2.0 * 4096 * 4096 * 4096), [] {
    const Tensor a = Normal({4096, 4096}, DType::kFloat32, 1);
    return [a] { Matmul(a, a); };
  });
}

void AddAttention(Report* report) {
  struct Size {
    const char* name;
    int64_t batch, heads, tokens, dim;
  };
  for (const Size& s :
       {Size{"32x12x1024x64", 32, 12, 1024, 64}, Size{"8x16x2048x128", 8, 16, 2048, 128},
        Size{"8x25x1024x64", 8, 25, 1024, 64}}) {
    // Half of the scores are masked.
    const double flops = 4.0 * static_cast<double>(s.batch * s.heads * s.tokens) *
                         static_cast<double>(s.tokens * s.dim) / 2;
    const auto packed = [&] {
      return Normal({s.batch, s.tokens, 3 * s.heads, s.dim}, DType::kBFloat16, 1);
    };
    for (const bool cudnn : {false, true}) {
      // Fails where cuDNN was not used in the end.
      const auto by = [cudnn](const std::function<void()>& run) {
        return [=] {
          const AttentionKernelsScope forced(cudnn ? AttentionKernels::kCudnn
                                                   : AttentionKernels::kOwn);
          const int64_t calls = CudnnAttentionCalls();
          run();
          TESSERA_CHECK(!cudnn || CudnnAttentionCalls() > calls, "attention",
                        "cuDNN does not compute it");
        };
      };
      const char* kernels = cudnn ? "cudnn " : "own ";
      report->Add(Concat("attention forward causal ", kernels, s.name), Flops(flops), [&] {
        const Tensor qkv = Transpose(packed(), 1, 2);
        const std::vector<Tensor> p = Split(qkv, {s.heads, s.heads, s.heads}, 1);
        return by([p] { Attention(p[0], p[1], p[2], {.causal = true}); });
      });
      report->Add(Concat("attention backward causal ", kernels, s.name), Flops(2.5 * flops), [&] {
        const Tensor qkv = RequireGrad(Transpose(packed(), 1, 2), DType::kBFloat16);
        const std::vector<Tensor> p = Split(qkv, {s.heads, s.heads, s.heads}, 1);
        const Tensor o = Attention(p[0], p[1], p[2], {.causal = true}).output;
        const Tensor seed = Normal(o.shape(), DType::kBFloat16, 2);
        return by([o, seed] { Backward({o}, {seed}, {.retain_graph = true}); });
      });
    }
  }
}

// Attention of one token of each row over keys in pages, which lie in no order: the bytes of these.
void AddDecoding(Report* report) {
  constexpr int64_t kHeads = 32;
  constexpr int64_t kGroups = 8;
  constexpr int64_t kKeys = 4096;
  constexpr int64_t kDim = 128;
  constexpr int64_t kPage = 32;
  for (const int64_t rows : {int64_t{1}, int64_t{32}}) {
    const int64_t pages = rows * kKeys / kPage;
    const auto elements = static_cast<double>(pages * kGroups * kPage * kDim);
    report->Add(Concat("decoding bf16 ", rows, "x32/8x4096x128"), Bytes(2 * 2 * elements), [=] {
      const Tensor q = Normal({rows, kHeads, 1, kDim}, DType::kBFloat16, 1);
      const Tensor k = Zeros({pages, kGroups, kPage, kDim}, DType::kBFloat16, kGpu);
      const Tensor v = Zeros({pages, kGroups, kPage, kDim}, DType::kBFloat16, kGpu);
      const Tensor table = Empty({rows, kKeys / kPage}, DType::kInt32);
      for (int64_t x = 0; x < pages; ++x) {
        table.data<int32_t>()[x] = static_cast<int32_t>(x * 77 % pages);
      }
      AttentionOptions options;
      options.pages = CopyTo(table, kGpu);
      options.paged_keys = kKeys;
      return [=] { Attention(q, k, v, options); };
    });
  }
}

void AddMemoryBound(Report* report) {
  const int64_t rows = 32768;
  const int64_t n = 768;
  const double elements = static_cast<double>(rows * n);
  report->Add("copy bf16 1 GiB", Bytes(2.0 * (1 << 30)), [] {
    const Tensor a = Zeros({1 << 29}, DType::kBFloat16, kGpu);
    const Tensor b = EmptyLike(a);
    return [a, b] { CopyInto(b, a); };
  });
  report->Add("add bf16 [32768, 3072]", Bytes(6.0 * 4 * elements), [] {
    const Tensor a = Normal({32768, 3072}, DType::kBFloat16, 1);
    return [a] { Add(a, a); };
  });
  report->Add("layer_norm_residual forward bf16 [32768, 768]", Bytes(8 * elements), [&] {
    const Tensor x = Normal({rows, n}, DType::kBFloat16, 1);
    const Tensor r = Normal({rows, n}, DType::kBFloat16, 2);
    const Tensor w = Normal({n}, DType::kBFloat16, 3);
    return [=] { LayerNormResidual(x, r, w, w, 1e-5); };
  });
  report->Add("layer_norm backward bf16 [32768, 768]", Bytes(6 * elements), [&] {
    const Tensor x = RequireGrad(Normal({rows, n}, DType::kBFloat16, 1), DType::kBFloat16);
    const Tensor w = RequireGrad(Normal({n}, DType::kBFloat16, 3));
    const Tensor y = LayerNorm(x, w, w, 1e-5);
    const Tensor seed = Normal({rows, n}, DType::kBFloat16, 4);
    return [=] { Backward({y}, {seed}, {.retain_graph = true}); };
  });
  const int64_t vocab = 50257;
  report->Add("cross_entropy forward and backward bf16 [8192, 50257]",
              Bytes(6.0 * 8192 * static_cast<double>(vocab)), [=] {
                // Rows as a product leaves them.
                const Tensor rows = Normal({8192, 50304}, DType::kBFloat16, 1);
                const Tensor logits = RequireGrad(Slice(rows, 1, 0, vocab), DType::kBFloat16);
                const Tensor targets = Ids({8192}, vocab, 2);
                return [=] {
                  Backward(CrossEntropy(logits, targets));
                  optim::ZeroGrad({{"logits", logits}});
                };
              });
  report->Add("embedding backward bf16 [32768 of 50257, 768]", Bytes(2 * elements), [=] {
    const Tensor table = RequireGrad(Normal({vocab, n}, DType::kBFloat16, 1));
    const Tensor y = Embedding(table, WordIds({rows}, vocab, 2));
    const Tensor seed = Normal({rows, n}, DType::kBFloat16, 3);
    return [=] { Backward({y}, {seed}, {.retain_graph = true}); };
  });
  report->Add("adamw bf16 with masters, 124M", Bytes(124e6 * (2 + 4 + 3 * 8)), [] {
    std::vector<optim::Parameter> parameters;
    for (int i = 0; i < 12; ++i) {
      const Tensor leaf = RequireGrad(Zeros({10333333}, DType::kBFloat16, kGpu), DType::kFloat32);
      SetGrad(leaf, Full({10333333}, 0.01, DType::kFloat32, kGpu));
      parameters.push_back({Concat("p", i), leaf});
    }
    auto optimizer = std::make_shared<optim::AdamW>(
        std::vector<optim::ParameterGroup>{{.parameters = parameters}});
    return [optimizer] { optimizer->Step(); };
  });
}

std::vector<optim::Parameter> ParametersOf(models::Model& model) {
  std::vector<optim::Parameter> parameters;
  for (nn::Parameter* p : model.Parameters()) {
    if (p->tied_to == nullptr) parameters.push_back({p->name, p->tensor});
  }
  for (nn::Parameter* p : model.Parameters()) {
    for (optim::Parameter& q : parameters) {
      if (p->tied_to != nullptr && q.name == p->tied_to->name) q.tied.push_back(p->tensor);
    }
  }
  return parameters;
}

// One whole optimizer step in bfloat16 with float32 masters, dropout off.
std::function<void()> StepOf(const char* preset, int64_t batch) {
  nlohmann::json config = models::FindPreset(preset)->config;
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config[key] = 0.0;
  auto built = models::BuildModel(config, {.dtype = DType::kBFloat16, .device = kGpu, .seed = 1});
  TESSERA_CHECK(built.ok(), "benchmark", Message(built.status()));
  std::shared_ptr<models::Model> model = *std::move(built);
  const std::vector<optim::Parameter> parameters = ParametersOf(*model);
  auto optimizer = std::make_shared<optim::AdamW>(
      optim::SplitByDecay(parameters, {.weight_decay = 0.1}), optim::AdamOptions{.lr = 1e-4});
  const Tensor ids = Ids({batch, 1024}, 50257, 1);
  return [=] {
    models::RunOptions options;
    options.keep_logits = false;
    const Tensor loss =
        model->Run({{keys::kInputIds, ids}, {keys::kLabels, ids}}, options).at(keys::kLoss);
    Backward(loss);
    const optim::ClipResult clipped = optim::ClipGradNorm(parameters, {.max_norm = 1.0});
    optimizer->Step({.clip_factor = clipped.factor});
    optimizer->ZeroGrad();
  };
}

void AddSteps(Report* report) {
  struct Size {
    const char* preset;
    int64_t batch;
  };
  constexpr int kRuns = 10;
  for (const Size& s : {Size{"gpt2", 32}, Size{"gpt2", 64}, Size{"gpt2-xl", 8}}) {
    const std::string name = Concat(s.preset, " bf16 ", s.batch, "x1024");
    const Work work = Tokens(static_cast<double>(s.batch) * 1024);
    report->Add(
        "training step " + name, work, [&] { return StepOf(s.preset, s.batch); }, kRuns);
    report->Add(
        "training step as a CUDA graph " + name, work,
        [&] {
          const std::function<void()> step = StepOf(s.preset, s.batch);
          for (int i = 0; i < 2; ++i) step();  // measures and loads what there is to
          const std::shared_ptr<DeviceGraph> graph = RecordGraph(kGpu, step);
          return [step, graph] { graph->Replay(); };
        },
        kRuns);
  }
}

struct GptSize {
  const char* preset;
  int64_t batch;
  double layers, width, words;
  double weights() const { return 12 * layers * width * width + words * width; }
};
constexpr GptSize kGpt2{"gpt2", 32, 12, 768, 50257};
constexpr GptSize kGpt2Xl{"gpt2-xl", 8, 48, 1600, 50257};
constexpr double kHalf = 2;  // bytes

// What kernels have to do, by name.
struct Need {
  double flops = 0;
  double bytes = 0;
};
using Needs = std::map<std::string, Need>;

// Of a training step: half-precision activations that are read and written once by each kernel.
Needs NeedsOfStep(const GptSize& g) {
  constexpr double kContext = 1024;
  const double tokens = static_cast<double>(g.batch) * kContext;
  const double row = kHalf * g.width * tokens;  // bytes of one activation
  const double logits = kHalf * g.words * tokens;
  const double scores = 4 * tokens * kContext * g.width / 2 * g.layers;  // half is masked
  return {
      {"matmul, with and without epilogue", {6 * tokens * g.weights(), 0}},
      {"attention", {scores, 4 * row * g.layers}},
      {"attention gradient", {2.5 * scores, 8 * row * g.layers}},
      {"norm", {0, (6 * g.layers + 2) * row}},           // x; x and residual, sum
      {"norm gradient", {0, (8 * g.layers + 3) * row}},  // x, dy, dsum, dx
      {"binary", {0, 3 * row * g.layers}},               // the residual behind the MLP
      {"cross_entropy", {0, logits}},
      {"cross_entropy gradient", {0, 2 * logits}},
      {"index_select", {0, 4 * row}},
      {"index_add", {0, row}},
      {"adam", {0, 30 * g.weights()}},  // weight 2, gradient 4, master, m and v 8 each
      {"gradient norm", {0, 4 * g.weights()}},
  };
}

// Of the passes that write `passes` tokens in each of `rows` texts of `keys` tokens.
Needs NeedsOfWriting(const GptSize& g, double rows, double keys, double passes) {
  return {{"matmul, with and without epilogue",
           {2 * rows * g.weights() * passes, kHalf * g.weights() * passes}},
          {"attention", {0, 2 * kHalf * rows * keys * g.width * g.layers * passes}}};
}

// A run that fails leaves no profile under way.
Profile ProfileOf(const std::function<void()>& run) {
  StartProfiler();
  try {
    run();
  } catch (...) {
    StopProfiler();
    throw;
  }
  return StopProfiler();
}

// Both kinds of products under one name, as the library may decline an epilogue.
std::vector<ProfileTotal> KernelTotals(const Profile& profile) {
  std::map<std::string, ProfileTotal> by_name;
  for (const ProfileTotal& total : profile.Totals("kernel")) {
    const bool product = total.name.rfind("matmul", 0) == 0;
    ProfileTotal& sum = by_name[product ? "matmul, with and without epilogue" : total.name];
    sum.calls += total.calls;
    sum.total_us += total.total_us;
  }
  std::vector<ProfileTotal> totals;
  for (auto& [name, total] : by_name) {
    total.name = name;
    totals.push_back(total);
  }
  std::sort(totals.begin(), totals.end(),
            [](const auto& a, const auto& b) { return a.total_us > b.total_us; });
  return totals;
}

// The costliest kernels of what `prepare` gives, whose times are the GPU's.
nlohmann::json CostliestKernels(const Report& report, const std::string& what, const Needs& needs,
                                const std::function<std::function<void()>()>& prepare) {
  constexpr size_t kMost = 10;
  nlohmann::json result = {{"of", what}, {"kernels", nlohmann::json::array()}};
  std::printf("\n%-60s %8s %12s %12s %10s\n", Concat("kernels of ", what).c_str(), "calls", "ms",
              "floor, ms", "of it");
  try {
    const std::function<void()> run = prepare();
    for (int i = 0; i < 2; ++i) run();
    double all = 0;
    for (const ProfileTotal& total : KernelTotals(ProfileOf(run))) {
      const double ms = total.total_us * 1e-3;
      all += ms;
      if (result["kernels"].size() == kMost) continue;
      nlohmann::json row = {{"name", total.name}, {"calls", total.calls}, {"milliseconds", ms}};
      std::printf("%-60s %8lld %12.4f", total.name.c_str(), static_cast<long long>(total.calls),
                  ms);
      if (const auto need = needs.find(total.name); need != needs.end()) {
        const double floor = report.Floor(need->second.flops, need->second.bytes);
        row["floor_milliseconds"] = floor;
        if (floor > 0) std::printf(" %12.4f %10.2f", floor, ms / floor);
      }
      std::printf("\n");
      result["kernels"].push_back(row);
    }
    result["all_milliseconds"] = all;
    std::printf("%-60s %8s %12.4f\n", "all", "", all);
  } catch (const Error& error) {
    std::printf("failed: %s\n", error.what());
    result["error"] = error.what();
  }
  std::fflush(stdout);
  ReleaseCached();
  return result;
}

nlohmann::json ProfiledSteps(const Report& report) {
  nlohmann::json profiles = nlohmann::json::array();
  for (const GptSize& g : {kGpt2, kGpt2Xl}) {
    profiles.push_back(CostliestKernels(report,
                                        Concat("a step of ", g.preset, " bf16 ", g.batch, "x1024"),
                                        NeedsOfStep(g), [&] { return StepOf(g.preset, g.batch); }));
  }
  return profiles;
}

constexpr int64_t kPrompt = 256;
constexpr int64_t kWritten = 64;

// Writes kWritten tokens in each of `rows` texts, greedily.
std::function<void()> WritingOf(const GptSize& g, int64_t rows) {
  auto built = models::BuildModel(models::FindPreset(g.preset)->config,
                                  {.dtype = DType::kBFloat16, .device = kGpu, .seed = 1});
  TESSERA_CHECK(built.ok(), "benchmark", Message(built.status()));
  std::shared_ptr<models::Model> model = *std::move(built);
  std::vector<std::vector<int64_t>> prompts(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows * kPrompt; ++i) {
    prompts[static_cast<size_t>(i / kPrompt)].push_back(i * 31 % 50257);
  }
  models::GenerationConfig config;
  config.max_new_tokens = kWritten;
  return [=] {
    const auto written = models::Generate(*model, prompts, config);
    TESSERA_CHECK(written.ok(), "benchmark", Message(written.status()));
  };
}

// Texts from prompt to end, and what the GPU does of it: the rest is the host's.
nlohmann::json ProfiledWriting(Report* report) {
  nlohmann::json profiles = nlohmann::json::array();
  for (const GptSize& g : {kGpt2, kGpt2Xl}) {
    for (const int64_t rows : {1, 32}) {
      const std::string name =
          Concat(g.preset, " bf16, ", rows, " texts of ", kPrompt, " and ", kWritten, " tokens");
      report->Add(
          "writing " + name, Tokens(static_cast<double>(rows * kWritten)),
          [&] { return WritingOf(g, rows); }, 3);
      profiles.push_back(CostliestKernels(
          *report, "writing " + name,
          NeedsOfWriting(g, static_cast<double>(rows), kPrompt + kWritten / 2.0, kWritten),
          [&] { return WritingOf(g, rows); }));
    }
  }
  return profiles;
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "error: usage: gpu_benchmark <out.json> [part of a name]\n");
    return 2;
  }
  const Status status = CheckDeviceAvailable(kGpu);
  if (!status.ok()) {
    std::fprintf(stderr, "error: %s\n", Message(status).c_str());
    return 1;
  }
  Report report(argc > 2 ? argv[2] : "");
  AddCeilings(&report);
  AddProducts(&report);
  AddAttention(&report);
  AddDecoding(&report);
  AddMemoryBound(&report);
  AddSteps(&report);
  nlohmann::json profiles = nlohmann::json::array();
  if (argc <= 2) {
    for (const auto& found : {ProfiledSteps(report), ProfiledWriting(&report)}) {
      profiles.insert(profiles.end(), found.begin(), found.end());
    }
  }
  const nlohmann::json all = {{"device", cuda::Properties(0).name},
                              {"cases", report.rows()},
                              {"costliest_kernels", profiles}};
  const Status written = WriteFileAtomically(argv[1], all.dump(1) + "\n");
  if (!written.ok()) {
    std::fprintf(stderr, "error: %s\n", Message(written).c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
