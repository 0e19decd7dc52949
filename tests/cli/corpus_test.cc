// SPDX-License-Identifier: Apache-2.0
// `tessera corpus` as others call it: the contract of its steps, kills at any moment, ranks.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "base/output_files.h"
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
  // Again: nothing to do, and the same to say. What a killed run half wrote goes.
  Write("out.jsonl.journal.tmp-17-0", "{");
  Write("pairs.tsv.tmp-17-0", "http");
  EXPECT_EQ(Output({"corpus", "dedup", "--input", a, b, "--output", Path("out.jsonl"),
                    "--threshold", "0.8", "--pairs", Path("pairs.tsv")}),
            out);
  EXPECT_FALSE(fs::exists(Path("out.jsonl.journal.tmp-17-0")));
  EXPECT_FALSE(fs::exists(Path("pairs.tsv.tmp-17-0")));
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

TEST_F(CorpusTest, UrlsDropsTheDomainsOfAList) {
  const std::string in = Write("urls.txt",
                               "http://i.imgur.com/a\nhttp://a.org/b.txt\nhttp://a.org/c\n"
                               "http://a_b.org/d\nhttp://a\nhttp://shop.com/e\nhttp://x.com/f\n");
  const std::string shops = Write("shops", "shop.com\n"), more = Write("more", "x\n");
  const auto urls = [&](Arguments flags) {
    Arguments all = {"corpus", "urls", "--input", in, "--output", Path("kept.txt"), "--overwrite"};
    all.insert(all.end(), flags.begin(), flags.end());
    return Output(all);
  };
  EXPECT_EQ(urls({}),
            "dropped: blacklisted_domain: 1\ndropped: blacklisted_extension: 1\n"
            "dropped: malformed_url: 1\ndropped: short_url: 1\n"
            "7 in, 3 out\n");
  EXPECT_EQ(Read(Path("kept.txt")), "http://a.org/c\nhttp://shop.com/e\nhttp://x.com/f\n");
  EXPECT_EQ(LastLine(urls({"--domain-list", "none"})), "7 in, 4 out");
  EXPECT_EQ(LastLine(urls({"--blocked-domains", shops, more})), "7 in, 1 out");
  EXPECT_EQ(LastLine(urls({"--blacklist", shops, more})), "7 in, 1 out");
  ExpectError({"corpus", "urls", "--input", in, "--output", Path("o"), "--blacklist", shops,
               "--blocked-domains", more},
              2, "'blacklist' and 'blocked_domains' are one option");
  ExpectError({"corpus", "urls", "--input", in, "--output", Path("o"), "--domain-list", "mine"}, 2,
              "domain");
}

