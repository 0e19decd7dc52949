// Every model family on every layout: one training step (dropout on) in one process, and again
//   - with tensor parallelism over 2 and 3 ranks, with and without sequence parallelism and
//     recomputation (sums are split: losses and gradients agree to 2e-6),
//   - as two pipeline stages, cut at every block (the same bits),
//   - with recomputation, and with the logits' memory reused (the same bits),
//   - on the meta device (the same peak of memory).
// A new family adds one entry to `Cases`.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "core/allocator.h"
#include "core/thread_communicator.h"
#include "models/model.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

using models::Bundle;
using models::Model;
using models::RunOptions;
using nlohmann::json;

constexpr int64_t kRows = 3;
constexpr int64_t kTokens = 7;
constexpr int64_t kVocabulary = 53;
constexpr double kTolerance = 2e-6;

Tensor Ids(int64_t limit, uint64_t seed) { return RandomIndices({kRows, kTokens}, limit, seed); }
Tensor RowLabels(int64_t limit, uint64_t seed) { return RandomIndices({kRows}, limit, seed); }

// Padding on the right, on the left, and none.
Tensor Mask() {
  std::vector<int64_t> mask(kRows * kTokens, 1);
  mask[kTokens - 1] = mask[kTokens - 2] = mask[kTokens] = 0;
  return Tensor::FromVector(mask, {kRows, kTokens});
}

struct FamilyCase {
  std::string name;
  json config;
  std::function<Bundle()> inputs;  // with labels
};

void PrintTo(const FamilyCase& family, std::ostream* out) { *out << family.name; }

json BertConfig(const char* type, const char* architecture) {
  return {{"model_type", type},
          {"architectures", {architecture}},
          {"vocab_size", kVocabulary},
          {"hidden_size", 24},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"intermediate_size", 29},
          {"max_position_embeddings", 16},
          {"type_vocab_size", 2},
          {"hidden_dropout_prob", 0.2},
          {"initializer_range", 0.2},
          {"attention_probs_dropout_prob", 0.2},
          {"id2label", {{"0", "a"}, {"1", "b"}, {"2", "c"}}}};
}

Bundle MaskedLmInputs() {
  return {{"input_ids", Ids(kVocabulary, 1)},
          {"attention_mask", Mask()},
          {"labels", Ids(kVocabulary, 2)}};
}

json VitConfig(const char* pooling) {
  return {{"model_type", "vit"},
          {"architectures", {"ViTForImageClassification"}},
          {"hidden_size", 24},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"intermediate_size", 29},
          {"hidden_dropout_prob", 0.2},
          {"attention_probs_dropout_prob", 0.2},
          {"initializer_range", 0.2},
          {"image_size", 8},
          {"patch_size", 4},
          {"num_channels", 3},
          {"pooling", pooling},
          {"num_labels", 3}};
}

// Larger than the configuration says: positions are interpolated.
Bundle ImageInputs() {
  return {{"pixel_values", CastCopy(RandomTensor({kRows, 3, 12, 8}, 5), DType::kFloat32)},
          {"labels", RowLabels(3, 2)}};
}

json T5Config(const char* feed_forward, bool tied) {
  return {{"model_type", "t5"},
          {"vocab_size", kVocabulary},
          {"d_model", 24},
          {"d_kv", 5},
          {"d_ff", 29},
          {"num_layers", 2},
          {"num_decoder_layers", 2},
          {"num_heads", 4},
          {"relative_attention_num_buckets", 8},
          {"relative_attention_max_distance", 12},
          {"dropout_rate", 0.2},
          {"feed_forward_proj", feed_forward},
          {"tie_word_embeddings", tied},
          {"initializer_factor", 0.5}};
}

// A target of another length than the source.
Bundle SourceTargetInputs() {
  return {{"input_ids", Ids(kVocabulary, 1)},
          {"attention_mask", Mask()},
          {"labels", RandomIndices({kRows, 5}, kVocabulary, 2)}};
}

