// SPDX-License-Identifier: Apache-2.0
// A program of one's own on the library (examples/focal_loss.cc): its argument is one of a run's.
#include "nlohmann/json.hpp"
#include "tests/cli/cli_runs.h"

namespace tessera {
namespace {

class ProgramTest : public CliRuns {
 protected:
  const Surroundings own_ = {.program = "examples/focal_loss"};

  std::string Reviews() const {
    std::string table = "sentence\tlabel\n";
    for (int i = 0; i < 60; ++i) table += i % 5 == 0 ? "a good film\tyes\n" : "a bad film\tno\n";
    return Write("reviews.tsv", table);
  }
  Arguments Train(const std::string& out, const Arguments& more) const {
    Arguments arguments = {"train",
                           "bert-tiny",
                           "--data",
                           Path("reviews.tsv"),
                           "--tokenizer",
                           Path("words"),
                           "--out",
                           Path(out),
                           "--max-steps",
                           "4",
                           "--lr",
                           "1e-2",
                           "--log-interval",
                           "1",
                           "--eval-strategy",
                           "no",
                           "--config-overrides",
                           "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,"
                           "intermediate_size=32,max_position_embeddings=32"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::vector<double> Losses(const std::string& out) const {
    std::vector<double> losses;
    std::ifstream in(Path(out) + "/metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      losses.push_back(nlohmann::json::parse(line)["loss"].get<double>());
    }
    EXPECT_FALSE(losses.empty()) << out;
    return losses;
  }
};

TEST_F(ProgramTest, ItsArgumentIsAKeyOfARun) {
  Reviews();
  fs::create_directories(Path("words"));
  std::ofstream(Path("words") + "/vocab.txt")
      << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\ngood\nbad\nfilm\n";
  const std::string help = Output({"train", "--help"}, own_);
  EXPECT_NE(help.find("--focal-gamma"), std::string::npos);
  EXPECT_NE(help.find("Focal loss:"), std::string::npos);
  EXPECT_EQ(Output({"explain", "--focal_gamma", "2"}, own_),
            "focal_gamma\thonoured\ta key of a run\n");
  Output(Train("plain", {}), own_);
  Output(Train("tessera", {}));
  EXPECT_EQ(Losses("plain"), Losses("tessera"));
  Output(Train("flag", {"--focal-gamma", "2"}), own_);
  Output(Train("file", {"--config", Write("run.json", R"({"focal_gamma": 2})")}), own_);
  EXPECT_EQ(Losses("flag"), Losses("file"));
  EXPECT_LT(Losses("flag")[0], 0.6 * Losses("plain")[0]);  // (1 - p)^2 of p about a half
  const auto saved = nlohmann::json::parse(Read(Path("flag") + "/config.json"));
  EXPECT_EQ(saved["focal_gamma"], 2);
  EXPECT_EQ(nlohmann::json::parse(Read(Path("plain") + "/config.json"))["focal_gamma"], 0);
  Arguments on = Train("flag", {"--focal-gamma", "1", "--resume"});
  on[9] = "5";
  EXPECT_NE(Output(on, own_).find("focal_gamma is now 1"), std::string::npos);
  ExpectError(Train("bad", {"--focal-gamma", "11"}), 2, "--focal-gamma must be at most 10", own_);
  ExpectError(Train("bad", {"--focal-gama", "1"}), 2,
              "unknown flag '--focal-gama' of `focal_loss train`; did you mean '--focal-gamma'?",
              own_);
  ExpectError(Train("bad", {"--focal-gamma", "1"}), 2, "unknown flag '--focal-gamma'");
}

}  // namespace
}  // namespace tessera
