// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "core/thread_communicator.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "models/classification.h"
#include "models/family.h"
#include "models/hub/load_model.h"
#include "models/hub/save_model.h"
#include "models/hub/weight_files.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json SmallConfig() {
  return {{"model_type", "gpt2"}, {"vocab_size", 300}, {"n_positions", 8}, {"n_embd", 6},
          {"n_layer", 2},         {"n_head", 2},       {"n_inner", 10},    {"extra_key", "kept"}};
}

class HubTest : public testing::Test {
 protected:
  HubTest()
      : root_(testing::TempDir() + "/hub_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }

  static std::unique_ptr<Model> Build(const json& config, nn::BuildContext build = {}) {
    auto model = BuildModel(config, build);
    EXPECT_TRUE(model.ok()) << Message(model.status());
    return *std::move(model);
  }
  // A saved model, and what its parameters hold.
  std::string Saved(const std::string& name, const SaveOptions& options = {}) {
    const auto model = Build(SmallConfig(), {.seed = 3});
    const Status status = SaveModel(*model, Path(name), nullptr, options);
    EXPECT_TRUE(status.ok()) << Message(status);
    return Path(name);
  }
  static std::map<std::string, std::vector<float>> Values(Model& model) {
    std::map<std::string, std::vector<float>> values;
    for (const auto& [name, t] : model.StateDict()) values[name] = t.ToVector<float>();
    return values;
  }
  static std::string LoadFailure(const std::string& folder) {
    const auto model = LoadModel(folder, {.require_weights = true});
    EXPECT_FALSE(model.ok());
    return Message(model.status());
  }
  // Rewrites model.safetensors with `change` applied to the list of tensors.
  static void Rewrite(const std::string& folder,
                      const std::function<void(std::vector<NamedTensorView>&)>& change) {
    const std::string path = folder + "/model.safetensors";
    auto file = SafetensorsFile::Open(path);
    ASSERT_TRUE(file.ok());
    std::vector<NamedTensorView> tensors;
    for (const auto& entry : file->entries())
      tensors.push_back({entry.name, *file->Get(entry.name)});
    change(tensors);
    ASSERT_TRUE(WriteSafetensors(path, tensors).ok());
  }

  const std::string root_;
};

TEST_F(HubTest, WhatIsSavedLoadsBitForBit) {
  const auto original = Build(SmallConfig(), {.seed = 3});
  const auto loaded = LoadModel(Saved("m"));
  ASSERT_TRUE(loaded.ok()) << Message(loaded.status());
  EXPECT_EQ(Values(**loaded), Values(*original));
  const json config = *ReadJsonFile(Path("m/config.json"));
  EXPECT_EQ(config["extra_key"], "kept");
  EXPECT_EQ(config["dtype"], "float32");
  EXPECT_EQ(config["architectures"], json({"GPT2LMHeadModel"}));
  const auto file = SafetensorsFile::Open(Path("m/model.safetensors"));
  EXPECT_EQ(file->metadata().at("format"), "pt");
  EXPECT_EQ(file->Find("lm_head.weight"), nullptr);
}

TEST_F(HubTest, ShardsAndTheirIndex) {
  const std::string folder = Saved("m", {.max_shard_bytes = 2000});
  EXPECT_FALSE(fs::exists(folder + "/model.safetensors"));
  const json index = *ReadJsonFile(folder + "/model.safetensors.index.json");
  const auto original = Build(SmallConfig(), {.seed = 3});
  EXPECT_EQ(index["metadata"]["total_size"], original->ParameterCount() * 4);
  int64_t shards = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    ++shards;
    const auto file = SafetensorsFile::Open(entry.path().string());
    EXPECT_TRUE(file->entries().size() == 1 || fs::file_size(entry.path()) < 4000) << entry.path();
  }
  EXPECT_GT(shards, 2);
  const auto loaded = LoadModel(folder);
  ASSERT_TRUE(loaded.ok()) << Message(loaded.status());
  EXPECT_EQ(Values(**loaded), Values(*original));
}

TEST_F(HubTest, OtherNamesBuffersAndCopiesOfTiedWeights) {
  const std::string folder = Saved("m");
  const std::vector<float> ones(64, 1);
  Rewrite(folder, [&](std::vector<NamedTensorView>& tensors) {
    TensorView tied;
    for (NamedTensorView& t : tensors) {
      t.name = t.name.substr(std::string("transformer.").size());
      if (t.name == "wte.weight") tied = t.tensor;
    }
    const TensorView mask = {
        DType::kFloat32, {1, 1, 8, 8}, reinterpret_cast<const std::byte*>(ones.data()), 256};
    tensors.push_back({"h.0.attn.bias", mask});
    tensors.push_back({"lm_head.weight", tied});
  });
  const auto original = Build(SmallConfig(), {.seed = 3});
  auto loaded = LoadModel(folder);
  ASSERT_TRUE(loaded.ok()) << Message(loaded.status());
  EXPECT_EQ(Values(**loaded), Values(*original));
  // Only the head's copy of the shared weight is left.
  Rewrite(folder, [&](std::vector<NamedTensorView>& tensors) {
    std::erase_if(tensors, [](const NamedTensorView& t) { return t.name == "wte.weight"; });
  });
  loaded = LoadModel(folder);
  ASSERT_TRUE(loaded.ok()) << Message(loaded.status());
  EXPECT_EQ(Values(**loaded), Values(*original));
}

