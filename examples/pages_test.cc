// Pages show what their programs print.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/process/shell.h"

namespace tessera {
namespace {

// The ```text blocks of a page, one after the other.
std::string ShownOutput(const std::string& page) {
  std::ifstream in(page);
  EXPECT_TRUE(in.good()) << page;
  std::string shown;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line == "```text") {
      inside = true;
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      shown += line + "\n";
    }
  }
  return shown;
}

TEST(PagesTest, PagesShowWhatTheirProgramsPrint) {
  for (const std::string name : {"tensors", "debugging"}) {
    const ShellRun ran = RunShell("examples/" + name);
    EXPECT_EQ(ran.code, 0) << name;
    EXPECT_EQ(ShownOutput("docs/" + name + ".md"), ran.output);
  }
}

}  // namespace
}  // namespace tessera
