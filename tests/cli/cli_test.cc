// The program as others call it: what it prints, what it writes, how it ends.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/file.h"
#include "core/safetensors.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "models/family.h"
#include "models/hub/save_model.h"
#include "models/model.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

constexpr const char* kProgram = "tools/tessera";

struct Outcome {
  int code = -1;  // -1: ended by a signal
  std::string out;
  std::string err;
};

struct Surroundings {
  std::string stdout_path = {};  // empty: captured
  int64_t file_limit = 0;        // bytes of a file; 0: none
  std::string isa = {};          // TESSERA_CPU_ISA
};

class CliTest : public testing::Test {
 protected:
  CliTest()
      : root_(testing::TempDir() + "/cli_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }

  // A model of 257 ids with its byte tokenizer, and 16 positions.
  static void SetUpTestSuite() {
    model_ = new std::string(testing::TempDir() + "/cli_model");
    const nlohmann::json config = {
        {"model_type", "gpt2"}, {"vocab_size", 257}, {"n_positions", 16},       {"n_embd", 8},
        {"n_layer", 2},         {"n_head", 2},       {"initializer_range", 0.5}};
    const auto model = models::BuildModel(config, {.seed = 1});
    ASSERT_TRUE(model.ok()) << Message(model.status());
    const data::ByteTokenizer tokenizer;
    const Status saved = models::SaveModel(**model, *model_, &tokenizer);
    ASSERT_TRUE(saved.ok()) << Message(saved);
  }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& content) const {
    std::ofstream(Path(name), std::ios::binary) << content;
    return Path(name);
  }
  static std::string Read(const std::string& path) {
    const auto text = ReadFile(path);
    return text.ok() ? *text : "";
  }

  Outcome Run(const Arguments& arguments, const Surroundings& around = {}) const {
    const std::string out = around.stdout_path.empty() ? Path("stdout") : around.stdout_path;
    const std::string err = Path("stderr");
    const pid_t child = fork();
    if (child == 0) {
      dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
      dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
      if (!around.isa.empty()) setenv("TESSERA_CPU_ISA", around.isa.c_str(), 1);
      if (around.file_limit > 0) {
        const rlimit limit = {static_cast<rlim_t>(around.file_limit),
                              static_cast<rlim_t>(around.file_limit)};
        setrlimit(RLIMIT_FSIZE, &limit);
      }
      std::vector<char*> argv = {const_cast<char*>(kProgram)};
      for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
      argv.push_back(nullptr);
      execv(kProgram, argv.data());
      _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            around.stdout_path.empty() ? Read(out) : "", Read(err)};
  }
  std::string Output(const Arguments& arguments) const {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return outcome.out;
  }
  // Exactly one line, which begins with "error: " and contains `part`.
  void ExpectError(const Arguments& arguments, int code, const std::string& part,
                   const Surroundings& around = {}) const {
    std::string command;
    for (const std::string& a : arguments) command += a.substr(0, 80) + " ";
    const Outcome outcome = Run(arguments, around);
    EXPECT_EQ(outcome.code, code) << command << "\n" << outcome.err;
    EXPECT_EQ(outcome.err.rfind("error: ", 0), 0u) << command << "\n" << outcome.err;
    EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << command << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << command << "\n" << outcome.err;
  }

  std::string WriteInputs(const std::string& name,
                          const std::vector<std::pair<std::string, Tensor>>& tensors) const {
    std::vector<NamedTensorView> views;
    for (const auto& [key, t] : tensors) {
      views.push_back({key,
                       {t.dtype(),
                        {t.shape().begin(), t.shape().end()},
                        static_cast<const std::byte*>(t.raw_data()),
                        t.nbytes()}});
    }
    EXPECT_TRUE(WriteSafetensors(Path(name), views).ok());
    return Path(name);
  }
  Arguments Forward(const std::string& inputs) const {
    return {"forward", "--model", *model_, "--inputs", inputs, "--outputs", Path("out")};
  }
  void ExpectForwardError(const std::vector<std::pair<std::string, Tensor>>& inputs,
                          const std::string& part) const {
    ExpectError(Forward(WriteInputs("in", inputs)), 2, part);
    EXPECT_FALSE(fs::exists(Path("out")));
  }

  static std::string* model_;
  const std::string root_;
};

std::string* CliTest::model_ = nullptr;

Tensor Ids(const std::vector<int64_t>& values, const Shape& shape) {
  return Tensor::FromVector<int64_t>(values, shape);
}

// A safetensors file of this header and `size` bytes of data, which says that the header is
// `length` bytes long (0: as long as it is).
std::string Hostile(const std::string& header, size_t size, uint64_t length = 0) {
  const uint64_t n = length == 0 ? header.size() : length;
  std::string file(8, '\0');
  std::memcpy(file.data(), &n, 8);
  return file + header + std::string(size, '\0');
}