// What torch.compile and data parallelism put before names.
TEST_F(HubTest, NamesBehindAWrapper) {
  const auto original = Build(SmallConfig(), {.seed = 3});
  for (const std::string wrapper : {"_orig_mod.", "module.", "_orig_mod.module."}) {
    const std::string folder = Saved("m");
    Rewrite(folder, [&](std::vector<NamedTensorView>& tensors) {
      for (NamedTensorView& t : tensors) t.name = wrapper + t.name;
    });
    const auto loaded = LoadModel(folder, {.require_weights = true});
    ASSERT_TRUE(loaded.ok()) << Message(loaded.status());
    EXPECT_EQ(Values(**loaded), Values(*original)) << wrapper;
    Rewrite(folder, [&](std::vector<NamedTensorView>& tensors) {
      tensors[0].name = wrapper + "score.weight";
    });
    EXPECT_EQ(LoadFailure(folder),
              folder + "/model.safetensors: unknown tensor '" + wrapper + "score.weight'");
  }
  // Not before all of them: a name is what it is.
  const std::string folder = Saved("m");
  Rewrite(folder, [](std::vector<NamedTensorView>& tensors) {
    tensors[0].name = "module." + tensors[0].name;
  });
  EXPECT_NE(LoadFailure(folder).find("unknown tensor 'module."), std::string::npos);
}

TEST_F(HubTest, NamesOfPublishedGlms) {
  const json glm = {{"model_type", "glm"}, {"vocab_size", 30},         {"hidden_size", 8},
                    {"num_layers", 1},     {"num_attention_heads", 2}, {"max_sequence_length", 8}};
  const auto original = Build(glm, {.seed = 3});
  for (const std::string prefix : {"glm.", "model.", "module.", "module.model."}) {
    ASSERT_TRUE(SaveModel(*original, Path("m")).ok());
    Rewrite(Path("m"), [&](std::vector<NamedTensorView>& tensors) {
      for (NamedTensorView& t : tensors) t.name = prefix + t.name;
    });
    const auto loaded = LoadModel(Path("m"));
    ASSERT_TRUE(loaded.ok()) << Message(loaded.status());
    EXPECT_EQ(Values(**loaded), Values(*original)) << prefix;
  }
  json chatglm = glm;
  chatglm.update({{"model_type", "chatglm"},
                  {"inner_hidden_size", 12},
                  {"bos_token_id", 1},
                  {"eos_token_id", 2},
                  {"mask_token_id", 3},
                  {"gmask_token_id", 4}});
  const auto chat = Build(chatglm, {.seed = 3});
  ASSERT_TRUE(SaveModel(*chat, Path("chat")).ok());
  const std::vector<float> frequencies(2, 1);
  Rewrite(Path("chat"), [&](std::vector<NamedTensorView>& tensors) {
    tensors.push_back(
        {"transformer.layers.0.attention.rotary_emb.inv_freq",
         {DType::kFloat32, {2}, reinterpret_cast<const std::byte*>(frequencies.data()), 8}});
  });
  const auto loaded = LoadModel(Path("chat"));
  ASSERT_TRUE(loaded.ok()) << Message(loaded.status());
  EXPECT_EQ(Values(**loaded), Values(*chat));
}

TEST_F(HubTest, WeightsAreCast) {
  const std::string folder = Saved("m");
  const auto half = LoadModel(folder, {.build = {.dtype = DType::kBFloat16}});
  ASSERT_TRUE(half.ok());
  ASSERT_TRUE(SaveModel(**half, Path("half")).ok());
  EXPECT_EQ((*ReadJsonFile(Path("half/config.json")))["dtype"], "bfloat16");
  const auto wide = LoadModel(Path("half"), {.build = {.dtype = DType::kFloat64}});
  ASSERT_TRUE(wide.ok());
  EXPECT_EQ(Values(**wide), Values(**half));
}

