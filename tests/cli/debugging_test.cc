// SPDX-License-Identifier: Apache-2.0
// What a run says of its memory, of a step that goes wrong, and of where it parts from another:
// `train`'s check of memory, `bad_step.json` and `replay`, `trace` and `diff`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "core/safetensors.h"
#include "nlohmann/json.hpp"
#include "tests/cli/cli_runs.h"
#include "tests/process/process.h"

namespace tessera {
namespace {

class DebuggingTest : public CliRuns {
 protected:
  // A text of 8,000 bytes.
  std::string Text() const {
    std::ofstream text(Path("text.txt"));
    for (int i = 0; i < 400; ++i) text << "number " << i * 7919 % 1000 << " of many\n";
    return Path("text.txt");
  }
  Arguments Train(const std::string& out, const Arguments& more = {}) const {
    Arguments all = {"train",        "gpt-tiny",    "--data",    Text(),      "--out",
                     Path(out),      "--max-steps", "3",         "--seq-len", "16",
                     "--batch-size", "2",           "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  // Exits with 1 and prints one line on standard output.
  std::string Difference(const Arguments& arguments) const {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(outcome.out.find('\n'), outcome.out.size() - 1) << outcome.out;
    return outcome.out;
  }

  // The file has the tensors of the operation that `bad_step.json` names, and its bad number.
  static void ExpectOperation(const nlohmann::json& bad, const std::string& path) {
    const auto file = SafetensorsFile::Open(path);
    ASSERT_TRUE(file.ok()) << Message(file.status());
    EXPECT_EQ(file->Find("input." + std::to_string(bad["operands"].size())), nullptr);
    for (size_t i = 0; i < bad["operands"].size(); ++i) {
      const auto input = file->Get("input." + std::to_string(i));
      ASSERT_TRUE(input.ok()) << Message(input.status());
      EXPECT_EQ(nlohmann::json(input->shape), bad["operands"][i]["shape"]);
    }
    const auto result = file->Get("result." + std::to_string(bad["index"].get<int64_t>()));
    ASSERT_TRUE(result.ok()) << Message(result.status());
    EXPECT_EQ(nlohmann::json(result->shape), bad["numbers"]["shape"]);
    std::vector<float> values(static_cast<size_t>(result->nbytes) / 4);
    std::memcpy(values.data(), result->data, static_cast<size_t>(result->nbytes));
    int64_t first = 0;
    while (std::isfinite(values.at(static_cast<size_t>(first)))) ++first;
    EXPECT_EQ(bad["numbers"]["first"], first);
  }

  // A copy of the model with a planted fault: another element [5, 20] of an MLP's weight.
  std::string ModelWithFault() const {
    fs::copy(*model_, Path("faulty"), fs::copy_options::recursive);
    const std::string path = Path("faulty") + "/model.safetensors";
    int64_t offset = 0;
    {
      const auto file = SafetensorsFile::Open(path);
      const auto weight = file->Get("transformer.h.1.mlp.c_fc.weight");
      EXPECT_EQ(weight->shape, (std::vector<int64_t>{8, 32}));
      offset = weight->data - file->file().data() + (5 * 32 + 20) * 4;
    }
    const float planted = 0.75f;
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(offset).write(reinterpret_cast<const char*>(&planted), sizeof(planted));
    return Path("faulty");
  }

  // One step of a run that traces digests, of two micro-batches on `ranks` ranks.
  void Trace(const std::string& model, const std::string& out, int ranks,
             const Arguments& more) const {
    Arguments all = {"train",     model,     "--data",       Text(),
                     "--out",     Path(out), "--max-steps",  "1",
                     "--seq-len", "16",      "--batch-size", "2",
                     "--threads", "1",       "--trace",      "digests",
                     "--dropout", "0",       "--overwrite",  "--val-fraction",
                     "0"};
    all.insert(all.end(), more.begin(), more.end());
    Process run(ranks, all, Path("train"));
    EXPECT_EQ(run.ExitCode(), 0) << run.Errors();
  }

  // A file of one tensor, the integers 1 and `last`.
  std::string Integers(const std::string& name, int64_t last) const {
    auto writer = SafetensorsWriter::Create(Path(name), {{"n", DType::kInt64, {2}}}, {});
    EXPECT_TRUE(writer.ok()) << Message(writer.status());
    const int64_t values[] = {1, last};
    EXPECT_TRUE(writer->Append(values, sizeof(values)).ok());
    EXPECT_TRUE(writer->Commit().ok());
    return Path(name);
  }

  // A file of float32 tensors in which `changed`, where it is there, has another element 5.
  std::string Tensors(const std::string& name, const std::vector<SafetensorsEntry>& entries,
                      const std::string& changed, float to = 0.25f) const {
    auto writer = SafetensorsWriter::Create(Path(name), entries, {});
    EXPECT_TRUE(writer.ok()) << Message(writer.status());
    for (const SafetensorsEntry& entry : entries) {
      int64_t size = 1;
      for (const int64_t n : entry.shape) size *= n;
      std::vector<float> values(static_cast<size_t>(size), 0.5f);
      if (entry.name == changed) values[5] = to;
      EXPECT_TRUE(writer->Append(values.data(), size * 4).ok());
    }
    EXPECT_TRUE(writer->Commit().ok());
    return Path(name);
  }
};

TEST_F(DebuggingTest, TheLargestMemoryIsSaidAtTheStart) {
  const std::string out = Output(Train("run"));
  EXPECT_EQ(out.find("the run takes "), 0u) << out;
  EXPECT_NE(out.find(" MiB at its peak ("), std::string::npos) << out;
  EXPECT_EQ(Output(Train("unchecked", {"--check-memory", "false"})).find("at its peak"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(Path("run") + "/.plan"));
}

TEST_F(DebuggingTest, ARunThatDoesNotFitIsRefusedAtOnce) {
  const std::string large = "n_embd=65536,n_layer=48,n_head=64";
  ExpectError(Train("none", {"--config-overrides", large}), 1,
              " free; no other layout of so many ranks fits (check_memory false starts it all the "
              "same)");
  EXPECT_FALSE(fs::exists(Path("none") + "/model"));
  // Rows of 1.5 TiB in all; fewer at a time fit.
  std::ofstream(Path("long.txt")) << std::string(16'000'000, 'x');
  const Arguments wide = {"train",
                          "gpt-tiny",
                          "--data",
                          Path("long.txt"),
                          "--out",
                          Path("other"),
                          "--val-fraction",
                          "0",
                          "--seq-len",
                          "1000",
                          "--max-steps",
                          "1",
                          "--batch-size",
                          "15000",
                          "--config-overrides",
                          "n_positions=1024"};
  ExpectError(wide, 1, " GiB free; with ");
}

TEST_F(DebuggingTest, AStepThatGoesWrongIsReplayed) {
  const Outcome run = Run(Train("run", {"--lr", "1e30", "--lr-schedule", "constant"}));
  EXPECT_EQ(run.code, 1);
  EXPECT_NE(run.err.find("error: step 2: the loss is "), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("; it begins in the forward pass of micro-batch 0 (samples "),
            std::string::npos)
      << run.err;
  const std::string file = Path("run") + "/bad_step.json";
  const auto bad = nlohmann::json::parse(Read(file));
  EXPECT_EQ(bad["step"], 2);
  EXPECT_EQ(bad["pass"], "forward");
  EXPECT_EQ(bad["samples"].size(), 2u);
  const std::string tensors = Path("operation.safetensors");
  const std::string said = Output({"replay", file, "--outputs", tensors});
  EXPECT_EQ(said.find("step 2: it begins in the forward pass of micro-batch 0 (samples "), 0u)
      << said;
  EXPECT_NE(said.find("\nthe run had the same number there: "), std::string::npos) << said;
  ExpectOperation(bad, tensors);
  // The command replaces its own file, and no other.
  EXPECT_EQ(Output({"replay", file, "--outputs", tensors}), said);
  ExpectError({"replay", file, "--outputs", Write("notes.txt", "mine")}, 1, "notes.txt");
  // Replay tells of another number at the same operation, and fails at another operation.
  auto other = bad;
  other["numbers"]["first"] = bad["numbers"]["first"].get<int64_t>() + 1;
  std::ofstream(file) << other.dump();
  EXPECT_NE(Output({"replay", file}).find("\nthe run had another number there: "),
            std::string::npos);
  other["module"] = "elsewhere";
  std::ofstream(file) << other.dump();
  const Outcome moved = Run({"replay", file});
  EXPECT_EQ(moved.code, 1);
  EXPECT_NE(moved.err.find("in elsewhere in the forward pass of micro-batch 0, and this step at "),
            std::string::npos)
      << moved.err;
}

// Of any layout the step is replayed on one process.
TEST_F(DebuggingTest, AStepOfManyRanksIsReplayedOnOneProcess) {
  for (const Arguments& layout :
       {Arguments{"--tp", "2"}, Arguments{"--pp", "2"}, Arguments{"--zero", "3"}}) {
    SCOPED_TRACE(layout[0]);
    Arguments train = Train("run", {"--lr", "1e30", "--lr-schedule", "constant", "--overwrite"});
    train.insert(train.end(), layout.begin(), layout.end());
    Process run(2, train, Path("train"));
    EXPECT_EQ(run.ExitCode(), 1) << run.Errors();
    const std::string said =
        Output({"replay", Path("run") + "/bad_step.json", "--outputs", Path("operation")});
    EXPECT_EQ(said.find("step 2: it begins in the forward pass of micro-batch 0 (samples "), 0u)
        << said;
    EXPECT_NE(said.find("\nthe run had "), std::string::npos) << said;
    EXPECT_TRUE(SafetensorsFile::Open(Path("operation")).ok());
  }
}

// What the file that is damaged in one way says. `step` is the only key that is not checked alone:
// the state that the step began with has it, too.
TEST_F(DebuggingTest, ADamagedBadStepIsRefusedByItsKey) {
  const Outcome run = Run(Train("run", {"--lr", "1e30", "--lr-schedule", "constant"}));
  ASSERT_EQ(run.code, 1) << run.err;
  const std::string file = Path("run") + "/bad_step.json";
  const auto whole = nlohmann::json::parse(Read(file));
  const auto refused = [&](const std::string& text, const std::string& expected) {
    std::ofstream(file) << text;
    ExpectError({"replay", file}, 2, expected);
  };
  const auto changed = [&](const std::string& key, const nlohmann::json& value,
                           const std::string& expected) {
    nlohmann::json bad = whole;
    bad[nlohmann::json::json_pointer(key)] = value;
    refused(bad.dump(), "bad_step.json: '" + expected);
  };
  const auto without = [&](const std::string& key) {
    nlohmann::json bad = whole;
    bad.erase(key);
    refused(bad.dump(), "bad_step.json: '" + key + "' is missing");
  };
  changed("/step", "2", "step' is \"2\"; it must be a whole number of at least 1");
  changed("/step", -2, "step' is -2; it must be a whole number of at least 1");
  changed("/step", 2.5, "step' is 2.5; it must be a whole number");
  changed("/step", nullptr, "step' is null; it must be a whole number");
  changed("/data_ranks", {1}, "data_ranks' is an array; it must be a whole number of at least 1");
  changed("/pass", "sideways", "pass' is \"sideways\"; it must be one of forward, backward");
  changed("/what", "nothing", "what' is \"nothing\"; it must be one of result, gradient, sum");
  changed("/operation", 7, "operation' is 7; it must be a text");
  changed("/numbers", "none", "numbers' is \"none\"; it must be an object");
  changed("/numbers/dtype", "float33", "numbers.dtype' is \"float33\"; it must be a dtype");
  changed("/numbers/shape", {-1}, "numbers.shape' is an array; it must be the sizes of a tensor");
  changed("/operands/0", 3, "operands[0]' is 3; it must be an object");
  without("step");
  without("rank");
  without("data_ranks");
  without("module");
  without("numbers");
  refused("", "bad_step.json");
  refused("[1]", "bad_step.json: is an array, not an object");
  refused("step 2", "bad_step.json");
  nlohmann::json later = whole;
  later["step"] = 3;
  refused(later.dump(), "/bad_step: holds what step 2 began with, not step 3");
  ExpectError({"replay", Path("run")}, 2, Path("run") + ": is a directory; ");
  ExpectError({"replay", Path("absent.json")}, 2, "absent.json");
  std::ofstream(file) << whole.dump();
  fs::rename(Path("run") + "/bad_step", Path("moved"));
  ExpectError({"replay", file}, 2, Path("run") + "/bad_step");
  fs::rename(Path("run") + "/config.json", Path("config.json"));
  ExpectError({"replay", file}, 2, Path("run") + "/config.json");
}

TEST_F(DebuggingTest, TwoRunsPartAtAnElement) {
  Output(Train("a", {"--trace", "digests"}));
  Output(Train("b", {"--trace", "digests"}));
  EXPECT_EQ(Output({"diff", Path("a"), Path("b")}), "the same 3 steps\n");
  Arguments shorter = Train("short", {"--trace", "digests", "--lr-schedule", "constant"});
  *std::find(shorter.begin(), shorter.end(), "3") = "2";  // steps
  Output(shorter);
  Output(Train("long", {"--trace", "digests", "--lr-schedule", "constant"}));
  EXPECT_EQ(Output({"diff", Path("short"), Path("long")}),
            "the same 2 steps; 1 step is in " + Path("long") + " alone\n");
  Output(Train("seed", {"--trace", "digests", "--seed", "8", "--data-seed", "0"}));
  const std::string seed = Difference({"diff", Path("a"), Path("seed")});
  EXPECT_EQ(seed.find("before step 1: model."), 0u) << seed;
  EXPECT_NE(seed.find("; element ["), std::string::npos) << seed;
  EXPECT_NE(seed.find("; their configurations differ in "), std::string::npos) << seed;
  Output(Train("order", {"--trace", "digests", "--data-seed", "8"}));
  const std::string order = Difference({"diff", Path("a"), Path("order")});
  EXPECT_EQ(order.find("step 1: micro-batch 0: the data differ; input_ids element [0, "), 0u)
      << order;
  Output(Train("smooth", {"--trace", "digests", "--label-smoothing", "0.1"}));
  const std::string smooth = Difference({"diff", Path("a"), Path("smooth")});
  EXPECT_EQ(smooth.find("step 1: rank 0, micro-batch 0, forward: result 0 of '"), 0u) << smooth;
  EXPECT_NE(smooth.find(" differs; it is "), std::string::npos) << smooth;
  // Without its data a run is compared by digests alone.
  fs::rename(Path("text.txt"), Path("moved.txt"));
  fs::remove_all(Path("smooth") + "/data");
  const std::string moved = Difference({"diff", Path("a"), Path("smooth")});
  EXPECT_NE(moved.find("; which element is not known, since the step cannot be taken again: "),
            std::string::npos)
      << moved;
}

// However ranks cut a tensor, its element has the index that it has in the whole.
TEST_F(DebuggingTest, RunsOfTwoLayoutsPartAtAnElementOfTheWhole) {
  const struct {
    const char* name;
    int ranks;
    Arguments flags;
  } layouts[] = {
      {"one rank", 1, {"--gradient-accumulation-steps", "2"}},
      {"tp", 2, {"--gradient-accumulation-steps", "2", "--tp", "2"}},
      {"pp", 2, {"--gradient-accumulation-steps", "2", "--pp", "2"}},
      {"zero", 2, {"--zero", "3"}},
  };
  const struct {
    std::string model;
    Arguments good;
    Arguments bad;
    std::string expected;
  } faults[] = {
      {ModelWithFault(),
       {"--lr", "1e-3"},
       {"--lr", "1e-3"},
       "before step 1: model.transformer.h.1.mlp.c_fc.weight differs; "},
      {*model_, {"--lr", "1e-3"}, {"--lr", "2e-3"}, "step 1: after the update model."},
      {*model_,
       {"--lr", "0"},
       {"--lr", "0", "--betas", "0.8,0.999"},
       "step 1: after the update optimizer."},
  };
  const auto with = [](Arguments flags, const Arguments& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  };
  for (const auto& fault : faults) {
    Trace(*model_, "good", 1, with(fault.good, with(layouts[0].flags, {"--deterministic"})));
    std::string line;  // of one rank
    for (const auto& layout : layouts) {
      SCOPED_TRACE(fault.expected + layout.name);
      Trace(fault.model, "bad", layout.ranks,
            with(fault.bad, with(layout.flags, {"--deterministic"})));
      std::string said = Difference({"diff", Path("good"), Path("bad")});
      said = said.substr(0, said.find("; their configurations"));
      EXPECT_EQ(said.find(fault.expected), 0u) << said;
      EXPECT_NE(said.find("; element ["), std::string::npos) << said;
      if (line.empty()) line = said;
      EXPECT_EQ(said, line);
    }
    if (fault.model != *model_) {
      EXPECT_NE(line.find("element [5, 20] is "), std::string::npos) << line;
      EXPECT_NE(line.find(" and 0.75 in " + Path("bad") + "; 1 of 256 elements differ"),
                std::string::npos)
          << line;
    } else {
      EXPECT_NE(line.find("; no gradient differs"), std::string::npos) << line;
    }
  }
}

// Two orders of a sum over 16 micro-batches round otherwise: here by two ranks, of which each has a
// half of the optimizer and of the gradients.
TEST_F(DebuggingTest, AGradientOfTwoLayoutsIsNamedByItsElement) {
  Trace("gpt-tiny", "one", 1, {"--lr", "1e-3", "--gradient-accumulation-steps", "16"});
  Trace("gpt-tiny", "two", 2,
        {"--lr", "1e-3", "--gradient-accumulation-steps", "8", "--zero", "2"});
  const std::string line = Difference({"diff", Path("one"), Path("two")});
  EXPECT_EQ(line.find("step 1: "), 0u) << line;
  const size_t gradient = line.find("; the gradient of transformer.");
  ASSERT_NE(gradient, std::string::npos) << line;
  EXPECT_NE(line.find(": element [", gradient), std::string::npos) << line;
}

TEST_F(DebuggingTest, FilesAndCheckpointsPartAtAnElement) {
  const std::vector<SafetensorsEntry> entries = {{"u", DType::kFloat32, {8}},
                                                 {"w", DType::kFloat32, {3, 4}}};
  const std::string a = Tensors("a.safetensors", entries, "");
  const std::string same = Tensors("same.safetensors", entries, "");
  const std::string b = Tensors("b.safetensors", entries, "w");
  EXPECT_EQ(Output({"diff", a, same}), "the same 2 tensors\n");
  EXPECT_EQ(Difference({"diff", a, b}),
            "w: element [1, 1] is 0.5 in " + a + " and 0.25 in " + b +
                "; 1 of 12 elements differ, by at most 0.25; 1 of 2 tensors differ\n");
  EXPECT_EQ(Output({"diff", a, b, "--tolerance", "0.5"}), "the same 2 tensors within 0.5\n");
  Difference({"diff", a, b, "--tolerance", "0.49"});
  const std::string more = Tensors("more.safetensors", {{"u", DType::kFloat32, {8}}}, "");
  EXPECT_EQ(Difference({"diff", a, more}), "w: is in " + a + " alone; 1 of 2 tensors differ\n");
  EXPECT_EQ(Difference({"diff", more, a}), "w: is in " + a + " alone; 1 of 2 tensors differ\n");
  // A number that is not finite is no distance from one that is.
  const std::string bad = Tensors("bad.safetensors", entries, "w", NAN);
  const std::string at = "w: element [1, 1] is 0.5 in " + a + " and nan in " + bad + "; ";
  EXPECT_EQ(Difference({"diff", a, bad}), at + "1 of 12 elements differ; 1 of 2 tensors differ\n");
  EXPECT_EQ(Difference({"diff", a, bad, "--tolerance", "1"}),
            at + "1 of 12 elements differ; 1 of 2 tensors differ\n");
  EXPECT_EQ(Output({"diff", bad, bad}), "the same 2 tensors\n");
  const std::string large = Integers("large.safetensors", (int64_t{1} << 53) + 1);
  const std::string near = Integers("near.safetensors", int64_t{1} << 53);
  EXPECT_EQ(Difference({"diff", large, near}),
            "n: element [1] is 9007199254740993 in " + large + " and 9007199254740992 in " + near +
                "; 1 of 2 elements differ, by at most 1; 1 of 1 tensors differ\n");
  Output(Train("one"));
  Output(Train("two", {"--lr", "2e-3"}));
  EXPECT_NE(Difference({"diff", Path("one"), Path("two")}).find(": element ["), std::string::npos);
  EXPECT_EQ(Output({"diff", Path("one") + "/checkpoint-3", Path("one")}).find("the same "), 0u);
  // Of two runs one of which has a trace.
  Output(Train("traced", {"--trace", "digests"}));
  for (const Arguments& pair :
       {Arguments{Path("traced"), Path("one")}, Arguments{Path("one"), Path("traced")}}) {
    const std::string line = Output({"diff", pair[0], pair[1]});
    EXPECT_NE(line.find("; " + Path("one") + " has no trace: only checkpoints are compared\n"),
              std::string::npos)
        << line;
  }
  // The weights of a checkpoint have a model's names, beside states of the optimizer.
  EXPECT_EQ(Output({"diff", Path("one"), Path("one") + "/model"}).find("the same "), 0u);
  EXPECT_EQ(Output({"diff", Path("one") + "/model", Path("one")}).find("the same "), 0u);
  const std::string other = Difference({"diff", Path("one") + "/model", Path("two")});
  EXPECT_EQ(other.find("transformer."), 0u) << other;
  EXPECT_NE(other.find(" in " + Path("two") + "/checkpoint-3; "), std::string::npos) << other;
  EXPECT_NE(Difference({"diff", Path("one") + "/model", Path("two") + "/model"}).find("element ["),
            std::string::npos);
  ExpectError({"diff", a, Path("absent")}, 2, "absent: no such file or directory");
  for (const std::string text : {"", "{", "a line of text, and no weights\n", "{\"step\": 2}"}) {
    ExpectError({"diff", a, Write("text.txt", text)}, 2, "text.txt: holds no weights; ");
    ExpectError({"diff", Path("text.txt"), a}, 2, "text.txt: holds no weights; ");
    ExpectError({"diff", a, Write("text.bin", text)}, 2, "text.bin: holds no weights; ");
    ExpectError({"diff", Path("one") + "/model", Path("text.txt")}, 2,
                "text.txt: holds no weights");
  }
  const std::string gguf = Write("m.gguf", "GGUF");
  ExpectError({"diff", a, gguf}, 2, "`tessera convert " + gguf + " FOLDER --dtype float32`");
  // What begins as a file of weights is one that is damaged.
  ExpectError({"diff", a, Write("cut.safetensors", Read(a).substr(0, 40))}, 1, "cut.safetensors: ");
}

// What another program dumped of the same model: here what `forward` gives.
TEST_F(DebuggingTest, ADumpOfAModelIsComparedByModule) {
  const std::vector<SafetensorsEntry> inputs = {{"input_ids", DType::kInt64, {1, 6}}};
  auto writer = SafetensorsWriter::Create(Path("in.safetensors"), inputs, {});
  const std::vector<int64_t> ids = {72, 101, 108, 108, 111, 33};
  ASSERT_TRUE(writer->Append(ids.data(), 48).ok());
  ASSERT_TRUE(writer->Commit().ok());
  Output({"forward", *model_, "--inputs", Path("in.safetensors"), "--outputs",
          Path("out.safetensors")});
  const auto out = SafetensorsFile::Open(Path("out.safetensors"));
  ASSERT_TRUE(out.ok());
  const auto logits = out->Get("logits");
  ASSERT_TRUE(logits.ok());
  std::vector<float> values(static_cast<size_t>(logits->nbytes) / 4);
  std::memcpy(values.data(), logits->data, static_cast<size_t>(logits->nbytes));
  const auto dump = [&](const std::string& name, const std::string& module) {
    const std::vector<SafetensorsEntry> entries = {
        {"inputs/input_ids", DType::kInt64, {1, 6}},
        {"outputs/" + module, DType::kFloat32, {1, 6, 257}},
        {"outputs/of.another", DType::kFloat32, {1}}};
    auto to = SafetensorsWriter::Create(Path(name), entries, {});
    EXPECT_TRUE(to.ok()) << Message(to.status());
    EXPECT_TRUE(to->Append(ids.data(), 48).ok());
    EXPECT_TRUE(to->Append(values.data(), static_cast<int64_t>(values.size()) * 4).ok());
    EXPECT_TRUE(to->Append(values.data(), 4).ok());
    EXPECT_TRUE(to->Commit().ok());
    return Path(name);
  };
  const std::string good = dump("good.safetensors", "logits");
  EXPECT_EQ(Output({"diff", *model_, good}),
            "the same 1 tensors within 0.0001; not compared, since the model has no such modules: "
            "1, outputs/of.another first\n");
  EXPECT_EQ(Output({"diff", dump("head.safetensors", "lm_head"), *model_}).find("the same 1 "), 0u);
  // Without a tolerance of its own a dump may round otherwise; 0 allows no difference.
  values[300] += 1e-6f;
  const std::string rounded = dump("rounded.safetensors", "logits");
  EXPECT_EQ(Output({"diff", *model_, rounded}).find("the same 1 "), 0u);
  EXPECT_EQ(Difference({"diff", *model_, rounded, "--tolerance", "0"})
                .find("outputs/logits: element [0, 1, 43] is "),
            0u);
  values[300] += 1;
  const std::string bad = dump("bad.safetensors", "logits");
  EXPECT_EQ(Difference({"diff", *model_, bad}).find("outputs/logits: element [0, 1, 43] is "), 0u);
  ExpectError({"diff", *model_, dump("other.safetensors", "transformer.none")}, 2,
              "other.safetensors: the model in " + *model_ + " has none of its modules");
}

}  // namespace
}  // namespace tessera