TEST_F(CliTest, HelpOfEveryCommand) {
  const std::string help = Output({"--help"});
  EXPECT_EQ(Output({"-h"}), help);
  for (const char* command : {"train", "eval", "models", "forward", "generate", "tokenize",
                              "train-tokenizer", "inspect", "convert"}) {
    EXPECT_NE(help.find(Concat("\n  ", command, " ")), std::string::npos) << command;
    const std::string text = Output({command, "--help"});
    EXPECT_NE(text.find("Example"), std::string::npos) << command;
    EXPECT_NE(text.find(Concat("tessera ", command)), std::string::npos) << command;
  }
}

TEST_F(CliTest, WrongUsage) {
  ExpectError({}, 2, "a command is missing");
  ExpectError({"genrate"}, 2, "unknown command 'genrate'; did you mean 'generate'?");
  ExpectError({"--verbose"}, 2, "unknown flag '--verbose'");
  ExpectError({"forward", "--modle", "x"}, 2, "did you mean '--model'?");
  ExpectError({"generate", "--model", "x", "--qqqqqqqqq=1"}, 2, "unknown flag '--qqqqqqqqq'");
  ExpectError({"generate", "-x"}, 2, "unknown flag '-x'");
  ExpectError({"forward", "--model"}, 2, "--model needs a value");
  ExpectError({"forward", "--model", *model_}, 2, "--inputs is required");
  ExpectError({"models", "surplus"}, 2, "surplus");
  ExpectError({"generate", "--model", *model_}, 2,
              "give one of --prompt TEXT, --prompts FILE and --ids");
  ExpectError({"generate", "--model", *model_, "--ids", "1", "--top-k", "many"}, 2, "--top-k");
  ExpectError({"generate", "--model", *model_, "--ids", "1", "--top_k", "-4"}, 2, "top_k");
  ExpectError({"generate", "--model", *model_, "--ids", "1", "--top-p", "nan"}, 2, "top_p");
  ExpectError({"generate", "--model", *model_, "--ids", "1,x"}, 2, "'x' is not a token id");
  ExpectError({"generate", "--model", *model_, "--ids", "1", "--device", "cuda:0"}, 2, "cuda:0");
  ExpectError({"generate", "--model", *model_, "--ids", "1", "--device", "abacus"}, 2, "abacus");
  ExpectError({"generate", "--model", *model_, "--ids", "1", "--dtype", "int8"}, 2, "int8");
  ExpectError({"generate", "--model", *model_, "--ids", "1", "--threads", "-1"}, 2, "--threads");
  ExpectError({"generate", "--model", "no-such", "--ids", "1"}, 2, "neither a folder nor a preset");
  ExpectError({"generate", "--model", "gpt-tiny", "--ids", "1"}, 2, "a preset has no weights");
  ExpectError({"inspect", Path("absent")}, 2, "absent");
  ExpectError({"inspect", root_}, 2, "neither a model");
  ExpectError({"inspect"}, 2, "--devices");
  ExpectError({"inspect", *model_, "--devices"}, 2, "--devices");
  ExpectError({"tokenize", "--tokenizer", "byte", "--input", "x"}, 2, "--print-ids");
  ExpectError({"models"}, 2, "TESSERA_CPU_ISA", {.isa = "quantum"});
}

TEST_F(CliTest, ModelsListsPresetsWithParameterCounts) {
  const std::string out = Output({"models"});
  EXPECT_NE(out.find("124,439,808"), std::string::npos);
  for (const char* preset :
       {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "gpt-tiny", "gpt-mini"}) {
    EXPECT_NE(out.find(Concat("\n", preset, " ")), std::string::npos) << preset;
  }
}

TEST_F(CliTest, ForwardWritesOutputsAndGradients) {
  const Tensor ids = Tensor::FromVector<int32_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  const std::string inputs = WriteInputs("in", {{"input_ids", ids}, {"labels", ids}});
  Arguments command = Forward(inputs);
  command.push_back("--grads=" + Path("grads"));
  EXPECT_EQ(Output(command), "");
  const auto out = SafetensorsFile::Open(Path("out"));
  ASSERT_TRUE(out.ok()) << Message(out.status());
  EXPECT_EQ(out->Find("logits")->shape, (std::vector<int64_t>{2, 3, 257}));
  EXPECT_EQ(out->Find("last_hidden_state")->shape, (std::vector<int64_t>{2, 3, 8}));
  EXPECT_EQ(out->Find("loss")->shape, std::vector<int64_t>());
  const auto grads = SafetensorsFile::Open(Path("grads"));
  ASSERT_TRUE(grads.ok()) << Message(grads.status());
  EXPECT_EQ(grads->entries().size(), 2u + 2 * 12 + 2);
  EXPECT_EQ(grads->Find("lm_head.weight"), nullptr);
  EXPECT_NE(grads->Find("transformer.h.1.attn.c_attn.weight"), nullptr);
}

