// SPDX-License-Identifier: Apache-2.0
// What commands write over, and what they leave alone: files of others, inputs, names that JSON
// cannot hold, leftovers of killed processes.
#include <cmath>
#include <csignal>
#include <map>

#include "core/safetensors.h"
#include "tests/cli/cli_runs.h"

namespace tessera {
namespace {

Arguments With(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

class OutputsTest : public CliRuns {
 protected:
  OutputsTest() {
    std::string text;
    for (int i = 0; i < 100; ++i) text += "the " + std::to_string(i % 13) + "th of many lines\n";
    Write("text.txt", text);
    fs::copy(*model_, Path("model"));
  }
  Arguments Train(const std::string& out, const std::string& data) const {
    return {"train",     Path("model"), "--data",      data, "--out",          out,
            "--seq-len", "8",           "--max-steps", "2",  "--log-interval", "1"};
  }
  Outcome Succeed(const Arguments& arguments) const {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.code, 0) << testing::PrintToString(arguments) << outcome.err;
    return outcome;
  }
  // The files of a folder with their bytes.
  static std::map<std::string, std::string> Content(const std::string& folder) {
    std::map<std::string, std::string> content;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) content[entry.path()] = Read(entry.path());
    }
    return content;
  }
};

TEST_F(OutputsTest, ARunDoesNotBeginInItsModelsFolder) {
  const auto before = Content(Path("model"));
  fs::create_directory_symlink(Path("model"), Path("link"));
  for (const std::string& out :
       {Path("model"), Path("./model"), Path("link"), Path("model/"), Path("model/../model")}) {
    ExpectError(Train(out, Path("text.txt")), 2, "is the folder of the model");
    EXPECT_EQ(Content(Path("model")), before) << out;
  }
}

