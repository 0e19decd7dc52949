// SPDX-License-Identifier: Apache-2.0
// The shell commands of README.md and docs/**/*.md, run page by page as a reader would: in order,
// in one shell, in a folder of their own. CONTRIBUTING.md says how a page marks its commands, and
// program_of_a_page what is shortened.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "tests/process/shell.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int kSecondsOfAPage = 400;  // less than a test has (.bazelrc)

// What stands behind `skip=`, and what a command with it needs.
const std::map<std::string, std::string>& Reasons() {
  static const auto* reasons = new std::map<std::string, std::string>{
      {"bazel", "a build by Bazel"},
      {"cluster", "several machines or Slurm"},
      {"gpu", "a GPU"},
      {"measurement", "Python packages, peers, and time to measure"},
      {"model", "a published model"},
      {"package", "the output of tools/package"},
      {"root", "the right to install packages"},
  };
  return *reasons;
}

struct Command {
  int line = 0;
  std::string text;
  std::string skip;         // a key of Reasons(); empty: it runs
  bool makes_data = false;  // of a comment: what a reader has and the page does not make
};

struct Page {
  std::string path;
  std::vector<Command> commands;
  std::vector<Command> synopses;
  std::vector<std::string> faults;
};

struct Block {
  int line = 0;  // of its first line of text
  std::string kind;
  std::string skip;
  std::vector<std::string> lines;
};

// The document that a command reads from the lines behind it ("<<END"): its last line.
std::string EndOfDocument(const std::string& line) {
  static const std::regex kDocument(R"(<<-?\s*['"]?(\w+))");
  std::smatch match;
  return std::regex_search(line, match, kDocument) ? match[1].str() : "";
}

std::vector<Command> CommandsOf(const Block& block) {
  const bool console = block.kind == "console";
  std::vector<Command> commands;
  std::string end;    // of the document that the last command reads
  bool open = false;  // the last command continues in the next line
  for (size_t i = 0; i < block.lines.size(); ++i) {
    std::string line = block.lines[i];
    if (console && !open) {
      if (line.rfind("$ ", 0) != 0) continue;
      line.erase(0, 2);
    }
    const size_t first = line.find_first_not_of(" \t");
    if (!open && (first == std::string::npos || line[first] == '#')) continue;
    if (open) {
      commands.back().text += "\n" + line;
    } else {
      commands.push_back({block.line + static_cast<int>(i), line, block.skip, false});
      end = EndOfDocument(line);
    }
    open = end.empty() ? line.back() == '\\' : line != end;
  }
  return commands;
}

Page ReadPage(const std::string& path) {
  static const std::regex kFence(R"(^\s*```\s*([\w+-]*)(?: skip=(\S+))?\s*$)");
  Page page;
  page.path = path;
  std::ifstream in(path);
  Block block;
  const auto finish = [&](bool makes_data) {
    if (makes_data) {
      page.commands.push_back({block.line, absl::StrJoin(block.lines, "\n"), "", true});
    } else if (block.kind == "sh" || block.kind == "bash" || block.kind == "console") {
      for (Command& command : CommandsOf(block)) page.commands.push_back(std::move(command));
    }
    if (block.kind == "synopsis") {
      for (size_t i = 0; i < block.lines.size(); ++i) {
        const std::string& line = block.lines[i];
        if (line.rfind(' ', 0) == 0 && !page.synopses.empty()) {
          page.synopses.back().text += line;
        } else {
          page.synopses.push_back({block.line + static_cast<int>(i), line, "", false});
        }
      }
    }
    block = Block();
  };
  enum { kText, kFenced, kComment } where = kText;
  int number = 0;
  bool blank = true;  // the line before
  for (std::string line; std::getline(in, line);) {
    ++number;
    const std::string place = path + ":" + std::to_string(number) + ": ";
    std::smatch match;
    if (where == kComment && line == "-->") {
      finish(true);
      where = kText;
    } else if (where == kText && line == "<!-- sh") {
      block.line = number + 1;
      block.kind = "sh";
      where = kComment;
    } else if (where != kComment && line.find("```") == line.find_first_not_of(' ') &&
               line.find("```") != std::string::npos) {
      if (where == kFenced) {
        finish(false);
        where = kText;
        continue;
      }
      where = kFenced;
      block.line = number + 1;
      if (!std::regex_match(line, match, kFence)) {
        page.faults.push_back(place + "expected ```KIND or ```KIND skip=REASON");
        continue;
      }
      block.kind = match[1];
      block.skip = match[2];
      if (block.kind.empty()) page.faults.push_back(place + "a block needs a kind: sh, text, ...");
      if (!block.skip.empty() && Reasons().count(block.skip) == 0) {
        page.faults.push_back(place + "unknown reason '" + block.skip + "'");
      }
    } else if (where != kText) {
      block.lines.push_back(line);
    } else if (blank && line.rfind("    ", 0) == 0) {
      page.faults.push_back(place + "indented code has no kind: write ```sh, ```text, ...");
    }
    blank = line.empty();
  }
  if (where != kText) page.faults.push_back(path + ": the last block does not end");
  return page;
}

