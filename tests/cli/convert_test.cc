// SPDX-License-Identifier: Apache-2.0
// `tessera convert`, and the other commands with folders whose weights torch.save wrote.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "core/safetensors.h"
#include "nlohmann/json.hpp"
#include "tests/process/process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;
using nlohmann::json;

constexpr const char* kFolders = "tests/parity/goldens/folders/";

class ConvertTest : public testing::Test {
 protected:
  ConvertTest()
      : root_(testing::TempDir() + "/convert_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  // A copy of a golden folder that may be changed.
  std::string Copied(const std::string& golden) const {
    const std::string folder = Path("copied");
    fs::remove_all(folder);
    fs::create_directories(folder);
    for (const auto& file : fs::directory_iterator(kFolders + golden)) {
      std::ofstream(folder + "/" + file.path().filename().string(), std::ios::binary)
          << *ReadFile(file.path().string());
    }
    return folder;
  }
  std::string Succeed(const Arguments& arguments) const {
    Process run(arguments, Path("log"));
    EXPECT_EQ(run.ExitCode(), 0) << testing::PrintToString(arguments) << run.Errors();
    return run.Output();
  }
  void ExpectRefused(const Arguments& arguments, const std::string& part) const {
    Process run(arguments, Path("log"));
    ASSERT_TRUE(run.EndsWithin(std::chrono::minutes(1)));
    EXPECT_EQ(run.ExitCode(), 2) << run.Errors();
    const std::string line = run.Errors();
    EXPECT_EQ(line.rfind("error: ", 0), 0u) << line;
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    EXPECT_NE(line.find(part), std::string::npos) << line;
  }
  static json Config(const std::string& folder) {
    return json::parse(*ReadFile(folder + "/config.json"));
  }

  const std::string root_;
};

TEST_F(ConvertTest, EveryCommandReadsWhatTorchSaved) {
  const std::string folder = Copied("gpt2_bin_of_4");
  const std::string out = Path("out");
  Succeed({"convert", folder, out});
  const Arguments ids = {"--ids", "3,4,5", "--max-new-tokens", "4"};
  const auto generate = [&](const std::string& model) {
    Arguments arguments = {"generate", "--model", model};
    arguments.insert(arguments.end(), ids.begin(), ids.end());
    return Succeed(arguments);
  };
  EXPECT_EQ(generate(folder), generate(out));
  const std::string said = Succeed({"inspect", folder});
  EXPECT_NE(said.find("pytorch_model.bin"), std::string::npos) << said;
  EXPECT_NE(said.find("[19, 8]"), std::string::npos) << said;
  EXPECT_NE(said.find("every parameter is there"), std::string::npos) << said;
  EXPECT_NE(Succeed({"inspect", folder + "/pytorch_model.bin"}).find("the file is whole"),
            std::string::npos);
  std::string text;
  for (int i = 0; i < 500; ++i) text += "abcab ";
  std::ofstream(Path("text")) << text;
  const auto train = [&](const std::string& model, const std::string& run) {
    Succeed({"train", model, "--data", Path("text"), "--tokenizer", "char", "--out", Path(run),
             "--max-steps", "2", "--seq-len", "8", "--threads", "1"});
    return Weights(Path(run));
  };
  EXPECT_EQ(train(folder, "first"), train(out, "second"));
}

TEST_F(ConvertTest, DtypesAndShards) {
  const std::string from = std::string(kFolders) + "gpt2_shards_of_4";
  for (const char* dtype : {"bfloat16", "float16", "float32"}) {
    const std::string out = Path(dtype);
    Succeed({"convert", from, out, "--dtype", dtype, "--shard-size", "2KB"});
    EXPECT_EQ(Config(out)["dtype"], dtype);
    EXPECT_TRUE(fs::exists(out + "/model.safetensors.index.json"));
    EXPECT_FALSE(fs::exists(out + "/model.safetensors"));
    Succeed({"inspect", out});
  }
  // By itself it keeps what the weights have.
  Succeed({"convert", std::string(kFolders) + "bert-sequence_bfloat16_of_5", Path("own")});
  EXPECT_EQ(Config(Path("own"))["dtype"], "bfloat16");
  EXPECT_TRUE(fs::exists(Path("own") + "/model.safetensors"));
}

// The last line says what is where; nothing else is printed.
TEST_F(ConvertTest, SaysWhatWasWritten) {
  const std::string from = Copied("gpt2_bin_of_4");
  const auto wrote = [](size_t tensors, size_t bytes, const std::string& where) {
    const std::string size = bytes < 1000 ? Concat(bytes, " bytes")
                             : bytes < 9950
                                 ? Concat((bytes + 50) / 1000, ".", (bytes + 50) / 100 % 10, " kB")
                                 : Concat((bytes + 500) / 1000, " kB");
    return Concat("wrote ", tensors, " tensors, ", size, ", to ", where, "\n");
  };
  const auto weights = [](const std::string& file) {
    const auto opened = SafetensorsFile::Open(file);
    EXPECT_TRUE(opened.ok()) << Message(opened.status());
    size_t bytes = 0;
    for (const auto& entry : opened->entries()) {
      bytes += static_cast<size_t>(opened->Get(entry.name)->nbytes);
    }
    return std::pair<size_t, size_t>(opened->entries().size(), bytes);
  };
  for (const Arguments& command : {Arguments{"convert", from, Path("out")},
                                   Arguments{"quantize", from, Path("small"), "--type", "int8"}}) {
    const std::string file = command[2] + "/model.safetensors";
    const std::string said = Succeed(command);
    const auto [tensors, bytes] = weights(file);
    EXPECT_EQ(said, wrote(tensors, bytes, file));
  }
  const auto [tensors, bytes] = weights(Path("out") + "/model.safetensors");
  const std::string shards = Succeed({"convert", from, Path("shards"), "--shard-size", "2KB"});
  size_t files = 0;
  for (const auto& file : fs::directory_iterator(Path("shards"))) {
    files += file.path().extension() == ".safetensors" ? 1 : 0;
  }
  EXPECT_GT(files, 1u);
  EXPECT_EQ(shards, wrote(tensors, bytes, Concat(files, " files in ", Path("shards"))));
}

TEST_F(ConvertTest, QuantisedWeights) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "The quick brown fox. ";
  std::ofstream(Path("text.txt")) << text;
  Succeed({"train", "gpt-tiny", "--data", Path("text.txt"), "--tokenizer", "byte", "--out",
           Path("run"), "--max-steps", "2", "--seq-len", "32", "--batch-size", "2"});
  const std::string model = Path("run") + "/model";
  const auto generate = [&](const std::string& from, const Arguments& more) {
    Arguments arguments = {"generate", "--model",          from,
                           "--prompt", "The quick",        "--temperature",
                           "0",        "--max-new-tokens", "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Succeed(arguments);
  };
  for (const char* type : {"q8_0", "q4_0", "int8", "iq4_nl"}) {
    const std::string out = Path(type);
    Succeed({"quantize", model, out, "--type", type});
    EXPECT_EQ(Config(out)["quantization_config"],
              (json{{"quant_method", "tessera"}, {"type", type}}));
    EXPECT_LT(fs::file_size(out + "/model.safetensors"),
              fs::file_size(model + "/model.safetensors") / 3);
    EXPECT_NE(Succeed({"inspect", out}).find("every parameter is there"), std::string::npos);
    EXPECT_EQ(generate(out, {}), generate(model, {"--dtype", type}));
    EXPECT_EQ(Succeed({"eval", "--model", out, "--data", Path("text.txt"), "--batches", "1"}),
              Succeed({"eval", "--model", model, "--data", Path("text.txt"), "--batches", "1",
                       "--dtype", type}));
    ExpectRefused(
        {"train", out, "--data", Path("text.txt"), "--out", Path("none"), "--max-steps", "1"},
        "is quantised and cannot train; train an adapter (--adapter lora)");
  }
  // By way of GGUF, where there is such a type.
  for (const std::string& from : {Path("q8_0"), Path("q4_0")}) {
    const std::string said = Succeed({"convert", from, from + ".gguf"});
    EXPECT_EQ(said.rfind("wrote ", 0), 0u) << said;
    EXPECT_TRUE(said.ends_with(", to " + from + ".gguf\n")) << said;
    EXPECT_TRUE(Succeed({"convert", from + ".gguf", from + "_back"})
                    .ends_with(", to " + from + "_back/model.safetensors\n"));
    Succeed({"convert", from + "_back", from + "_again.gguf"});
    EXPECT_EQ(*ReadFile(from + ".gguf"), *ReadFile(from + "_again.gguf"));
    EXPECT_EQ(generate(from + "_back", {}), generate(from, {}));
    // A file is read as the folder that it holds.
    const std::string file = from + ".gguf";
    EXPECT_EQ(generate(file, {}), generate(from, {}));
    for (Arguments command :
         {Arguments{"eval", "--data", Path("text.txt"), "--batches", "1", "--model"},
          Arguments{"tokenize", "--input", Path("text.txt"), "--print-ids", "--tokenizer"}}) {
      Arguments of_file = command;
      command.push_back(from + "_back");
      of_file.push_back(file);
      EXPECT_EQ(Succeed(of_file), Succeed(command));
    }
    Succeed({"train", file, "--data", Path("text.txt"), "--out", from + "_lora", "--adapter",
             "lora", "--max-steps", "1", "--seq-len", "32", "--batch-size", "2"});
    EXPECT_NE(generate(file, {"--adapter", from + "_lora/model"}), "");
    for (const std::string& base : {file, from + "_back"}) {
      Succeed({"merge", base, from + "_lora/model", Path("merged"), "--overwrite"});
      fs::rename(Path("merged/model.safetensors"), base + ".merged");
      fs::remove_all(Path("merged"));
    }
    EXPECT_EQ(*ReadFile(file + ".merged"), *ReadFile(from + "_back.merged"));
  }
  ExpectRefused({"convert", Path("int8"), Path("int8.gguf")}, "int8");
  // At once, and with an adapter.
  Succeed({"quantize", model, Path("once.gguf"), "--type", "q8_0"});
  EXPECT_EQ(*ReadFile(Path("once.gguf")), *ReadFile(Path("q8_0.gguf")));
  for (const auto& entry : fs::directory_iterator(root_)) {
    EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos) << entry.path();
  }
  const std::string said = Succeed(
      {"merge", Path("q8_0.gguf"), Path("q8_0_lora/model"), Path("merged.gguf"), "--type", "q5_0"});
  EXPECT_TRUE(said.ends_with(", to " + Path("merged.gguf") + "\n")) << said;
  EXPECT_NE(Succeed({"inspect", Path("merged.gguf")}).find(" Q5_0"), std::string::npos);
  Succeed({"merge", Path("q8_0.gguf"), Path("q8_0_lora/model"), Path("m"), "--type", "q5_0"});
  EXPECT_EQ(generate(Path("m"), {}), generate(Path("merged.gguf"), {}));
  ExpectRefused({"quantize", model, Path("x.gguf"), "--type", "int8"},
                "--type: GGUF files have no int8");
  ExpectRefused({"quantize", model, Path("x.gguf"), "--type", "q8_0", "--shard-size", "1GB"},
                "--shard-size means nothing to a GGUF file");
  ExpectRefused({"convert", model, Path("x.gguf"), "--dtype", "float64"},
                "--dtype: GGUF files have no weights of float64");
  ExpectRefused({"convert", Path("nowhere"), Path("x.gguf")}, Path("nowhere"));
  // Matrices of a type, and other files of a file.
  for (const auto& [dtype, type] :
       {std::pair{"float32", " F32"}, {"bfloat16", " BF16"}, {"float16", " F16"}}) {
    const std::string dense = Path(Concat(dtype, ".gguf"));
    Succeed({"convert", model, dense, "--dtype", dtype});
    EXPECT_NE(Succeed({"inspect", dense}).find(type), std::string::npos) << dtype;
    EXPECT_NE(generate(dense, {}), "");
    Succeed({"convert", Path("q8_0.gguf"), Path("of_file.gguf"), "--dtype", dtype, "--overwrite"});
    EXPECT_EQ(Succeed({"inspect", Path("of_file.gguf")}).find("Q8_0"), std::string::npos);
    EXPECT_NE(generate(Path("of_file.gguf"), {}), "");
  }
  Succeed({"convert", Path("float16.gguf"), Path("again.gguf")});
  EXPECT_EQ(*ReadFile(Path("again.gguf")), *ReadFile(Path("float16.gguf")));
  Succeed({"convert", model, Path("unsaid.gguf")});
  EXPECT_EQ(*ReadFile(Path("unsaid.gguf")), *ReadFile(Path("float16.gguf")));
  Succeed({"quantize", Path("float32.gguf"), Path("of_float32.gguf"), "--type", "q8_0"});
  EXPECT_EQ(generate(Path("of_float32.gguf"), {}), generate(Path("q8_0.gguf"), {}));
  EXPECT_EQ(generate(Path("float32.gguf"), {}), generate(model, {}));
  Succeed({"convert", Path("q8_0.gguf"), Path("dense"), "--dtype", "float16"});
  EXPECT_EQ(Config(Path("dense"))["dtype"], "float16");
  EXPECT_FALSE(Config(Path("dense")).contains("quantization_config"));
  Succeed({"quantize", model, Path("capitals.gguf"), "--type", "Q8_0"});
  EXPECT_EQ(*ReadFile(Path("capitals.gguf")), *ReadFile(Path("q8_0.gguf")));
  // An adapter trains over them, and goes with them.
  Succeed({"train", Path("q8_0"), "--data", Path("text.txt"), "--out", Path("lora"), "--adapter",
           "lora", "--target-modules", "all-linear", "--lr", "0.01", "--max-steps", "3",
           "--seq-len", "32", "--batch-size", "2"});
  EXPECT_NE(generate(Path("q8_0"), {"--adapter", Path("lora") + "/model"}), "");
  ExpectRefused({"train", Path("q8_0"), "--data", Path("text.txt"), "--out", Path("dora"),
                 "--adapter", "dora", "--max-steps", "1"},
                "is quantised; what the adapter does needs its own numbers");
  ExpectRefused({"generate", "--model", Path("q8_0"), "--prompt", "x", "--dtype", "q4_0"},
                "is q8_0 and cannot become q4_0");
  ExpectRefused({"quantize", model, Path("x"), "--type", "q6_0"},
                "--type: 'q6_0' is none of int8, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, "
                "q5_k, q6_k, iq4_nl and iq4_xs");
  json config = Config(model);
  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  std::ofstream(model + "/config.json") << config;
  ExpectRefused({"generate", "--model", model, "--prompt", "x"},
                "'quantization_config' has weights of the method \"gptq\", which are not read");
}