TEST_F(HubTest, AHeadThatDoesNotFitIsInitialisedWhenAsked) {
  json config = {{"model_type", "bert"},
                 {"architectures", {"BertForSequenceClassification"}},
                 {"vocab_size", 30},
                 {"hidden_size", 6},
                 {"num_hidden_layers", 1},
                 {"num_attention_heads", 2},
                 {"intermediate_size", 8},
                 {"max_position_embeddings", 8},
                 {"id2label", {{"0", "no"}, {"1", "yes"}}}};
  const auto original = Build(config, {.seed = 3});
  ASSERT_TRUE(SaveModel(*original, Path("two")).ok());
  LoadOptions options = {.build = {.seed = 9}};
  SetLabels({"bad", "fair", "good"}, &config);
  options.config_changes = {{"id2label", config["id2label"]}, {"label2id", config["label2id"]}};
  EXPECT_EQ(Message(LoadModel(Path("two"), options).status()),
            Path("two") +
                "/model.safetensors: tensor 'classifier.weight' has shape [2, 6]; the "
                "configuration asks for [3, 6]");
  std::vector<std::string> lines;
  options.ignore_mismatched_sizes = true;
  options.warn = [&](const std::string& line) { lines.push_back(line); };
  auto loaded = LoadModel(Path("two"), options);
  ASSERT_TRUE(loaded.ok()) << Message(loaded.status());
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("'classifier.weight', 'classifier.bias'"), std::string::npos) << lines[0];
  const auto before = Values(*original);
  const auto after = Values(**loaded);
  EXPECT_EQ(after.at("bert.pooler.dense.weight"), before.at("bert.pooler.dense.weight"));
  EXPECT_EQ(after.at("classifier.weight").size(), 18u);
  EXPECT_NE(after.at("classifier.weight"), std::vector<float>(18, 0.0f));
  // The names go with the model.
  ASSERT_TRUE(SaveModel(**loaded, Path("three")).ok());
  EXPECT_EQ(LabelNames(*ReadJsonFile(Path("three/config.json"))),
            (std::vector<std::string>{"bad", "fair", "good"}));
  EXPECT_FALSE(fs::exists(Path("three/generation_config.json")));
  // A masked language model finds its encoder there; the classifier is passed over, the head that
  // is missing is named or initialised. The encoder itself is never made up.
  LoadOptions masked = {.config_changes = {{"architectures", {"BertForMaskedLM"}}}};
  EXPECT_NE(Message(LoadModel(Path("two"), masked).status()).find("'cls.predictions"),
            std::string::npos);
  masked.ignore_mismatched_sizes = true;
  EXPECT_TRUE(LoadModel(Path("two"), masked).ok());
  masked.config_changes["num_hidden_layers"] = 2;
  EXPECT_NE(Message(LoadModel(Path("two"), masked).status()).find("bert.encoder.layer.1"),
            std::string::npos);
}

TEST_F(HubTest, CountersAndEmptyTensorsBesideWeightsArePassedOver) {
  const std::string folder = Saved("m");
  const std::string path = folder + "/model.safetensors";
  fs::copy_file(path, Path("whole"));
  const auto original = Build(SmallConfig(), {.seed = 3});
  struct Case {
    const char* name;
    DType dtype;
    std::vector<int64_t> shape;
    bool passes;
  };
  const std::vector<Case> cases = {{"model.step", DType::kInt64, {}, true},
                                   {"position_ids", DType::kInt32, {2}, true},
                                   {"mask", DType::kBool, {2}, true},
                                   {"bytes", DType::kUInt8, {3}, true},
                                   {"unused_placeholder", DType::kFloat32, {0}, true},
                                   {"rows", DType::kBFloat16, {0, 4}, true},
                                   {"one", DType::kFloat32, {}, false},
                                   {"half", DType::kFloat16, {2}, false},
                                   {"wide", DType::kFloat64, {1}, false},
                                   {"more.weight", DType::kBFloat16, {1, 2}, false},
                                   {"h.9.weight.q8_0", DType::kUInt8, {2, 1}, false}};
  const std::vector<std::byte> zeros(16);
  for (const Case& c : cases) {
    fs::copy_file(Path("whole"), path, fs::copy_options::overwrite_existing);
    int64_t nbytes = DTypeSize(c.dtype);
    for (const int64_t size : c.shape) nbytes *= size;
    Rewrite(folder, [&](auto& tensors) {
      tensors.push_back({c.name, {c.dtype, c.shape, zeros.data(), nbytes}});
    });
    if (!c.passes) {
      EXPECT_EQ(LoadFailure(folder), path + ": unknown tensor '" + c.name + "'");
      continue;
    }
    const auto loaded = LoadModel(folder, {.require_weights = true});
    ASSERT_TRUE(loaded.ok()) << c.name << Message(loaded.status());
    EXPECT_EQ(Values(**loaded), Values(*original)) << c.name;
  }
}

