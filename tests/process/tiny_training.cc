// SPDX-License-Identifier: Apache-2.0
#include "tests/process/tiny_training.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace tessera {

namespace fs = std::filesystem;

void MakeTinyData(const std::string& root) {
  fs::remove_all(root);
  fs::create_directories(root);
  std::ofstream text(root + "/text.txt");
  for (int i = 0; i < 600; ++i) {
    text << "line " << i % 17 << " of the song, sung " << i % 5 << " times\n";
  }
}

void SetFlags(const std::vector<std::string>& flags, std::vector<std::string>* words) {
  const auto is_name = [](const std::string& word) { return word.starts_with("--"); };
  for (const std::string& flag : flags) {
    const auto given = std::find(words->begin(), words->end(), flag);
    if (is_name(flag) && given != words->end()) {
      words->erase(given, std::find_if(given + 1, words->end(), is_name));
    }
  }
  words->insert(words->end(), flags.begin(), flags.end());
}

std::vector<std::string> TinyTraining(const std::string& root, const std::string& out, int steps,
                                      const std::vector<std::string>& flags) {
  std::vector<std::string> words = {"train", "gpt-tiny"};
  SetFlags({"--data",         root + "/text.txt",
            "--out",          out,
            "--tokenizer",    "byte",
            "--max-steps",    std::to_string(steps),
            "--seq-len",      "16",
            "--batch-size",   "2",
            "--dropout",      "0.1",
            "--lr",           "1e-3",
            "--threads",      "1",
            "--log-interval", "5",
            "--eval-batches", "2"},
           &words);
  SetFlags(flags, &words);
  return words;
}

}  // namespace tessera
