// SPDX-License-Identifier: Apache-2.0
// The answer to a request for texts, whole or in pieces as they are written.
//
//   class MyAnswer : public Answer { ... };
//   Ask(std::make_shared<MyAnswer>(service, std::move(call), /*streams=*/true), std::move(texts));
//
// What is protected is called on the queue's thread, one at a time. Where a text fails, the others
// of the request are cancelled, and the client is told; where the client leaves, all are.
#ifndef TESSERA_SERVE_ANSWER_H_
#define TESSERA_SERVE_ANSWER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/generation/text_request.h"
#include "nlohmann/json.hpp"
#include "serve/service.h"

namespace tessera::serve {

class Answer {
 public:
  Answer(Service& service, Call call, bool streams)
      : service_(service), call_(std::move(call)), streams_(streams) {
    call_.body = nullptr;  // was read
  }
  virtual ~Answer() = default;
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

 protected:
  using Json = nlohmann::ordered_json;

  // Of text `i` of the request: scores of its prompt, a new token with the text that is certain
  // now, its end.
  virtual void OnPrompt(size_t i, const std::vector<models::TokenScores>& scores);
  virtual void OnToken(size_t i, int64_t id, std::string_view piece,
                       const models::TokenScores* scores);
  virtual void OnEnd(size_t i, const models::GenerationResult& result) = 0;
  // All have ended: the answer as a whole, as JSON, of one that does not stream ...
  virtual std::string Whole() = 0;
  // ... or the last events of a stream.
  virtual void Close() {}

  // The answer is sent, as it is.
  void Finish();
  // Bytes of the answer that are kept until it is whole. Where the server's answers have no room
  // for them, this one fails.
  bool Keep(size_t bytes);
  // An event of the stream, which begins with the first one.
  void Send(const Json& event) { SendText(JsonText(event)); }
  void SendText(const std::string& data);

  Service& service() { return service_; }
  bool streams() const { return streams_; }

 private:
  friend void Ask(std::shared_ptr<Answer> answer, std::vector<models::TextRequest> texts);
  void Fail(const Status& status);
  void End(size_t i, const StatusOr<models::GenerationResult>& result);

  Service& service_;
  Call call_;
  const bool streams_;
  std::atomic<int64_t> ticket_ = -1;
  std::atomic<bool> failed_ = false;
  bool begun_ = false;
  size_t left_ = 0;
};

// Puts the texts into the queue, with callbacks to `answer`.
void Ask(std::shared_ptr<Answer> answer, std::vector<models::TextRequest> texts);

// `head` with "choices", each JSON, and "usage", which is left out where it is empty.
std::string AnswerJson(const nlohmann::ordered_json& head, std::vector<std::string> choices,
                       const std::string& usage);

// What a request took, in tokens.
nlohmann::ordered_json UsageJson(int64_t prompt, int64_t made);

// "stop" or "length".
const char* FinishReason(const models::GenerationResult& result);

}  // namespace tessera::serve

#endif  // TESSERA_SERVE_ANSWER_H_