TEST_F(ConvertTest, AGgufFileIsInspected) {
  const std::string file = Path("m.gguf");
  Succeed({"convert", Copied("gpt2_bin_of_4"), file});
  const std::string said = Succeed({"inspect", file});
  EXPECT_TRUE(said.starts_with(file + ": GGUF, gpt2")) << said;
  EXPECT_NE(said.find("\n  metadata gpt2.block_count: "), std::string::npos) << said;
  EXPECT_NE(said.find("  blk.0.attn_qkv.weight     F16      [24, 8]\n"), std::string::npos) << said;
  // As many parameters as the folder has.
  const std::string model = Succeed({"inspect", Path("copied")});
  const size_t end = model.find(" parameters");
  const size_t begin = model.rfind(' ', end - 1);
  EXPECT_NE(said.find(", " + model.substr(begin + 1, end - begin)), std::string::npos) << said;
  EXPECT_TRUE(said.ends_with(" bytes; the file is whole\n")) << said;
  std::ofstream(Path("cut.gguf")) << ReadFile(file)->substr(0, 3000);
  Process run({"inspect", Path("cut.gguf")}, Path("log"));
  EXPECT_EQ(run.ExitCode(), 1);
  EXPECT_TRUE(run.Errors().starts_with("error: " + Path("cut.gguf") + ": ")) << run.Errors();
}

