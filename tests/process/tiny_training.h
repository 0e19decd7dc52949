// SPDX-License-Identifier: Apache-2.0
// A `train` that takes seconds: what tests disturb.
//
//   MakeTinyData(root);
//   Process run(TinyTraining(root, out, /*steps=*/40, {"--save-interval", "3"}), log);
#ifndef TESSERA_TESTS_PROCESS_TINY_TRAINING_H_
#define TESSERA_TESTS_PROCESS_TINY_TRAINING_H_

#include <string>
#include <vector>

namespace tessera {

// Makes the folder anew, with `text.txt` to train on.
void MakeTinyData(const std::string& root);

// The words of `tessera`'s command line. What `flags` says takes the place of what is here.
std::vector<std::string> TinyTraining(const std::string& root, const std::string& out, int steps,
                                      const std::vector<std::string>& flags);

// Adds flags with their values, each in the place of one of the same name.
void SetFlags(const std::vector<std::string>& flags, std::vector<std::string>* words);

}  // namespace tessera

#endif  // TESSERA_TESTS_PROCESS_TINY_TRAINING_H_
