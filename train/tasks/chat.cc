// SPDX-License-Identifier: Apache-2.0
// Conversations as the tokenizer's chat template writes them: the assistant's tokens are learnt.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/options.h"
#include "data/chat/chat_dataset.h"
#include "data/chat/chat_tokens.h"
#include "data/dataset/packed_samples.h"
#include "data/dataset/subset.h"
#include "models/family.h"
#include "train/task.h"
#include "train/tasks/pair_options.h"
#include "train/tasks/written_texts.h"

namespace tessera::train {
namespace {

using data::ChatDataset;
using data::LongChats;

struct ChatOptions : WritingOptions {
  bool packing = false;
  std::string long_samples = "refuse";
  int64_t max_target_length = 128;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<ChatOptions>("chat")
            .Add(
                "packing", &ChatOptions::packing,
                "fill rows of `seq_len` tokens with whole conversations, each by itself: positions "
                "begin anew with it, and attention stays inside. false: a row is one conversation, "
                "padded to the longest of its batch",
                {.evaluation = true})
            .Add("long_samples", &ChatOptions::long_samples,
                 "what becomes of a conversation with more than `seq_len` tokens: `refuse` names "
                 "it and ends the run, `cut` leaves out the rest of it, `drop` all of it",
                 {.choices = {"refuse", "cut", "drop"}, .evaluation = true})
            .Add("max_target_length", &ChatOptions::max_target_length,
                 "tokens of an answer that an evaluation writes behind a conversation; where it "
                 "does, `seq_len` is so much shorter than the model's unless it is given",
                 {.least = 1, .evaluation = true})
            .Include<ChatOptions, WritingOptions>());
    return *table;
  }
  LongChats long_chats() const {
    if (long_samples == "cut") return LongChats::kCut;
    return long_samples == "drop" ? LongChats::kDrop : LongChats::kRefuse;
  }
};

int FitChat(const RunConfig&, const models::Architecture*) { return 0; }

// The most tokens of a conversation. Where answers are written, there is room for them behind it.
StatusOr<int64_t> MostTokens(const TaskInput& input, const ChatOptions& keys, bool writes) {
  const int64_t positions = input.shape.positions_left();
  const int64_t answer = writes && positions > 0 ? keys.max_target_length : 0;
  const int64_t seq_len = input.config.seq_len.value_or(positions - answer);
  if (positions == 0 && seq_len == 0) {
    return InvalidArgument("this model has no seq_len of its own; give one");
  }
  if (positions > 0 && seq_len + answer > positions) {
    return InvalidArgument("seq_len ", seq_len, " and max_target_length ", answer,
                           ", the tokens of a written answer, are together more than the model's ",
                           positions, " positions");
  }
  if (seq_len < 2) {
    return InvalidArgument("seq_len ", seq_len, " leaves no room for a conversation");
  }
  return seq_len;
}

// What ends a written answer; none: what ends the model's texts.
std::vector<int64_t> EndsOfAnswers(const data::ChatFormat& format,
                                   const data::Tokenizer& tokenizer) {
  std::vector<int64_t> ends;
  if (const auto turn = data::EndOfTurn(format, tokenizer)) ends.push_back(*turn);
  if (tokenizer.eos_id()) ends.push_back(*tokenizer.eos_id());
  return ends;
}

// Whether something of a file was left out.
void WarnOf(const ChatDataset& chats, const std::string& path, TaskData* data) {
  const std::string longer =
      Concat(" conversations are longer than ", chats.seq_len(), " tokens: ");
  if (chats.num_cut() > 0) {
    data->warnings.push_back(Concat(path, ": ", chats.num_cut(), longer, "their ends are cut off"));
  }
  if (chats.num_dropped() > 0) {
    data->warnings.push_back(Concat(path, ": ", chats.num_dropped(), longer, "they are left out"));
  }
}

StatusOr<TaskData> OpenChat(const TaskInput& input) {
  const RunConfig& config = input.config;
  TESSERA_ASSIGN_OR_RETURN(const auto keys, config.Part<ChatOptions>());
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  TESSERA_ASSIGN_OR_RETURN(const auto format, data::ChatFormat::OfTokenizer(*tokenizer));
  const bool judged = keys.predict_with_generate || input.prediction;
  TaskData data;
  TESSERA_ASSIGN_OR_RETURN(data.seq_len, MostTokens(input, keys, judged));
  TESSERA_ASSIGN_OR_RETURN(const std::string source, input.OneSource());
  TESSERA_RETURN_IF_ERROR(MakeDirectories(input.cache));
  const auto open = [&](const std::string& path, const char* name) {
    auto chats = ChatDataset::Open(path, format, *tokenizer, JoinPath(input.cache, name),
                                   {.seq_len = data.seq_len,
                                    .long_chats = keys.long_chats(),
                                    .prompts = input.prediction,
                                    .overwrite_cache = config.overwrite_cache});
    if (chats.ok()) WarnOf(**chats, path, &data);
    return chats;
  };
  TESSERA_ASSIGN_OR_RETURN(auto train, open(source, input.evaluation ? "val" : "train"));
  std::shared_ptr<const ChatDataset> validation;
  if (input.evaluation) {
    validation = std::exchange(train, nullptr);
    data.objective.labelled = validation->num_prompts() == 0;
  } else if (!config.Validation().empty()) {
    TESSERA_ASSIGN_OR_RETURN(validation, open(config.Validation(), "val"));
  } else if (const int64_t held_out = data::HeldOutCount(train->size(), config.val_fraction)) {
    const int64_t kept = train->size() - held_out;
    validation = train->Part(kept, train->size());
    train = train->Part(0, kept);
  }
  const auto rows_of = [&](const std::shared_ptr<const ChatDataset>& chats,
                           bool packed) -> std::shared_ptr<const data::Dataset> {
    if (chats == nullptr || !packed) return chats;
    const int64_t seed = config.data_seed.value_or(config.seed);
    return data::PackedSamples::Create(
        chats, {.row_length = data.seq_len, .seed = static_cast<uint64_t>(seed)});
  };
  data.train = rows_of(train, keys.packing);
  // A written answer is that of a row.
  data.validation = rows_of(validation, keys.packing && !judged);
  TESSERA_RETURN_IF_ERROR(WriteTexts(input,
                                     {.max_new_tokens = keys.max_target_length,
                                      .num_beams = keys.num_beams,
                                      .eos_ids = EndsOfAnswers(format, *tokenizer),
                                      .answers_in_rows = true,
                                      .judged = judged,
                                      .shown = validation},
                                     &data));
  return data;
}

const TaskKind kChat = {.name = "chat",
                        .help = "conversations; every token that the assistant wrote is predicted",
                        .capability = models::Capability::kNextToken,
                        .fit = FitChat,
                        .options = &ChatOptions::Table(),
                        .open = OpenChat,
                        .predicts = true};
const TaskRegistration registered_chat(&kChat);

}  // namespace
}  // namespace tessera::train