TEST_F(ConvertTest, WhatStandsBesideTheWeightsIsCopied) {
  const std::string from = Copied("gpt2_bin_of_4");
  std::ofstream(from + "/tokenizer_config.json") << R"({"tokenizer_class": "X"})";
  std::ofstream(from + "/generation_config.json") << R"({"top_k": 7})";
  std::ofstream(from + "/README.md") << "x";
  Succeed({"convert", from, Path("out")});
  EXPECT_EQ(*ReadFile(Path("out") + "/tokenizer_config.json"), R"({"tokenizer_class": "X"})");
  EXPECT_EQ(json::parse(*ReadFile(Path("out") + "/generation_config.json")), json({{"top_k", 7}}));
  EXPECT_FALSE(fs::exists(Path("out") + "/README.md"));
  EXPECT_FALSE(fs::exists(Path("out") + "/pytorch_model.bin"));
}

// What transformers reads of a SentencePiece model (tokenizer.json), and chat templates.
TEST_F(ConvertTest, ATokenizerIsWrittenAsItsModelsAre) {
  const std::string from = Copied("gpt2_bin_of_4");
  const std::string tokenizer = "data/tokenizer/testdata/sentence_piece/t5/";
  for (const char* name : {"spiece.model", "tokenizer_config.json"}) {
    fs::copy_file(tokenizer + name, from + "/" + name);
  }
  fs::create_directory(from + "/additional_chat_templates");
  std::ofstream(from + "/additional_chat_templates/tools.jinja") << "{{ tools }}";
  Succeed({"convert", from, Path("out")});
  EXPECT_TRUE(fs::exists(Path("out") + "/tokenizer.json"));
  EXPECT_EQ(*ReadFile(Path("out") + "/spiece.model"), *ReadFile(tokenizer + "spiece.model"));
  EXPECT_EQ(*ReadFile(Path("out") + "/additional_chat_templates/tools.jinja"), "{{ tools }}");
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    EXPECT_EQ(Config(Path("out"))[key], Config(from)[key]) << key << " is the model's";
  }
}