TEST_F(CorpusTest, CleanKeepsDataSetsByAKey) {
  const std::string in =
      Write("in.jsonl",
            "{\"text\": \"a\", \"dataset\": \"stories\"}\n{\"text\": \"b\", \"dataset\": "
            "\"realnews\"}\n{\"text\": \"c\"}\n");
  const auto clean = [&](Arguments flags) {
    Arguments all = {
        "corpus",       "clean", "--input",          in,  "--output",   Path("out.jsonl"),
        "--min-tokens", "0",     "--min-characters", "0", "--overwrite"};
    all.insert(all.end(), flags.begin(), flags.end());
    return Output(all);
  };
  EXPECT_EQ(clean({"--key", "dataset", "--drop", "stories,realnews"}),
            "dropped: key: 2\n3 in, 1 out\n");
  EXPECT_EQ(clean({"--key", "dataset", "--drop", "stories", "realnews"}),
            "dropped: key: 2\n3 in, 1 out\n");
  EXPECT_EQ(clean({"--key", "dataset", "--keep", "realnews"}), "dropped: key: 2\n3 in, 1 out\n");
  EXPECT_NE(Read(Path("out.jsonl")).find("realnews"), std::string::npos);
  ExpectError({"corpus", "clean", "--input", in, "--output", Path("o"), "--keep", "a"}, 2,
              "'keep' needs 'key'");
  // A pipeline says so before its first step.
  const json pipeline = {{"input", {in}},
                         {"folder", Path("p")},
                         {"steps", {{{"step", "shuffle"}}, {{"step", "clean"}, {"drop", {"a"}}}}}};
  ExpectError({"corpus", "run", Write("p.json", pipeline.dump())}, 2, "'drop' needs 'key'");
  EXPECT_FALSE(fs::exists(Path("p")));
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
  // The least number that nobody gave counts, too.
  for (const std::string what : {"tokens", "characters"}) {
    ExpectError({"corpus", "clean", "--input", Write("a", ""), "--output", Path("x"),
                 "--max-" + what, "100"},
                2,
                " and at most 100 " + what + "; change 'min_" + what + "' or 'max_" + what + "'");
  }
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

TEST_F(CorpusTest, OneProcessAtATimeWritesAnOutput) {
  const std::string in = WriteDocuments("in.jsonl", 30);
  for (const char* step : {"clean", "dedup", "shuffle", "extract", "stats"}) {
    const std::string out = Path(std::string("o_") + step);
    const Arguments arguments = {"corpus", step, "--input", in, "--output", out};
    {
      std::optional<OutputLock> lock;
      ASSERT_TRUE(OutputLock::Take(out, &lock).ok());
      ExpectError(arguments, 1, out + ": process " + std::to_string(getpid()) + " on ");
      EXPECT_FALSE(PathExists(out)) << step;
    }
    EXPECT_EQ(Run(arguments).code, 0) << step;
    EXPECT_FALSE(PathExists(out + ".lock")) << step;
  }
}

// Runs that share fingerprints take turns: what one adds while another runs would be lost.
TEST_F(CorpusTest, OneProcessAtATimeAddsFingerprints) {
  const std::string in = WriteDocuments("in.jsonl", 30);
  const std::string known = Path("known");
  const Arguments arguments = {"corpus",   "dedup",   "--input",        in,
                               "--output", Path("o"), "--fingerprints", known + "/"};
  for (int run = 0; run < 2; ++run) {
    std::optional<OutputLock> lock;
    ASSERT_TRUE(OutputLock::Take(known, &lock).ok());
    ExpectError(arguments, 1, known + ": process " + std::to_string(getpid()) + " on ");
    lock.reset();
    EXPECT_EQ(Run(arguments).code, 0);
    EXPECT_FALSE(PathExists(known + ".lock"));
  }
}

// The step would put a file in the place of a pipe or a device.
TEST_F(CorpusTest, OutputsAreFiles) {
  const std::string in = WriteDocuments("in.jsonl", 30);
  const std::string pipe = Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string link = Path("link");
  fs::create_symlink(pipe, link);
  for (const std::string& output : {pipe, link}) {
    for (const Arguments& step : {Arguments{"clean", "--output", output},
                                  {"dedup", "--output", output},
                                  {"shuffle", "--output", output},
                                  {"stats", "--output", output},
                                  {"clean", "--output", Path("o.jsonl"), "--dropped", output},
                                  {"dedup", "--output", Path("o.jsonl"), "--pairs", output}}) {
      Arguments arguments = {"corpus"};
      arguments.insert(arguments.end(), step.begin(), step.end());
      arguments.insert(arguments.end(), {"--input", in, "--overwrite"});
      ExpectError(arguments, 2, output + ": is no file");
      EXPECT_TRUE(fs::is_fifo(output)) << step[0];
    }
  }
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_FALSE(PathExists(Path("o.jsonl")));
}

TEST_F(CorpusTest, EveryStepRefusesItsInputsAndFilesOfOthers) {
  const std::string in = WriteDocuments("in.jsonl", 30), before = Read(in);
  const std::string reference = Write("ref.jsonl", before), bin = Write("x.bin", before);
  const std::string same = Path("./in.jsonl");
  const std::vector<Arguments> onto = {
      {"clean", "--output", same},
      {"extract", "--output", same},
      {"dedup", "--output", same},
      {"shuffle", "--output", same},
      {"stats", "--output", same},
      {"split", "--output", Path("{}.jsonl"), "--parts", "in=1"},
      {"clean", "--output", Path("o.jsonl"), "--dropped", same},
      {"dedup", "--output", Path("o.jsonl"), "--pairs", same},
      {"dedup", "--output", Path("./ref.jsonl"), "--reference", reference},
      {"dedup", "--output", Path("o.jsonl"), "--pairs", Path("./ref.jsonl"), "--reference",
       reference}};
  for (Arguments step : onto) {
    step.insert(step.begin(), "corpus");
    step.insert(step.end(), {"--input", in, "--overwrite"});
    ExpectError(step, 2, "would replace the input");
    EXPECT_EQ(Read(in), before);
    EXPECT_EQ(Read(reference), before);
  }
  for (const Arguments& tokenize : {Arguments{"corpus", "tokenize"}, Arguments{"tokenize"}}) {
    Arguments step = tokenize;
    step.insert(step.end(), {"--tokenizer", "byte", "--input", bin, "--output", Path("x")});
    ExpectError(step, 2, "x.bin: would replace the input");
    EXPECT_EQ(Read(bin), before);
  }
  // Somebody else's file, until --overwrite; from then on it is the step's own.
  const std::string others = Write("others.jsonl", "mine");
  const Arguments clean = {"corpus", "clean", "--input", in, "--output", others};
  ExpectError(clean, 1, "--overwrite");
  EXPECT_EQ(Read(others), "mine");
  Arguments told = clean;
  told.push_back("--overwrite");
  EXPECT_EQ(Run(told).code, 0);
  EXPECT_EQ(Run(clean).code, 0);
  EXPECT_NE(Read(others), "mine");
  // A folder of somebody else's with the name of the step's.
  fs::create_directories(Path("own.jsonl.work"));
  Write("own.jsonl.work/notes", "mine");
  ExpectError({"corpus", "shuffle", "--input", in, "--output", Path("own.jsonl")}, 1,
              "own.jsonl.work");
  EXPECT_EQ(Read(Path("own.jsonl.work/notes")), "mine");
}

TEST_F(CorpusTest, APipelineReplacesFilesOfOthersWhenToldSo) {
  const std::string in = WriteDocuments("in.jsonl", 30);
  const std::string pipeline = WritePipeline(in, Path("flow"));
  fs::create_directories(Path("flow"));
  Write("flow/01-clean.jsonl.zst", "mine");
  ExpectError({"corpus", "run", pipeline}, 1, "--overwrite");
  EXPECT_EQ(Read(Path("flow/01-clean.jsonl.zst")), "mine");
  EXPECT_EQ(Run({"corpus", "run", pipeline, "--overwrite"}).code, 0);
  EXPECT_EQ(Run({"corpus", "run", pipeline}).code, 0);
}

}  // namespace
}  // namespace tessera
