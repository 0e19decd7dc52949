// SPDX-License-Identifier: Apache-2.0
// The callbacks of a host that follow a text: told nothing more once one of them has ended it.
#ifndef TESSERA_RUNTIME_LISTENER_H_
#define TESSERA_RUNTIME_LISTENER_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/generation/token_choice.h"
#include "runtime/tessera.h"

namespace tessera::runtime {

class Listener {
 public:
  // `callback` may be null.
  Listener(tsr_token_callback callback, void* user) : callback_(callback), user_(user) {}

  bool stopped() const { return stopped_; }
  // Cancelled where the host has ended it. `scores` may be null.
  Status Token(int64_t row, int64_t id, std::string_view text, const models::TokenScores* scores);
  void End(int64_t row, int end);
  // Calls one of the host's, unless one has ended it: texts of a batch that come later in the same
  // pass are told nothing.
  Status Told(const std::function<int()>& callback);

 private:
  const tsr_token_callback callback_;
  void* const user_;
  bool stopped_ = false;
};

// TextRequest::top_scores of tsr_generate_options.logprobs, and what that may be.
int64_t TopScoresOf(const tsr_generate_options& options);
Status CheckTopScores(const tsr_generate_options& options);

// TextRequest::on_logits of tsr_generate_options.logits; null where there is none.
std::function<Status(std::span<const int64_t> ids, std::span<double> logits)> LogitsCallbackOf(
    const tsr_generate_options& options, int64_t row, Listener* listener);

// As a host has them.
std::vector<tsr_logprob> LogprobsOf(const models::TokenScores& scores);

}  // namespace tessera::runtime

#endif  // TESSERA_RUNTIME_LISTENER_H_
