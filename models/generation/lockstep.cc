// SPDX-License-Identifier: Apache-2.0
#include "models/generation/lockstep.h"

#include <utility>

#include "base/error.h"
#include "models/generation/incremental_decoder.h"

namespace tessera::models {

Lockstep::Lockstep(const Model& model, LargestOverRanks largest, int adapter)
    : model_(model), largest_(std::move(largest)), adapter_(adapter) {}

void Lockstep::BeforeEncoder() { RunAlongUntil(kEncoder); }

void Lockstep::BeforeDecoder(const std::vector<int64_t>& tokens) {
  if (tokens_.empty()) tokens_ = tokens;
  RunAlongUntil(kDecoder);
}

void Lockstep::Encoded(const Bundle& encoded) {
  if (encoded_.empty()) encoded_ = encoded;
}

void Lockstep::Finish() { RunAlongUntil(kNone); }

void Lockstep::RunAlongUntil(Pass mine) {
  if (largest_ == nullptr) return;
  for (auto next = static_cast<Pass>(largest_(mine)); next != mine;
       next = static_cast<Pass>(largest_(mine))) {
    if (next == kEncoder) {
      RunIdleEncoder();
    } else {
      RunIdleDecoder();
    }
  }
}

void Lockstep::RunIdleEncoder() {
  IncrementalDecoder idle(model_);
  idle.Encode({{model_.encoder_decoder()->decoder_start()}}, adapter_);
  Encoded(idle.encoded());
}

void Lockstep::RunIdleDecoder() {
  TESSERA_CHECK(!tokens_.empty(), "generate", "this rank has no text to run along with others'");
  IncrementalDecoder idle(model_);
  idle.UseEncoded(encoded_);
  const std::vector<std::vector<int64_t>> tokens = {tokens_};
  static_cast<void>(idle.Feed(tokens, {.adapter = adapter_}));  // whatever it gives
}

}  // namespace tessera::models
