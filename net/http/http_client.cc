// SPDX-License-Identifier: Apache-2.0
#include "net/http/http_client.h"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>
#include <limits>
#include <utility>
#include <vector>

#include "net/http/message_parser.h"

namespace tessera::net {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using OnPiece = std::function<bool(std::string_view)>;

constexpr uint32_t kMaxHeadBytes = 1 << 20;
// Answers before the answer: "100 Continue".
constexpr int kMostInterim = 64;

class ResponseParser : public MessageParser</*kIsRequest=*/false> {
 public:
  ResponseParser(bool head_only, uint64_t max_body_bytes, const OnPiece* on_piece)
      : MessageParser(kMaxHeadBytes,
                      on_piece == nullptr ? max_body_bytes : std::numeric_limits<uint64_t>::max()),
        max_body_bytes_(max_body_bytes),
        on_piece_(on_piece) {
    skip(head_only);
  }

  HttpResponse TakeResponse() {
    response_.content_type.clear();
    for (HttpHeader& header : headers) {
      if (boost::beast::iequals(header.name, "content-type")) {
        response_.content_type = std::move(header.value);
      } else {
        response_.headers.push_back(std::move(header));
      }
    }
    return std::move(response_);
  }
  int status() const { return response_.status; }
  bool left() const { return left_; }

 protected:
  void on_response_impl(int status, string_view, int, error_code&) override {
    response_.status = status;
  }
  void OnBody(std::string_view piece) override {
    if (on_piece_ == nullptr || response_.status != 200) {
      response_.body.append(piece);
      // What a refusal says beyond this is of no use.
      left_ = left_ || response_.body.size() > max_body_bytes_;
    } else if (!left_) {
      left_ = !(*on_piece_)(piece);
    }
  }

 private:
  const uint64_t max_body_bytes_;
  const OnPiece* on_piece_;
  HttpResponse response_;
  bool left_ = false;
};

}  // namespace

struct HttpClient::State {
  std::string url, host, port;
  HttpClientOptions options;
  asio::io_context io{1};
  Tcp::socket socket{io};
  std::string read_ahead;  // behind the answer before

  // Waits for one asynchronous operation, which `start` is given the handler for.
  template <typename Start>
  error_code Wait(Clock::duration time, Start start) {
    error_code result = asio::error::would_block;
    start([&result](error_code error, auto&&...) { result = error; });
    io.restart();
    io.run_for(time);
    if (result == asio::error::would_block) {
      Close();
      io.restart();
      io.run();
      result = asio::error::timed_out;
    }
    return result;
  }
  void Close() {
    error_code ignored;
    socket.close(ignored);
    read_ahead.clear();
  }
  Status Failed(std::string_view what, error_code error) {
    Close();
    const bool late = error == asio::error::timed_out;
    return Failure(late ? StatusCode::kDeadlineExceeded : StatusCode::kUnavailable, url, ": ", what,
                   ": ", late ? "it takes too long" : error.message());
  }

  Status Connect();
  std::string BytesOf(const HttpRequest& request) const;
  // `whole`: not in pieces that somebody takes.
  Status Read(ResponseParser& parser, bool whole, bool* something);
  StatusOr<HttpResponse> Ask(const HttpRequest& request, const OnPiece* on_piece);
  // `something`: a byte of an answer came.
  StatusOr<HttpResponse> AskOnce(const HttpRequest& request, const OnPiece* on_piece,
                                 bool* something);
};

Status HttpClient::State::Connect() {
  error_code error;
  Tcp::resolver resolver(io);
  const auto found = resolver.resolve(host, port, error);
  if (error) return Failed("no such host", error);
  error = Wait(options.timeout, [&](auto handler) { asio::async_connect(socket, found, handler); });
  // While nobody listens on a port of this machine, TCP may join a socket with itself.
  if (!error && socket.local_endpoint(error) == socket.remote_endpoint(error)) {
    error = asio::error::connection_refused;
  }
  if (error) return Failed("no connection", error);
  socket.set_option(Tcp::no_delay(true), error);
  return OkStatus();
}

std::string HttpClient::State::BytesOf(const HttpRequest& request) const {
  std::string bytes = Concat(request.method, " ", request.path, request.query.empty() ? "" : "?",
                             request.query, " HTTP/1.1\r\n");
  const auto add = [&](std::string_view name, std::string_view value) {
    bytes.append(name).append(": ").append(value).append("\r\n");
  };
  if (request.Find("host") == nullptr) add("Host", url.substr(url.find("//") + 2));
  for (const HttpHeader& header : request.headers) add(header.name, header.value);
  const bool may_have_body = request.method != "GET" && request.method != "HEAD";
  if ((may_have_body || !request.body.empty()) && request.Find("content-length") == nullptr) {
    add("Content-Length", std::to_string(request.body.size()));
  }
  return bytes.append("\r\n").append(request.body);
}