TEST_F(CliTest, ForwardRefusesUnsuitableInputs) {
  const Tensor ids = Ids({1, 2, 3, 4}, {2, 2});
  ExpectForwardError({{"input_ids", Ids({1, 257}, {1, 2})}},
                     "257 (row 0, position 1) is beyond the model's vocabulary of 257");
  ExpectForwardError({{"input_ids", Ids({1, -1}, {1, 2})}}, "-1 (row 0, position 1)");
  ExpectForwardError({{"labels", ids}}, "'input_ids' is missing");
  ExpectForwardError({{"input_ids", ids}, {"label", ids}}, "'label' is no input of gpt2");
  ExpectForwardError({{"input_ids", ids}, {"labels", Ids({1, 400, 2, 2}, {2, 2})}}, "400");
  ExpectForwardError({{"input_ids", ids}, {"attention_mask", Ids({1, 1}, {1, 2})}},
                     "'attention_mask' has shape [1, 2]");
  ExpectForwardError({{"input_ids", Ids({1, 2}, {1, 2})}, {"attention_mask", Ids({1, 2}, {1, 2})}},
                     "'attention_mask': 2 (row 0, position 1) is neither 0 nor 1");
  ExpectForwardError({{"input_ids", ids}, {"position_ids", Ids({0, 16, 0, 1}, {2, 2})}},
                     "beyond the model's positions of 16");
  ExpectForwardError({{"input_ids", Tensor::FromVector<float>({1, 2}, {1, 2})}}, "integers");
  ExpectForwardError({{"input_ids", Ids({1, 2}, {2})}}, "shape [2]");
  ExpectForwardError({{"input_ids", Ids({}, {0, 3})}}, "shape [0, 3]");
  ExpectForwardError({{"input_ids", Ids(std::vector<int64_t>(17, 1), {1, 17})}},
                     "17 tokens a row; the model has 16 positions");
  Arguments grads = Forward(WriteInputs("in", {{"input_ids", ids}}));
  grads.insert(grads.end(), {"--grads", Path("grads")});
  ExpectError(grads, 2, "--grads needs 'labels'");
}

TEST_F(CliTest, DamagedFilesAreNamed) {
  const std::string deep = "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}";
  const std::string entry = R"({"dtype":"I64","shape":[1,2],"data_offsets":)";
  const std::vector<std::pair<const char*, std::string>> files = {
      {"empty", ""},
      {"short", "abc"},
      {"header-beyond-file", Hostile("{}", 0, 1 << 20)},
      {"header-length-overflows", Hostile("{}", 0, UINT64_MAX - 1)},
      {"header-no-json", Hostile("{{{{", 0)},
      {"header-deep", Hostile(deep, 0)},
      {"header-invalid-utf8", Hostile("{\"\xff\":1}", 0)},
      {"truncated", Hostile("{\"input_ids\":" + entry + "[0,16]}}", 15)},
      {"negative", Hostile("{\"input_ids\":" + entry + "[-16,0]}}", 16)},
      {"overflowing", Hostile(R"({"input_ids":{"dtype":"I64","shape":[4611686018427387904,4],)"
                              R"("data_offsets":[0,16]}})",
                              16)},
      {"overlapping",
       Hostile("{\"input_ids\":" + entry + "[0,16]},\"labels\":" + entry + "[8,24]}}", 24)},
  };
  for (const auto& [name, content] : files) {
    const std::string path = Write(name, content);
    ExpectError(Forward(path), 1, path);
    ExpectError({"inspect", path}, 1, path);
    const std::string folder = Path(Concat("folder-", name));
    fs::copy(*model_, folder);
    fs::copy_file(path, folder + "/model.safetensors", fs::copy_options::overwrite_existing);
    ExpectError({"generate", "--model", folder, "--ids", "1"}, 1, folder + "/model.safetensors");
    ExpectError({"inspect", folder}, 1, folder + "/model.safetensors");
  }
}

TEST_F(CliTest, DamagedModelFoldersAreNamed) {
  const std::string folder = Path("folder");
  const auto with = [&](const std::string& file, const std::string& content) {
    fs::remove_all(folder);
    fs::copy(*model_, folder);
    std::ofstream(folder + "/" + file) << content;
    return Arguments{"generate", "--model", folder, "--ids", "1"};
  };
  ExpectError(with("config.json", "{\"model_type\":"), 2, folder + "/config.json");
  ExpectError(with("config.json", std::string(100000, '[')), 2, folder + "/config.json");
  ExpectError(with("config.json", R"({"model_type": "gpt3"})"), 2, "'gpt3' is not known");
  ExpectError(with("config.json", R"({"model_type": "gpt2", "add_cross_attention": true})"), 2,
              "'add_cross_attention'");
  ExpectError(with("generation_config.json", R"({"typical_p": 0.5})"), 2, "'typical_p'");
  ExpectError(with("generation_config.json", "nonsense"), 2, "generation_config.json");
  fs::remove(folder + "/generation_config.json");
  fs::rename(folder + "/model.safetensors", folder + "/pytorch_model.bin");
  ExpectError({"generate", "--model", folder, "--ids", "1"}, 2, folder + "/pytorch_model.bin: ");
}