const std::vector<FamilyCase>& Cases() {
  static const auto* const cases = new std::vector<FamilyCase>{
      {"gpt2",
       {{"model_type", "gpt2"},
        {"vocab_size", kVocabulary},
        {"n_positions", 16},
        {"n_embd", 24},
        {"n_layer", 2},
        {"n_head", 4},
        {"resid_pdrop", 0.2},
        {"embd_pdrop", 0.2},
        {"attn_pdrop", 0.2},
        {"initializer_range", 0.2}},
       MaskedLmInputs},
      {"bert_masked_lm", BertConfig("bert", "BertForMaskedLM"), MaskedLmInputs},
      {"bert_pretraining", BertConfig("bert", "BertForPreTraining"),
       [] {
         Bundle in = MaskedLmInputs();
         in.set("token_type_ids", Ids(2, 3));
         in.set("next_sentence_label", RowLabels(2, 4));
         return in;
       }},
      {"bert_sequence", BertConfig("bert", "BertForSequenceClassification"),
       [] {
         return Bundle{{"input_ids", Ids(kVocabulary, 1)}, {"labels", RowLabels(3, 2)}};
       }},
      {"bert_tokens", BertConfig("bert", "BertForTokenClassification"),
       [] {
         return Bundle{{"input_ids", Ids(kVocabulary, 1)}, {"labels", Ids(3, 2)}};
       }},
      {"roberta_masked_lm", BertConfig("roberta", "RobertaForMaskedLM"), MaskedLmInputs},
      {"roberta_sequence", BertConfig("roberta", "RobertaForSequenceClassification"),
       [] {
         return Bundle{{"input_ids", Ids(kVocabulary, 1)}, {"labels", RowLabels(3, 2)}};
       }},
      {"vit_cls", VitConfig("cls"), ImageInputs},
      {"vit_mean", VitConfig("mean"), ImageInputs},
      {"t5", T5Config("relu", true), SourceTargetInputs},
      {"t5_v1_1", T5Config("gated-gelu", false), SourceTargetInputs},
  };
  return *cases;
}

std::unique_ptr<Model> Build(const FamilyCase& family, nn::BuildContext context = {},
                             bool recompute = false) {
  context.seed = 11;
  auto model = models::BuildModel(family.config, context);
  EXPECT_TRUE(model.ok()) << Message(model.status());
  (*model)->set_checkpoint_activations(recompute);
  return *std::move(model);
}

RunOptions Options() {
  RunOptions options;
  options.context = {.seed = 7, .step = 3};
  options.keep_logits = false;
  return options;
}

struct Outcome {
  double loss = 0;
  // Of every leaf of the tape, by name and globally; a tied use has its own. Those without a
  // gradient are left out.
  std::map<std::string, std::vector<float>> gradients = {};
};

void CollectGradients(Model& model, Outcome* outcome) {
  for (nn::Parameter* p : model.Parameters()) {
    const Tensor grad = Grad(p->tensor);
    if (!grad.defined()) continue;
    std::vector<float>& values = outcome->gradients[p->name];
    const Shape& shape = p->placement.global_shape();
    if (values.empty()) values.resize(static_cast<size_t>(shape.numel()));
    const Tensor global = Tensor::FromVector(values, shape);
    CopyLocalToGlobal(p->placement, grad, global);
    values = global.ToVector<float>();
  }
}

Outcome OneProcess(const FamilyCase& family, bool recompute = false, bool keep_logits = false) {
  const auto model = Build(family, {}, recompute);
  RunOptions options = Options();
  options.keep_logits = keep_logits;
  const Tensor loss = model->Run(family.inputs(), options).at("loss");
  Outcome outcome{.loss = loss.Item()};
  Backward(loss);
  CollectGradients(*model, &outcome);
  return outcome;
}

double Distance(const Outcome& a, const Outcome& b) {
  double difference = 0;
  double norm = 0;
  EXPECT_EQ(a.gradients.size(), b.gradients.size());
  for (const auto& [name, values] : b.gradients) {
    const auto found = a.gradients.find(name);
    if (found == a.gradients.end()) {
      ADD_FAILURE() << name << " has no gradient";
      continue;
    }
    double own = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      own += std::pow(static_cast<double>(found->second[i]) - values[i], 2);
      norm += std::pow(static_cast<double>(values[i]), 2);
    }
    difference += own;
  }
  return std::sqrt(difference / norm);
}

class FamiliesTest : public testing::TestWithParam<FamilyCase> {};

TEST_P(FamiliesTest, TensorAndSequenceParallel) {
  const Outcome reference = OneProcess(GetParam());
  for (const int ranks : {2, 3}) {
    for (const bool sequence : {false, true}) {
      const std::string where = Concat("tp ", ranks, sequence ? " sequence" : "");
      Outcome outcome;
      RunRanks(ranks, [&](std::shared_ptr<Communicator> world) {
        const auto model = Build(
            GetParam(), {.tensor_parallel = world, .sequence_parallel = sequence}, ranks == 3);
        const Tensor loss = model->Run(GetParam().inputs(), Options()).at("loss");
        Backward(loss);
        for (nn::Parameter* p : model->Parameters()) {
          if (p->gradient_group == nullptr) continue;
          p->gradient_group->AllReduce(Grad(p->tensor), ReduceOp::kSum)->Wait();
        }
        for (int turn = 0; turn < world->size(); ++turn) {
          if (turn == world->rank()) {
            if (turn == 0) outcome.loss = loss.Item();
            EXPECT_NEAR(loss.Item(), reference.loss, kTolerance * reference.loss) << where;
            CollectGradients(*model, &outcome);
          }
          world->Barrier();
        }
      });
      EXPECT_LE(Distance(outcome, reference), kTolerance) << where;
    }
  }
}