Status HttpClient::State::Read(ResponseParser& parser, bool whole, bool* something) {
  const auto begin = Clock::now();
  std::array<char, 16 << 10> buffer;
  error_code error;
  std::string bytes = std::exchange(read_ahead, {});
  while (!parser.is_done() && !parser.left()) {
    if (bytes.empty()) {
      const auto gone = whole ? Clock::now() - begin : Clock::duration::zero();
      const auto left = std::max<Clock::duration>(options.timeout - gone, Clock::duration::zero());
      error = Wait(left, [&](auto handler) {
        socket.async_read_some(asio::buffer(buffer),
                               [&, handler](error_code e, size_t size) mutable {
                                 bytes.assign(buffer.data(), size);
                                 handler(e);
                               });
      });
      if (error == asio::error::eof && parser.is_header_done()) {
        parser.put_eof(error);
        Close();
        if (!error) break;
      }
      if (error) return Failed("no answer", error);
      *something = true;
    }
    const size_t used = parser.Feed(bytes, error);
    if (error == http::error::body_limit) {
      Close();
      return Failure(StatusCode::kUnavailable, url, ": the answer is longer than ",
                     options.max_body_bytes, " bytes");
    }
    if (error) return Failed("the answer cannot be read", error);
    read_ahead = bytes.substr(used);
    bytes.clear();
  }
  return OkStatus();
}

StatusOr<HttpResponse> HttpClient::State::AskOnce(const HttpRequest& request,
                                                  const OnPiece* on_piece, bool* something) {
  if (!socket.is_open()) TESSERA_RETURN_IF_ERROR(Connect());
  const std::string bytes = BytesOf(request);
  // A server may answer, and read no further, before all is written.
  const error_code error = Wait(options.timeout, [&](auto handler) {
    asio::async_write(socket, asio::buffer(bytes), handler);
  });
  if (error == asio::error::timed_out) return Failed("sending", error);
  for (int interim = 0;; ++interim) {
    if (interim > kMostInterim) return Failed("no answer", http::error::bad_status);
    ResponseParser parser(request.method == "HEAD", options.max_body_bytes, on_piece);
    TESSERA_RETURN_IF_ERROR(Read(parser, on_piece == nullptr, something));
    if (parser.status() / 100 == 1) continue;  // "100 Continue"
    if (parser.left() || !parser.keep_alive()) Close();
    return parser.TakeResponse();
  }
}

StatusOr<HttpResponse> HttpClient::State::Ask(const HttpRequest& request, const OnPiece* on_piece) {
  const bool kept = socket.is_open();
  bool something = false;
  StatusOr<HttpResponse> response = AskOnce(request, on_piece, &something);
  const bool closed = response.status().code() == StatusCode::kUnavailable && !something;
  return kept && closed ? AskOnce(request, on_piece, &something) : std::move(response);
}

HttpClient::HttpClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient& HttpClient::operator=(HttpClient&&) noexcept = default;
HttpClient::~HttpClient() = default;

StatusOr<HttpClient> HttpClient::Open(const std::string& url, const HttpClientOptions& options) {
  auto state = std::make_unique<State>();
  std::string_view rest = url;
  constexpr std::string_view kScheme = "http://";
  if (!rest.starts_with(kScheme)) return InvalidArgument(url, ": is no http:// url");
  rest.remove_prefix(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  state->url = Concat(kScheme, rest);
  const size_t bracket = rest.find(']');  // of an IPv6 address
  const size_t colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
  state->port = colon == std::string_view::npos ? "80" : rest.substr(colon + 1);
  state->host = rest.substr(0, colon);
  if (state->host.starts_with('[') && state->host.ends_with(']')) {
    state->host = state->host.substr(1, state->host.size() - 2);
  }
  const bool is_port = !state->port.empty() && std::ranges::all_of(state->port, [](char c) {
    return c >= '0' && c <= '9';
  });
  if (state->host.empty() || !is_port ||
      rest.find_first_of("/?#@ \r\n") != std::string_view::npos) {
    return InvalidArgument(url, ": is no url of a server (http://host:port)");
  }
  state->options = options;
  TESSERA_RETURN_IF_ERROR(state->Connect());
  return HttpClient(std::move(state));
}

void HttpClient::set_timeout(std::chrono::milliseconds timeout) {
  state_->options.timeout = timeout;
}

StatusOr<HttpResponse> HttpClient::Send(const HttpRequest& request) {
  return state_->Ask(request, nullptr);
}

StatusOr<HttpResponse> HttpClient::Stream(const HttpRequest& request, const OnPiece& on_piece) {
  return state_->Ask(request, &on_piece);
}

}  // namespace tessera::net
