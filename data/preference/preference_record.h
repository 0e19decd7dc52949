// SPDX-License-Identifier: Apache-2.0
// A record of preference data as token ids.
//
//   const PreferenceEncoder encoder(tokenizer);
//   TESSERA_ASSIGN_OR_RETURN(const EncodedPair pair, encoder.Encode(record, "pairs.jsonl:3"));
#ifndef TESSERA_DATA_PREFERENCE_PREFERENCE_RECORD_H_
#define TESSERA_DATA_PREFERENCE_PREFERENCE_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/chat/chat_format.h"
#include "data/tokenizer/tokenizer.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::data {

// Each of at least one token.
struct EncodedPair {
  std::vector<int32_t> prompt;
  std::vector<int32_t> chosen;
  std::vector<int32_t> rejected;
};

class PreferenceEncoder {
 public:
  // Conversations are rendered by the chat template of the tokenizer's folder, where it has one.
  // The tokenizer outlives this.
  explicit PreferenceEncoder(const Tokenizer& tokenizer);

  // Failures are one line that `where` begins. Safe from several threads.
  StatusOr<EncodedPair> Encode(const nlohmann::ordered_json& record,
                               const std::string& where) const;
  // Equal for encoders that render conversations alike; part of the key of cached token files.
  uint64_t chat_fingerprint() const { return chats_ ? chats_->Fingerprint() : 0; }

 private:
  StatusOr<EncodedPair> EncodeTexts(const nlohmann::ordered_json& record,
                                    const std::string& where) const;
  StatusOr<EncodedPair> EncodeMessages(const nlohmann::ordered_json& record,
                                       const std::string& where) const;
  // What is in front of completions: the text, and the ids of that behind `front`.
  struct Prompt {
    std::string text;
    std::vector<int32_t> front;
    std::vector<int32_t> ids;
  };
  StatusOr<Prompt> PromptOf(std::string text, std::vector<int32_t> front,
                            const std::string& where) const;
  StatusOr<std::vector<int32_t>> Completion(const Prompt& prompt, const std::string& whole,
                                            const char* name, const std::string& where) const;
  StatusOr<std::string> Render(const Conversation& chat, bool prompts,
                               const std::string& where) const;

  const Tokenizer& tokenizer_;
  std::vector<int32_t> begin_;       // what the tokenizer puts in front of a text
  std::optional<ChatFormat> chats_;  // nullopt: there is no template
  std::string no_chats_;             // then: why
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_PREFERENCE_PREFERENCE_RECORD_H_