TEST_F(ConvertTest, MegatronsCheckpoint) {
  Succeed({"convert", "tests/parity/goldens/megatron/version1.pt", Path("out")});
  EXPECT_EQ(Config(Path("out"))["n_head"], 2);
  EXPECT_EQ(Config(Path("out"))["activation_function"], "gelu_fast");
  Succeed({"generate", "--model", Path("out"), "--ids", "1,2", "--max-new-tokens", "2"});
}

TEST_F(ConvertTest, Refusals) {
  const std::string from = Copied("gpt2_bin_of_4");
  const std::string out = Path("out");
  ExpectRefused({"convert", from}, "to is required");
  ExpectRefused({"convert", Path("absent"), out}, "absent: no such file");
  ExpectRefused({"convert", from, from}, "exists; a new folder is written");
  ExpectRefused({"convert", from, out, "--dtype", "int8"}, "'int8' is none of");
  for (const char* size : {"0GB", "many", "5 TB", "-1GB", "99999999999GB"}) {
    ExpectRefused({"convert", from, out, "--shard-size", size}, "is no size such as 5GB");
  }
  std::ofstream(from + "/pytorch_model.bin", std::ios::binary | std::ios::trunc)
      << "\x80\x02"
         "cos\nsystem\n"
      << "X\x0a" << std::string(3, '\0') << "touch x.xx\x85R.";
  for (const Arguments& arguments : {Arguments{"convert", from, out},
                                     {"generate", "--model", from, "--ids", "1"},
                                     {"inspect", from},
                                     {"inspect", from + "/pytorch_model.bin"}}) {
    ExpectRefused(arguments, from +
                                 "/pytorch_model.bin: 'os.system' is no part of a checkpoint; "
                                 "nothing was executed");
  }
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(ConvertTest, NumbersBeyondHalfPrecisionAreNamed) {
  const std::string from = Copied("bert-mlm_untied_of_5");
  std::string bytes = *ReadFile(from + "/model.safetensors");
  const float large = 1e6f;
  std::memcpy(bytes.data() + bytes.size() - sizeof(large), &large, sizeof(large));
  std::ofstream(from + "/model.safetensors", std::ios::binary | std::ios::trunc) << bytes;
  const auto file = SafetensorsFile::Open(from + "/model.safetensors");
  ExpectRefused({"convert", from, Path("out"), "--dtype", "float16"},
                "tensor '" + file->entries().back().name + "' has numbers that are beyond float16");
  EXPECT_FALSE(fs::exists(Path("out")));
  Succeed({"convert", from, Path("out"), "--dtype", "bfloat16"});
}

}  // namespace
}  // namespace tessera
