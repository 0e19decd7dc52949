// SPDX-License-Identifier: Apache-2.0
#include "serve/answer.h"

#include <utility>

namespace tessera::serve {

using models::GenerationResult;
using models::TokenScores;

void Answer::OnPrompt(size_t, const std::vector<TokenScores>&) {}
void Answer::OnToken(size_t, int64_t, std::string_view, const TokenScores*) {}

void Answer::SendText(const std::string& data) {
  if (!begun_) {
    begun_ = true;
    service_.CountAnswer(200);
    std::vector<net::HttpHeader> headers = service_.CorsHeaders(call_.exchange.request());
    headers.push_back({"Cache-Control", "no-store"});
    call_.exchange.Begin(200, "text/event-stream; charset=utf-8", std::move(headers));
  }
  call_.exchange.Write(Concat("data: ", data, "\n\n"));
}

bool Answer::Keep(size_t bytes) {
  if (streams_) return true;  // what is unsent is bounded
  if (failed_) return false;
  if (call_.exchange.Reserve(bytes)) return true;
  Fail(NoRoomForAnswer());
  return false;
}

void Answer::Fail(const Status& status) {
  if (failed_.exchange(true)) return;
  // Before Ask knows the ticket, it looks at `failed_`.
  if (const int64_t ticket = ticket_; ticket >= 0) service_.queue().Cancel(ticket);
  if (!begun_) return service_.Refuse(call_.exchange, status);
  SendText(JsonText(ErrorJson(status)));
  call_.exchange.End();
}

void Answer::End(size_t i, const StatusOr<GenerationResult>& result) {
  if (failed_) return;
  if (!result.ok()) return Fail(result.status());
  OnEnd(i, *result);
  if (--left_ == 0 && !failed_) Finish();
}

void Answer::Finish() {
  if (!streams_) return service_.RespondJson(call_.exchange, Whole());
  Close();
  SendText("[DONE]");
  call_.exchange.End();
}

void Ask(std::shared_ptr<Answer> answer, std::vector<models::TextRequest> texts) {
  Service& service = answer->service_;
  answer->left_ = texts.size();
  if (texts.empty()) return answer->Finish();
  for (size_t i = 0; i < texts.size(); ++i) {
    texts[i].on_prompt_scores = [answer, i](const std::vector<TokenScores>& scores) {
      if (!answer->failed_) answer->OnPrompt(i, scores);
      return OkStatus();
    };
    texts[i].on_token = [answer, i](int64_t id, std::string_view piece, const TokenScores* scores) {
      if (!answer->failed_) answer->OnToken(i, id, piece, scores);
      return OkStatus();
    };
    texts[i].on_end = [answer, i](const StatusOr<GenerationResult>& result) {
      answer->End(i, result);
    };
  }
  const StatusOr<int64_t> ticket = service.queue().Submit(answer->call_.client, std::move(texts));
  if (!ticket.ok()) return answer->Fail(ticket.status());
  answer->ticket_ = *ticket;
  const auto cancel = [&queue = service.queue(), number = *ticket] { queue.Cancel(number); };
  if (answer->failed_) return cancel();
  answer->call_.exchange.OnGone(cancel);
}

std::string AnswerJson(const nlohmann::ordered_json& head, std::vector<std::string> choices,
                       const std::string& usage) {
  std::string answer = JsonText(head);
  size_t size = answer.size() + usage.size() + 32;
  for (const std::string& choice : choices) size += choice.size() + 1;
  answer.reserve(size);  // it may be long, and waits to be sent as it is
  answer.back() = ',';
  answer.append(R"("choices":[)");
  for (std::string& choice : choices) {
    if (answer.back() != '[') answer += ',';
    answer.append(std::exchange(choice, {}));
  }
  answer += ']';
  if (!usage.empty()) answer.append(R"(,"usage":)").append(usage);
  answer += '}';
  return answer;
}

nlohmann::ordered_json UsageJson(int64_t prompt, int64_t made) {
  return {{"prompt_tokens", prompt}, {"completion_tokens", made}, {"total_tokens", prompt + made}};
}

const char* FinishReason(const GenerationResult& result) {
  return result.end == GenerationResult::End::kLength ? "length" : "stop";
}

}  // namespace tessera::serve
