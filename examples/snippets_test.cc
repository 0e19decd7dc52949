// SPDX-License-Identifier: Apache-2.0
// The code that the documentation shows is the code that compiles: every ```cpp block must be a
// stretch of one of the examples.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::string ReadText(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in.good()) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> Snippets(const std::string& markdown) {
  std::vector<std::string> snippets;
  const std::string open = "```cpp\n";
  for (size_t at = markdown.find(open); at != std::string::npos; at = markdown.find(open, at)) {
    at += open.size();
    snippets.push_back(markdown.substr(at, markdown.find("```", at) - at));
  }
  return snippets;
}

TEST(SnippetsTest, DocumentationShowsCodeThatCompiles) {
  std::string sources;
  for (const char* name :
       {"examples/first_steps.cc", "examples/bigram.cc", "examples/callbacks_and_hooks.cc",
        "examples/completion.cc", "examples/debugging.cc", "examples/focal_loss.cc",
        "examples/llama_block.cc", "examples/memory_layer.cc", "examples/on_ranks.cc",
        "examples/rmsprop.cc", "examples/tensors.cc", "examples/training_loops.cc",
        "examples/flows/flagai_t5.cc", "examples/squared_relu/squared_relu.cc",
        "examples/squared_relu/squared_relu_cpu.cc", "examples/squared_relu/squared_relu_cuda.cu",
        "examples/squared_relu/squared_relu_kernel.h", "examples/squared_relu/squared_relu_test.cc",
        "tools/main.cc"}) {
    sources += ReadText(name);
  }
  for (const char* page : {"README.md", "docs/architecture.md", "docs/callbacks-and-hooks.md",
                           "docs/cli.md", "docs/data-and-tasks.md", "docs/debugging.md",
                           "docs/from-libtorch.md", "docs/programs.md", "docs/programs-on-ranks.md",
                           "docs/tensors.md", "docs/training-loops.md", "docs/writing-a-model.md",
                           "docs/writing-an-operation.md", "docs/writing-an-optimizer.md"}) {
    for (const std::string& snippet : Snippets(ReadText(page))) {
      EXPECT_NE(sources.find(snippet), std::string::npos) << page << " shows:\n" << snippet;
    }
  }
  EXPECT_GE(Snippets(ReadText("README.md")).size(), 1u);
  EXPECT_GE(Snippets(ReadText("docs/writing-a-model.md")).size(), 3u);
  EXPECT_GE(Snippets(ReadText("docs/training-loops.md")).size(), 5u);
}

}  // namespace
