// SPDX-License-Identifier: Apache-2.0
// Conversations: packed rows against their samples, and runs from a file to a model that answers.
#include <gtest/gtest.h>

#include <map>

#include "autograd/autograd.h"
#include "core/batch_keys.h"
#include "data/chat/chat_dataset.h"
#include "data/dataset/packed_samples.h"
#include "models/family.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "train/run/data_order.h"
#include "train/testing/task_runs.h"

namespace tessera::train {
namespace {

using nlohmann::json;

constexpr char kChatTokenizer[] = "data/chat/testdata/tokenizer";
constexpr char kSmallLlama[] =
    "hidden_size=32,num_hidden_layers=2,num_attention_heads=4,num_key_value_heads=2,head_dim=8,"
    "intermediate_size=64,max_position_embeddings=128";

// Questions and answers of several lengths, in one turn or two.
std::string Conversations(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    json messages = json::array();
    for (int turn = 0; turn <= i % 2; ++turn) {
      messages.push_back({{"role", "user"}, {"content", Concat("in ", std::string(i % 7, 'x'))}});
      messages.push_back({{"role", "assistant"},
                          {"content", Concat("the user ", i % 3, std::string(i * i % 11, 'y'))}});
    }
    lines += json{{"messages", messages}}.dump() + "\n";
  }
  return lines;
}

class ChatTest : public TaskRuns {
 protected:
  RunConfig ChatRun(const std::string& data) const {
    RunConfig config = Config("llama-tiny", data);
    config.task = "chat";
    config.tokenizer = kChatTokenizer;
    config.config_overrides = kSmallLlama;
    return config;
  }
};

// --- Packed rows ---------------------------------------------------------------------------------

struct PackedCase {
  const char* name;
  json config;
};
std::ostream& operator<<(std::ostream& out, const PackedCase& c) { return out << c.name; }

json LlamaLike(const char* type, json more = json::object()) {
  json config = {{"model_type", type},
                 {"hidden_size", 24},
                 {"intermediate_size", 32},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 6},
                 {"max_position_embeddings", 128},
                 {"initializer_range", 0.3},
                 {"tie_word_embeddings", false}};
  config.update(more);
  return config;
}

const std::vector<PackedCase>& PackedCases() {
  static const auto* const cases = new std::vector<PackedCase>{
      {"gpt2",
       {{"model_type", "gpt2"},
        {"n_positions", 128},
        {"n_embd", 24},
        {"n_layer", 2},
        {"n_head", 4},
        {"resid_pdrop", 0.0},
        {"embd_pdrop", 0.0},
        {"attn_pdrop", 0.0},
        {"initializer_range", 0.3}}},
      {"llama", LlamaLike("llama")},
      {"llama_tied", LlamaLike("llama", {{"tie_word_embeddings", true}, {"pad_token_id", 0}})},
      {"yarn", LlamaLike("llama", {{"rope_scaling", {{"type", "yarn"}, {"factor", 2.0}}}})},
      {"mistral", LlamaLike("mistral", {{"sliding_window", 30}})},
      {"qwen2",
       LlamaLike("qwen2",
                 {{"use_sliding_window", true}, {"sliding_window", 5}, {"max_window_layers", 1}})},
      {"qwen3", LlamaLike("qwen3")},
      {"gemma3", LlamaLike("gemma3_text", {{"sliding_window", 5}, {"sliding_window_pattern", 2}})},
  };
  return *cases;
}

class PackedRowsTest : public testing::TestWithParam<PackedCase> {};

struct Sums {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
};

// Of all rows, each batch by itself: gradients add up.
Sums SumsOf(const data::TokenDataset& rows, int64_t batch_size, const json& config,
            bool documents = true) {
  auto model = models::BuildModel(config, {.dtype = DType::kFloat64, .seed = 5});
  EXPECT_TRUE(model.ok()) << Message(model.status());
  Sums sums;
  for (int64_t begin = 0; begin < rows.size(); begin += batch_size) {
    std::vector<data::Sample> samples;
    for (int64_t i = begin; i < std::min(begin + batch_size, rows.size()); ++i) {
      samples.push_back({.index = i});
    }
    auto batch = rows.MakeBatch(samples);
    EXPECT_TRUE(batch.ok()) << Message(batch.status());
    models::Bundle inputs = batch->tensors;
    if (!documents) inputs.set(keys::kDocumentIds, Tensor());
    const models::RunOptions options = {.context = {.training = true},
                                        .loss_reduction = LossReduction::kSum};
    const Tensor loss = (*model)->Run(inputs, options).at(keys::kLoss);
    Backward(loss);
    sums.loss += loss.Item();
  }
  for (nn::Parameter* p : (*model)->Parameters()) {
    sums.gradients[p->name] = Grad(p->tensor).ToVector<double>();
  }
  return sums;
}

TEST_P(PackedRowsTest, GiveTheLossAndGradientsOfTheirSamples) {
  const auto tokenizer = data::LoadTokenizer(kChatTokenizer);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  const auto format = data::ChatFormat::OfTokenizer(**tokenizer);
  ASSERT_TRUE(format.ok()) << Message(format.status());
  const std::string root = testing::TempDir() + "/packed_" + GetParam().name;
  std::filesystem::create_directories(root);
  std::ofstream(root + "/chats.jsonl") << Conversations(12);
  const auto chats = data::ChatDataset::Open(root + "/chats.jsonl", *format, **tokenizer,
                                             root + "/cache", {.seq_len = 120});
  ASSERT_TRUE(chats.ok()) << Message(chats.status());
  const auto packed = data::PackedSamples::Create(*chats, {.row_length = 120, .seed = 1});
  ASSERT_LT(packed->size(), (*chats)->size() / 2);
  json config = GetParam().config;
  config["vocab_size"] = (*tokenizer)->vocab_size();
  const Sums alone = SumsOf(**chats, 1, config);
  const Sums rows = SumsOf(*packed, 2, config);
  EXPECT_NEAR(rows.loss, alone.loss, 1e-10 * alone.loss);
  for (const auto& [name, expected] : alone.gradients) {
    const std::vector<double>& actual = rows.gradients.at(name);
    double largest = 0;
    for (const double g : expected) largest = std::max(largest, std::abs(g));
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], 1e-10 * largest + 1e-12) << name << "[" << i << "]";
    }
  }
  // Which is the document ids' doing.
  EXPECT_GT(std::abs(SumsOf(*packed, 2, config, /*documents=*/false).loss - alone.loss),
            1e-4 * alone.loss);
}

