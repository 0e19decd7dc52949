// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/byte_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace tessera::data {
namespace {

TEST(ByteTrieTest, FindsWhatAMapFinds) {
  std::mt19937 random(7);
  for (const uint32_t num_bytes : {2u, 20u, 256u}) {
    const auto text = [&](uint32_t most) {
      std::string out;
      for (uint32_t i = random() % most + 1; i > 0; --i) {
        out += static_cast<char>(random() % num_bytes);
      }
      return out;
    };
    std::map<std::string, int32_t> ids;
    for (int32_t id = 0; id < 20000; ++id) ids[text(7)] = id;
    const ByteTrie trie({ids.begin(), ids.end()});
    for (int i = 0; i < 20000; ++i) {
      const std::string sought = text(9);
      size_t length = 0;
      int32_t id = -1;
      for (size_t end = 1; end <= sought.size(); ++end) {
        const auto at = ids.find(sought.substr(0, end));
        if (at == ids.end()) continue;
        length = end;
        id = at->second;
      }
      int32_t found = -1;
      ASSERT_EQ(trie.LongestPrefix(sought, &found), length);
      ASSERT_EQ(found, id);
    }
  }
}

TEST(ByteTrieTest, EmptyTextsAndEqualOnes) {
  int32_t id = -1;
  EXPECT_EQ(ByteTrie().LongestPrefix(std::string_view("\0a", 2), &id), 0u);
  const ByteTrie trie({{"", 0}, {"a", 1}, {"a", 2}});
  EXPECT_EQ(trie.LongestPrefix("", &id), 0u);
  EXPECT_EQ(id, -1);
  EXPECT_EQ(trie.LongestPrefix("aa", &id), 1u);
  EXPECT_EQ(id, 2);
}

}  // namespace
}  // namespace tessera::data
