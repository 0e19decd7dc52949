// SPDX-License-Identifier: Apache-2.0
// The commands but for training: what they print, what they write, how they end.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/safetensors.h"
#include "tests/cli/cli_runs.h"

namespace tessera {
namespace {

class CliTest : public CliRuns {
 protected:
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
};

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
  for (const char* command : {"train", "plan", "eval", "models", "forward", "generate", "tokenize",
                              "train-tokenizer", "inspect", "convert", "merge", "diff", "replay"}) {
    EXPECT_NE(help.find(Concat("\n  ", command, " ")), std::string::npos) << command;
    const std::string text = Output({command, "--help"});
    EXPECT_NE(text.find("Example"), std::string::npos) << command;
    EXPECT_NE(text.find(Concat("tessera ", command)), std::string::npos) << command;
  }
}

TEST_F(CliTest, HelpIsAtMostAHundredColumnsWide) {
  std::vector<Arguments> commands = {{}};
  for (const char* command :
       {"train",  "generate",   "serve",  "eval",    "predict",  "embed",
        "rerank", "explain",    "models", "forward", "tokenize", "train-tokenizer",
        "corpus", "inspect",    "report", "convert", "merge",    "quantize",
        "launch", "completion", "manual", "plan",    "diff",     "replay"}) {
    commands.push_back({command});
  }
  for (const char* step : {"urls", "fetch", "extract", "clean", "dedup", "shuffle", "split", "mix",
                           "tokenize", "stats", "run"}) {
    commands.push_back({"corpus", step});
  }
  for (Arguments& command : commands) {
    command.emplace_back("--help");
    const std::string text = Output(command);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 100u) << command[0] << ": " << line;
    }
  }
}

// A model is given by its place or by name, to each command alike.
TEST_F(CliTest, AModelComesFirstOrByName) {
  const Arguments rest = {"--ids", "72,105", "--max-new-tokens", "3"};
  const auto with = [&](Arguments arguments) {
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return arguments;
  };
  const std::string ids = Output(with({"generate", "--model", *model_}));
  EXPECT_EQ(Output(with({"generate", *model_})), ids);
  EXPECT_EQ(Output({"generate", "--ids", "72,105", "--max-new-tokens", "3", *model_}), ids);
  ExpectError(with({"generate", *model_, "--model", Path("other")}), 2, "--model is given twice");
  ExpectError({"forward", *model_}, 2, "--inputs is required");
  ExpectError({"eval", *model_}, 2, "--data is required");
  const std::string text = Write("more.txt", "some text of a file, and some more of it\n");
  EXPECT_EQ(Output({"eval", *model_, "--train_file", text, "--seq-len", "4"}),
            Output({"eval", *model_, "--data", text, "--seq-len", "4"}));
  ExpectError({"predict", *model_}, 2, "is required");
  ExpectError({"serve", Path("none"), "--port", "0"}, 2, Path("none"));
  for (const char* command : {"eval", "predict", "forward", "serve"}) {
    ExpectError({command}, 2, "model is required");
    EXPECT_NE(Output({command, "--help"}).find(" model"), std::string::npos);
  }
}

// Every setting of generation is a flag; what other settings decide is said.
TEST_F(CliTest, EveryGenerationSettingIsAFlag) {
  const std::string plain = Output({"generate", *model_, "--ids=9", "--max-new-tokens=8"});
  const auto first_new = plain.substr(plain.find(',') + 1, plain.find(',', 2) - 2);
  const auto with = [&](Arguments flags) {
    flags.insert(flags.begin(), {"generate", *model_, "--ids=9", "--max-new-tokens=8"});
    return Output(flags);
  };
  EXPECT_NE(with({"--suppress-tokens", first_new}), plain);
  EXPECT_NE(with({"--begin-suppress-tokens", first_new}), plain);
  EXPECT_NE(with({"--bad-words-ids", first_new + ";300,301"}), plain);
  EXPECT_NE(with({"--logit-bias", first_new + ":-100"}), plain);
  EXPECT_EQ(with({"--logit-bias", "5:0"}), plain);
  ExpectError({"generate", *model_, "--ids=9", "--logit-bias", "100000:1"}, 2, "logit_bias");
  ExpectError({"generate", *model_, "--ids=9", "--logit-bias", "5:101"}, 2,
              "--logit-bias of 5 must be at most 100, not 101");
  ExpectError({"generate", *model_, "--ids=9", "--length-penalty", "2"}, 2,
              "length_penalty is for a search with num_beams above 1");
  ExpectError({"generate", *model_, "--ids=9", "--seed", "1", "--seed", "2"}, 2, "given twice");
  ExpectError({"generate", *model_, "--ids=9", "--max-tokens=1", "--max-new-tokens=2"}, 2,
              "given twice");
  // Each name of a list adds to it, so that an empty text is seen under either.
  ExpectError({"generate", *model_, "--ids=9", "--stop", "", "--stop-strings", "x"}, 2,
              "a stop string is empty");
  ExpectError({"generate", *model_, "--ids=9", "--stop", "x", "--stop-strings", ""}, 2,
              "a stop string is empty");
}

