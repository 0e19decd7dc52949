// SPDX-License-Identifier: Apache-2.0
// What is behind an HttpExchange. For sources of this folder alone.
#ifndef TESSERA_NET_HTTP_HTTP_EXCHANGE_STATE_H_
#define TESSERA_NET_HTTP_HTTP_EXCHANGE_STATE_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/http/answer_bytes.h"
#include "net/http/http_server.h"

namespace tessera::net {

class Connection;
class Mailbox;

// What follows pieces of an answer: more, or, where they were the last, the next request.
enum class After { kMore, kNextRequest, kClose };

// The bytes of a server's answers, together. It may outlive the server.
struct AnswerBudget {
  const int64_t most;
  std::atomic<int64_t> taken = 0;

  explicit AnswerBudget(int64_t bytes) : most(bytes) {}
};

// How an answer stands: shared by the exchange, on any thread, and its connection.
struct AnswerProgress {
  enum class Stage { kNone, kBegun, kEnded, kFailed };

  std::mutex mutex;  // of what follows, and of the order of pieces
  Stage stage = Stage::kNone;
  std::function<void()> on_gone;
  std::atomic<bool> gone = false;
  std::atomic<size_t> unsent = 0;
  std::atomic<size_t> reserved = 0;
  const std::shared_ptr<AnswerBudget> budget;

  explicit AnswerProgress(std::shared_ptr<AnswerBudget> of_server) : budget(std::move(of_server)) {}
  ~AnswerProgress();
  AnswerProgress(const AnswerProgress&) = delete;
  AnswerProgress& operator=(const AnswerProgress&) = delete;

  void AddUnsent(size_t bytes);
  void OnSent(size_t bytes);
  bool Reserve(size_t bytes);
  void ReleaseReserved();
  // The client has left: the server's thread says so.
  void Leave();
};

struct HttpExchange::State {
  HttpRequest request;
  std::string peer;
  AnswerForm form;
  std::shared_ptr<AnswerProgress> progress;
  std::shared_ptr<Mailbox> mailbox;
  std::weak_ptr<Connection> connection;

  ~State();
  // There will be no (further) answer: 500 with the message, or, in the midst of one, the
  // connection's end. What copies still say is ignored. Nothing, where the answer is whole.
  void Fail(std::string_view message);

  // With progress->mutex held.
  void SendWhole(HttpResponse response);
  void Send(std::vector<std::string> pieces, After after);
  After AfterAnswer() const { return form.keep_alive ? After::kNextRequest : After::kClose; }
};

}  // namespace tessera::net

#endif  // TESSERA_NET_HTTP_HTTP_EXCHANGE_STATE_H_
