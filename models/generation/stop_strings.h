// SPDX-License-Identifier: Apache-2.0
// Finds stop strings in text that comes in pieces.
//
//   StopStrings stop({"\n\n", "END"});
//   std::cout << stop.Push(" the E");   // " the "   ("E" could begin "END")
//   std::cout << stop.Push("ND and");   // ""        stop.found() is now true
//
// What Push and Finish return, joined, is the text up to the first stop string (of several that end
// at the same place, the one that begins first).
#ifndef TESSERA_MODELS_GENERATION_STOP_STRINGS_H_
#define TESSERA_MODELS_GENERATION_STOP_STRINGS_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::models {

class StopStrings {
 public:
  // None of them may be empty.
  explicit StopStrings(std::vector<std::string> strings)
      : strings_(std::make_shared<const std::vector<std::string>>(std::move(strings))) {}
  // Those that others hold, too.
  explicit StopStrings(std::shared_ptr<const std::vector<std::string>> strings)
      : strings_(std::move(strings)) {}

  // The text that is certain to come before any stop string.
  std::string Push(std::string_view piece);
  // What was held back; nothing once a stop string was found.
  std::string Finish();
  bool found() const { return found_; }

 private:
  std::shared_ptr<const std::vector<std::string>> strings_;
  std::string held_;
  bool found_ = false;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GENERATION_STOP_STRINGS_H_