TEST_F(CliTest, WrongUsage) {
  ExpectError({}, 2, "a command is missing");
  ExpectError({"genrate"}, 2, "unknown command 'genrate'; did you mean 'generate'?");
  ExpectError({"chat"}, 2, "unknown command 'chat'; did you mean 'generate --chat'?");
  ExpectError({"import", "a"}, 2, "unknown command 'import'; did you mean 'convert'?");
  ExpectError({"--verbose"}, 2, "--verbose requires --version");
  ExpectError({"--loud"}, 2, "unknown flag '--loud'");
  ExpectError({"forward", "--modle", "x"}, 2, "did you mean '--model'?");
  ExpectError({"generate", "--model", "x", "--qqqqqqqqq=1"}, 2, "unknown flag '--qqqqqqqqq'");
  ExpectError({"generate", "-x"}, 2, "unknown flag '-x'");
  ExpectError({"generate", "--my_flag"}, 2, "unknown flag '--my_flag' of");
  ExpectError({"generate", "--model", "x", "--chat", "--n", "2"}, 2,
              "--num-return-sequences above 1 does not go with --chat");
  ExpectError({"forward", "--model"}, 2, "--model needs a value");
  ExpectError({"forward", "--model", *model_}, 2, "--inputs is required");
  ExpectError({"diff", *model_}, 2, "error: b is required (see `tessera diff --help`)");
  ExpectError({"models", "surplus"}, 2, "surplus");
  ExpectError({"generate", "--model", *model_}, 2,
              "give one of --prompt TEXT, --prompts FILE, --ids 1,2,3 and --chat");
  ExpectError({"generate", "--model", *model_, "--ids", "1", "--top-k", "many"}, 2, "--top-k");
  ExpectError({"generate", "--model", *model_, "--ids", "1", "--top_k", "-4"}, 2,
              "--top_k must be at least -1, not -4");
  ExpectError({"generate", "--model", *model_, "--ids", "1", "--top-p", "nan"}, 2,
              "--top-p must be a number, not \"nan\"");
  ExpectError({"generate", "--model", *model_, "--ids", "1,x"}, 2, "'x' is not a token id");
  ExpectError({"generate", "--model", *model_, "--ids", "1", "--device", "cuda:0"}, 2, "cuda:0");
  ExpectError({"generate", "--model", *model_, "--ids", "1", "--device", "abacus"}, 2, "abacus");
  ExpectError({"generate", "--model", *model_, "--ids", "1", "--dtype", "int4"}, 2, "int4");
  ExpectError({"generate", "--model", *model_, "--ids", "1", "--threads", "-1"}, 2, "--threads");
  ExpectError({"generate", "--model", "no-such", "--ids", "1"}, 2, "neither a folder nor a preset");
  ExpectError({"generate", "--model", "gpt-tiny", "--ids", "1"}, 2, "a preset has no weights");
  ExpectError({"inspect", Path("absent")}, 2, "absent");
  ExpectError({"inspect", root_}, 2, "neither a model");
  ExpectError({"inspect", Write("weights.npz", "PK\x03\x04 more than eight")}, 2,
              "weights.npz: is neither a file of weights (");
  ExpectError({"inspect", Write("notes.txt", "some words, and no weights\n")}, 2,
              "notes.txt: is neither a file of weights (");
  fs::create_directories(Path("run") + "/model");
  Write("run/config.json", R"({"data": ["book.txt"], "model_type": null})");
  ExpectError({"inspect", Path("run")}, 2,
              Path("run") + ": is a run's folder; name " + Path("run") + "/model");
  ExpectError({"inspect"}, 2, "--devices");
  ExpectError({"inspect", *model_, "--devices"}, 2, "--devices");
  ExpectError({"tokenize", "--tokenizer", "byte", "--input", "x"}, 2, "--print-ids");
  for (const char* flag : {"--no-bos", "--no_eos", "--json-key=text"}) {
    ExpectError({"tokenize", "--tokenizer", "byte", "--input", "x", "--print-ids", flag}, 2,
                " does nothing beside --print-ids");
    ExpectError({"tokenize", "--tokenizer", "byte", "--chat", "x", "--print-ids", flag}, 2,
                " does nothing beside --chat");
  }
  ExpectError({"models"}, 2, "TESSERA_CPU_ISA", {.isa = "quantum"});
  const Outcome empty =
      Run({"models"}, {.environment = {{"TESSERA_CPU_ISA", ""}, {"TESSERA_CPU_AMX", ""}}});
  EXPECT_EQ(empty.code, 0) << empty.err;
  ExpectError({"models"}, 2, "TESSERA_CPU_AMX=on: must be 0 or 1",
              {.environment = {{"TESSERA_CPU_AMX", "on"}}});
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

TEST_F(CliTest, AModelMayBeAnArchive) {
  const std::string archive = Path("model.tar");
  ASSERT_EQ(std::system(("tar cf " + archive + " -C " + *model_ + " .").c_str()), 0);
  const std::string inputs = WriteInputs("in", {{"input_ids", Ids({1, 2, 3}, {1, 3})}});
  Output(Forward(inputs));
  const std::string expected = Read(Path("out"));
  Arguments forward = Forward(inputs);
  forward[2] = archive;
  Output(forward);
  EXPECT_EQ(Read(Path("out")), expected);
  const std::string text = Write("text", "abcdefgh\n");
  for (Arguments command : {Arguments{"generate", "--prompt", "a", "--model"},
                            Arguments{"eval", "--data", text, "--seq-len", "4", "--model"},
                            Arguments{"tokenize", "--input", text, "--print-ids", "--tokenizer"}}) {
    Arguments from_archive = command;
    command.push_back(*model_);
    from_archive.push_back(archive);
    EXPECT_EQ(Output(from_archive), Output(command)) << command[0];
  }
  ExpectError({"generate", "--prompt", "a", "--model", text}, 2,
              "text: is neither a tar archive of a model nor a GGUF file");
  const std::string longer = Write("longer", std::string(2000, 'x'));
  ExpectError({"generate", "--prompt", "a", "--model", longer}, 2,
              "longer: is neither a tar archive of a model nor a GGUF file");
  for (const char* weights : {"ckpt.pt", "lit_model.pth", "epoch.ckpt", "model.safetensors"}) {
    ExpectError({"generate", "--prompt", "a", "--model", Write(weights, "PK\x03\x04 weights")}, 2,
                Concat(weights, ": holds weights alone; give a model's folder, with config.json"));
  }
  const std::string zipped = Write("model.tar.gz", "\x1f\x8b" + Read(archive));
  ExpectError({"generate", "--prompt", "a", "--model", zipped}, 2,
              "model.tar.gz: is compressed (gzip); unpack it first");
  const std::string cut = Write("cut.tar", Read(archive).substr(0, 5000));
  ExpectError({"generate", "--prompt", "a", "--model", cut}, 1, "cut.tar: ");
}

// A terminal, and what was written to it.
class Terminal {
 public:
  Terminal() : master_(posix_openpt(O_RDWR | O_NOCTTY)) {
    EXPECT_EQ(grantpt(master_), 0);
    EXPECT_EQ(unlockpt(master_), 0);
    path_ = ptsname(master_);
    slave_ = open(path_.c_str(), O_RDWR | O_NOCTTY);  // so that what was written stays
  }
  ~Terminal() {
    if (slave_ >= 0) close(slave_);
    close(master_);
  }
  const std::string& path() const { return path_; }
  // All of it, when nobody writes any more: the kernel passes on what was written later than
  // write() returns, and the end comes behind it when the last writer has closed.
  std::string Shown() {
    close(std::exchange(slave_, -1));
    std::string text;
    char part[4096];
    for (ssize_t size = 0; (size = read(master_, part, sizeof(part))) > 0;) {
      text.append(part, static_cast<size_t>(size));
    }
    return text;
  }

 private:
  const int master_;
  int slave_ = -1;
  std::string path_;
};

// On a terminal one line is rewritten and removed at the end; elsewhere, and where a launcher's
// ranks share it, a short run says nothing.
TEST_F(CliTest, WorkShowsItsProgress) {
  const std::string text = Write("text", "abcdefgh\n");
  const auto shown = [&](const Arguments& command,
                         std::vector<std::pair<std::string, std::string>> environment) {
    fs::remove_all(Path("out"));
    environment.emplace_back("TERM", "xterm");
    Terminal terminal;
    EXPECT_EQ(Run(command, {.stderr_path = terminal.path(), .environment = environment}).code, 0);
    return terminal.Shown();
  };
  for (const auto& [command, unit] : std::vector<std::pair<Arguments, std::string>>{
           {{"eval", *model_, "--data", text, "--seq-len", "4"}, "2 rows"},
           {{"convert", *model_, Path("out")}, "28 tensors"},
           {{"quantize", *model_, Path("out"), "--type", "int8"}, "28 tensors"}}) {
    const std::string line = shown(command, {});
    EXPECT_EQ(line.rfind("\r" + command[0] + " [", 0), 0u) << line;
    EXPECT_NE(line.find("/" + unit), std::string::npos) << line;
    EXPECT_TRUE(line.ends_with("\r\033[K")) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    EXPECT_EQ(shown(command, {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "here"}}), "");
    EXPECT_EQ(shown(command, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}), "");
  }
}