TEST_F(CliTest, GenerateContinuesIdsAndText) {
  const std::string ids = Output({"generate", "--model", *model_, "--ids", "72, 105",
                                  "--max_new_tokens=5", "--temperature", "0"});
  EXPECT_EQ(ids.rfind("72,105,", 0), 0u) << ids;
  EXPECT_EQ(std::count(ids.begin(), ids.end(), ','), 6) << ids;
  const std::string text =
      Output({"generate", "--model", *model_, "--prompt", "--h", "--max-new-tokens", "3"});
  EXPECT_EQ(text.rfind("--h", 0), 0u) << text;
  const Arguments sampled = {"generate", "--model",  *model_,  "--prompt", "a",   "--seed",
                             "3",        "--top-k",  "40",     "--top-p",  "0.9", "--temperature",
                             "1.5",      "--stop=~", "--stop", "\n\n"};
  EXPECT_EQ(Output(sampled), Output(sampled));
  const Arguments beams = {"generate", "--model", *model_, "--ids=9", "--num-beams", "3"};
  EXPECT_EQ(Output(beams), Output(beams));
}

TEST_F(CliTest, PromptsOfAFileGiveALineEach) {
  const std::string prompts = Write("prompts", "Hi\n--h\nanother one");
  const Arguments command = {"generate",         "--model", *model_,        "--prompts", prompts,
                             "--max-new-tokens", "3",       "--batch-size", "2"};
  const std::string lines = Output(command);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3) << lines;
  std::string alone =
      Output({"generate", "--model", *model_, "--prompt", "--h", "--max-new-tokens", "3"});
  alone.pop_back();
  std::replace(alone.begin(), alone.end(), '\n', ' ');
  const size_t second = lines.find('\n') + 1;
  EXPECT_EQ("--h" + lines.substr(second, lines.find('\n', second) - second), alone);
  ExpectError({"generate", "--model", *model_, "--prompts", Path("absent")}, 2, Path("absent"));
}

TEST_F(CliTest, PromptsThatCannotBeContinued) {
  const auto prompt = [&](const std::string& text) {
    return Arguments{"generate", "--model", *model_, "--prompt", text};
  };
  ExpectError(prompt(std::string(16, 'x')), 2, "has 16 tokens; the model has 16 positions");
  Arguments longer = prompt("0123456789");
  longer.insert(longer.end(), {"--max-new-tokens", "7"});
  ExpectError(longer, 2, "exceeds the model's 16 positions");
  ExpectError(prompt("ab\xff"), 2, "--prompt: invalid UTF-8 at byte 2");
  ExpectError({"generate", "--model", *model_, "--prompt", "a", "--stop=\xff"}, 2,
              "--stop: invalid");
  ExpectError({"generate", "--model", *model_, "--ids", "5,300"}, 2,
              "token id 300 (row 0, position 1) is beyond the model's vocabulary of 257");
  ExpectError({"generate", "--model", *model_, "--ids", "1", "--num-beams", "2", "--top-k", "3"}, 2,
              "num_beams");
  // An empty prompt begins with the end-of-text token.
  EXPECT_EQ(Output({"generate", "--model", *model_, "--ids", "", "--max-new-tokens", "1"})
                .rfind("256,", 0),
            0u);
}

TEST_F(CliTest, TokenizeAndInspect) {
  const std::string input = Write("text", "ab\n\nc");
  EXPECT_EQ(Output({"tokenize", "--tokenizer", "byte", "--input", input, "--print_ids"}),
            "97 98\n\n99\n");
  const std::string prefix = Path("data");
  EXPECT_NE(Output({"tokenize", "--tokenizer=byte", "--input", input, "--output", prefix})
                .find("6 tokens in 1 documents"),
            std::string::npos);
  EXPECT_NE(Output({"inspect", prefix}).find("6 tokens"), std::string::npos);
  const std::string devices = Output({"inspect", "--devices"});
  EXPECT_EQ(devices.rfind("cpu: ", 0), 0u) << devices;
  EXPECT_NE(devices.find("\ncuda:"), std::string::npos) << devices;
  const std::string model = Output({"inspect", *model_});
  EXPECT_NE(model.find("every parameter is there"), std::string::npos) << model;
  EXPECT_NE(model.find("tokenizer: 257 ids"), std::string::npos) << model;
  EXPECT_NE(Output({"inspect", *model_ + "/model.safetensors"}).find("the file is whole"),
            std::string::npos);
  const std::string invalid = Write("invalid", "ab\xff");
  ExpectError({"tokenize", "--tokenizer", "byte", "--input", invalid, "--output", prefix}, 2,
              "invalid: ");
  ExpectError({"tokenize", "--tokenizer", "byte", "--input", invalid, "--print-ids"}, 2, "byte 2");
  ExpectError({"tokenize", "--tokenizer", "byte", "--input", Write("nil", ""), "--output", prefix},
              2, "");
  ExpectError({"tokenize", "--tokenizer", root_, "--input", input, "--output", prefix}, 2, root_);
}

