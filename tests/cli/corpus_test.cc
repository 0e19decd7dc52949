// SPDX-License-Identifier: Apache-2.0
// `tessera corpus` as others call it: the contract of its steps, kills at any moment, ranks.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <random>
#include <set>
#include <thread>

#include "nlohmann/json.hpp"
#include "tests/cli/cli_runs.h"
#include "tests/process/process.h"

namespace tessera {
namespace {

using nlohmann::json;

class CorpusTest : public CliRuns {
 protected:
  // Documents of sentences, of which some come again, a few words changed.
  std::string WriteDocuments(const std::string& name, int count) const {
    std::mt19937 random(3);
    std::vector<std::vector<int>> texts;
    std::ofstream out(Path(name));
    for (int i = 0; i < count; ++i) {
      std::vector<int> words(200 + random() % 200);
      for (int& word : words) word = static_cast<int>(random() % 3000);
      if (i > 0 && random() % 3 == 0) {
        words = texts[random() % texts.size()];
        for (int k = 0; k < 3; ++k) words[random() % words.size()] = 7;
      }
      texts.push_back(words);
      std::string text;
      for (const int word : words) text += "the word" + std::to_string(word) + " is ";
      out << json({{"url", "http://a.org/" + std::to_string(i)}, {"text", text}}).dump() << "\n";
    }
    return Path(name);
  }
  static std::string LastLine(const std::string& output) {
    const size_t end = output.rfind('\n');
    const size_t begin = output.rfind('\n', end - 1);
    return output.substr(begin + 1, end - begin - 1);
  }
  std::string WritePipeline(const std::string& input, const std::string& folder) const {
    const json pipeline = {{"input", {input}},
                           {"folder", folder},
                           {"steps",
                            {{{"step", "clean"}, {"min_tokens", 100}},
                             {{"step", "dedup"}, {"threshold", 0.7}},
                             {{"step", "shuffle"}},
                             {{"step", "tokenize"}, {"tokenizer", "byte"}}}}};
    return Write("pipeline.json", pipeline.dump());
  }
  // Names, sizes and hashes of what a folder holds; no journals.
  static std::string Outputs(const std::string& folder) {
    std::set<std::string> outputs;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      if (name.ends_with(".journal")) continue;
      const std::string bytes = Read(entry.path());
      outputs.insert(Concat(name, " ", bytes.size(), " ", std::hash<std::string>()(bytes), "\n"));
    }
    std::string text;
    for (const std::string& output : outputs) text += output;
    return text;
  }
};

TEST_F(CorpusTest, DedupKeepsItsContract) {
  const std::string a = WriteDocuments("a.jsonl", 100);
  size_t begin_of_21st = 0;
  for (int i = 0; i < 20; ++i) begin_of_21st = Read(a).find('\n', begin_of_21st) + 1;
  const std::string b =
      Write("b.jsonl", Read(a).substr(0, begin_of_21st) + "{\"text\": \"of no id\"}\nno json\n");
  const std::string out = Output({"corpus", "dedup", "--input", a, b, "--output", Path("out.jsonl"),
                                  "--threshold", "0.8", "--pairs", Path("pairs.tsv")});
  const std::string kept = Read(Path("out.jsonl"));
  const int64_t lines = std::ranges::count(kept, '\n');
  EXPECT_EQ(LastLine(out), Concat("122 in, ", lines, " out")) << out;
  EXPECT_NE(out.find("unreadable: no JSON object: 1\n"), std::string::npos) << out;
  EXPECT_LE(lines, 101);
  const std::string pairs = Read(Path("pairs.tsv"));
  ASSERT_NE(pairs, "");
  const size_t end = pairs.find('\n');
  EXPECT_EQ(std::ranges::count(pairs.substr(0, end), '\t'), 2);
  EXPECT_TRUE(pairs.starts_with("http://a.org/")) << pairs.substr(0, end);
  // Again: nothing to do, and the same to say.
  EXPECT_EQ(Output({"corpus", "dedup", "--input", a, b, "--output", Path("out.jsonl"),
                    "--threshold", "0.8", "--pairs", Path("pairs.tsv")}),
            out);
}

TEST_F(CorpusTest, StepsSayWhatCameInAndOut) {
  const std::string in = WriteDocuments("in.jsonl", 30);
  for (const Arguments& step : std::initializer_list<Arguments>{
           {"clean", "--min-tokens", "0"}, {"extract"}, {"urls"}, {"shuffle"}}) {
    Arguments arguments = {"corpus", step[0], "--input", in, "--output", Path(step[0] + ".jsonl")};
    arguments.insert(arguments.end(), step.begin() + 1, step.end());
    EXPECT_EQ(LastLine("\n" + Output(arguments)), "30 in, 30 out") << step[0];
  }
  EXPECT_EQ(LastLine("\n" + Output({"corpus", "stats", "--input", in, "--output", Path("s.html")})),
            "30 in, 30 out");
  EXPECT_NE(Read(Path("s.html")).find("a.org"), std::string::npos);
}

TEST_F(CorpusTest, MistakesAreOneLine) {
  ExpectError({"corpus"}, 2,
              "`corpus` needs one of its commands; `tessera corpus --help` lists them");
  ExpectError({"corpus", "dedupe"}, 2, "did you mean 'dedup'");
  ExpectError({"corpus", "dedup", "--inptu", "x"}, 2,
              "unknown flag '--inptu' of `tessera corpus dedup`; did you mean '--input'?");
  ExpectError({"corpus", "clean", "--output", Path("x")}, 2, "input is missing");
  ExpectError({"corpus", "clean", "--input", Path("none"), "--output", Path("x")}, 2, "none");
  ExpectError(
      {"corpus", "dedup", "--input", Write("a", ""), "--output", Path("x"), "--threshold", "2"}, 2,
      "threshold");
  ExpectError({"corpus", "run", Write("p.json", "{")}, 2, "p.json");
}

TEST_F(CorpusTest, HostileInputIsCounted) {
  std::string lines = "{\"text\": \"\xFF\"}\n{\"text\": \"ok\"}\n{\"text\": \"";
  lines += std::string(100 << 20, 'x') + "\"}\n{\"text\": \"ok\"}\n";
  const std::string out = Output({"corpus", "clean", "--input", Write("a.jsonl", lines), "--output",
                                  Path("out.jsonl"), "--min-tokens", "0", "--min-characters", "0"});
  EXPECT_EQ(LastLine(out), "4 in, 2 out");
  EXPECT_NE(out.find("unreadable: invalid UTF-8: 1\n"), std::string::npos) << out;
  EXPECT_NE(out.find("unreadable: a line of more than 16 MiB: 1\n"), std::string::npos) << out;
}

TEST_F(CorpusTest, KilledAtAnyMomentItGivesTheSameBytes) {
  const std::string in = WriteDocuments("in.jsonl", 1500);
  Output({"corpus", "run", WritePipeline(in, Path("whole")), "--threads", "2"});
  const std::string pipeline = WritePipeline(in, Path("killed"));
  std::mt19937 random(1);
  int kills = 0;
  for (bool done = false; !done;) {
    Process run({"corpus", "run", pipeline, "--commit-seconds", "0", "--threads", "2"},
                Path("log" + std::to_string(kills)));
    const std::chrono::milliseconds time(kills < 20 ? 5 + random() % 150 : 600000);
    if (run.EndsWithin(time)) {
      done = kills >= 20 || run.ExitCode() == 0;
      ASSERT_EQ(run.ExitCode(), 0) << run.Errors();
    } else {
      run.Signal(SIGKILL);
      run.Wait();
      ++kills;
    }
  }
  EXPECT_GT(kills, 0);
  EXPECT_EQ(Outputs(Path("whole")), Outputs(Path("killed")));
  EXPECT_FALSE(fs::exists(Path("killed") + "/02-dedup.jsonl.zst.work"));
}

TEST_F(CorpusTest, RanksGiveTheBytesOfOne) {
  const std::string in = WriteDocuments("in.jsonl", 600);
  Output({"corpus", "run", WritePipeline(in, Path("one"))});
  Process ranks(2, {"corpus", "run", WritePipeline(in, Path("two"))}, Path("ranks"));
  ASSERT_EQ(ranks.ExitCode(), 0) << ranks.Errors();
  EXPECT_EQ(Outputs(Path("one")), Outputs(Path("two")));
  EXPECT_NE(ranks.Output().find("600 in, "), std::string::npos) << ranks.Output();
}

}  // namespace
}  // namespace tessera
