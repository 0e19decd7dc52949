// SPDX-License-Identifier: Apache-2.0
// Embedding tables and the output layer that shares one.
//
//   VocabParallelEmbedding wte({.rows = V, .width = C}, Child("wte"));
//   Tensor h_BTC = wte.Forward(ids_BT);
//   VocabParallelHead lm_head(wte.weight(), Child("lm_head"));
//   Tensor logits = lm_head.Forward(h_BTC);           // this rank's columns
//
// The vocabulary is shared out over the tensor-parallel group by EvenShare, so any size goes; a
// rank looks up the ids it has and the results are summed (Shoeybi et al. 2019).
//
// NEFTune (Jain et al. 2023, "Noisy Embeddings Improve Instruction Finetuning"): in training, with
// neftune_noise_alpha > 0, what Forward gives of ids [B, T] has noise added, uniform in
// +-alpha / sqrt(T * width), a function of the module's path, the step and the micro-batch.
#ifndef TESSERA_NN_EMBEDDING_H_
#define TESSERA_NN_EMBEDDING_H_

#include "nn/module.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace tessera::nn {

struct EmbeddingConfig {
  int64_t rows = 0;
  int64_t width = 0;
  Init init = Init::Normal(0.02);
  int64_t padding_idx = -1;  // this row begins as 0 and gets no gradient from look-ups; -1: none
  // Rows that are looked up are multiplied by it, rounded to their dtype (Gemma: the root of the
  // width). Of VocabParallelEmbedding.
  double scale = 1.0;
};

class VocabParallelEmbedding : public Module {
 public:
  VocabParallelEmbedding(const EmbeddingConfig& config, const Scope& scope);
  // A second use of another embedding's table, which collects a gradient of its own.
  VocabParallelEmbedding(VocabParallelEmbedding& shared, const Scope& scope);
  std::string_view kind() const override { return "VocabParallelEmbedding"; }
  bool looks_up() const override { return true; }
  std::optional<LinearLayout> term_layout() const override;
  VocabularyUse vocabulary_use() const override { return VocabularyUse::kTable; }
  // int64 ids [...] to [..., width], whole on every rank. An id beyond the table throws Error.
  Tensor Forward(const Tensor& ids, const ForwardContext& context = {}) const;
  Parameter& weight() { return weight_; }

 private:
  const EmbeddingConfig config_;
  Parameter& weight_;
};

// A table that every rank holds whole (positions, token types).
class ReplicatedEmbedding : public Module {
 public:
  ReplicatedEmbedding(const EmbeddingConfig& config, const Scope& scope);
  std::string_view kind() const override { return "ReplicatedEmbedding"; }
  bool looks_up() const override { return true; }
  std::optional<LinearLayout> term_layout() const override;
  Tensor Forward(const Tensor& ids, const ForwardContext& context = {}) const;

 private:
  const EmbeddingConfig config_;
  Parameter& weight_;
};

// Logits from hidden states by a [V, C] weight: tied to an embedding, or its own.
class VocabParallelHead : public Module {
 public:
  // With a softcap c, logits x are c tanh(x / c) (Gemma 2); 0: they stay.
  VocabParallelHead(Parameter& tied, const Scope& scope, double softcap = 0.0);
  VocabParallelHead(const EmbeddingConfig& config, const Scope& scope, double softcap = 0.0);
  std::string_view kind() const override { return "VocabParallelHead"; }
  std::optional<LinearLayout> linear_layout() const override;
  VocabularyUse vocabulary_use() const override { return VocabularyUse::kHead; }

  // h [..., C] (its share of the sequence under sequence parallelism) to this rank's columns, plus
  // this rank's part of a bias (placed as BiasPlacement says) where defined.
  Tensor Forward(const Tensor& h, const ForwardContext& context = {},
                 const Tensor& bias = {}) const;
  Placement BiasPlacement() const;
  // The loss of h [..., C] without the logits, where the weight is dense and there is no softcap:
  // LinearCrossEntropy. On a rank that has the whole vocabulary.
  Tensor ChunkedLoss(const Tensor& h, const Tensor& targets, const CrossEntropyOptions& options,
                     int64_t chunk_rows, const ForwardContext& context = {}) const;
  // All columns, on every rank.
  Tensor Gather(const Tensor& local_logits) const;
  // `options` completed with the group and this rank's range of the vocabulary.
  CrossEntropyOptions LossOptions(CrossEntropyOptions options) const;

 private:
  Tensor Logits(const Tensor& h, const Tensor& bias, const ForwardContext& context) const;

  Parameter& weight_;
  const double softcap_;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_EMBEDDING_H_
