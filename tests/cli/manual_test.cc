// SPDX-License-Identifier: Apache-2.0
// The manual page and bash's completion, which are made of the commands' declarations.
#include <regex>
#include <set>

#include "tests/cli/cli_runs.h"

namespace tessera {
namespace {

class ManualTest : public CliRuns {
 protected:
  static std::set<std::string> Matches(const std::string& text, const std::string& pattern) {
    const std::regex regex(pattern);
    std::set<std::string> found;
    for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
      found.insert(it->str(1));
    }
    return found;
  }
  std::set<std::string> Commands() const {
    const std::string help = Output({"--help"});
    return Matches(help.substr(help.find("Subcommands:")), "\n  ([a-z-]+) ");
  }
  // What bash offers for the last of `words`.
  std::set<std::string> Complete(const std::string& words) const {
    Write("completion", Output({"completion"}));
    const std::string script = "source " + Path("completion") + "; COMP_WORDS=(" + words +
                               "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tessera;"
                               "printf '%s\\n' \"${COMPREPLY[@]}\"";
    return Matches(Output({"-c", script}, {.program = "/bin/bash"}), "([^\n]+)\n");
  }
};

using Names = std::set<std::string>;

TEST_F(ManualTest, HasEveryCommandAndFlagOfTheHelp) {
  const std::string page = std::regex_replace(Output({"manual"}), std::regex(R"(\\-)"), "-");
  const Names flags_of_page = Matches(page, "(--[a-z0-9-]+)");
  ASSERT_GT(Commands().size(), 10u);
  EXPECT_NE(page.find("tessera corpus dedup"), std::string::npos);
  for (const std::string& command : Commands()) {
    EXPECT_NE(page.find("tessera " + command), std::string::npos) << command;
    for (const std::string& flag : Matches(Output({command, "--help"}), "(--[a-z0-9-]+)")) {
      EXPECT_TRUE(flags_of_page.contains(flag)) << command << " " << flag;
    }
  }
}

// "Train a model ...", not "a model's training": each line of the help says what its command does.
TEST_F(ManualTest, EveryCommandIsDescribedAlike) {
  const std::string help = Output({"--help"});
  const Names begun = Matches(help.substr(help.find("Subcommands:")), "\n  ([a-z-]+ +[A-Z])");
  EXPECT_EQ(begun.size(), Commands().size()) << help;
}

// A line that begins with a dot or a quote is troff's; those of the page are these.
TEST_F(ManualTest, TextIsNeverTakenForTroff) {
  const Names requests = Matches("\n" + Output({"manual"}), "\n([.'][^\n ]*)");
  EXPECT_EQ(requests, (Names{".TH", ".SH", ".SS", ".TP", ".B", ".PP", ".nf", ".fi"}));
}

TEST_F(ManualTest, BashCompletesCommandsFlagsChoicesAndPresets) {
  EXPECT_EQ(Complete("tessera gen"), Names{"generate"});
  EXPECT_EQ(Complete("tessera train --lr-sch"), Names{"--lr-schedule"});
  EXPECT_EQ(Complete("tessera corpus ded"), Names{"dedup"});
  EXPECT_EQ(Complete("tessera corpus dedup --thr"), (Names{"--threads", "--threshold"}));
  EXPECT_EQ(Complete("tessera train gpt-min"), Names{"gpt-mini"});
  EXPECT_EQ(Complete("tessera train gpt-mini --optimizer li"), Names{"lion"});
  EXPECT_EQ(Complete("tessera launch train --optimizer = mu"), Names{"muon"});
  EXPECT_EQ(Complete("tessera train --optimizer lion --dtype b"), Names{"bfloat16"});
  Write("data.txt", "");
  EXPECT_EQ(Complete("tessera generate --prompts " + Path("da")), Names{Path("data.txt")});
}

}  // namespace
}  // namespace tessera
