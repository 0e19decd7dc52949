// SPDX-License-Identifier: Apache-2.0
// What a run says of its memory, of a step that goes wrong, and of where it parts from another:
// `train`'s check of memory, `bad_step.json` and `replay`, `trace` and `diff`.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

#include "core/safetensors.h"
#include "nlohmann/json.hpp"
#include "tests/cli/cli_runs.h"

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

  // A file of float32 tensors in which `changed`, where it is there, has another element 5.
  std::string Tensors(const std::string& name, const std::vector<SafetensorsEntry>& entries,
                      const std::string& changed) const {
    auto writer = SafetensorsWriter::Create(Path(name), entries, {});
    EXPECT_TRUE(writer.ok()) << Message(writer.status());
    for (const SafetensorsEntry& entry : entries) {
      int64_t size = 1;
      for (const int64_t n : entry.shape) size *= n;
      std::vector<float> values(static_cast<size_t>(size), 0.5f);
      if (entry.name == changed) values[5] = 0.25f;
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
  const std::string said = Output({"replay", file});
  EXPECT_EQ(said.find("step 2: it begins in the forward pass of micro-batch 0"), 0u) << said;
  EXPECT_NE(said.find("\nas in the run\n"), std::string::npos) << said;
  // Another place than the file's is no success.
  auto moved = bad;
  moved["module"] = "elsewhere";
  std::ofstream(file) << moved.dump();
  const Outcome other = Run({"replay", file});
  EXPECT_EQ(other.code, 1);
  EXPECT_NE(other.err.find("its module is \"elsewhere\""), std::string::npos) << other.err;
  ExpectError({"replay", Write("none.json", "{}")}, 2, "none.json: is no bad_step.json of a run");
  ExpectError({"replay", Path("absent.json")}, 2, "absent.json");
}

TEST_F(DebuggingTest, TwoRunsPartAtAnElement) {
  Output(Train("a", {"--trace", "digests"}));
  Output(Train("b", {"--trace", "digests"}));
  EXPECT_EQ(Output({"diff", Path("a"), Path("b")}), "the same 3 steps\n");
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
  Output(Train("one"));
  Output(Train("two", {"--lr", "2e-3"}));
  EXPECT_NE(Difference({"diff", Path("one"), Path("two")}).find(": element ["), std::string::npos);
  EXPECT_EQ(Output({"diff", Path("one") + "/checkpoint-3", Path("one")}).find("the same "), 0u);
  EXPECT_NE(Difference({"diff", Path("one") + "/model", Path("two") + "/model"}).find("element ["),
            std::string::npos);
  ExpectError({"diff", a, Path("absent")}, 2, "absent: no such file or directory");
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
  values[300] += 1;
  const std::string bad = dump("bad.safetensors", "logits");
  EXPECT_EQ(Difference({"diff", *model_, bad}).find("outputs/logits: element [0, 1, 43] is "), 0u);
  ExpectError({"diff", *model_, dump("other.safetensors", "transformer.none")}, 2,
              "other.safetensors: the model in " + *model_ + " has none of its modules");
}

}  // namespace
}  // namespace tessera