TEST_F(HubTest, AHeadlessEncoderWhoseFilesHaveNoPoolerIsOneWithout) {
  const json text = {{"vocab_size", 23},        {"hidden_size", 10},
                     {"num_hidden_layers", 1},  {"num_attention_heads", 2},
                     {"intermediate_size", 14}, {"max_position_embeddings", 12}};
  const json picture = {{"hidden_size", 10},        {"num_hidden_layers", 1},
                        {"num_attention_heads", 2}, {"intermediate_size", 14},
                        {"image_size", 8},          {"patch_size", 4}};
  const auto without = [](const char* part) {
    return [part](std::vector<NamedTensorView>& tensors) {
      std::erase_if(tensors, [&](const auto& t) { return t.name.find(part) != std::string::npos; });
    };
  };
  for (auto [type, architecture, config] :
       {std::tuple("bert", "BertModel", text), std::tuple("roberta", "RobertaModel", text),
        std::tuple("xlm-roberta", "XLMRobertaModel", text),
        std::tuple("camembert", "CamembertModel", text), std::tuple("vit", "ViTModel", picture)}) {
    config["model_type"] = type;
    config["architectures"] = {architecture};
    const auto whole = Build(config, {.seed = 3});
    ASSERT_TRUE(SaveModel(*whole, Path(type)).ok());
    EXPECT_NE((*LoadModel(Path(type)))->FindParameter("pooler.dense.weight"), nullptr) << type;
    Rewrite(Path(type), without("pooler."));
    for (int round = 0; round < 2; ++round) {
      const auto loaded = LoadModel(Path(type), {.require_weights = true});
      ASSERT_TRUE(loaded.ok()) << Message(loaded.status());
      auto values = Values(*whole);
      std::erase_if(values, [](const auto& v) { return v.first.find("pooler.") == 0; });
      EXPECT_EQ(Values(**loaded), values) << type;
      ASSERT_TRUE(SaveModel(**loaded, Path(type)).ok());  // and loads so again
    }
  }
  // Half a pooler is damage; a classifier cannot do without.
  json config = text;
  config["model_type"] = "bert";
  config["architectures"] = {"BertModel"};
  ASSERT_TRUE(SaveModel(*Build(config), Path("half")).ok());
  Rewrite(Path("half"), without("pooler.dense.bias"));
  EXPECT_EQ(LoadFailure(Path("half")), Path("half") + ": 1 tensor is missing: 'pooler.dense.bias'");
  config["architectures"] = {"BertForSequenceClassification"};
  ASSERT_TRUE(SaveModel(*Build(config), Path("classifier")).ok());
  Rewrite(Path("classifier"), without("pooler."));
  EXPECT_NE(LoadFailure(Path("classifier")).find("'bert.pooler.dense.weight'"), std::string::npos);
}

TEST_F(HubTest, FilesWithoutAHeadOfNoNamedClassAreTheEncoder) {
  const json text = {{"vocab_size", 23},        {"hidden_size", 12},
                     {"num_hidden_layers", 1},  {"num_attention_heads", 2},
                     {"intermediate_size", 14}, {"max_position_embeddings", 12},
                     {"pad_token_id", 0}};
  const json picture = {{"hidden_size", 10},        {"num_hidden_layers", 1},
                        {"num_attention_heads", 2}, {"intermediate_size", 14},
                        {"image_size", 8},          {"patch_size", 4}};
  const auto without_class = [](const std::string& folder) {
    json config = *ReadJsonFile(folder + "/config.json");
    config.erase("architectures");
    return WriteFileAtomically(folder + "/config.json", config.dump());
  };
  for (auto [type, bare, whole, config] :
       {std::tuple("bert", "BertModel", "BertForMaskedLM", text),
        std::tuple("roberta", "RobertaModel", "RobertaForMaskedLM", text),
        std::tuple("modernbert", "ModernBertModel", "ModernBertForMaskedLM", text),
        std::tuple("vit", "ViTModel", "ViTForImageClassification", picture)}) {
    config["model_type"] = type;
    for (const std::string architecture : {bare, whole}) {
      config["architectures"] = {architecture};
      const auto model = Build(config, {.seed = 3});
      ASSERT_TRUE(SaveModel(*model, Path(architecture)).ok());
      ASSERT_TRUE(without_class(Path(architecture)).ok());
      const auto loaded = LoadModel(Path(architecture), {.require_weights = true});
      ASSERT_TRUE(loaded.ok()) << Message(loaded.status());
      EXPECT_EQ(Values(**loaded), Values(*model)) << architecture;
    }
  }
  // A classifier's may be one of several classes.
  json config = text;
  config["model_type"] = "bert";
  config["architectures"] = {"BertForSequenceClassification"};
  ASSERT_TRUE(SaveModel(*Build(config), Path("classifier")).ok());
  ASSERT_TRUE(without_class(Path("classifier")).ok());
  EXPECT_NE(
      LoadFailure(Path("classifier"))
          .find("; the configuration has no 'architectures', so it is taken for BertForMaskedLM"),
      std::string::npos);
}