// `--batches` judges part of the data, whose last batch may be short.
TEST_F(CliTest, EvalCountsTheRowsThatItJudged) {
  const std::string text = Write("text", std::string(4 * 10 + 1, 'a'));
  const auto samples = [&](const std::string& batch_size, const std::string& batches) {
    const std::string line = Output({"eval", *model_, "--data", text, "--seq-len", "4",
                                     "--batch-size", batch_size, "--batches", batches});
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    const size_t at = line.find("  samples ") + 10;
    return line.substr(at, line.find(' ', at) - at);
  };
  const std::string all = samples("4", "0");
  EXPECT_EQ(all, "10");
  EXPECT_EQ(samples("4", "2"), "8");
  EXPECT_EQ(samples("4", "3"), "10");
  EXPECT_EQ(samples("4", "9000000000000000000"), "10");
  EXPECT_EQ(samples("3", "1"), "3");
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
    // What is too short to begin as any kind of file is of the wrong kind.
    ExpectError({"inspect", path}, content.size() < 9 ? 2 : 1, path);
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
  const Outcome noted = Run(with("generation_config.json", R"({"penalty_alpha": 0.5})"));
  EXPECT_EQ(noted.code, 0);
  EXPECT_EQ(noted.err, "warning: " + folder +
                           "/generation_config.json: 'penalty_alpha': 0.5 is not supported, and "
                           "not applied\n");
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
  // What ends lines elsewhere, and begins files, is no part of a prompt.
  Arguments others = command;
  others[4] = Write("windows", "\xEF\xBB\xBFHi\r\n--h\r\nanother one\r\n");
  EXPECT_EQ(Output(others), Output(command));
  others[4] = "-";
  EXPECT_EQ(Output(others, {.stdin_path = prompts}), Output(command));
  others[4] = Write("utf16", "\xFF\xFEH");
  ExpectError(others, 2, others[4] + ": is UTF-16");
  ExpectError({"generate", "--model", *model_, "--prompts", Path("absent")}, 2, Path("absent"));
}

