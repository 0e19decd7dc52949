// SPDX-License-Identifier: Apache-2.0
#include "runtime/listener.h"

namespace tessera::runtime {

std::vector<tsr_logprob> LogprobsOf(const models::TokenScores& scores) {
  std::vector<tsr_logprob> all;
  for (const auto& [id, log_p] : scores.likeliest) all.push_back({id, log_p});
  return all;
}

Status Listener::Told(const std::function<int()>& callback) {
  stopped_ = stopped_ || callback() != 0;
  return stopped_ ? Failure(StatusCode::kCancelled, "the callback ended it") : OkStatus();
}

Status Listener::Token(int64_t row, int64_t id, std::string_view text,
                       const models::TokenScores* scores) {
  tsr_token token = {};
  token.size = sizeof(token);
  token.id = id;
  token.text = text.data();
  token.length = text.size();
  token.end = TSR_END_NONE;
  token.sequence = row;
  std::vector<tsr_logprob> top;
  if (scores != nullptr) {
    top = LogprobsOf(*scores);
    token.logprob = scores->log_p;
    token.top = top.data();
    token.num_top = top.size();
  }
  return Told([&] { return callback_(user_, &token); });
}

void Listener::End(int64_t row, int end) {
  tsr_token token = {};
  token.size = sizeof(token);
  token.id = -1;
  token.text = "";
  token.end = end;
  token.sequence = row;
  static_cast<void>(Told([&] { return callback_(user_, &token); }));
}

int64_t TopScoresOf(const tsr_generate_options& options) {
  if (options.logprobs == 0) return -1;
  return options.logprobs == -1 ? 0 : options.logprobs;
}

Status CheckTopScores(const tsr_generate_options& options) {
  if (options.logprobs >= -1) return OkStatus();
  return InvalidArgument("tsr_generate_options: logprobs is ", options.logprobs,
                         "; it is a number of tokens, 0 (none) or -1 (the chosen one's alone)");
}

std::function<Status(std::span<const int64_t> ids, std::span<double> logits)> LogitsCallbackOf(
    const tsr_generate_options& options, int64_t row, Listener* listener) {
  if (options.logits == nullptr) return nullptr;
  return [callback = options.logits, user = options.logits_user, row, listener](
             std::span<const int64_t> ids, std::span<double> values) {
    tsr_logits logits = {};
    logits.size = sizeof(logits);
    logits.ids = ids.data();
    logits.num_ids = ids.size();
    logits.logits = values.data();
    logits.num_logits = values.size();
    logits.sequence = row;
    return listener->Told([&] { return callback(user, &logits); });
  };
}

}  // namespace tessera::runtime