TEST_F(HubTest, WhatDoesNotFitIsNamed) {
  const std::string folder = Saved("m");
  const std::string path = folder + "/model.safetensors";
  fs::copy_file(path, Path("whole"));
  const auto restore = [&] {
    fs::copy_file(Path("whole"), path, fs::copy_options::overwrite_existing);
  };
  Rewrite(folder, [](auto& tensors) { tensors[0].name = "score.weight"; });
  EXPECT_EQ(LoadFailure(folder), path + ": unknown tensor 'score.weight'");
  const std::string config_path = folder + "/config.json";
  const std::string config = *ReadFile(config_path);
  json classifier = SmallConfig();
  classifier["architectures"] = {"GPT2ForSequenceClassification"};
  ASSERT_TRUE(WriteFileAtomically(config_path, classifier.dump()).ok());
  EXPECT_EQ(LoadFailure(folder), config_path +
                                     ": 'architectures': \"GPT2ForSequenceClassification\" is not "
                                     "supported; known are GPT2LMHeadModel (" +
                                     path + ": unknown tensor 'score.weight')");
  ASSERT_TRUE(WriteFileAtomically(config_path, config).ok());
  restore();
  Rewrite(folder, [](auto& tensors) {
    std::erase_if(tensors,
                  [](const auto& t) { return t.name.find(".ln_f.") != std::string::npos; });
  });
  EXPECT_EQ(LoadFailure(folder),
            folder + ": 2 tensors are missing: 'transformer.ln_f.weight', 'transformer.ln_f.bias'");
  restore();
  Rewrite(folder, [](auto& tensors) {
    for (auto& t : tensors) {
      if (t.name == "transformer.wpe.weight") t.tensor.shape = {6, 8};
    }
  });
  EXPECT_EQ(LoadFailure(folder), path +
                                     ": tensor 'transformer.wpe.weight' has shape [6, 8]; the "
                                     "configuration asks for [8, 6]");
  Rewrite(folder, [](auto& tensors) {
    for (auto& t : tensors) {
      if (t.name == "transformer.wpe.weight")
        t.tensor.shape = {8, 6}, t.tensor.dtype = DType::kInt32;
    }
  });
  EXPECT_EQ(LoadFailure(folder), path +
                                     ": tensor 'transformer.wpe.weight' has elements of type "
                                     "I32; weights must be F16, BF16, F32 or F64");
  restore();
  fs::resize_file(path, fs::file_size(path) - 1);
  EXPECT_EQ(LoadFailure(folder).rfind(path + ": ", 0), 0u);
  fs::rename(path, folder + "/pytorch_model.bin");
  EXPECT_EQ(LoadFailure(folder).rfind(folder + "/pytorch_model.bin: ", 0), 0u);
  EXPECT_NE(LoadFailure("no-such").find("'no-such' is neither a folder nor a preset"),
            std::string::npos);
  EXPECT_EQ(LoadFailure("gpt-tiny"), "gpt-tiny: a preset has no weights; train it first");
}

// A folder without weights is a model to be trained from scratch; one with weights in the layout of
// another system's checkpoints is not.
TEST_F(HubTest, CheckpointsOfOtherSystemsAreNotPassedOver) {
  const std::string folder = Saved("checkpoint");
  fs::remove(folder + "/model.safetensors");
  EXPECT_TRUE(LoadModel(folder).ok());
  const auto failure = [&](const std::string& file) {
    fs::create_directories(fs::path(folder + "/" + file).parent_path());
    EXPECT_TRUE(WriteFileAtomically(folder + "/" + file, "").ok());
    const auto model = LoadModel(folder);
    EXPECT_FALSE(model.ok()) << file;
    EXPECT_EQ(Message(WeightFiles::Open(folder).status()), Message(model.status()));
    return Message(model.status());
  };
  EXPECT_EQ(failure("global_step10/mp_rank_00_model_states.pt"),
            folder +
                ": holds no weights (model.safetensors), but a checkpoint of DeepSpeed, "
                "'global_step10'; DeepSpeed's zero_to_fp32.py makes weights of it");
  fs::create_directories(folder + "/global_step10/zero/transformer.wte.weight");
  EXPECT_EQ(failure("global_step10/mp_rank_00_model_states.pt"),
            folder +
                ": holds no weights (model.safetensors), but a universal checkpoint of DeepSpeed, "
                "'global_step10'; DeepSpeed's zero_to_fp32.py makes weights of the one that it was "
                "made from");
  fs::remove_all(folder + "/global_step10");
  fs::create_directories(folder + "/optimizer_0");
  EXPECT_TRUE(WriteFileAtomically(folder + "/optimizer_0/__0_0.distcp", "").ok());
  EXPECT_EQ(failure("pytorch_model_fsdp_0/__0_0.distcp"),
            folder +
                ": holds no weights (model.safetensors), but a checkpoint of "
                "torch.distributed, 'pytorch_model_fsdp_0'; `accelerate merge-weights` makes "
                "weights of it");
  fs::remove_all(folder + "/pytorch_model_fsdp_0");
  const std::string none = folder + ": holds no weights (model.safetensors), but ";
  EXPECT_EQ(failure("iter_0000010/mp_rank_00/model_optim_rng.pt"),
            none +
                "a checkpoint of Megatron-LM, 'iter_0000010/mp_rank_00'; `tessera convert` makes "
                "a model's folder of its model_optim_rng.pt");
  fs::remove_all(folder + "/iter_0000010");
  EXPECT_EQ(failure("__0_0.distcp"),
            none +
                "a checkpoint of torch.distributed; `python -m "
                "torch.distributed.checkpoint.format_utils dcp_to_torch` makes one file of it");
  EXPECT_EQ(failure("common.pt"),
            none +
                "a checkpoint of Megatron Core; Megatron Bridge (AutoBridge.export_ckpt) makes "
                "a model's folder of it");
  // Where there is no config.json, either.
  fs::remove(folder + "/config.json");
  EXPECT_EQ(Message(LoadModel(folder).status()),
            folder +
                ": is no model (config.json), but a checkpoint of Megatron Core; Megatron "
                "Bridge (AutoBridge.export_ckpt) makes a model's folder of it");
}

