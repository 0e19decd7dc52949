// SPDX-License-Identifier: Apache-2.0
// A model family of one's own: a bigram language model, trained by the built-in trainer.
//
//   bazel run //examples:bigram -- /path/to/text.txt /tmp/bigram-run
//   mpirun -n 2 bazel-bin/examples/bigram /path/to/text.txt /tmp/bigram-run     data parallel
#include <cstdio>
#include <memory>

#include <tessera/models/family.h>
#include <tessera/models/generation/generate.h>
#include <tessera/models/generation/special_tokens.h>
#include <tessera/models/model.h>
#include <tessera/models/model_keys.h>
#include <tessera/nn/embedding.h>
#include <tessera/train/ranks/run_on_ranks.h>
#include <tessera/train/run/run_setup.h>
#include <tessera/train/trainer.h>

#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

// Blocks: 0 the embedding, 1 the head. B batch, T tokens, C width, V vocabulary.
class Bigram : public Model {
 public:
  Bigram(const nlohmann::json& json, const nn::BuildContext& build)
      : Model(nn::Scope::Root(build)),
        json_(json),
        table_({.rows = vocab_size(), .width = json.value("width", 64)}, Child("table")),
        head_({.rows = vocab_size(), .width = json.value("width", 64)}, Child("head")) {}

  int num_blocks() const override { return 2; }
  const nlohmann::json& config() const override { return json_; }
  int64_t max_positions() const override { return 0; }  // unlimited
  int64_t vocab_size() const override { return json_.at("vocab_size").get<int64_t>(); }

  BlockKeys keys_of_block(int block) const override {
    if (block == 0) return {.takes = {keys::kInputIds}, .gives = {keys::kHidden}};
    return {.takes = {keys::kHidden},
            .may_take = {keys::kTargets},
            .gives = {keys::kLogits, keys::kLoss}};
  }

  Bundle RunBlock(int block, Bundle in, const RunOptions& options) const override {
    if (block == 0) {
      in.set(keys::kHidden, table_.Forward(in.at(keys::kInputIds)));
      return in;
    }
    const Tensor logits_BTV = head_.Forward(in.at(keys::kHidden), options.context);
    Bundle out;
    if (options.keep_logits) out.set(keys::kLogits, head_.Gather(logits_BTV));
    if (in.has(keys::kTargets)) {
      out.set(keys::kLoss, CrossEntropy(logits_BTV, in.at(keys::kTargets),
                                        head_.LossOptions(LossOptionsOf(options))));
    }
    return out;
  }

 private:
  const nlohmann::json json_;
  nn::VocabParallelEmbedding table_;
  nn::VocabParallelHead head_;
};

StatusOr<std::unique_ptr<Model>> Build(const nlohmann::json& json, const nn::BuildContext& build) {
  if (!json.contains("vocab_size")) return InvalidArgument("config of bigram: no 'vocab_size'");
  return std::make_unique<Bigram>(json, build);
}

Family MakeFamily() {
  return {
      .model_type = "bigram",
      .architectures = {{"BigramForCausalLM", {Capability::kNextToken}}},
      .presets = {{"bigram", "byte", {{"model_type", "bigram"}, {"vocab_size", 257}}}},
      .build = Build,
      .inputs = {keys::kInputIds, keys::kTargets},
  };
}
const FamilyRegistration registration(MakeFamily);

}  // namespace
}  // namespace tessera::models

// Trains on every rank that `mpirun` has started, and writes what follows "the ".
tessera::Status Train(const char* text, const char* out, const tessera::dist::World& world) {
  using namespace tessera;
  train::RunConfig config;
  config.model = "bigram";
  config.data = {text};
  config.out = out;
  config.seq_len = 64;
  config.max_steps = 200;
  config.lr = 1e-2;
  config.log_interval = 50;
  TESSERA_ASSIGN_OR_RETURN(const dist::Mesh mesh, train::MakeMesh(config, world.communicator));
  TESSERA_ASSIGN_OR_RETURN(train::RunSetup setup, train::PrepareRun(config, mesh, world.device));
  train::Trainer trainer(setup.config, *setup.model, setup.data, mesh);
  TESSERA_RETURN_IF_ERROR(trainer.Train().status());
  const auto& model = *setup.model;
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> prompt,
                           models::EncodePrompt(*setup.tokenizer, model.config(), "the "));
  TESSERA_ASSIGN_OR_RETURN(const auto written,
                           models::Generate(model, {prompt}, {.max_new_tokens = 12},
                                            {.tokenizer = setup.tokenizer.get()}));
  if (mesh.prints()) std::printf("%s%s\n", "the ", written[0].text.c_str());
  return OkStatus();
}

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: bigram TEXT OUT\n"), 2;
  return tessera::train::RunOnRanks(
      {}, [&](const tessera::dist::World& world) { return Train(argv[1], argv[2], world); });
}