std::vector<std::string> Paths() {
  std::vector<std::string> paths = {"README.md"};
  for (const auto& entry : fs::recursive_directory_iterator("docs")) {
    if (entry.path().extension() == ".md") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string TextOf(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Runs commands one after the other; each one's output goes to a file named by its line, and the
// line that runs to `at`.
std::string ScriptOf(const std::vector<Command>& commands) {
  std::string script = R"sh(set -o pipefail
end_servers() {
  for pid in "$PAGE_SERVERS"/*.pid; do
    [ -f "$pid" ] || continue
    kill "$(cat "$pid")" 2>/dev/null
    for _ in $(seq 200); do [ -f "${pid%.pid}.code" ] && break; sleep 0.1; done
    [ "$(cat "${pid%.pid}.code")" = 0 ] || { cat "${pid%.pid}"; return 1; }
  done
}
trap end_servers EXIT
)sh";
  for (const Command& command : commands) {
    if (!command.skip.empty()) continue;
    const std::string line = std::to_string(command.line);
    const std::string text =
        command.makes_data ? "bash -eo pipefail <<'END_OF_DATA'\n" + command.text + "\nEND_OF_DATA"
                           : command.text;
    script += "echo " + line + " >\"$PAGE_LOGS/at\"\n{\n" + text + "\n} >\"$PAGE_LOGS/" + line +
              "\" 2>&1 </dev/null || exit\n";
  }
  return script + "trap - EXIT\necho 0 >\"$PAGE_LOGS/at\"\nend_servers\n";
}

// "30 run, 4 skipped (gpu 3, root 1)"
std::string Counts(const std::vector<Command>& commands) {
  int run = 0;
  int skipped = 0;
  std::map<std::string, int> by_reason;
  for (const Command& command : commands) {
    if (command.makes_data) continue;
    command.skip.empty() ? ++run : ++skipped;
    if (!command.skip.empty()) ++by_reason[command.skip];
  }
  std::string text = std::to_string(run) + " run, " + std::to_string(skipped) + " skipped";
  for (const auto& [reason, count] : by_reason) {
    text +=
        (reason == by_reason.begin()->first ? " (" : ", ") + reason + " " + std::to_string(count);
  }
  return by_reason.empty() ? text : text + ")";
}

std::string NameOf(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return text;
}

class PageCommandsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string folder = "/tmp/pages.XXXXXX";  // Open MPI's paths must be short
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    root_ = folder;
    const fs::path here = fs::current_path();
    for (const char* name :
         {"bin", "clone/bazel-bin/tools", "logs", "programs", "servers", "tmp"}) {
      fs::create_directories(root_ / name);
    }
    const fs::path program = here / "tests/docs/program_of_a_page";
    for (const std::string built : {"tools/tessera", "examples/completion", "examples/on_ranks"}) {
      const fs::path name = fs::path(built).filename();
      fs::create_symlink(here / built, root_ / "programs" / name);
      fs::create_symlink(program, root_ / "bin" / name);
    }
    fs::create_symlink(program, root_ / "clone/bazel-bin/tools/tessera");
    fs::create_symlink(here / "docs", root_ / "clone/docs");
    fs::create_symlink(here / "README.md", root_ / "clone/README.md");
  }
  void TearDown() override { fs::remove_all(root_); }

  ShellRun Run(const std::string& command) const {
    const std::string root = root_.string();
    return RunShell("cd " + root + "/clone && env HOME=" + root + " TMPDIR=" + root +
                    "/tmp PATH=" + root + "/bin:/usr/local/bin:/usr/bin:/bin PAGE_LOGS=" + root +
                    "/logs PAGE_PROGRAMS=" + root + "/programs PAGE_SERVERS=" + root +
                    "/servers CUDA_VISIBLE_DEVICES= OMPI_ALLOW_RUN_AS_ROOT=1"
                    " OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1"
                    " OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1 " +
                    command);
  }

  fs::path root_;
};

TEST_P(PageCommandsTest, Run) {
  const Page page = ReadPage(GetParam());
  const auto begin = std::chrono::steady_clock::now();
  std::ofstream(root_ / "page.sh") << ScriptOf(page.commands);
  const ShellRun ran = Run("timeout -k 5 " + std::to_string(kSecondsOfAPage) + " bash ../page.sh");
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  std::cout << page.path << ": " << Counts(page.commands) << ", " << time.count() << " s\n";
  if (ran.code == 0) return;
  int line = -1;
  std::ifstream(root_ / "logs/at") >> line;
  const std::string how =
      ran.code == 124 ? "it does not end" : "exit code " + std::to_string(ran.code);
  for (const Command& command : page.commands) {
    if (command.line != line) continue;
    FAIL() << page.path << ":" << line << ": " << how << "\n"
           << command.text << "\n"
           << TextOf(root_ / "logs" / std::to_string(line)) << ran.output;
  }
  FAIL() << page.path << (line == 0 ? ": a server's end" : "") << ": " << how << "\n" << ran.output;
}

std::vector<std::string> PathsWithCommands() {
  std::vector<std::string> paths = Paths();
  std::erase_if(paths, [](const std::string& path) {
    const std::vector<Command> commands = ReadPage(path).commands;
    return std::all_of(commands.begin(), commands.end(),
                       [](const Command& command) { return !command.skip.empty(); });
  });
  return paths;
}

INSTANTIATE_TEST_SUITE_P(Pages, PageCommandsTest, testing::ValuesIn(PathsWithCommands()),
                         [](const auto& page) { return NameOf(page.param); });

TEST(PagesTest, AreMarkedAsContributingSays) {
  for (const std::string& path : Paths()) {
    for (const std::string& fault : ReadPage(path).faults) ADD_FAILURE() << fault;
  }
}

// What `tessera COMMAND --help` prints; of "corpus STEP" what the help of each step does.
std::vector<std::string> HelpsOf(const std::string& command) {
  static const std::regex kStep(R"(  ([a-z]+)  .*)");
  std::vector<std::string> names = {command};
  if (const std::string all = " STEP"; command.size() > all.size() && command.ends_with(all)) {
    const std::string outer = command.substr(0, command.size() - all.size());
    const std::vector<std::string> lines =
        Lines(RunShell("tools/tessera " + outer + " --help").output);
    std::smatch match;
    names.clear();
    for (const std::string& line : lines) {
      if (std::regex_match(line, match, kStep) && match[1] != "run") {
        names.push_back(outer + " " + match[1].str());
      }
    }
  }
  std::vector<std::string> helps;
  for (const std::string& name : names) {
    const ShellRun ran = RunShell("tools/tessera " + name + " --help");
    EXPECT_EQ(ran.code, 0) << name << ": " << ran.output;
    helps.push_back(ran.output);
  }
  return helps;
}

// "tessera COMMAND ..." in a block of kind `synopsis`: its flags are those of the command.
TEST(PagesTest, SynopsesNameFlagsThatTheCommandHas) {
  static const std::regex kCommand(R"(^tessera ([a-z-]+(?: (?:STEP|[a-z]+(?= )))?).*)");
  static const std::regex kFlag(R"(--[a-z][a-z-]*)");
  int flags = 0;
  for (const std::string& path : Paths()) {
    for (const Command& synopsis : ReadPage(path).synopses) {
      const std::string place = path + ":" + std::to_string(synopsis.line) + ": ";
      std::smatch match;
      ASSERT_TRUE(std::regex_match(synopsis.text, match, kCommand)) << place << synopsis.text;
      const auto begin = std::sregex_iterator(synopsis.text.begin(), synopsis.text.end(), kFlag);
      for (const std::string& help : HelpsOf(match[1])) {
        for (auto flag = begin; flag != std::sregex_iterator(); ++flag, ++flags) {
          const std::regex whole("(^|[^-\\w])" + flag->str() + "($|[^-\\w])");
          EXPECT_TRUE(std::regex_search(help, whole)) << place << flag->str() << " in " << help;
        }
      }
    }
  }
  EXPECT_GT(flags, 40);
}

TEST(PagesTest, EveryReasonIsUsed) {
  std::vector<Command> all;
  for (const std::string& path : Paths()) {
    for (const Command& command : ReadPage(path).commands) all.push_back(command);
  }
  std::cout << Counts(all) << "\n";
  EXPECT_GT(all.size(), 100u);
  for (const auto& [reason, needs] : Reasons()) {
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&name = reason](const Command& command) {
      return command.skip == name;
    })) << reason;
  }
}

// One skipped case for each reason, so that the end of tools/test names them.
class SkippedCommandsTest : public testing::TestWithParam<std::string> {};

TEST_P(SkippedCommandsTest, NeedWhatThisMachineMayLack) {
  int64_t count = 0;
  for (const std::string& path : Paths()) {
    const std::vector<Command> commands = ReadPage(path).commands;
    count += std::count_if(commands.begin(), commands.end(),
                           [](const Command& command) { return command.skip == GetParam(); });
  }
  GTEST_SKIP() << count << " of the pages' commands (skip=" << GetParam() << ") need "
               << Reasons().at(GetParam());
}

std::vector<std::string> ReasonNames() {
  std::vector<std::string> names;
  for (const auto& [name, needs] : Reasons()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Reasons, SkippedCommandsTest, testing::ValuesIn(ReasonNames()),
                         [](const auto& reason) { return NameOf(reason.param); });

}  // namespace
}  // namespace tessera