TEST_F(HubTest, MetasCheckpointIsNamed) {
  const std::string folder = Path("meta");
  fs::create_directories(folder);
  for (const char* file : {"params.json", "consolidated.00.pth"}) {
    ASSERT_TRUE(WriteFileAtomically(folder + "/" + file, "{}").ok());
  }
  EXPECT_EQ(Message(LoadModel(folder).status()),
            folder +
                ": is no model (config.json), but a checkpoint with names of Meta's own; "
                "transformers' convert_llama_weights_to_hf.py makes a model's folder of it");
}

TEST_F(HubTest, ACheckpointOfARunIsNoModel) {
  const std::string folder = Saved("run_checkpoint");
  fs::rename(folder + "/config.json", folder + "/checkpoint.json");
  EXPECT_EQ(Message(LoadModel(folder).status()),
            folder +
                ": is a checkpoint of a run, which `train --resume` continues; the model is "
                "the run's folder 'model'");
}

// A folder whose weights have a name that is not looked for is refused, too.
TEST_F(HubTest, WeightsUnderOtherNamesAreNotPassedOver) {
  const std::string folder = Saved("weights");
  const std::string weights = folder + "/model.safetensors";
  const auto failure = [&](const std::string& file) {
    fs::rename(weights, folder + "/" + file);
    const auto model = LoadModel(folder);
    EXPECT_FALSE(model.ok()) << file;
    fs::rename(folder + "/" + file, weights);
    const std::string line = Message(model.status());
    const std::string begin =
        Concat(folder, ": holds no weights (model.safetensors), but '", file, "', ");
    EXPECT_TRUE(line.starts_with(begin)) << line;
    return line.substr(std::min(begin.size(), line.size()));
  };
  EXPECT_EQ(failure("model-00001-of-00002.safetensors"),
            "one of several files, whose index (model.safetensors.index.json) is missing");
  EXPECT_EQ(failure("model.fp16.safetensors"),
            "which is read under the name model.safetensors if its tensors have Hugging Face's "
            "names");
  EXPECT_EQ(failure("consolidated.safetensors"),
            "which has names of its publisher's own; Hugging Face's files are read");
  EXPECT_EQ(failure("model.gguf"), "which is a model by itself: give the file");
  EXPECT_EQ(failure("tf_model.h5"),
            "which is TensorFlow's; safetensors and PyTorch's files are read");
  EXPECT_EQ(failure("flax_model.msgpack"),
            "which is Flax's; safetensors and PyTorch's files are read");
  fs::remove(weights);
  const auto with = [&](const std::string& file, const std::string& content) {
    EXPECT_TRUE(WriteFileAtomically(folder + "/" + file, content).ok());
    const std::string line = Message(LoadModel(folder).status());
    fs::remove(folder + "/" + file);
    return line;
  };
  EXPECT_EQ(with("model.pt", "PK"),
            folder +
                ": holds no weights (model.safetensors), but 'model.pt', which is read under "
                "the name pytorch_model.bin if its tensors have Hugging Face's names");
  EXPECT_TRUE(with("lit_model.pth", "PK")
                  .ends_with("which has LitGPT's names; `litgpt "
                             "convert_from_litgpt` makes Hugging Face's"));
  // These are none.
  for (const char* file : {"training_args.bin", "optimizer.pt", "rng_state_0.pth"}) {
    EXPECT_EQ(with(file, "PK"), "") << file;
  }
  EXPECT_EQ(with("tokens.bin", "12345"), "");
}

