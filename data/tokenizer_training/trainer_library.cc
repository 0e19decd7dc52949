// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer_training/trainer_library.h"

#include <sentencepiece_trainer.h>

#include <algorithm>

namespace tessera::data {
namespace {

class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string>& all) : all_(all) {}
  bool done() const override { return next_ >= all_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return all_[next_]; }
  sentencepiece::util::Status status() const override { return sentencepiece::util::Status(); }

 private:
  const std::vector<std::string>& all_;
  size_t next_ = 0;
};

// "src/trainer_interface.cc(590) [condition] Vocabulary size too high ..." -> what is behind.
std::string WithoutPlace(const std::string& message) {
  std::string text = message;
  std::replace(text.begin(), text.end(), '\n', ' ');
  const size_t place = text.find(") [");
  const size_t end = text.find("] ");
  if (place != std::string::npos && end != std::string::npos && end > place) {
    text.erase(0, end + 2);
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text.empty() ? message : text;
}

}  // namespace

std::string RunSentencePieceTrainer(const std::unordered_map<std::string, std::string>& options,
                                    const std::vector<std::string>& sentences, std::string* error) {
  Sentences iterator(sentences);
  std::string model;
  sentencepiece::SetRandomGeneratorSeed(1);
  const auto status = sentencepiece::SentencePieceTrainer::Train(options, &iterator, &model);
  if (!status.ok()) {
    *error = WithoutPlace(status.message());
    return "";
  }
  if (model.empty()) *error = "the library gave no model";
  return model;
}

}  // namespace tessera::data
