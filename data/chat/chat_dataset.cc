// SPDX-License-Identifier: Apache-2.0
#include "data/chat/chat_dataset.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "core/thread_pool.h"
#include "data/chat/chat_tokens.h"
#include "data/chat/conversation_file.h"
#include "data/dataset/token_cache.h"

namespace tessera::data {
namespace {

constexpr size_t kChatsAtOnce = 4096;

// Whether one of the first tokens is the assistant's; the very first is never predicted.
bool HasTarget(const std::vector<bool>& mask, size_t first) {
  for (size_t i = 1; i < std::min(first, mask.size()); ++i) {
    if (mask[i]) return true;
  }
  return false;
}

}  // namespace

// Encodes conversations in the order in which they come, many at once.
class ChatDataset::Builder {
 public:
  Builder(const ChatFormat& format, const Tokenizer& tokenizer, const ChatDatasetOptions& options,
          IndexedDatasetWriter* writer)
      : format_(format), tokenizer_(tokenizer), options_(options), writer_(writer) {}

  Status Add(const Conversation& chat, const std::string& where) {
    waiting_.push_back({chat, where});
    return waiting_.size() < kChatsAtOnce ? OkStatus() : Flush();
  }

  Status Flush() {
    std::vector<StatusOr<ChatTokens>> encoded(waiting_.size());
    ParallelFor(std::ssize(waiting_), /*grain=*/16, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        encoded[i] = Encode(waiting_[i].chat);
      }
    });
    for (size_t i = 0; i < encoded.size(); ++i) {
      const std::string& where = waiting_[i].where;
      if (!encoded[i].ok()) {
        return Failure(encoded[i].status().code(),
                       Concat(where, ": ", Message(encoded[i].status())));
      }
      const bool prompt = IsPrompt(waiting_[i].chat);
      if (prompt) ++counts_.prompts;
      TESSERA_RETURN_IF_ERROR(Write(*std::move(encoded[i]), prompt, where));
    }
    waiting_.clear();
    return OkStatus();
  }

  const Counts& counts() const { return counts_; }

 private:
  struct Waiting {
    Conversation chat;
    std::string where;
  };

  bool IsPrompt(const Conversation& chat) const {
    return options_.prompts && chat.messages->back()["role"] != "assistant";
  }

  StatusOr<ChatTokens> Encode(const Conversation& chat) const {
    if (!IsPrompt(chat)) return TokenizeChat(format_, tokenizer_, chat);
    ChatTokens tokens;
    TESSERA_ASSIGN_OR_RETURN(tokens.ids, TokenizePrompt(format_, tokenizer_, chat));
    if (tokens.ids.empty()) return InvalidArgument("the prompt has no tokens");
    tokens.answers = {{tokens.ids.size(), tokens.ids.size() + 1}};
    tokens.ids.push_back(tokens.ids.back());
    return tokens;
  }

  // Behind a prompt stands the place of its answer, which is no token of the conversation.
  Status Write(ChatTokens tokens, bool prompt, const std::string& where) {
    const std::vector<bool> mask = tokens.AssistantMask();
    const size_t whole = tokens.ids.size() - (prompt ? 1 : 0);
    if (!HasTarget(mask, tokens.ids.size())) {
      return InvalidArgument(where, ": the assistant says nothing in this conversation");
    }
    const auto most = static_cast<size_t>(options_.seq_len);
    if (whole > most) {
      if (options_.long_chats == LongChats::kRefuse || options_.prompts) {
        return InvalidArgument(where, ": the conversation has ", whole, " tokens, more than the ",
                               most, " of seq_len");
      }
      const bool left = options_.long_chats == LongChats::kCut && HasTarget(mask, most);
      ++(left ? counts_.cut : counts_.dropped);
      if (!left) return OkStatus();
      tokens.ids.resize(most);
    }
    for (size_t i = 0; i < tokens.ids.size(); ++i) {
      tokens.ids[i] = 2 * tokens.ids[i] + (mask[i] ? 1 : 0);
    }
    TESSERA_RETURN_IF_ERROR(writer_->AddSequence(tokens.ids));
    writer_->EndDocument();
    return OkStatus();
  }

  const ChatFormat& format_;
  const Tokenizer& tokenizer_;
  const ChatDatasetOptions& options_;
  IndexedDatasetWriter* const writer_;
  std::vector<Waiting> waiting_;
  Counts counts_;
};