// A replicated parameter must have the same gradient on every rank, or ranks drift apart.
TEST_P(FamiliesTest, ReplicasHaveOneGradient) {
  for (const bool sequence : {false, true}) {
    std::map<std::string, std::vector<float>> seen;
    RunRanks(2, [&](std::shared_ptr<Communicator> world) {
      const auto model =
          Build(GetParam(), {.tensor_parallel = world, .sequence_parallel = sequence});
      Backward(model->Run(GetParam().inputs(), Options()).at("loss"));
      for (nn::Parameter* p : model->Parameters()) {
        if (p->gradient_group == nullptr) continue;
        p->gradient_group->AllReduce(Grad(p->tensor), ReduceOp::kSum)->Wait();
      }
      for (int turn = 0; turn < 2; ++turn) {
        if (turn == world->rank()) {
          for (nn::Parameter* p : model->Parameters()) {
            if (!p->placement.is_whole() || !Grad(p->tensor).defined()) continue;
            const std::vector<float> values = Grad(p->tensor).ToVector<float>();
            const auto [at, first] = seen.emplace(p->name, values);
            EXPECT_TRUE(at->second == values) << p->name << (sequence ? " sequence" : "");
          }
        }
        world->Barrier();
      }
    });
  }
}

TEST_P(FamiliesTest, TwoStagesGiveTheBitsOfOneProcess) {
  const Outcome reference = OneProcess(GetParam());
  const int blocks = Build(GetParam())->num_blocks();
  for (int cut = 1; cut < blocks; ++cut) {
    const auto first = Build(GetParam(), {.first_block = 0, .end_block = cut});
    const auto second = Build(GetParam(), {.first_block = cut}, /*recompute=*/true);
    const Bundle sent = first->Run(GetParam().inputs(), Options());
    Bundle received;
    std::vector<Tensor> roots;
    std::vector<Tensor> leaves;
    for (const auto& [name, t] : sent.entries()) {
      if (name.rfind("local.", 0) == 0) continue;
      Tensor copy = t;
      if (IsFloating(t.dtype()) && RequiresGrad(t)) {
        copy = RequireGrad(CastCopy(t.Detach(), t.dtype()));
        roots.push_back(t);
        leaves.push_back(copy);
      }
      received.set(name, copy);
    }
    const Tensor loss = second->Run(received, Options()).at("loss");
    Backward(loss);
    std::vector<Tensor> reached;
    std::vector<Tensor> gradients;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!Grad(leaves[i]).defined()) continue;  // only passed on
      reached.push_back(roots[i]);
      gradients.push_back(Grad(leaves[i]));
    }
    Backward(reached, gradients);
    Outcome outcome{.loss = loss.Item()};
    CollectGradients(*first, &outcome);
    CollectGradients(*second, &outcome);
    EXPECT_EQ(outcome.loss, reference.loss) << "cut at " << cut;
    EXPECT_EQ(outcome.gradients, reference.gradients) << "cut at " << cut;
  }
}

TEST_P(FamiliesTest, RecomputationAndReusedLogitsKeepEveryBit) {
  const Outcome reference = OneProcess(GetParam());
  for (const auto& [recompute, keep_logits] : {std::pair(true, false), {false, true}}) {
    const Outcome outcome = OneProcess(GetParam(), recompute, keep_logits);
    EXPECT_EQ(outcome.loss, reference.loss);
    EXPECT_EQ(outcome.gradients, reference.gradients);
  }
}

TEST_P(FamiliesTest, DryRunOnMetaCountsTheRealStep) {
  const auto peak = [&](Device device) {
    Allocator& allocator = Allocator::For(device);
    const auto model = Build(GetParam(), {.device = device});
    const Bundle real = GetParam().inputs();
    Bundle inputs;
    for (const auto& [name, t] : real.entries()) {
      inputs.set(name, device.is_meta() ? Empty(t.shape(), t.dtype(), device) : t);
    }
    const int64_t before = allocator.stats().current_bytes;
    allocator.ResetPeak();
    Backward(model->Run(inputs, Options()).at("loss"));
    return allocator.stats().peak_bytes - before;
  };
  EXPECT_EQ(peak(Device::Meta()), peak(Device::Cpu()));
}

INSTANTIATE_TEST_SUITE_P(Families, FamiliesTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