TEST_F(HubTest, HostileFoldersAreRefused) {
  const auto write = [](const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  };
  const std::string folder = Path("m");
  fs::create_directories(folder);
  for (const char* config :
       {"", "{", "[]", "{}", R"({"model_type": 3})", R"({"model_type": "none"})",
        R"({"model_type": "gpt2", "n_embd": 2147483647, "vocab_size": 2147483647})",
        R"({"model_type": "gpt2", "n_layer": -1})", R"({"model_type": "gpt2", "n_head": 7.5})"}) {
    write(folder + "/config.json", config);
    const auto model = LoadModel(folder);
    ASSERT_FALSE(model.ok()) << config;
    EXPECT_EQ(Message(model.status()).rfind(folder + "/config.json: ", 0), 0u)
        << Message(model.status());
  }
  write(folder + "/config.json", SmallConfig().dump());
  const std::string index = folder + "/model.safetensors.index.json";
  for (const char* text : {"[]", R"({"weight_map": []})", R"({"weight_map": {"a": 1}})",
                           R"({"weight_map": {"a": "../a.safetensors"}})",
                           R"({"weight_map": {"a": "absent.safetensors"}})"}) {
    write(index, text);
    EXPECT_FALSE(LoadModel(folder).ok()) << text;
  }
}

// It is kept whole; the tokenizer's end of text joins the ends that it names.
TEST_F(HubTest, AGivenGenerationConfigIsKept) {
  const data::ByteTokenizer tokenizer;
  const auto model = Build(SmallConfig(), {.seed = 4});
  const auto saved = [&](const json& given, const data::Tokenizer* with) {
    EXPECT_TRUE(SaveModel(*model, Path("m"), with, {.generation_config = given}).ok());
    return *ReadJsonFile(Path("m") + "/generation_config.json");
  };
  json given = {{"eos_token_id", {2, 5}}, {"do_sample", true}, {"top_p", 0.9}};
  EXPECT_EQ(saved(given, nullptr), given);
  json with_token = given;
  with_token["eos_token_id"] = {256, 2, 5};
  EXPECT_EQ(saved(given, &tokenizer), with_token);
  EXPECT_EQ(saved(with_token, &tokenizer), with_token);
  for (const auto& [ends, all] : std::vector<std::pair<json, json>>{
           {2, {256, 2}}, {256, 256}, {nullptr, json::array({256})}}) {
    given["eos_token_id"] = ends;
    EXPECT_EQ(saved(given, &tokenizer)["eos_token_id"], all) << ends;
  }
}

TEST_F(HubTest, SavingReplacesTheFolderWhole) {
  const std::string folder = Saved("m");
  std::ofstream(folder + "/left-over") << "x";
  const data::ByteTokenizer tokenizer;
  const auto model = Build(SmallConfig(), {.seed = 4});
  ASSERT_TRUE(SaveModel(*model, folder, &tokenizer).ok());
  EXPECT_FALSE(fs::exists(folder + "/left-over"));
  EXPECT_EQ((*ReadJsonFile(folder + "/config.json"))["eos_token_id"], 256);
  EXPECT_EQ((*ReadJsonFile(folder + "/generation_config.json"))["eos_token_id"], 256);
  EXPECT_TRUE(data::LoadTokenizer(folder).ok());
  EXPECT_EQ(ListDirectory(root_)->size(), 1u);
  std::ofstream(Path("file")) << "x";
  EXPECT_FALSE(SaveModel(*model, Path("file/below")).ok());
}

TEST_F(HubTest, ShardsOfAGroupLoadTheirPart) {
  const std::string folder = Saved("m");
  const auto whole = Build(SmallConfig(), {.seed = 3});
  RunRanks(2, [&](const Group& group) {
    const auto model = LoadModel(folder, {.build = {.tensor_parallel = group}});
    ASSERT_TRUE(model.ok()) << Message(model.status());
    (*model)->VisitParameters([&](nn::Parameter& p) {
      if (p.tied_to != nullptr) return;
      const Tensor expected = ZerosLike(p.tensor);
      CopyGlobalToLocal(p.placement, whole->FindParameter(p.name)->tensor, expected);
      EXPECT_EQ(p.tensor.ToVector<float>(), expected.ToVector<float>()) << p.name;
    });
    const std::string target = Concat(root_, "/rank", group->rank());
    EXPECT_NE(Message(SaveModel(**model, target)).find("is a shard"), std::string::npos);
    // With a function that makes them whole, it can be saved.
    const Status saved = SaveModel(**model, target, nullptr, {.gather = [&](nn::Parameter& p) {
      return whole->FindParameter(p.name)->tensor.Detach();
    }});
    EXPECT_TRUE(saved.ok()) << Message(saved);
  });
}

