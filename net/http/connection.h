// SPDX-License-Identifier: Apache-2.0
// One client of an HttpServer, on the server's thread. For sources of this folder alone.
//
//   idle --first byte--> reading --request--> answering --sent--> idle, or lingering --> closed
//
// The socket is watched for bytes all the time, so that a client's leaving is seen while its
// request is answered. Bytes are read into a buffer that all connections share: an idle one holds
// none.
#ifndef TESSERA_NET_HTTP_CONNECTION_H_
#define TESSERA_NET_HTTP_CONNECTION_H_

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "net/http/http_exchange_state.h"
#include "net/http/http_server.h"
#include "net/http/request_reader.h"

namespace tessera::net {

class Connection;

// What the connections of a server share.
struct ConnectionHost {
  HttpServerOptions options;
  const HttpServer::Handler* handler = nullptr;
  std::shared_ptr<AnswerBudget> budget;
  std::shared_ptr<Mailbox> mailbox;
  std::unordered_set<std::shared_ptr<Connection>> connections;
  int64_t busy = 0;                // connections that read a request or answer one
  int64_t held_bytes = 0;          // of their requests
  std::function<void()> on_quiet;  // called when none is busy any more
  bool stopping = false;           // no connection continues after its answer
  std::vector<char> bytes = std::vector<char>(64 << 10);
  std::atomic<int64_t> open = 0, accepted = 0, requests = 0, refused = 0, gone = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, ConnectionHost& host);

  void Start();
  // Answers with this, reads nothing and closes.
  void StartRefused(const HttpResponse& refusal);

  // Pieces of the answer at work.
  void Send(std::vector<std::string> pieces, After after);
  // Ends the connection in the midst of what it does.
  void Drop();
  void CloseIfIdle();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Stage { kIdle, kReading, kAnswering, kLingering, kClosed };

  // A handler of an event: it keeps this object, does nothing once it is closed, and closes it
  // where it throws (memory ends).
  template <typename F>
  auto Guarded(F f);

  void Enter(Stage stage);
  void Close();
  void SetDeadline(std::chrono::milliseconds from_now);
  void ClearDeadline();
  void OnDeadline();

  void AwaitBytes();
  void ReadBytes();
  void Take(std::string_view bytes);
  void Answer();
  void Refuse(HttpResponse refusal);

  // The client has closed its sending side, or left.
  void OnEndOfBytes();
  void WatchForLeaving();
  bool Probe();
  void Flush();
  void BeginSending();
  void OnSent(size_t bytes);
  void EndAnswer();
  void Linger();

  boost::asio::ip::tcp::socket socket_;
  std::string peer_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer watch_;  // of a client that sends no more
  ConnectionHost& host_;
  Stage stage_ = Stage::kIdle;

  bool awaits_bytes_ = false;
  bool sends_no_more_ = false;  // the client
  std::optional<RequestReader> reader_;
  int64_t held_bytes_ = 0;  // of the request that is read or answered
  std::string later_;       // bytes of the requests behind the one at work

  std::shared_ptr<AnswerProgress> progress_;  // while answering
  After after_ = After::kMore;
  std::deque<std::string> unsent_;
  size_t sent_of_first_ = 0;
  int64_t sent_in_time_ = 0;  // since the deadline was set
  bool has_begun_ = false;    // something of the answer was sent
  bool may_probe_ = false;    // once, where the client sends no more
  bool flush_posted_ = false;
  bool writes_ = false;
};

}  // namespace tessera::net

#endif  // TESSERA_NET_HTTP_CONNECTION_H_