// An unset variable of a script does not drop what was asked for.
TEST_F(CliTest, FlagsOfFilesAreNotEmpty) {
  for (const char* flag : {"--json-schema", "--adapter", "--tokenizer"}) {
    ExpectError({"generate", "--model", *model_, "--prompt", "a", flag, ""}, 2,
                Concat(flag, " is empty; give a "));
  }
  ExpectError({"tokenize", "--tokenizer", "byte", "--output", Path("x"), "--input="}, 2,
              "--input is empty; give a FILE");
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
              "--stop: '\xef\xbf\xbd' is not UTF-8");
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
  const std::string windows = Write("windows", "a\r\nb\n");
  EXPECT_EQ(Output({"tokenize", "--tokenizer", "byte", "--input", windows, "--print-ids"}),
            "97\n98\n");
  EXPECT_EQ(Output({"tokenize", "--tokenizer", "byte", "--input", "-", "--print-ids"},
                   {.stdin_path = windows}),
            "97\n98\n");
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

TEST_F(CliTest, TrainingATokenizerSaysThatMemoryHasEnded) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve more address space than the limit";
#endif
  std::string text;
  for (int i = 0; i < 60000; ++i) {
    for (int j = 1; j < 12; ++j) text += Concat((i * 7919 + j * 104729) % 999983, " ");
    text += "\n";
  }
  const std::string input = Write("text", text);
  const std::string out = Path("tokenizer");
  for (const int64_t mebibytes : {90, 130, 150}) {
    const auto ran = Run({"train-tokenizer", "--input", input, "--output", out},
                         {.memory_limit = mebibytes << 20});
    EXPECT_EQ(ran.code, 1) << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    const bool said = ran.err.find("out of memory") != std::string::npos ||
                      ran.err.find("a thread cannot be started") != std::string::npos;
    EXPECT_TRUE(said) << ran.err;
    EXPECT_FALSE(fs::exists(out));
  }
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
  ExpectError(to(inputs + "/below-a-file"), 2, inputs);
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