StatusOr<std::shared_ptr<const ChatDataset>> ChatDataset::Open(const std::string& path,
                                                               const ChatFormat& format,
                                                               const Tokenizer& tokenizer,
                                                               const std::string& cache,
                                                               const ChatDatasetOptions& options) {
  TESSERA_CHECK(options.seq_len >= 2, "ChatDataset", "seq_len ", options.seq_len);
  TESSERA_ASSIGN_OR_RETURN(nlohmann::json made_from, DescribeFiles({path}));
  made_from.update({{"layout", "conversations 3"},
                    {"tokenizer", tokenizer.Fingerprint()},
                    {"template", format.Fingerprint()},
                    {"seq_len", options.seq_len},
                    {"long_chats", static_cast<int>(options.long_chats)},
                    {"prompts", options.prompts}});
  const auto make = [&](IndexedDatasetWriter* writer) -> StatusOr<nlohmann::json> {
    Builder builder(format, tokenizer, options, writer);
    TESSERA_RETURN_IF_ERROR(
        ForEachConversation(path, [&](const Conversation& chat, const std::string& where) {
          return builder.Add(chat, where);
        }));
    TESSERA_RETURN_IF_ERROR(builder.Flush());
    const Counts& counts = builder.counts();
    if (writer->num_documents() == 0) {
      return InvalidArgument(path, ": ",
                             counts.dropped == 0
                                 ? std::string("no conversations")
                                 : Concat("none of its ", counts.dropped,
                                          " conversations fits seq_len ", options.seq_len));
    }
    return nlohmann::json{
        {"dropped", counts.dropped}, {"cut", counts.cut}, {"prompts", counts.prompts}};
  };
  TESSERA_ASSIGN_OR_RETURN(
      const CachedTokens cached,
      TokensMadeOnce(cache, made_from,
                     {.vocab_size = 2 * tokenizer.vocab_size(), .reuse = !options.overwrite_cache},
                     make));
  const Counts counts = {.dropped = cached.facts.value("dropped", int64_t{0}),
                         .cut = cached.facts.value("cut", int64_t{0}),
                         .prompts = cached.facts.value("prompts", int64_t{0})};
  return std::shared_ptr<const ChatDataset>(
      new ChatDataset(cached.tokens, options.seq_len, counts, 0, cached.tokens->num_documents()));
}

int64_t ChatDataset::length(int64_t index) const {
  TESSERA_CHECK(index >= 0 && index < size(), "ChatDataset", "sample ", index, " of ", size());
  const int64_t chat = begin_ + index;
  return tokens_->document_begin(chat + 1) - tokens_->document_begin(chat) - 1;
}

Status ChatDataset::Fill(int64_t index, const SampleRow& row) const {
  std::vector<int64_t> marked(static_cast<size_t>(length(index)) + 1);
  tokens_->Read(tokens_->document_begin(begin_ + index), marked);
  for (size_t t = 0; t + 1 < marked.size(); ++t) {
    row.input_ids[t] = marked[t] / 2;
    row.targets[t] = marked[t + 1] % 2 == 1 ? marked[t + 1] / 2 : kIgnoreLabel;
  }
  return OkStatus();
}

std::shared_ptr<const ChatDataset> ChatDataset::Part(int64_t begin, int64_t end) const {
  TESSERA_CHECK(0 <= begin && begin <= end && end <= size(), "ChatDataset::Part", "samples [",
                begin, ", ", end, ") of ", size());
  return std::shared_ptr<const ChatDataset>(
      new ChatDataset(tokens_, seq_len_, counts_, begin_ + begin, begin_ + end));
}

}  // namespace tessera::data
