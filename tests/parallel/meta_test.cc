// SPDX-License-Identifier: Apache-2.0
// The law of meta: a step that runs without data, and without other ranks, counts what the step of
// that rank takes. Over families, layouts, policies, schedules and dtypes, for every rank: the peak
// of its memory and what is left of it afterwards (compute device and host), its calls to
// communicators one by one (group, kind, peer, bytes), and the pieces of its checkpoint with those
// that it writes. The real ranks are threads that take turns, so that their bytes can be told apart
// (dist/dry_run/rank_meter.h).
//
// What steers a program (flags, the layouts of a pipeline's messages) lies on the CPU in a dry run
// too, where it is counted apart. In a real run on the CPU it is among the rest, whose peak then
// lies between that of meta and the two peaks together: they are equal where there is none of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/checkpoint/rank_writer.h"
#include "dist/dry_run/dry_run.h"
#include "dist/mesh/mesh.h"
#include "dist/pipeline/partition.h"
#include "dist/pipeline/pipelined_model.h"
#include "dist/store/host_memory.h"
#include "dist/store/zero_init.h"
#include "models/family.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "optim/optimizer_kind.h"
#include "tests/parallel/family_cases.h"
#include "train/engine/engine.h"

namespace tessera {
namespace {

using dist::Mesh;
using dist::MeshSizes;
using dist::RankMeter;
using dist::ScheduleKind;
using models::Bundle;

constexpr int kSteps = 2;

struct Layout {
  std::string name;
  int dp = 1;
  int tp = 1;
  int pp = 1;
  bool sequence_parallel = false;
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  int chunks = 1;
  dist::ZeroOptions zero = {.stage = 0};
  bool offload_activations = false;
  bool partition_activations = false;
  bool recompute = false;
  double max_grad_norm = 1;
  std::string optimizer = "adamw";
  std::string freeze = {};  // parameters with this in their names
  int cp = 1;               // divides dp
};

struct Precision {
  std::string name;
  DType dtype = DType::kFloat32;
  DType products = DType::kFloat32;
  bool scales_loss = false;
};

struct Case {
  std::string family;
  Layout layout;
  Precision precision;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.family << "_" << c.layout.name << "_" << c.precision.name;
}

const FamilyCase& FamilyOf(const Case& c) {
  for (const FamilyCase& family : FamilyCases()) {
    if (family.name == c.family) return family;
  }
  throw Error("test", "no family " + c.family);
}

int WorldSize(const Layout& layout) { return layout.dp * layout.tp * layout.pp; }

MeshSizes SizesOf(const Layout& layout) {
  return {.tp = layout.tp, .pp = layout.pp, .cp = layout.cp};
}

template <typename T>
T Value(StatusOr<T> value) {
  if (!value.ok()) throw Error("test", Message(value.status()));
  return *std::move(value);
}

// --- One rank ------------------------------------------------------------------------------------

// What a rank has used.
struct Use {
  std::map<std::string, int64_t> before =
      {};  // bytes of a step, by device: "cpu", "host", "control"
  std::map<std::string, int64_t> peak = {};
  std::map<std::string, int64_t> after = {};
  std::vector<dist::CommCall> calls = {};
  std::vector<dist::HeldPiece> pieces = {};
  std::vector<double> numbers = {};  // losses and norms
};

std::unique_ptr<models::Model> Build(const Case& c, const Mesh& mesh, const Device& device) {
  nn::BuildContext build{.dtype = c.precision.dtype,
                         .device = device,
                         .seed = 11,
                         .tensor_parallel = mesh.tp(),
                         .sequence_parallel = c.layout.sequence_parallel,
                         .context_parallel = mesh.cp()};
  dist::CutWhileBuilding(c.layout.zero, dist::StoreGroupsOf(mesh), &build);
  const nlohmann::json& config = FamilyOf(c).config;
  std::unique_ptr<models::Model> model;
  if (c.layout.pp == 1) {
    model = Value(models::BuildModel(config, build));
  } else {
    const auto costs = Value(dist::ComputedBlockCosts(dist::BlocksOf(config, build), 7));
    const auto cuts = Value(dist::CutBlocks(costs, c.layout.pp * c.layout.chunks));
    model = std::make_unique<dist::PipelinedModel>(
        Value(dist::BuildStage(config, build, cuts, mesh.pp())));
  }
  model->set_checkpoint_activations(c.layout.recompute);
  if (!c.layout.freeze.empty()) model->Freeze(c.layout.freeze);
  return model;
}

train::EngineOptions OptionsOf(const Case& c, const Mesh& mesh) {
  train::EngineOptions options;
  options.rule =
      Value(Value(optim::FindOptimizerKind(c.layout.optimizer))->Configure({}, "meta_test"));
  options.weight_decay = 0.1;
  options.max_grad_norm = c.layout.max_grad_norm;
  if (c.precision.scales_loss) options.loss_scaling.emplace();
  options.products = c.precision.products;
  options.store = c.layout.zero;
  // Families whose heads leave something unused, for which flags travel.
  options.store.find_unused_parameters = c.family != "gpt2" && c.family != "vit_cls";
  if (c.layout.offload_activations || c.layout.partition_activations) {
    options.activations = dist::ActivationStoreOptions{
        .offload = c.layout.offload_activations,
        .partition = c.layout.partition_activations ? mesh.tp() : nullptr,
        .min_elements = 1};
  }
  options.schedule = c.layout.schedule;
  return options;
}

// Memory by what it stands for; `device` is where the step is computed.
std::map<std::string, int64_t> Bytes(int64_t (RankMeter::*bytes)(const Device&) const,
                                     const RankMeter& meter, const Device& device) {
  return {{"device", (meter.*bytes)(device)},
          {"host", (meter.*bytes)(dist::HostMemoryOf(device))},
          {"control", device.is_meta() ? (meter.*bytes)(Device::Cpu()) : 0}};
}

Use Train(const Case& c, const Mesh& mesh, RankMeter* meter, const Device& device,
          const std::vector<Bundle>& batches, const std::string& save_to) {
  Use use;
  const auto model = Build(c, mesh, device);
  train::Engine engine(*model, mesh, OptionsOf(c, mesh));
  engine.Start();
  use.before = Bytes(&RankMeter::current_bytes, *meter, device);
  meter->ResetPeaks();
  for (uint64_t step = 1; step <= kSteps; ++step) {
    const train::StepResult done = engine.Step(
        {.batches = batches,
         .targets = 32,
         .learning_rate = 1e-3,
         .number = step,
         .options = [&](int64_t m) {
           models::RunOptions options;
           options.context = {.seed = 7, .step = step, .micro_batch = static_cast<uint64_t>(m)};
           options.loss_reduction = LossReduction::kSum;
           options.keep_logits = false;
           return options;
         }});
    use.numbers.insert(use.numbers.end(), done.losses.begin(), done.losses.end());
    use.numbers.push_back(done.grad_norm);
  }
  use.peak = Bytes(&RankMeter::peak_bytes, *meter, device);
  use.after = Bytes(&RankMeter::current_bytes, *meter, device);
  use.calls = meter->calls();
  use.pieces = dist::HeldPieces(engine.Tensors());
  if (!save_to.empty()) {
    const Status saved = dist::SaveCheckpoint(save_to, 1, engine.Tensors(), {}, *mesh.world());
    EXPECT_TRUE(saved.ok()) << Message(saved);
  }
  return use;
}

// Two micro-batches without ignored targets: how many there are, only data would say.
std::vector<Bundle> Batches(const Case& c, const Device& device) {
  std::vector<Bundle> batches;
  for (const uint64_t variation : {0, 7}) {
    Bundle batch = FamilyOf(c).inputs(variation);
    if (batch.has(keys::kPixelValues)) {
      batch.set(keys::kPixelValues, CastCopy(batch.at(keys::kPixelValues), c.precision.dtype));
    }
    batches.push_back(OnDevice(batch, device));
  }
  return batches;
}

// --- All ranks -----------------------------------------------------------------------------------

std::vector<Use> RealRanks(const Case& c, const std::string& save_to) {
  const std::vector<Bundle> batches = Batches(c, Device::Cpu());
  std::vector<Use> uses(static_cast<size_t>(WorldSize(c.layout)));
  dist::MeasureRanks(WorldSize(c.layout), {Device::Cpu(), Device::Host()},
                     [&](const dist::Group& world, const std::shared_ptr<RankMeter>& meter) {
                       const Mesh mesh(world, SizesOf(c.layout));
                       uses[static_cast<size_t>(world->rank())] =
                           Train(c, mesh, meter.get(), Device::Cpu(), batches, save_to);
                     });
  return uses;
}

std::vector<Use> DryRanks(const Case& c, const Device& device = Device::Meta()) {
  const std::vector<Bundle> batches = Batches(c, device);
  std::vector<Use> uses(static_cast<size_t>(WorldSize(c.layout)));
  for (int dp = 0; dp < c.layout.dp; ++dp) {
    for (int tp = 0; tp < c.layout.tp; ++tp) {
      dist::DryRun({.sizes = SizesOf(c.layout),
                    .world_size = WorldSize(c.layout),
                    .dp_rank = dp,
                    .tp_rank = tp,
                    .device = device},
                   [&](const Mesh& mesh, RankMeter& meter) {
                     uses[static_cast<size_t>(mesh.world()->rank())] =
                         Train(c, mesh, &meter, device, batches, "");
                   });
    }
  }
  return uses;
}

// Bytes of each rank's file.
std::vector<int64_t> FileBytes(const std::string& directory, int ranks) {
  std::vector<int64_t> bytes(static_cast<size_t>(ranks), 0);
  const auto checkpoint = Value(dist::Checkpoint::Open(directory));
  for (const auto& [name, entry] : checkpoint.entries()) {
    for (const dist::SavedPiece& saved : entry.pieces) {
      const size_t rank = std::stoul(saved.file.substr(std::string("tensors-").size()));
      bytes.at(rank) += saved.piece.numel() * static_cast<int64_t>(DTypeSize(entry.dtype));
    }
  }
  return bytes;
}

class MetaTest : public testing::TestWithParam<Case> {};

TEST_P(MetaTest, CountsWhatTheRanksTake) {
  const Case& c = GetParam();
  const std::string directory =
      JoinPath(testing::TempDir(), testing::PrintToString(c) + "_checkpoint");
  const std::vector<Use> real = RealRanks(c, directory);
  const std::vector<Use> dry = DryRanks(c);
  std::vector<std::vector<dist::HeldPiece>> pieces;
  for (const Use& use : dry) pieces.push_back(use.pieces);
  const std::vector<int64_t> written = FileBytes(directory, WorldSize(c.layout));
  for (size_t r = 0; r < real.size(); ++r) {
    SCOPED_TRACE(Concat("rank ", r));
    const Use& mine = real[r];
    Use meta = dry[r];
    EXPECT_EQ(mine.before.at("device"), meta.before.at("device") + meta.before.at("control"));
    EXPECT_EQ(mine.after.at("device"), meta.after.at("device") + meta.after.at("control"));
    EXPECT_GE(mine.peak.at("device"), meta.peak.at("device"));
    EXPECT_LE(mine.peak.at("device"), meta.peak.at("device") + meta.peak.at("control"));
    EXPECT_LE(meta.peak.at("control"), 8192);
    EXPECT_GT(meta.peak.at("device"), meta.before.at("device"));
    for (const auto& [real_bytes, meta_bytes] :
         {std::pair{mine.before, meta.before}, {mine.peak, meta.peak}, {mine.after, meta.after}}) {
      EXPECT_EQ(real_bytes.at("host"), meta_bytes.at("host"));
    }
    ASSERT_EQ(mine.calls.size(), meta.calls.size());
    for (size_t i = 0; i < mine.calls.size(); ++i) {
      ASSERT_EQ(mine.calls[i], meta.calls[i]) << "call " << i;
    }
    ASSERT_EQ(mine.pieces.size(), meta.pieces.size());
    for (size_t i = 0; i < mine.pieces.size(); ++i) {
      EXPECT_EQ(mine.pieces[i].identity, meta.pieces[i].identity);
      EXPECT_EQ(mine.pieces[i].bytes, meta.pieces[i].bytes);
    }
    int64_t bytes = 0;
    for (const dist::HeldPiece& piece : dist::WrittenPieces(pieces, r)) bytes += piece.bytes;
    EXPECT_EQ(written[r], bytes);
    ASSERT_EQ(mine.numbers.size(), meta.numbers.size());
    for (size_t i = 0; i < mine.numbers.size(); ++i) {
      EXPECT_TRUE(std::isnan(meta.numbers[i]));
      EXPECT_TRUE(std::isfinite(mine.numbers[i]) || c.precision.scales_loss);
    }
  }
}

// Another device computes otherwise, in other memory, but says and keeps the same.
TEST_P(MetaTest, OfAGpuCallsAndKeepsTheSame) {
  const std::vector<Use> cpu = DryRanks(GetParam());
  const std::vector<Use> gpu = DryRanks(GetParam(), Device::Meta(DeviceType::kCuda));
  for (size_t r = 0; r < cpu.size(); ++r) {
    EXPECT_EQ(gpu[r].calls, cpu[r].calls) << "rank " << r;
    EXPECT_EQ(gpu[r].pieces.size(), cpu[r].pieces.size());
    EXPECT_GT(gpu[r].peak.at("device"), gpu[r].before.at("device"));
    EXPECT_EQ(gpu[r].after.at("host"), cpu[r].after.at("host"));
  }
}

// --- The table -----------------------------------------------------------------------------------

// Small buckets, so that there are several.
dist::ZeroOptions Stage(int stage, bool offload = false) {
  dist::ZeroOptions options{.stage = stage, .bucket_cap_mb = 0.01};
  options.offload_optimizer = offload;
  options.offload_parameters = offload && stage == 3;
  return options;
}

std::vector<Layout> Layouts() {
  std::vector<Layout> layouts = {
      {.name = "one"},
      {.name = "dp2", .dp = 2, .zero = Stage(0)},
      {.name = "tp2", .tp = 2},
      {.name = "tp2_sp", .tp = 2, .sequence_parallel = true},
      {.name = "pp2_1f1b", .pp = 2},
      {.name = "pp2_gpipe", .pp = 2, .schedule = ScheduleKind::kGPipe},
      {.name = "pp2_interleaved", .pp = 2, .schedule = ScheduleKind::kInterleaved, .chunks = 2},
      {.name = "pp2_zb_h1", .pp = 2, .schedule = ScheduleKind::kZeroBubbleH1},
      {.name = "pp2_zb_h2", .pp = 2, .schedule = ScheduleKind::kZeroBubbleH2},
      {.name = "zero1", .dp = 2, .zero = Stage(1)},
      {.name = "zero2", .dp = 2, .zero = Stage(2)},
      {.name = "zero3", .dp = 2, .zero = Stage(3)},
      {.name = "zero2_offload", .dp = 2, .zero = Stage(2, true)},
      {.name = "zero3_offload", .dp = 2, .zero = Stage(3, true)},
      {.name = "dp2_tp2_pp2_zero1",
       .dp = 2,
       .tp = 2,
       .pp = 2,
       .sequence_parallel = true,
       .zero = Stage(1)},
      {.name = "offloaded_activations", .offload_activations = true, .recompute = true},
      {.name = "cp2", .dp = 2, .cp = 2},
      {.name = "cp4_zero2_recomputed", .dp = 4, .zero = Stage(2), .recompute = true, .cp = 4},
      {.name = "cp2_tp2_pp2_zero1",
       .dp = 2,
       .tp = 2,
       .pp = 2,
       .sequence_parallel = true,
       .zero = Stage(1),
       .cp = 2},
  };
  return layouts;
}

dist::ZeroOptions With(dist::ZeroOptions options, void (*change)(dist::ZeroOptions&)) {
  change(options);
  return options;
}

// What is no matter of the family: with GPT alone.
std::vector<Layout> MoreLayouts() {
  std::vector<Layout> layouts = {
      {.name = "dp4_deterministic",
       .dp = 4,
       .zero = With(Stage(0), [](dist::ZeroOptions& o) { o.deterministic = true; })},
      {.name = "dp3_zero2", .dp = 3, .zero = Stage(2)},
      {.name = "tp3_sp", .tp = 3, .sequence_parallel = true},  // 4 heads over 3 ranks
      {.name = "dp2_tp2_zero3_sp", .dp = 2, .tp = 2, .sequence_parallel = true, .zero = Stage(3)},
      {.name = "pp4", .pp = 4},
      {.name = "dp2_pp2_zero2_offload", .dp = 2, .pp = 2, .zero = Stage(2, true)},
      {.name = "dp2_pp2_zero3", .dp = 2, .pp = 2, .zero = Stage(3)},
      {.name = "partitioned_activations",
       .tp = 2,
       .partition_activations = true,
       .recompute = true},
      {.name = "dp2_tp2_zero1_lamb", .dp = 2, .tp = 2, .zero = Stage(1), .optimizer = "lamb"},
      {.name = "zero2_adafactor", .dp = 2, .zero = Stage(2), .optimizer = "adafactor"},
      {.name = "zero1_frozen", .dp = 2, .zero = Stage(1), .freeze = "weight"},
      {.name = "zero3_frozen", .dp = 2, .zero = Stage(3), .freeze = "h.0."},
      {.name = "pp2_frozen", .pp = 2, .freeze = "h.1."},
      // Nothing trains on one of the ranks, or in one of a rank's chunks.
      {.name = "pp4_frozen", .pp = 4, .freeze = "h.1."},
      {.name = "dp2_pp4_zero1_frozen", .dp = 2, .pp = 4, .zero = Stage(1), .freeze = "h.1."},
      {.name = "dp2_pp2_interleaved_frozen",
       .dp = 2,
       .pp = 2,
       .schedule = ScheduleKind::kInterleaved,
       .chunks = 2,
       .freeze = "h.1."},
      {.name = "one_early_offload", .zero = Stage(2, true), .max_grad_norm = 0},
      {.name = "bfloat16_travels",
       .dp = 2,
       .zero =
           With(Stage(2), [](dist::ZeroOptions& o) { o.communication_dtype = DType::kBFloat16; })},
      {.name = "static_graph_checked",
       .dp = 2,
       .zero =
           With(Stage(0), [](dist::ZeroOptions& o) { o.static_graph = o.check_reduction = true; })},
      {.name = "zero3_units",
       .dp = 2,
       .zero = With(Stage(3),
                    [](dist::ZeroOptions& o) {
                      o.auto_wrap_min_params = 2000;
                      o.persistence_threshold = 100;
                      o.reshard_after_forward = false;
                    })},
  };
  return layouts;
}

std::vector<Case> Cases() {
  const Precision float32 = {.name = "float32"};
  const std::vector<Precision> others = {
      {.name = "bfloat16", .dtype = DType::kBFloat16},
      {.name = "autocast", .products = DType::kBFloat16},
      {.name = "float16", .dtype = DType::kFloat16, .scales_loss = true}};
  std::vector<Case> cases;
  for (const Layout& layout : Layouts()) {
    for (const std::string family : {"gpt2", "bert_masked_lm", "vit_cls", "t5", "glm"}) {
      // Not cut over ranks (Model::cuts_sequences).
      if (layout.cp > 1 && (family == "bert_masked_lm" || family == "vit_cls")) continue;
      cases.push_back({family, layout, float32});
    }
    for (const Precision& precision : others) cases.push_back({"gpt2", layout, precision});
  }
  for (const Layout& layout : MoreLayouts()) cases.push_back({"gpt2", layout, float32});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ranks, MetaTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return testing::PrintToString(info.param); });

// --- A layout that no machine here has -----------------------------------------------------------

constexpr int64_t kHidden = 12288;
constexpr int64_t kTokens = 2048;
constexpr int kLayersPerStage = 6;
constexpr int64_t kMicroBatches = 8;
constexpr MeshSizes kModelSizes = {.tp = 8, .pp = 16};
constexpr int kDataRanks = 8;
constexpr int kBlocks = kModelSizes.pp * kLayersPerStage;  // with the embedding and the head

// GPT-3's size, in bfloat16.
std::unique_ptr<models::Model> BuildLargeStage(const Mesh& mesh, const Device& device) {
  const nlohmann::json config = {
      {"model_type", "gpt2"}, {"vocab_size", 50304}, {"n_positions", kTokens},
      {"n_embd", kHidden},    {"n_head", 96},        {"n_layer", kBlocks - 2},
      {"resid_pdrop", 0.0},   {"embd_pdrop", 0.0},   {"attn_pdrop", 0.0}};
  return std::make_unique<dist::PipelinedModel>(Value(dist::BuildStage(
      config, {.dtype = DType::kBFloat16, .device = device, .tensor_parallel = mesh.tp()},
      Value(dist::CutEvenly(kBlocks, kModelSizes.pp)), mesh.pp())));
}

void StepOnce(models::Model& model, const Mesh& mesh, RankMeter* meter) {
  train::EngineOptions options;
  options.rule = Value(Value(optim::FindOptimizerKind("adamw"))->Configure({}, "meta_test"));
  options.max_grad_norm = 1;
  options.store = {.stage = 1};
  train::Engine engine(model, mesh, options);
  engine.Start();
  meter->Clear();
  const Tensor ids = Empty({1, kTokens}, DType::kInt64, model.build().device);
  const std::vector<Bundle> batches(kMicroBatches, {{keys::kInputIds, ids}, {keys::kLabels, ids}});
  models::RunOptions run;
  run.loss_reduction = LossReduction::kSum;
  run.keep_logits = false;
  engine.Step({.batches = batches,
               .targets = kTokens * kMicroBatches,
               .learning_rate = 1e-4,
               .options = [&](int64_t) { return run; }});
  // Weights in half, gradients in float32, and a share of three float32 states.
  const Device& device = model.build().device;
  int64_t elements = 0;
  for (const nn::Parameter* p : model.Parameters()) {
    if (p->tied_to == nullptr) elements += p->tensor.numel();
  }
  const double bytes = static_cast<double>(elements) * (2 + 4 + 12.0 / kDataRanks);
  if (mesh.pp()->rank() == 0 || mesh.pp()->rank() + 1 == kModelSizes.pp) return;  // tied weights
  EXPECT_NEAR(static_cast<double>(meter->current_bytes(device)), bytes, 0.01 * bytes);
}

// What a stage of layers alone says to others.
void CheckCalls(const RankMeter& meter, double elements) {
  // Activations: two sums forward and two backward in each layer, one message on either side.
  constexpr int64_t kActivation = kTokens * kHidden * 2;
  std::map<std::pair<std::string, dist::CommKind>, int64_t> payload;
  int64_t sums = 0;
  int64_t messages = 0;
  for (const dist::CommCall& call : meter.calls()) {
    payload[{call.group, call.kind}] += call.payload;
    if (call.payload != kActivation) continue;
    if (call.kind == dist::CommKind::kAllReduce && call.group == "tp") ++sums;
    if (call.kind == dist::CommKind::kSend && call.group == "pp") ++messages;
  }
  EXPECT_EQ(sums, 4 * kLayersPerStage * kMicroBatches);
  EXPECT_EQ(messages, 2 * kMicroBatches);
  // Gradients in float32 to those who update, weights in half to all.
  const auto of_dp = [&](dist::CommKind kind) {
    return static_cast<double>(payload[std::pair{std::string("dp"), kind}]);
  };
  EXPECT_NEAR(of_dp(dist::CommKind::kReduceScatter), 4 * elements, 0.01 * elements);
  EXPECT_NEAR(of_dp(dist::CommKind::kAllGather), 2 * elements, 0.01 * elements);
}

// The stages of one of 1024 ranks, against what can be said with a pencil.
TEST(ManyRanksTest, TheStagesOfALargeModel) {
  const Device device = Device::Meta(DeviceType::kCuda);
  // 12 C^2 for each layer, and vectors.
  const double elements = 12.0 * kHidden * kHidden * kLayersPerStage / kModelSizes.tp;
  int stages = 0;
  dist::DryRun({.sizes = kModelSizes,
                .world_size = kModelSizes.tp * kModelSizes.pp * kDataRanks,
                .dp_rank = 5,
                .tp_rank = 3,
                .device = device},
               [&](const Mesh& mesh, RankMeter& meter) {
                 ++stages;
                 const auto model = BuildLargeStage(mesh, device);
                 StepOnce(*model, mesh, &meter);
                 if (mesh.pp()->rank() != 7) return;
                 // All micro-batches are under way at once, and each keeps more than two
                 // activations in each layer.
                 EXPECT_GT(static_cast<double>(meter.peak_bytes(device)),
                           elements * (2 + 4 + 12.0 / kDataRanks) +
                               kMicroBatches * kLayersPerStage * 2 * kTokens * kHidden * 2);
                 CheckCalls(meter, elements);
               });
  EXPECT_EQ(stages, kModelSizes.pp);
}

// --- Long rows -----------------------------------------------------------------------------------

// What one rank of `cp` takes of a step of one row of `tokens` tokens, and sends round the ring.
struct RowUse {
  int64_t activations = 0;  // bytes beyond those of parameters, gradients and states
  int64_t sent = 0;
};

RowUse LongRow(const nlohmann::json& config, int64_t tokens, int cp, const Device& device,
               DType dtype, bool recompute) {
  RowUse use;
  dist::DryRun({.sizes = {.cp = cp}, .world_size = cp, .dp_rank = cp / 2, .device = device},
               [&](const Mesh& mesh, RankMeter& meter) {
                 const auto model = Value(models::BuildModel(
                     config, {.dtype = dtype, .device = device, .context_parallel = mesh.cp()}));
                 model->set_checkpoint_activations(recompute);
                 train::EngineOptions options;
                 options.rule =
                     Value(Value(optim::FindOptimizerKind("adamw"))->Configure({}, "meta_test"));
                 train::Engine engine(*model, mesh, options);
                 engine.Start();
                 const Tensor ids = Empty({1, tokens}, DType::kInt64, device);
                 models::RunOptions run;
                 run.loss_reduction = LossReduction::kSum;
                 run.keep_logits = false;
                 const auto step = [&](uint64_t number) {
                   engine.Step({.batches = {{{keys::kInputIds, ids}, {keys::kLabels, ids}}},
                                .targets = static_cast<double>(tokens),
                                .learning_rate = 1e-4,
                                .number = number,
                                .options = [&](int64_t) { return run; }});
                 };
                 step(1);
                 const int64_t before = meter.current_bytes(device);
                 meter.ResetPeaks();
                 meter.Clear();
                 step(2);
                 use.activations = meter.peak_bytes(device) - before;
                 for (const dist::CommCall& call : meter.calls()) {
                   if (call.group == "cp") use.sent += call.sent;
                 }
               });
  return use;
}

// A row of 16,384 tokens of a small Llama shape: on N ranks a rank takes about 1/N, and sends what
// a pencil says.
TEST(LongRowsTest, ARankTakesItsShare) {
  constexpr int64_t kTokensOfRow = 16384;
  const nlohmann::json config = {
      {"model_type", "llama"},      {"hidden_size", 512},
      {"intermediate_size", 1536},  {"num_hidden_layers", 8},
      {"num_attention_heads", 8},   {"num_key_value_heads", 4},
      {"vocab_size", 8192},         {"max_position_embeddings", kTokensOfRow},
      {"tie_word_embeddings", true}};
  const RowUse one = LongRow(config, kTokensOfRow, 1, Device::Meta(), DType::kFloat32, false);
  EXPECT_EQ(one.sent, 0);
  for (const int cp : {2, 4, 8}) {
    const RowUse rank = LongRow(config, kTokensOfRow, cp, Device::Meta(), DType::kFloat32, false);
    const double share = static_cast<double>(one.activations) / rank.activations;
    EXPECT_GE(share, cp * 0.95) << "cp " << cp;
    EXPECT_LE(share, cp) << "cp " << cp;
    std::printf("cp %d: 1/%.2f of one rank's %.0f MiB, %.1f MiB sent\n", cp, share,
                static_cast<double>(one.activations) / (1 << 20),
                static_cast<double>(rank.sent) / (1 << 20));
    // Keys and values of 4 heads of 64 in float32, N - 1 times forward and backward; their
    // gradients N times.
    const int64_t pair = 2 * kTokensOfRow / cp * 4 * 64 * 4;
    EXPECT_EQ(rank.sent, 8 * pair * (2 * (cp - 1) + cp)) << "cp " << cp;
  }
}

// llama-3.2-1b with rows of 131,072 tokens, in bfloat16 with recomputation: 16 ranks of a GPU each.
TEST(LongRowsTest, OfAPublishedModel) {
  const nlohmann::json config = models::FindPreset("llama-3.2-1b")->config;
  const Device device = Device::Meta(DeviceType::kCuda);
  const auto gigabytes = [&](int cp) {
    return static_cast<double>(
               LongRow(config, 131072, cp, device, DType::kBFloat16, true).activations) /
           (int64_t{1} << 30);
  };
  const double eight = gigabytes(8);
  const double sixteen = gigabytes(16);
  std::printf("activations of a row of 131,072 tokens: %.2f GiB on each of 8 ranks, %.2f on 16\n",
              eight, sixteen);
  // 16 layers' inputs, [16384, 2048] in half precision, and what a block and the loss take.
  const double inputs = 16 * 16384.0 * 2048 * 2 / (int64_t{1} << 30);
  EXPECT_GE(eight, inputs);
  EXPECT_LE(eight, 4);
  EXPECT_LE(sixteen, eight - inputs / 2);
}

// --- Mixtures of experts as they are published ---------------------------------------------------

struct Published {
  const char* preset;
  MeshSizes sizes;
  int world;
  int64_t per_token;
};

std::ostream& operator<<(std::ostream& out, const Published& p) { return out << p.preset; }

class PublishedTest : public testing::TestWithParam<Published> {};

// Bytes of a rank with its share of the experts, and what tokens of a step cost on their ways, in
// bfloat16.
TEST_P(PublishedTest, ExpertsOnManyRanks) {
  constexpr int64_t kRowTokens = 256;
  constexpr int64_t kPasses = 2;
  const Published& published = GetParam();
  const nlohmann::json config = models::FindPreset(published.preset)->config;
  const Device device = Device::Meta(DeviceType::kCuda);
  const int dp = published.world / (published.sizes.tp * published.sizes.pp);
  const int edp = dp / published.sizes.ep;
  const int blocks = config.at("num_hidden_layers").get<int>() + 2;
  dist::DryRun(
      {.sizes = published.sizes, .world_size = published.world, .dp_rank = 3, .device = device},
      [&](const Mesh& mesh, RankMeter& meter) {
        const nn::BuildContext build = {.dtype = DType::kBFloat16,
                                        .device = device,
                                        .tensor_parallel = mesh.tp(),
                                        .expert_parallel = mesh.ep()};
        dist::PipelinedModel model(Value(dist::BuildStage(
            config, build, Value(dist::CutEvenly(blocks, published.sizes.pp)), mesh.pp())));
        train::EngineOptions options;
        options.rule = Value(Value(optim::FindOptimizerKind("adamw"))->Configure({}, "meta_test"));
        options.store = {.stage = 1};
        train::Engine engine(model, mesh, options);
        engine.Start();
        meter.Clear();
        const Tensor ids = Empty({1, kRowTokens}, DType::kInt64, device);
        const std::vector<Bundle> batches(kPasses, {{keys::kInputIds, ids}, {keys::kLabels, ids}});
        models::RunOptions run;
        run.loss_reduction = LossReduction::kSum;
        run.keep_logits = false;
        engine.Step({.batches = batches,
                     .targets = kRowTokens * kPasses,
                     .learning_rate = 1e-4,
                     .options = [&](int64_t) { return run; }});
        double shared = 0, of_experts = 0, elsewhere = 0;
        int64_t layers = 0;
        for (const nn::Parameter* p : model.Parameters()) {
          const auto count = static_cast<double>(p->tensor.numel());
          (p->expert_group == nullptr ? shared : of_experts) += count;
          if (!p->elsewhere) continue;
          EXPECT_EQ(count, 0);
          elsewhere += static_cast<double>(p->placement.global_shape().numel());
        }
        model.VisitModules([&](nn::Module& m) { layers += m.kind() == "ExpertMlp" ? 1 : 0; });
        // Of as many experts as the others of its group have together, by their number.
        EXPECT_NEAR(of_experts * published.sizes.tp * (published.sizes.ep - 1), elsewhere,
                    1e-9 * elsewhere);
        const double bytes = shared * (2 + 4 + 12.0 / dp) + of_experts * (2 + 4 + 12.0 / edp);
        EXPECT_NEAR(static_cast<double>(meter.current_bytes(device)), bytes, 0.01 * bytes);
        // Rows go and come back, forward and backward.
        const int64_t rows =
            published.per_token * kRowTokens * config.at("hidden_size").get<int64_t>() * 2;
        int64_t exchanges = 0;
        for (const dist::CommCall& call : meter.calls()) {
          if (call.group != "ep" || call.kind != dist::CommKind::kAllToAll) continue;
          if (call.payload > 100000) {
            EXPECT_EQ(call.payload, rows);
            ++exchanges;
          }
        }
        EXPECT_EQ(exchanges, 4 * layers * kPasses);
      });
}

INSTANTIATE_TEST_SUITE_P(
    Experts, PublishedTest,
    testing::Values(Published{"mixtral-8x7b", {.tp = 2, .pp = 4, .ep = 8}, 128, 2},
                    Published{"qwen3-30b-a3b", {.pp = 2, .ep = 8}, 32, 8},
                    Published{"glm-4.5-air", {.tp = 2, .pp = 4, .ep = 16}, 256, 8}),
    [](const auto& info) {
      std::string name = info.param.preset;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
      return name;
    });

}  // namespace
}  // namespace tessera