INSTANTIATE_TEST_SUITE_P(Families, PackedRowsTest, testing::ValuesIn(PackedCases()),
                         testing::PrintToStringParamName());

// --- Runs ----------------------------------------------------------------------------------------

TEST_F(ChatTest, PackingChangesNoLoss) {
  RunConfig config = ChatRun(Put("chats.jsonl", Conversations(20)));
  config.val_data = config.data[0];
  config.max_steps = 1;
  config.lr = 0;
  const double alone = *Train(config).val_loss;
  config.options["packing"] = true;
  config.out = Path("packed");
  RunSetup setup;
  EXPECT_NEAR(*Train(config, &setup).val_loss, alone, 1e-6 * alone);
  EXPECT_LT(setup.data.train->size(), 20);
  EXPECT_EQ(setup.config.seq_len, 128);
}

TEST_F(ChatTest, AModelLearnsToAnswer) {
  std::string chats;
  for (int i = 0; i < 64; ++i) {
    const bool red = i % 2 == 0;
    chats += json{{"conversations",
                   {{{"from", "human"}, {"value", red ? "red" : "green"}},
                    {{"from", "gpt"}, {"value", red ? "there" : "in use"}}}}}
                 .dump() +
             "\n";
  }
  RunConfig config = ChatRun(Put("chats.jsonl", chats));
  config.seq_len = 64;
  config.options["packing"] = true;
  config.options["predict_with_generate"] = true;
  config.options["max_target_length"] = 20;
  config.max_steps = 100;
  RunSetup setup;
  const TrainState state = Train(config, &setup);
  EXPECT_EQ(setup.task->name, "chat");
  EXPECT_LT(state.val_loss.value(), 0.05);
  EXPECT_EQ(state.val_metrics->at("exact_match").get<double>(), 1) << state.val_metrics->dump();
  const std::vector<std::string> lines = setup.data.objective.samples(*setup.model);
  ASSERT_EQ(lines.size(), 9u);
  const bool red = lines[0].find("red") != std::string::npos;
  EXPECT_NE(red, lines[0].find("green") != std::string::npos) << lines[0];
  ExpectContains(lines[1], red ? "written:   there" : "written:   in use");
  ExpectContains(lines[2], red ? "reference: there" : "reference: in use");
}

TEST_F(ChatTest, LengthsMayBeGrouped) {
  RunConfig config = ChatRun(Put("chats.jsonl", Conversations(40)));
  config.group_by_length = true;
  config.batch_size = 4;
  config.max_steps = 6;
  RunSetup setup;
  Train(config, &setup);
  // The samples of 50 steps are more than there are.
  const data::Dataset& chats = *setup.data.train;
  const data::Sampler order(DataOrder(setup.config, &chats, dist::Mesh()));
  for (int64_t i = 1; i < chats.size(); ++i) {
    EXPECT_GE(*chats.length_of(order.SampleAt(i - 1)), *chats.length_of(order.SampleAt(i))) << i;
  }
  // Not of samples that are alike.
  RunConfig words = Config("bert-tiny", Reviews("reviews.tsv", 20));
  words.tokenizer = Path("words");
  words.config_overrides = kSmallBert;
  words.group_by_length = true;
  ExpectContains(Failure(words),
                 "group_by_length is set, but the samples of the task text_classification have no "
                 "lengths");
}

TEST_F(ChatTest, WhatIsLeftOutIsSaid) {
  RunConfig config = ChatRun(Put("chats.jsonl", Conversations(20)));
  config.seq_len = 60;
  config.options["long_samples"] = "drop";
  const auto setup = PrepareRun(config);
  ASSERT_TRUE(setup.ok()) << Message(setup.status());
  ASSERT_EQ(setup->warnings.size(), 1u);
  ExpectContains(setup->warnings[0], "conversations are longer than 60 tokens: they are left out");
}

TEST_F(ChatTest, WhatDoesNotFitIsNamed) {
  const std::string path = Put("chats.jsonl", Conversations(20));
  RunConfig config = ChatRun(path);
  config.seq_len = 60;
  ExpectContains(Failure(config), path + ":4: the conversation has 76 tokens, more than the 60");
  config.seq_len = 120;
  config.options["predict_with_generate"] = true;
  ExpectContains(Failure(config), "seq_len 120 and max_target_length 128");
  config.options->erase("predict_with_generate");
  config.options["long_samples"] = "split";
  ExpectContains(Failure(config), "long_samples");
  config.options->erase("long_samples");
  config.tokenizer = "byte";
  ExpectContains(Failure(config), "the tokenizer has no chat template");
  config = ChatRun(path);
  config.data.push_back(path);
  ExpectContains(Failure(config), "data lists 2 sources");
  config = ChatRun(path);
  config.model = "t5-mini";
  config.config_overrides = "";
  ExpectContains(Failure(config), "task 'chat' is not for a 't5' model");
}

}  // namespace
}  // namespace tessera::train