TEST_F(CliTest, TrainTokenizer) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += Concat("line ", i * i % 97, " of a small text\n");
  const std::string input = Write("text", text);
  const std::string folder = Path("tokenizer");
  EXPECT_EQ(Output({"train-tokenizer", "--input", input, "--output", folder, "--vocab-size", "32"}),
            folder + "/spiece.model: 32 pieces from 200 lines; 132 ids\n");
  // Letters that the text has are pieces; others are <unk>, 2.
  const std::string ids = Output(
      {"tokenize", "--tokenizer", folder, "--input", Write("in", "smell\nQ\n"), "--print-ids"});
  EXPECT_GT(std::count(ids.begin(), ids.begin() + ids.find('\n'), ' '), 0) << ids;
  EXPECT_EQ(ids.substr(ids.size() - 3), " 2\n") << ids;
  const std::string lines = Write("lines.jsonl", "{\"q\": \"one two\", \"a\": \"three\"}\n");
  EXPECT_NE(Output({"train-tokenizer", "--input", lines, "--output", Path("chat"), "--family",
                    "chatglm", "--vocab-size", "358", "--json-key", "q", "--json-key", "a"})
                .find("ice_text.model: 358 pieces from 2 lines"),
            std::string::npos);
  const auto fails = [&](const Arguments& more, const std::string& part) {
    Arguments arguments = {"train-tokenizer", "--input", input, "--output", Path("none")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ExpectError(arguments, 2, part);
    EXPECT_FALSE(fs::exists(Path("none")));
  };
  fails({"--vocab-size", "100000"}, "Vocabulary size too high");
  fails({"--type", "wordpiece"}, "'wordpiece'");
  fails({"--family", "gpt"}, "'gpt'");
  fails({"--lower-case", "--normalization", "identity"}, "identity");
}

TEST_F(CliTest, TrainsAndEvaluatesAClassifier) {
  fs::create_directories(Path("words"));
  std::ofstream(Path("words") + "/vocab.txt") << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\n";
  std::string table = "sentence\tlabel\n";
  for (int i = 0; i < 60; ++i) table += i % 3 == 0 ? "good\tyes\n" : "bad bad\tno\n";
  const std::string data = Write("reviews.tsv", table);
  const std::string out =
      Output({"train", "bert-tiny", "--data", data, "--out", Path("run"), "--tokenizer",
              Path("words"), "--config-overrides",
              "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,intermediate_size=16",
              "--max-steps", "60", "--lr", "1e-2", "--dropout", "0", "--threads", "2"});
  EXPECT_NE(out.find("text_classification on 57 training samples"), std::string::npos) << out;
  EXPECT_NE(out.find("accuracy 1.0000"), std::string::npos) << out;
  const std::string found =
      Output({"eval", "--model", Path("run") + "/model", "--data", data, "--batch-size", "16"});
  EXPECT_NE(found.find("accuracy 1.0000  f1 1.0000  matthews 1.0000  samples 60"),
            std::string::npos)
      << found;
  ExpectError({"eval", "--model", Path("run") + "/model", "--data",
               Write("other.tsv", "sentence\tlabel\ngood\tperhaps\n")},
              2, "labels that the model does not know; it has: no, yes");
}