// What transformers' resize_token_embeddings makes of tables and biases.
TEST_F(HubTest, ALargerVocabularyAddsMeanRows) {
  const json config = {{"model_type", "bert"},
                       {"architectures", {"BertForMaskedLM"}},
                       {"vocab_size", 30},
                       {"hidden_size", 6},
                       {"num_hidden_layers", 1},
                       {"num_attention_heads", 2},
                       {"intermediate_size", 8},
                       {"max_position_embeddings", 8},
                       {"tie_word_embeddings", false}};
  const auto original = Build(config, {.seed = 3});
  ASSERT_TRUE(SaveModel(*original, Path("old")).ok());
  LoadOptions options = {.config_changes = {{"vocab_size", 33}}};
  for (const bool maps : {false, true}) {
    options.map_weights = maps;
    const auto grown = LoadModel(Path("old"), options);
    ASSERT_TRUE(grown.ok()) << Message(grown.status());
    EXPECT_EQ((*grown)->vocab_size(), 33);
    (*grown)->VisitParameters([&](nn::Parameter& p) {
      const std::vector<float> was = original->FindParameter(p.name)->tensor.ToVector<float>();
      std::vector<float> now = p.tensor.ToVector<float>();
      const size_t width = was.size() / 30;
      if (p.tensor.size(0) == 33) {
        EXPECT_EQ(now.size(), 33 * width) << p.name;
        for (size_t i = was.size(); i < now.size(); ++i) {
          double sum = 0;
          for (size_t row = 0; row < 30; ++row) sum += was[row * width + i % width];
          EXPECT_NEAR(now[i], width == 1 ? 0 : sum / 30, 1e-7) << p.name;
        }
        now.resize(was.size());
      }
      EXPECT_EQ(now, was) << p.name;
    });
  }
  RunRanks(2, [&](const Group& group) {
    LoadOptions cut = options;
    cut.build.tensor_parallel = group;
    EXPECT_TRUE(LoadModel(Path("old"), cut).ok());
  });
  options.config_changes = {{"vocab_size", 29}};
  EXPECT_NE(Message(LoadModel(Path("old"), options).status())
                .find("has shape [30, 6]; the configuration asks for [29, 6]"),
            std::string::npos);
}

// A bare decoder's files have no head: hidden states, and no texts.
TEST_F(HubTest, ABareDecoderHasNoHead) {
  nlohmann::json config = {{"model_type", "qwen3"},
                           {"architectures", {"Qwen3ForCausalLM"}},
                           {"vocab_size", 20},
                           {"hidden_size", 12},
                           {"num_hidden_layers", 1},
                           {"num_attention_heads", 2},
                           {"head_dim", 6},
                           {"intermediate_size", 14},
                           {"max_position_embeddings", 9},
                           {"num_key_value_heads", 1}};
  const auto whole = Build(config, {.seed = 3});
  const Bundle inputs = {{keys::kInputIds, Tensor::FromVector<int64_t>({4, 7, 1}, {1, 3})}};
  const Tensor hidden = whole->Run(inputs, {}).at(keys::kLastHiddenState);
  config["architectures"] = {"Qwen3Model"};
  ASSERT_TRUE(SaveModel(*Build(config, {.seed = 3}), Path("bare")).ok());
  Rewrite(Path("bare"), [](std::vector<NamedTensorView>& tensors) {
    std::erase_if(tensors, [](const auto& t) { return t.name == "lm_head.weight"; });
  });
  for (int round = 0; round < 2; ++round) {
    const auto loaded = LoadModel(Path("bare"), {.require_weights = true});
    ASSERT_TRUE(loaded.ok()) << Message(loaded.status());
    const Bundle outputs = (*loaded)->Run(inputs, {});
    EXPECT_EQ(outputs.at(keys::kLastHiddenState).ToVector<float>(), hidden.ToVector<float>());
    EXPECT_FALSE(outputs.has(keys::kLogits));
    EXPECT_FALSE(Generates(**loaded));
    ASSERT_TRUE(SaveModel(**loaded, Path("bare")).ok());  // and loads so again
  }
  EXPECT_TRUE(Generates(*whole));
  // Of a class with a head it is missing.
  config["architectures"] = {"Qwen3ForCausalLM"};
  ASSERT_TRUE(WriteFileAtomically(Path("bare") + "/config.json", config.dump()).ok());
  EXPECT_NE(
      Message(LoadModel(Path("bare"), {.require_weights = true}).status()).find("'lm_head.weight'"),
      std::string::npos);
}

}  // namespace
}  // namespace tessera::models
