// SPDX-License-Identifier: Apache-2.0
// Fine-tunes a ChatGLM on prompts and responses with an engine and a loop of one's own: forward,
// Backward, Step, by a DeepSpeed configuration as it stands (DeepSpeed's tutorial loop on ChatGLM's
// ptuning example).
//
//   mpirun -n 2 chatglm_engine --model chatglm-6b --train_file train.json --deepspeed ds.json
//       --prompt_column content --response_column summary --max_steps 3000 --out out
//
// The same command again continues from the newest checkpoint in `out`.
#include <algorithm>
#include <string>

#include <tessera/base/file.h>
#include <tessera/data/tokenizer/tokenizer.h>
#include <tessera/models/family.h>
#include <tessera/models/generation/special_tokens.h>
#include <tessera/models/hub/load_model.h>
#include <tessera/train/boost/coordinator.h>
#include <tessera/train/loop/initialize.h>

#include "data/sequence_pairs/instruction_dataset.h"
#include "examples/flows/flow_main.h"
#include "nlohmann/json.hpp"

namespace tessera::flows {
namespace {

using train::ConfiguredEngine;
using train::Coordinator;

struct Flags {
  std::string model = "chatglm-tiny";
  std::string tokenizer;
  std::string train_file;
  std::string deepspeed;
  std::string out;
  std::string prompt_column = "prompt";
  std::string response_column = "response";
  std::string history_column;
  int64_t max_source_length = 64;
  int64_t max_target_length = 128;
  int64_t max_steps = 3000;
  int64_t logging_steps = 10;
  int64_t save_steps = 1000;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<Flags>("ChatGLM with an engine")
            .Add("model", &Flags::model, "a preset or a Hugging Face folder")
            .Add("tokenizer", &Flags::tokenizer, "a folder", {.unset = "the model's"})
            .Add("train_file", &Flags::train_file, "JSON lines")
            .Add("deepspeed", &Flags::deepspeed, "DeepSpeed's configuration")
            .Add("out", &Flags::out, "checkpoints, the data's cache and the model")
            .Add("prompt_column", &Flags::prompt_column, "member with the prompt")
            .Add("response_column", &Flags::response_column, "member with the response")
            .Add("history_column", &Flags::history_column, "member with [[question, answer], ...]")
            .Add("max_source_length", &Flags::max_source_length, "tokens of a prompt", {.least = 4})
            .Add("max_target_length", &Flags::max_target_length, "and of a response", {.least = 4})
            .Add("max_steps", &Flags::max_steps, "optimizer steps", {.least = 1})
            .Add("logging_steps", &Flags::logging_steps, "between losses", {.least = 1})
            .Add("save_steps", &Flags::save_steps, "between checkpoints", {.least = 1}));
    return *table;
  }
};

using Chats = std::shared_ptr<const data::InstructionDataset>;

// The rows are encoded once, by one rank of every machine; the others map the same files.
StatusOr<Chats> OpenChats(const Flags& flags, const data::Tokenizer& tokenizer,
                          const models::Conversation& conversation,
                          const Coordinator& coordinator) {
  const std::string cache = JoinPath(flags.out, "data");
  const data::InstructionOptions options = {
      .prompt_column = flags.prompt_column,
      .response_column = flags.response_column,
      .history_column = flags.history_column,
      .join_history = conversation.join,
      .answer_start = conversation.answer_start.find(tokenizer),
      .max_source_length = flags.max_source_length,
      .max_target_length = flags.max_target_length};
  const auto open = [&] {
    return data::InstructionDataset::Open(flags.train_file, tokenizer, JoinPath(cache, "train"),
                                          options);
  };
  TESSERA_RETURN_IF_ERROR(coordinator.OnNodeMasters([&]() -> Status {
    TESSERA_RETURN_IF_ERROR(MakeDirectories(cache));
    return open().status();
  }));
  return open();
}

// One optimizer step; the mean loss of this rank's micro-batches.
StatusOr<double> TakeStep(ConfiguredEngine& engine, train::BatchLoader& loader) {
  double sum = 0;
  const int64_t micro_batches = engine.gradient_accumulation_steps();
  for (int64_t m = 0; m < micro_batches; ++m) {
    TESSERA_ASSIGN_OR_RETURN(const data::Batch batch, loader.Next());
    const Tensor loss = engine(batch.tensors);
    engine.Backward(loss);
    engine.Step();  // updates at the accumulation boundary
    sum += loss.Item();
  }
  return sum / static_cast<double>(micro_batches);
}

Status Train(const Flags& flags, const dist::World& world) {
  const Coordinator coordinator(world.communicator);
  TESSERA_ASSIGN_OR_RETURN(
      const auto tokenizer,
      data::LoadTokenizer(flags.tokenizer.empty() ? flags.model : flags.tokenizer));
  TESSERA_ASSIGN_OR_RETURN(nlohmann::json config, models::ReadModelConfig(flags.model));
  TESSERA_ASSIGN_OR_RETURN(const models::Family* family, models::FamilyOf(config));
  if (!family->texts.conversation) {
    return InvalidArgument(flags.model, ": this model has no conversations");
  }
  TESSERA_ASSIGN_OR_RETURN(const Chats chats,
                           OpenChats(flags, *tokenizer, *family->texts.conversation, coordinator));

  // A preset takes the tokenizer's vocabulary; both learn its special tokens.
  nlohmann::json changes = nlohmann::json::object();
  if (models::FindPreset(flags.model) != nullptr) {
    changes = models::VocabularyOf(*tokenizer, config);
    config.update(changes);
  }
  changes.update(models::TokenIdsFromTokenizer(*tokenizer, config));
  const auto build = [&](const nn::BuildContext& context) {
    return models::LoadModel(flags.model, {.build = context, .config_changes = changes});
  };

  TESSERA_ASSIGN_OR_RETURN(
      const auto engine,
      train::Initialize(build,
                        train::RunSources{.deepspeed = flags.deepspeed,
                                          .flags = {{"max_steps", flags.max_steps}}},
                        {.world = world.communicator, .device = world.device}));
  for (const std::string& line : engine->warnings()) {
    coordinator.PrintOnMaster("warning: " + line);
  }
  TESSERA_ASSIGN_OR_RETURN(const train::LoadedCheckpoint loaded, engine->LoadCheckpoint(flags.out));
  double best = loaded.client_state->value("best", 1e9);
  coordinator.PrintOnMaster(loaded.path.empty()
                                ? Concat(chats->size(), " chats, from the beginning")
                                : Concat("goes on from ", loaded.path));

  const auto loader = engine->MakeLoader(*chats);
  while (engine->global_steps() < flags.max_steps) {
    TESSERA_ASSIGN_OR_RETURN(const double loss, TakeStep(*engine, *loader));
    const int64_t step = engine->global_steps();
    best = std::min(best, loss);
    if (step % flags.logging_steps == 0 || step == flags.max_steps) {
      coordinator.PrintOnMaster(Concat("step ", step, ": loss ", loss, ", lr ",
                                       engine->learning_rate(), ", skipped ",
                                       engine->skipped_steps()));
    }
    if (step % flags.save_steps == 0 || step == flags.max_steps) {
      TESSERA_RETURN_IF_ERROR(engine->SaveCheckpoint(flags.out, "", {{"best", best}}));
    }
  }
  return engine->SaveModel(JoinPath(flags.out, "model"), tokenizer.get());
}

}  // namespace
}  // namespace tessera::flows

int main(int argc, char** argv) {
  return tessera::flows::FlowMain<tessera::flows::Flags>(argc, argv, tessera::flows::Train);
}
