// SPDX-License-Identifier: Apache-2.0
#include "train/foreign/accelerate_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "train/foreign/yaml_file.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

std::string Write(const std::string& text) {
  const std::string path = testing::TempDir() + "/config.yaml";
  std::ofstream(path) << text;
  return path;
}

std::string Refusal(const Json& settings) {
  const auto config = TranslateAccelerate(settings, "acc.yaml");
  return config.ok() ? "taken: " + config->keys.dump() : Message(config.status());
}

TEST(YamlFileTest, ScalarsAreWhatTheyLookLike) {
  const auto file =
      ReadYaml(Write("a: 1  # one\nb: 'no'\nc: NO\nd: true\ne: \"2\"\nf: 1e8\n"
                     "g: [x, 2]\nh:\ni: {j: ~}\n"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file, Json({{"a", 1},
                         {"b", "no"},
                         {"c", false},
                         {"d", true},
                         {"e", "2"},
                         {"f", 1e8},
                         {"g", {"x", 2}},
                         {"h", nullptr},
                         {"i", {{"j", nullptr}}}}));
}

TEST(YamlFileTest, BadFilesAreOneLine) {
  const std::string path = Write("a: 1\nb: [\n");
  const std::string message = Message(ReadYaml(path).status());
  EXPECT_EQ(message.rfind(path + ":", 0), 0u) << message;
  EXPECT_NE(message.find("not valid YAML"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_FALSE(ReadYaml("nowhere.yaml").ok());
  const std::string twice = Write("a: 1\nb:\n  c: 1\n  d: 2\n  c: 1\n");
  EXPECT_EQ(Message(ReadYaml(twice).status()),
            twice + ": 'c' is given twice (line 5); keep one of them");
  EXPECT_EQ(Message(ReadYaml(Write("a: 1\n\"a\": 2\n")).status()),
            twice + ": 'a' is given twice (line 2); keep one of them");
  // A small file may be a huge tree.
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    bomb += Concat("a", i, ": &a", i, " [");
    for (int k = 0; k < 10; ++k) bomb += Concat(k == 0 ? "" : ", ", "*a", i - 1);
    bomb += "]\n";
  }
  EXPECT_NE(Message(ReadYaml(Write(bomb)).status()).find("too large"), std::string::npos);
}

TEST(AccelerateConfigTest, SaysHowRanksAreStarted) {
  const auto config = ReadAccelerateConfig(Write(R"(
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_CPU
machine_rank: 1
main_process_ip: 10.0.0.1
main_process_port: 29501
mpirun_config:
  mpirun_ccl: '1'
  mpirun_hostfile: /etc/hosts.list
num_machines: 2
num_processes: 16
use_cpu: true
)"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_processes, 16);
  EXPECT_EQ(config->num_machines, 2);
  EXPECT_EQ(config->machine_rank, 1);
  EXPECT_EQ(config->main_process_ip, "10.0.0.1");
  EXPECT_EQ(config->main_process_port, 29501);
  EXPECT_EQ(config->hostfile, "/etc/hosts.list");
  EXPECT_TRUE(config->use_cpu);
  EXPECT_EQ(config->keys, Json({{"zero", 0}, {"device", "cpu"}}));
}

TEST(AccelerateConfigTest, FlagsNeedNoSections) {
  const auto config = TranslateAccelerate({{"num_processes", "2"},
                                           {"use_fsdp", true},
                                           {"fsdp_sharding_strategy", "SHARD_GRAD_OP"},
                                           {"fsdp_offload_params", "true"},
                                           {"mixed_precision", "bf16"},
                                           {"gpu_ids", "0,1"}},
                                          "flags");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_processes, 2);
  EXPECT_EQ(config->gpu_ids, "0,1");
  EXPECT_EQ(config->keys, Json({{"zero", 2}, {"cpu_offload", true}, {"autocast", "bfloat16"}}));
  // They win over the file's.
  const auto both = TranslateAccelerate({{"distributed_type", "FSDP"},
                                         {"fsdp_config", {{"fsdp_sharding_strategy", "NO_SHARD"}}},
                                         {"fsdp_sharding_strategy", "1"}},
                                        "flags");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->keys["zero"], 3);
  const auto deepspeed = TranslateAccelerate({{"use_deepspeed", true}, {"zero_stage", "3"}}, "f");
  ASSERT_TRUE(deepspeed.ok()) << deepspeed.status();
  EXPECT_EQ(deepspeed->keys, Json({{"zero", 3}}));
}

TEST(AccelerateConfigTest, MegatronSharesExpertsOut) {
  const auto megatron = [](const Json& section) {
    return Json{{"distributed_type", "MEGATRON_LM"}, {"megatron_lm_config", section}};
  };
  const auto config =
      TranslateAccelerate(megatron({{"megatron_lm_tp_degree", 2},
                                    {"megatron_lm_expert_model_parallel_size", 4},
                                    {"megatron_lm_expert_tensor_parallel_size", 1}}),
                          "acc.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->keys["tp"], 2);
  EXPECT_EQ(config->keys["ep"], 4);
  EXPECT_NE(Refusal(megatron({{"megatron_lm_expert_tensor_parallel_size", 2}}))
                .find("expert_tensor_parallel_size' is 2, refused: tp splits experts"),
            std::string::npos);
  EXPECT_NE(Refusal(megatron({{"megatron_lm_expert_model_parallel_size", 0}}))
                .find("expert_model_parallel_size' must be at least 1"),
            std::string::npos);
}

TEST(AccelerateConfigTest, ASectionOfAnotherKindIsPassedOver) {
  const auto config = TranslateAccelerate(
      {{"distributed_type", "MULTI_GPU"},
       {"fsdp_config", {{"fsdp_sharding_strategy", 1}, {"fsdp_activation_checkpointing", true}}},
       {"deepspeed_config", {{"gradient_clipping", 0.5}}}},
      "acc.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->keys, Json({{"zero", 0}}));
  EXPECT_EQ(std::count_if(config->verdicts.begin(), config->verdicts.end(),
                          [](const KeyVerdict& v) { return v.fate == KeyFate::kNoEffect; }),
            3);
}

TEST(AccelerateConfigTest, RefusesByName) {
  const auto expect = [](const Json& settings, const std::string& part) {
    EXPECT_NE(Refusal(settings).find(part), std::string::npos) << Refusal(settings);
  };
  expect({{"distributed_type", "XLA"}}, "acc.yaml: 'distributed_type' is XLA");
  expect({{"mixed_precision", "fp8"}},
         "'mixed_precision' is \"fp8\", which is not here; use no, fp16 or bf16");
  expect({{"compute_environment", "AMAZON_SAGEMAKER"}}, "'compute_environment' is");
  expect({{"num_proceses", 2}}, "unknown key 'num_proceses'; did you mean 'num_processes'?");
  expect({{"num_processes", "many"}}, "'num_processes' must be an integer");
  const auto fsdp = [](const Json& section) {
    return Json{{"distributed_type", "FSDP"}, {"fsdp_config", section}};
  };
  expect(fsdp({{"fsdp_sharding_strategy", 4}}), "HYBRID_SHARD: shards are not replicated");
  expect(fsdp({{"fsdp_sharding_strategy", "FULL"}}), "expected one of FULL_SHARD");
  expect(fsdp({{"fsdp_transformer_layer_cls_to_wrap", "GPTBlock"}}),
         "'fsdp_config.fsdp_transformer_layer_cls_to_wrap' names the layer class 'GPTBlock'");
  expect(fsdp({{"fsdp_shard_strategy", 1}}), "unknown key 'fsdp_config.fsdp_shard_strategy'");
  expect({{"distributed_type", "DEEPSPEED"}, {"deepspeed_config", {{"zero_stage", 4}}}},
         "'deepspeed_config.zero_stage' must be 0, 1, 2 or 3");
  expect({{"fsdp_config", 3}}, "'fsdp_config' must be an object, not 3");
  expect(Json::array(), "acc.yaml: a JSON object is needed");
}

}  // namespace
}  // namespace tessera::train