TEST_F(CliTest, TrainAndEvalRefuseWhatTheyCannotUse) {
  const std::string text = Write("text", std::string(2000, 'a'));
  const auto train = [&](const Arguments& more) {
    Arguments arguments = {"train", "gpt-tiny", "--out", Path("run"), "--max-steps", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  ExpectError(train({}), 2, "--data is missing");
  ExpectError(train({"--data", Path("absent")}), 2, Path("absent"));
  ExpectError(train({"--data", Write("empty", "")}), 2, "empty: no text");
  ExpectError(train({"--data", Write("invalid", "ab\xff")}), 2, "invalid: ");
  ExpectError(train({"--data", text, "--lr", "fast"}), 2, "lr must be a number");
  ExpectError(train({"--data", text, "--lr", "-1"}), 2, "lr");
  ExpectError(train({"--data", text, "--learning-pace", "1"}), 2, "unknown flag '--learning-pace'");
  ExpectError(train({"--data", text, "--config", Write("c.json", R"({"max_stepz": 1})")}), 2,
              "unknown key 'max_stepz'; did you mean 'max_steps'?");
  ExpectError(train({"--data", text, "--config", Write("d.json", "{")}), 2, "d.json");
  ExpectError(train({"--data", text, "--out", text}), 2, "--out");
  ExpectError({"train", "gpt-tiny", "--data", text, "--out", text + "/below"}, 1,
              "Not a directory");
  ExpectError({"train", "gpt-tinny", "--data", text, "--out", Path("run")}, 2, "gpt-tinny");
  ExpectError({"eval", "--model", *model_, "--data", Path("absent")}, 2, Path("absent"));
}

TEST_F(CliTest, KeysThatMeanNothingAreRefusedWithTheReason) {
  const std::string text = Write("text", std::string(2000, 'a'));
  const auto train = [&](const Arguments& more) {
    Arguments arguments = {"train", "gpt-tiny", "--data", text, "--out", Path("run")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  ExpectError(train({"--momentum", "0.9"}), 2,
              "momentum is set, which needs optimizer muon or sgd (it is adamw)");
  ExpectError(train({"--growth-factor", "2"}), 2,
              "growth_factor is set, which needs dtype float16");
  ExpectError(train({"--mlm-probability", "0.2"}), 2,
              "which needs task masked_lm (it is causal_lm)");
  ExpectError(train({"--optimizer", "adamm"}), 2,
              "'adamm' is not known; use one of adafactor, adam,");
  ExpectError(train({"--lr", "1e-3", "--learning-rate", "1e-4"}), 2, "--lr is given twice");
  // A DeepSpeed file may say such things of what it has switched off.
  const std::string ds = Write("ds.json", R"({"fp16": {"enabled": false, "loss_scale_window": 9},
      "optimizer": {"type": "SGD", "params": {"momentum": 0.5}}})");
  Output(train({"--deepspeed", ds, "--optimizer", "lion", "--max-steps", "1", "--seq-len", "16",
                "--val-fraction", "0"}));
}

// A line for each key, tabs between; what a run refuses is listed like the rest.
TEST_F(CliTest, ExplainSaysWhatBecomesOfEachKey) {
  const std::string ds =
      Write("ds.json", R"({"zero_optimization": {"stage": 2, "sub_group_size": 9},
      "steps_per_print": 7, "amp": {"enabled": true}, "no\tsuch": 1})");
  const std::string acc =
      Write("acc.yaml", "distributed_type: NO  # one process\nmixed_precision: 'no'\n");
  const Arguments given = {"--deepspeed",
                           ds,
                           "--accelerate",
                           acc,
                           "--learning_rate",
                           "1e-3",
                           "--bf16",
                           "True",
                           "--push_to_hub",
                           "--epochs",
                           "2"};
  Arguments explain = {"explain"};
  explain.insert(explain.end(), given.begin(), given.end());
  const std::string out = Output(explain);
  for (const char* line :
       {"zero_optimization.stage\ttranslated\tzero\n",
        "zero_optimization.sub_group_size\tno-effect\tit tunes",
        "steps_per_print\ttranslated\tlog_interval\n", "amp\trefused\tuse fp16 or bf16\n",
        "no such\trefused\tunknown key\n", "distributed_type\ttranslated\tzero\n",
        "learning_rate\ttranslated\tlr\n", "bf16\ttranslated\tautocast\n",
        "push_to_hub\trefused\tthere is no hub", "epochs\thonoured\t"}) {
    EXPECT_NE(("\n" + out).find(std::string("\n") + line), std::string::npos) << line << "\n"
                                                                              << out;
  }
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 11) << out;
  Arguments train = {"train", "gpt-tiny", "--data", Write("text", "a"), "--out", Path("run")};
  train.insert(train.end(), given.begin(), given.end());
  ExpectError(train, 2, "'amp' is refused: use fp16 or bf16");
  ExpectError({"explain", "--deepspeed", Path("nowhere")}, 2, "nowhere");
  EXPECT_EQ(Output({"explain", "--no_such_flag", "3", "--lr=1"}),
            "lr\thonoured\ta key of a run\nno_such_flag\trefused\tunknown key\n");
}

// A command line as scripts for Hugging Face's Trainer have it.
TEST_F(CliTest, AFileWithoutKeysIsNoConfiguration) {
  const std::string list = Write("list.json", "[1, 2]");
  const std::string text = Write("text.yaml", "only words\n");
  for (const char* command : {"explain", "train"}) {
    for (const char* flag : {"--config", "--deepspeed"}) {
      ExpectError({command, flag, list}, 2, list + ": a JSON object is needed");
    }
    for (const std::string& file : {list, text, Write("empty.yaml", "")}) {
      ExpectError({command, "--accelerate", file}, 2, file + ": its keys and values are missing");
    }
  }
}

TEST_F(CliTest, HuggingFaceFlagsAreTaken) {
  const std::string text = Write("text", std::string(4000, 'a'));
  const std::string fsdp =
      Write("fsdp.json", R"({"fsdp_transformer_layer_cls_to_wrap": ["GPT2Block"], "xla": false})");
  const Arguments arguments = {"train",
                               "--model_name_or_path",
                               "gpt-tiny",
                               "--data",
                               text,
                               "--output_dir",
                               Path("run"),
                               "--do_train",
                               "--do_eval",
                               "True",
                               "--max_steps",
                               "2",
                               "--seq_len",
                               "16",
                               "--report_to",
                               "none",
                               "--per_device_train_batch_size",
                               "2",
                               "--logging_steps",
                               "1",
                               "--optim",
                               "adamw_torch_fused",
                               "--lr_scheduler_type",
                               "cosine",
                               "--warmup_ratio",
                               "0.1",
                               "--bf16",
                               "--save_total_limit",
                               "2",
                               "--disable_tqdm",
                               "True",
                               "--push_to_hub",
                               "False",
                               "--fsdp",
                               "full_shard auto_wrap",
                               "--fsdp_config",
                               fsdp};
  Output(arguments);
  const auto saved = nlohmann::json::parse(Read(Path("run") + "/config.json"));
  EXPECT_EQ(saved["zero"], 3);
  EXPECT_EQ(saved["auto_wrap_classes"], "TransformerBlock");
  EXPECT_EQ(saved["autocast"], "bfloat16");
  EXPECT_EQ(saved["warmup_steps"], 0.1);
  EXPECT_EQ(saved["betas"], (std::vector<double>{0.9, 0.999}));
  Arguments on = arguments;
  on[11] = "3";
  on.insert(on.end(), {"--resume_from_checkpoint", Path("run") + "/checkpoint-2"});
  EXPECT_NE(Output(on).find("trained 3 steps"), std::string::npos);
}

TEST_F(CliTest, AQuietRunPrintsNothing) {
  const std::string text = Write("text", std::string(4000, 'a'));
  EXPECT_EQ(Output({"train", "gpt-tiny", "--data", text, "--out", Path("run"), "--max_steps", "1",
                    "--seq_len", "16", "--log_level", "warning"}),
            "");
}

TEST_F(CliTest, AnEnvironmentIsWhatItSays) {
  const std::string text = Write("text", std::string(4000, 'a'));
  const auto train = [&](const Arguments& more) {
    Arguments arguments = {"train", "gpt-tiny", "--data", text, "--out", Path("run")};
    arguments.insert(arguments.end(), {"--max-steps", "1", "--seq-len", "16", "--overwrite"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  ExpectError(train({"--env_type", "deepspeed"}), 2, "env_type 'zero' needs zero (1, 2 or 3)");
  ExpectError(train({"--env_type", "deepspeed+mpu", "--zero", "1"}), 2, "needs tp above 1");
  ExpectError(train({"--env_type", "pytorchDDP", "--zero", "1"}), 2, "excludes zero");
  const std::string ds = Write("ds.json", R"({"train_micro_batch_size_per_gpu": 2})");
  Output(train({"--env_type", "deepspeed", "--deepspeed", ds}));
  const auto saved = nlohmann::json::parse(Read(Path("run") + "/config.json"));
  EXPECT_EQ(saved["zero"], 0);
  EXPECT_EQ(saved["max_grad_norm"], 0);
  EXPECT_EQ(saved["lr_schedule"], "constant");
  ExpectError(train({"--zero", "3", "--bucket-cap-mb", "5"}), 2,
              "bucket_cap_mb is set, which needs zero 0, 1 or 2 (zero is 3)");
}

TEST_F(CliTest, WhatWasSetIsPrintedAndTheWholeIsSaved) {
  const std::string text = Write("text", std::string(4000, 'a'));
  const Arguments arguments = {"train",     "gpt-tiny",  "--data",       text,
                               "--out",     Path("run"), "--max-steps",  "1",
                               "--seq-len", "16",        "--batch-size", "8"};
  const std::string out = Output(arguments);
  EXPECT_NE(out.find("\n  max_steps   1"), std::string::npos) << out;
  EXPECT_NE(out.find("(the default)"), std::string::npos) << out;
  EXPECT_EQ(out.find("bucket_cap_mb"), std::string::npos) << out;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("  ", 0) != 0) continue;
    EXPECT_LE(line.size(), 120u) << line;
  }
  const auto saved = nlohmann::json::parse(Read(Path("run") + "/config.json"));
  EXPECT_EQ(saved["bucket_cap_mb"], 25);
  EXPECT_EQ(saved["dropout"], nullptr);
  EXPECT_EQ(saved["min_lr"], 0.1 * 3e-4);
  EXPECT_EQ(saved["betas"], (std::vector<double>{0.9, 0.95}));
  EXPECT_FALSE(saved.contains("growth_factor"));
  // It can be given back as it is.
  Output({"train", "--config", Path("run") + "/config.json", "--out", Path("again")});
}

TEST_F(CliTest, OneRunAtATimeWorksInADirectory) {
  const std::string text = Write("text", std::string(4000, 'a'));
  const Arguments arguments = {"train",     "gpt-tiny",    "--data", text,        "--out",
                               Path("run"), "--max-steps", "2",      "--seq-len", "16"};
  fs::create_directories(Path("run"));
  const std::string lock = Path("run") + "/run.lock";
  std::ofstream(Path("run") + "/checkpoint-1.tmp-1-1") << "a save of the other run";
  const int file = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(write(file, "process 4711 on there\n", 22), 22);
  ASSERT_EQ(flock(file, LOCK_EX | LOCK_NB), 0);
  ExpectError(arguments, 1, "process 4711 on there is training there");
  EXPECT_TRUE(fs::exists(Path("run") + "/checkpoint-1.tmp-1-1"));
  EXPECT_FALSE(fs::exists(Path("run") + "/data"));
  close(file);  // as the kernel does for a process that was killed
  Output(arguments);
  EXPECT_FALSE(fs::exists(Path("run") + "/checkpoint-1.tmp-1-1"));
}

TEST_F(CliTest, SeveralSourcesAreBlended) {
  const std::string a = Write("a.txt", std::string(4000, 'a'));
  const std::string b = Write("b.txt", std::string(8000, 'b'));
  const auto train = [&](const std::string& out, const Arguments& data) {
    Arguments arguments = {"train",          "gpt-tiny", "--out",     Path(out),
                           "--max-steps",    "1",        "--seq-len", "16",
                           "--val-fraction", "0",        "--threads", "1"};
    arguments.insert(arguments.end(), data.begin(), data.end());
    return arguments;
  };
  // 3 of 10 samples are of a.txt, all of whose 249 must be seen.
  EXPECT_NE(Output(train("weighted", {"--data", a + ":0.3", "--data", b + ":0.7"}))
                .find("causal_lm on 832 training samples"),
            std::string::npos);
  EXPECT_NE(Output(train("by_size", {"--data", a, "--data", b})).find("causal_lm on 750 "),
            std::string::npos);
  ExpectError(train("mixed", {"--data", a + ":0.3", "--data", b}), 2, "b.txt' has no weight");
  ExpectError(train("absent", {"--data", a + ":x"}), 2, "a.txt:x");
}

TEST_F(CliTest, VersionIsOneLine) {
  const std::string version = Output({"--version"});
  EXPECT_EQ(version.rfind("tessera ", 0), 0u) << version;
  EXPECT_EQ(std::count(version.begin(), version.end(), '\n'), 1) << version;
}

TEST_F(CliTest, WhatCannotBeWrittenIsNamedAndLeavesNothing) {
  const Tensor ids = Ids({1, 2, 3, 4}, {2, 2});
  const std::string inputs = WriteInputs("in", {{"input_ids", ids}});
  const auto to = [&](const std::string& outputs) {
    return Arguments{"forward", "--model", *model_, "--inputs", inputs, "--outputs", outputs};
  };
  ExpectError(to("/dev/full"), 1, "/dev/full: No space left on device");
  ExpectError(to(inputs + "/below-a-file"), 1, inputs);
  ExpectError(to(Path("absent/out")), 2, Path("absent/out"));
  const size_t before = ListDirectory(root_)->size();
  ExpectError(to(Path("out")), 1, "File too large", {.file_limit = 4096});
  EXPECT_EQ(ListDirectory(root_)->size(), before);
  ExpectError({"models"}, 1, "standard output: No space left on device",
              {.stdout_path = "/dev/full"});
  if (geteuid() != 0) {
    fs::create_directory(Path("locked"));
    fs::permissions(Path("locked"), fs::perms::owner_read | fs::perms::owner_exec);
    ExpectError(to(Path("locked/out")), 1, "Permission denied");
  }
}

TEST_F(CliTest, AReaderThatWentAwayIsNoFailure) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  close(ends[0]);
  const Outcome outcome = Run({"models"}, {.stdout_path = Concat("/proc/self/fd/", ends[1])});
  close(ends[1]);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
}

}  // namespace
}  // namespace tessera
