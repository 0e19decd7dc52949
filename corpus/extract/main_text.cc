// SPDX-License-Identifier: Apache-2.0
#include "corpus/extract/main_text.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace tessera::corpus {
namespace {

// Less is no article: the page's marks are not believed then.
constexpr int64_t kLeastWords = 40;

double LinkDensity(const PageBlock& block) {
  return block.words == 0
             ? 0
             : static_cast<double>(block.link_words) / static_cast<double>(block.words);
}

// The paper's tree over a block and its neighbours.
bool IsContent(const PageBlock& before, const PageBlock& block, const PageBlock& after) {
  if (LinkDensity(block) > 1.0 / 3) return false;
  if (LinkDensity(before) <= 5.0 / 9) {
    return block.words > 16 || after.words > 15 || before.words > 4;
  }
  return block.words > 40 || after.words > 17;
}

using Blocks = std::vector<const PageBlock*>;

Blocks ContentOf(const Blocks& blocks) {
  const PageBlock nothing;
  std::vector<bool> content(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    const PageBlock& before = i == 0 ? nothing : *blocks[i - 1];
    const PageBlock& after = i + 1 == blocks.size() ? nothing : *blocks[i + 1];
    content[i] = IsContent(before, *blocks[i], after) ||
                 (blocks[i]->list_item && blocks[i]->words > 4 && LinkDensity(*blocks[i]) < 0.2);
  }
  Blocks chosen;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const bool heads = blocks[i]->heading && LinkDensity(*blocks[i]) <= 0.5 &&
                       i + 1 < blocks.size() && content[i + 1] && !blocks[i + 1]->heading;
    if (blocks[i]->heading ? heads : content[i]) chosen.push_back(blocks[i]);
  }
  return chosen;
}

int64_t WordsOf(const Blocks& blocks) {
  int64_t words = 0;
  for (const PageBlock* block : blocks) words += block->words;
  return words;
}

std::string Joined(const Blocks& blocks) {
  std::string text;
  for (const PageBlock* block : blocks) text += block->text + "\n";
  return text;
}

Blocks Where(const PageBlocks& page, const std::function<bool(const PageBlock&)>& condition) {
  Blocks blocks;
  for (const PageBlock& block : page.blocks) {
    if (condition(block)) blocks.push_back(&block);
  }
  return blocks;
}

}  // namespace

std::string MainText(const PageBlocks& page) {
  const Blocks in_main = ContentOf(
      Where(page, [](const PageBlock& block) { return block.main && !block.boilerplate; }));
  if (WordsOf(in_main) >= kLeastWords) return Joined(in_main);
  const Blocks clean =
      ContentOf(Where(page, [](const PageBlock& block) { return !block.boilerplate; }));
  if (WordsOf(clean) >= kLeastWords) return Joined(clean);
  const Blocks all = ContentOf(Where(page, [](const PageBlock&) { return true; }));
  return Joined(WordsOf(all) > 2 * WordsOf(clean) ? all : clean);
}

std::string AllText(const PageBlocks& page) {
  return Joined(Where(page, [](const PageBlock&) { return true; }));
}

}  // namespace tessera::corpus