TEST_F(OutputsTest, ARunContinuesWithoutAReaderOfItsOutput) {
  std::string command = Concat("set -o pipefail; ", kProgram);
  for (const std::string& a : Train(Path("run"), Path("text.txt"))) command += " '" + a + "'";
  const Outcome outcome = Run({"-c", command + " | true"}, {.program = "/bin/bash"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(PathExists(Path("run/model/model.safetensors")));
}

TEST_F(OutputsTest, WhatIsMadeOfAFolderDoesNotLieInIt) {
  fs::create_directories(Path("texts"));
  Write("texts/a.txt", Read(Path("text.txt")));
  ExpectError(Train(Path("texts/run"), Path("texts")), 2, "lies in the data " + Path("texts"));
  const auto tokens = [&](const std::string& out) {
    return Arguments{"tokenize",    "--tokenizer", "byte",   "--input",
                     Path("texts"), "--output",    Path(out)};
  };
  ExpectError(tokens("texts/../texts/new/tokens"), 2, "lies in the data " + Path("texts"));
  Succeed(tokens("texts/.hidden/tokens"));  // such folders are not read
  Succeed(tokens("texts.tokens"));
  Succeed(tokens("texts.tokens"));
}

TEST_F(OutputsTest, AProfileReplacesNoData) {
  const std::string text = Path("text.txt"), before = Read(text);
  Arguments train = Train(Path("run"), text);
  train.insert(train.end(), {"--profile", Path("./text.txt")});
  ExpectError(train, 2, "would replace the input " + text);
  EXPECT_EQ(Read(text), before);
}

TEST_F(OutputsTest, NoOutputReplacesAFileOfTheModel) {
  const auto before = Content(Path("model"));
  const std::string text = Path("text.txt"), config = Path("model/config.json");
  ExpectError({"predict", "--model", Path("model"), "--data", text, "--out", config}, 2,
              config + ": would replace the input");
  ExpectError(With(Train(Path("run"), text), {"--profile", config}), 2,
              config + ": would replace the input");
  Write("model/own.json", "{}");
  ExpectError(
      {"tokenize", "--tokenizer", Path("model"), "--input", text, "--output", Path("model/own")}, 2,
      "own.json: would replace the input");
  fs::remove(Path("model/own.json"));
  EXPECT_EQ(Content(Path("model")), before);
  for (int i = 0; i < 2; ++i) {
    Succeed({"tokenize", "--tokenizer", Path("model"), "--input", text, "--output",
             Path("model/tokens")});
  }
}

TEST_F(OutputsTest, NamesThatAreNotUtf8WorkOrAreRefused) {
  const std::string data = Write("\xE4.txt", Read(Path("text.txt")));
  ExpectError(Train(Path("run"), data), 2, "--data: '");
  ExpectError(Train(Path("run\xE4"), Path("text.txt")), 2, "is not UTF-8");
  fs::copy(Path("model"), Path("m\xE4"));
  Arguments train = Train(Path("run"), Path("text.txt"));
  train[1] = Path("m\xE4");
  ExpectError(train, 2, "is not UTF-8");
  // Names in folders that are read are nobody's to refuse.
  fs::create_directories(Path("in"));
  Write("in/d\xE4.txt", Read(Path("text.txt")));
  Succeed(Train(Path("run"), Path("in")));
  fs::create_directories(Path("documents"));
  Write("documents/d\xE4.jsonl", "{\"text\": \"a b c d e f g\"}\n");
  for (const char* step : {"clean", "dedup", "shuffle", "stats"}) {
    const Arguments arguments = {"corpus",          step,       "--input",
                                 Path("documents"), "--output", Path(std::string("o_") + step)};
    Succeed(arguments);
    Succeed(arguments);
    ExpectError({"corpus", step, "--input", Path("documents"), "--output", Path("o\xE4")}, 2,
                "--output: '");
  }
  Succeed({"tokenize", "--tokenizer", "byte", "--input", data, "--output", Path("t\xE4")});
  EXPECT_TRUE(PathExists(Path("t\xE4.bin")));
  Succeed({"convert", Path("m\xE4"), Path("c\xE4")});
  Succeed({"generate", "--model", Path("c\xE4"), "--prompt", "ab", "--max-new-tokens", "2"});
}

TEST_F(OutputsTest, ForwardReplacesItsOwnFilesAlone) {
  const int64_t ids[] = {1, 2};
  const NamedTensorView view = {"input_ids",
                                {.dtype = DType::kInt64,
                                 .shape = {1, 2},
                                 .data = reinterpret_cast<const std::byte*>(ids),
                                 .nbytes = 16}};
  ASSERT_TRUE(WriteSafetensors(Path("in"), {view}).ok());
  const std::string mine = Write("mine", "mine"), in = Read(Path("in"));
  const auto forward = [&](const std::string& out, const Arguments& more = {}) {
    return With({"forward", "--model", Path("model"), "--inputs", Path("in"), "--outputs", out},
                more);
  };
  Succeed(forward(Path("out")));
  Succeed(forward(Path("out")));
  Succeed(forward(Path("model/out")));
  Succeed(forward(Path("model/out")));  // beside what it reads
  Succeed(forward(Write("empty", "")));
  ExpectError(forward(Path("new/folder/out")), 2, "there is no folder");
  ExpectError(forward(mine), 1, "--overwrite");
  // A tensor file of somebody else's is no output of this command.
  ASSERT_TRUE(WriteSafetensors(Path("others"), {view}).ok());
  ExpectError(forward(Path("others")), 1, "this command did not write it");
  ExpectError(forward(Path("./in"), {"--overwrite"}), 2, "would replace the input");
  fs::create_symlink(Path("in"), Path("link"));
  ExpectError(forward(Path("link"), {"--overwrite"}), 2, "would replace the input");
  ExpectError(forward(Path("model/model.safetensors"), {"--overwrite"}), 2,
              "would replace the input");
  ExpectError(forward(Path("both"), {"--grads", Path("both")}), 2, "--outputs and as --grads");
  EXPECT_EQ(Read(mine), "mine");
  EXPECT_EQ(Read(Path("in")), in);
  Succeed(forward(mine, {"--overwrite"}));
  EXPECT_NE(Read(mine), "mine");
  for (const auto& [path, bytes] : Content(root_)) {
    EXPECT_EQ(path.find(".lock"), std::string::npos) << path;
  }
}

TEST_F(OutputsTest, ReportReplacesItsOwnPagesAlone) {
  Succeed(Train(Path("run"), Path("text.txt")));
  const std::string mine = Write("mine", "mine"), rows = Read(Path("run/metrics.jsonl"));
  const auto page = [&](const std::string& out, const Arguments& more = {}) {
    return With({"report", Path("run"), "--out", out}, more);
  };
  for (const std::string& out : {Path("page.html"), Path("run/page.html")}) {
    Succeed(page(out));
    Succeed(page(out));
  }
  ExpectError(page(mine), 1, "--overwrite");
  ExpectError(page(Path("run/metrics.jsonl"), {"--overwrite"}), 2, "would replace the input");
  EXPECT_EQ(Read(mine), "mine");
  EXPECT_EQ(Read(Path("run/metrics.jsonl")), rows);
  Succeed(page(mine, {"--overwrite"}));
  ExpectError({"report", Path("run"), "--follow", "--overwrite"}, 2, "--overwrite");
}

// Folders and several files are none of standard output's, and what a step of `corpus` makes is
// renamed to its place, which would replace a device.
TEST_F(OutputsTest, WhatIsNoStreamIsNotWrittenToStandardOutput) {
  const std::string text = Path("text.txt");
  const std::string line = Write("a.jsonl", R"({"text": "a"})");
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  for (const std::string& out : {std::string("-"), Path("fifo")}) {
    ExpectError({"corpus", "clean", "--input", line, "--output", out}, 2, out + ": is no file");
  }
  EXPECT_TRUE(fs::is_fifo(Path("fifo")));
  for (const std::string out : {"-", "/dev/stdout"}) {
    ExpectError({"convert", Path("model"), out}, 2, "no stream");
    ExpectError({"tokenize", "--tokenizer", "byte", "--input", text, "--output", out}, 2,
                "no stream");
    ExpectError({"train-tokenizer", "--input", text, "--output", out}, 2, "no stream");
  }
  ExpectError(Train("-", text), 2, "--out: '-' is standard output");
  ExpectError(With(Train(Path("run"), text), {"--profile", "-"}), 2, "--profile: '-'");
}

TEST_F(OutputsTest, ADatasetOfTokensHasANameAndLeavesNoLock) {
  const auto tokens = [&](const std::string& out) {
    return Arguments{"tokenize",       "--tokenizer", "byte", "--input",
                     Path("text.txt"), "--output",    out};
  };
  fs::create_directories(Path("data"));
  ExpectError(tokens(Path("data/")), 2, "a name is missing behind the folder");
  EXPECT_TRUE(fs::is_empty(Path("data")));
  Succeed(tokens(Path("data/x")));
  EXPECT_TRUE(PathExists(Path("data/x.bin")));
  EXPECT_FALSE(PathExists(Path("data/x.lock")));
  ExpectError({"corpus", "tokenize", "--tokenizer", "byte", "--input",
               Write("b.jsonl", R"({"text": "a"})"), "--output", Path("data/")},
              2, "has no name behind its folder");
}

// The shell has opened the file: what it held stays, and standard output has the page alone.
TEST_F(OutputsTest, WhatGoesToStandardOutputIsAppendedAndAlone) {
  Succeed(Train(Path("run"), Path("text.txt")));
  Succeed({"report", Path("run"), "--out", Path("page")});
  Write("all", "mine\n");
  for (const char* out : {"/dev/stdout", "/dev/fd/1", "-"}) {
    const std::string command = Concat(kProgram, " report '", Path("run"), "' --out ", out);
    EXPECT_EQ(Run({"-c", command + " | cat"}, {.program = "/bin/bash"}).out, Read(Path("page")));
    const Outcome appended =
        Run({"-c", Concat(command, " >>'", Path("all"), "'")}, {.program = "/bin/bash"});
    EXPECT_EQ(appended.code, 0) << appended.err;
    const std::string name = out == std::string("-") ? "/dev/stdout" : out;
    EXPECT_EQ(appended.err, Concat("the report is in ", name, "\n"));
  }
  EXPECT_EQ(Read(Path("all")),
            "mine\n" + Read(Path("page")) + Read(Path("page")) + Read(Path("page")));
}

TEST_F(OutputsTest, FoldersOfModelsAreReplacedOnlyWhenToldSo) {
  const auto convert = [&](const std::string& to, const Arguments& more = {}) {
    return With({"convert", Path("model"), to}, more);
  };
  Succeed(convert(Path("out")));
  ExpectError(convert(Path("out")), 2, "--overwrite");
  Write("out/mine", "mine");
  Succeed(convert(Path("out/"), {"--overwrite", "--dtype", "bfloat16"}));
  EXPECT_FALSE(PathExists(Path("out/mine")));
  Succeed({"quantize", Path("model"), Path("out"), "--type", "int8", "--overwrite"});
  // Nobody's home is a model's folder; the model that is read, and what holds it, are inputs.
  fs::create_directories(Path("home"));
  Write("home/letter", "dear");
  ExpectError(convert(Path("home"), {"--overwrite"}), 2, "'letter' in it would be lost");
  EXPECT_EQ(Read(Path("home/letter")), "dear");
  ExpectError(convert(Path("model"), {"--overwrite"}), 2, "would replace the input");
  Write("config.json", "{}");
  ExpectError(convert(root_, {"--overwrite"}), 2, "would replace the input");
  ExpectError(convert(Path("config.json"), {"--overwrite"}), 2, "is a file");
  // GGUF files say who wrote them, and end so in any case.
  for (const char* name : {"m.gguf", "m.GGUF"}) {
    Write(name, "mine");
    ExpectError({"convert", Path("model"), Path(name)}, 1, "--overwrite");
    EXPECT_EQ(Read(Path(name)), "mine");
  }
  // A link stays a link: the folder behind it is replaced.
  fs::create_directories(Path("real"));
  fs::create_directory_symlink(Path("real"), Path("behind"));
  Succeed(convert(Path("behind"), {"--overwrite"}));
  EXPECT_TRUE(fs::is_symlink(Path("behind")));
  EXPECT_TRUE(PathExists(Path("real/model.safetensors")));
}

// What a killed process left of the same output goes; files of others with such names stay.
TEST_F(OutputsTest, TheNextRunRemovesWhatAKilledOneLeft) {
  fs::create_directories(Path("out.tmp-123-0/deep"));
  Write("out.tmp-123-0/deep/file", "half");
  Write("out.tmp-notes", "mine");
  Write("about.tmp-123-0", "another output's");
  std::ofstream(Path("out.lock")) << "process 123 on elsewhere\n";
  Succeed({"convert", Path("model"), Path("out")});
  EXPECT_FALSE(PathExists(Path("out.tmp-123-0")));
  EXPECT_EQ(Read(Path("out.tmp-notes")), "mine");
  EXPECT_TRUE(PathExists(Path("about.tmp-123-0")));
  EXPECT_FALSE(PathExists(Path("out.lock")));
}

// An adapter whose numbers are NaN, infinite, or become so.
TEST_F(OutputsTest, MergeWritesNoNaN) {
  Succeed(With(Train(Path("run"), Path("text.txt")), {"--adapter", "lora"}));
  const std::string adapter = Path("run/model"), file = adapter + "/adapter_model.safetensors";
  Succeed({"merge", Path("model"), adapter, Path("merged")});
  for (const float bad : {NAN, INFINITY, 3e38f}) {
    const auto opened = SafetensorsFile::Open(file);
    ASSERT_TRUE(opened.ok());
    std::map<std::string, std::vector<float>> values;
    std::vector<NamedTensorView> tensors;
    for (const auto& entry : opened->entries()) {
      TensorView view = *opened->Get(entry.name);
      ASSERT_EQ(view.dtype, DType::kFloat32);
      auto& numbers = values[entry.name];
      numbers.assign(static_cast<size_t>(view.nbytes) / sizeof(float), bad);
      view.data = reinterpret_cast<const std::byte*>(numbers.data());
      tensors.push_back({entry.name, view});
    }
    ASSERT_TRUE(WriteSafetensors(Path("bad"), tensors, opened->metadata()).ok());
    fs::remove_all(Path("adapter"));
    fs::copy(adapter, Path("adapter"));
    fs::copy(Path("bad"), Path("adapter/adapter_model.safetensors"),
             fs::copy_options::overwrite_existing);
    ExpectError({"merge", Path("model"), Path("adapter"), Path("out")}, 2, "infinite or NaN");
    EXPECT_FALSE(PathExists(Path("out"))) << bad;
  }
}

// Other users may write into the folder of temporary files, so names that are taken are left alone.
TEST_F(OutputsTest, AFolderForTemporaryFilesIsNewAndGoesAgain) {
  fs::create_directories(Path("tmp"));
  const Surroundings there = {.environment = {{"TMPDIR", Path("tmp")}}};
  const Outcome outcome = Run({"plan", "gpt-tiny", "--seq-len", "8"}, there);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(fs::is_empty(Path("tmp")));
  // Ended as soon as it has made the folder.
  const std::string command =
      Concat("TMPDIR='", Path("tmp"), "' ", kProgram, " eval '", Path("model"), "' --data '",
             Path("text.txt"), "' --seq-len 4 --batch-size 1 & while [ -z \"$(ls '", Path("tmp"),
             "')\" ] && kill -0 $!; do :; done; kill -TERM $!; wait $!");
  const int code = Run({"-c", command}, {.program = "/bin/bash"}).code;
  EXPECT_TRUE(code == 128 + SIGTERM || code == 0) << code;  // 0: it was faster
  EXPECT_TRUE(fs::is_empty(Path("tmp")));
  ExpectError({"plan", "gpt-tiny"}, 2, "TMPDIR: " + Path("none") + ": ",
              {.environment = {{"TMPDIR", Path("none")}}});
}

}  // namespace
}  // namespace tessera
