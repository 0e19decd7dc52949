// SPDX-License-Identifier: Apache-2.0
#include "tools/written_names.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera::tools {
namespace {

std::string Said(const std::string& message) {
  WrittenNames names;
  names.AddFlag("--train_file");
  names.AddFlag("--top_k");
  names.AddKey("data", "--train_file");
  names.AddKey("batch_size", "per_device_train_batch_size");
  names.AddKey("epochs", "--num_train_epochs");
  names.AddKey("seq_len", "--max_length");
  names.AddKey("seq_len", "seq_len");  // which gave it in the end
  return std::string(names.In(InvalidArgument(message)).message());
}

TEST(WrittenNamesTest, FlagsAndKeysAreTheUsers) {
  EXPECT_EQ(Said("--top-k must be 1"), "--top_k must be 1");
  EXPECT_EQ(Said("--train-file and --batch_size"), "--train_file and per_device_train_batch_size");
  EXPECT_EQ(Said("unknown flag '--top-k'"), "unknown flag '--top_k'");
  EXPECT_EQ(Said("data: x: no such file"), "--train_file: x: no such file");
  EXPECT_EQ(Said("rank 1: data lists 2 sources"), "rank 1: --train_file lists 2 sources");
  EXPECT_EQ(Said("give another --data"), "give another --train_file");
  EXPECT_EQ(Said("which does not divide 8 rows (batch_size)"),
            "which does not divide 8 rows (per_device_train_batch_size)");
  EXPECT_EQ(Said("epochs is 0"), "--num_train_epochs is 0");
}

TEST(WrittenNamesTest, OtherWordsStay) {
  for (const char* message :
       {"x.txt: the data have no target", "'data: batch_size' is a file", "data/batch_size/x: no",
        "batch_size.txt: empty", "my_batch_size is 3", "--top-keys is unknown", "seq_len is 3",
        "the model's batches: too many epochs in the data's file", "--batch-sizes is 3"}) {
    EXPECT_EQ(Said(message), message);
  }
  // It is said already.
  EXPECT_EQ(Said("'per_device_train_batch_size' and 'micro' are one key (batch_size)"),
            "'per_device_train_batch_size' and 'micro' are one key (batch_size)");
}

}  // namespace
}  // namespace tessera::tools
