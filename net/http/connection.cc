// SPDX-License-Identifier: Apache-2.0
#include "net/http/connection.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <utility>

#include "net/http/mailbox.h"

namespace tessera::net {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

// Bytes behind the request at work that are kept here; more stay with the client.
constexpr size_t kMaxLater = 64 << 10;
// Pieces of one write; the system takes no more.
constexpr size_t kMaxGathered = 64;
// How long a client may continue sending what nobody reads: closed at once, the system would take
// back the answer that is on its way.
constexpr std::chrono::milliseconds kLinger{1000};
// Of an answer in pieces, which a client may have unsent though answers together have no room.
constexpr size_t kFairUnsent = 256 << 10;
// When a client that sends no more is asked whether it is there, and how often that is looked at.
constexpr std::chrono::milliseconds kProbeAfter{500};
constexpr std::chrono::milliseconds kWatchEvery{100};
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace

Connection::Connection(Tcp::socket socket, ConnectionHost& host)
    : socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      watch_(socket_.get_executor()),
      host_(host) {}

template <typename F>
auto Connection::Guarded(F f) {
  return [self = shared_from_this(), f = std::move(f)](auto... results) {
    if (self->stage_ == Stage::kClosed) return;
    try {
      f(results...);
    } catch (const std::exception&) {
      self->Close();
    }
  };
}

void Connection::Start() {
  socket_.non_blocking(true);
  socket_.set_option(Tcp::no_delay(true));
  error_code gone;
  const Tcp::endpoint peer = socket_.remote_endpoint(gone);
  if (!gone) peer_ = Concat(peer);
  SetDeadline(host_.options.idle_timeout);
  AwaitBytes();
}

void Connection::StartRefused(const HttpResponse& refusal) {
  Start();
  Refuse(refusal);
}

// --- Stages
// ---------------------------------------------------------------------------------------

void Connection::Enter(Stage stage) {
  const auto is_busy = [this] { return stage_ == Stage::kReading || stage_ == Stage::kAnswering; };
  const bool before = is_busy();
  stage_ = stage;
  host_.busy += is_busy() - before;
  if (!is_busy()) host_.held_bytes -= std::exchange(held_bytes_, 0);
  if (before && host_.busy == 0) host_.on_quiet();
}

void Connection::Close() {
  if (stage_ == Stage::kClosed) return;
  const auto self = shared_from_this();
  Enter(Stage::kClosed);
  error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
  watch_.cancel();
  unsent_.clear();
  later_.clear();
  host_.connections.erase(self);
  --host_.open;
  if (const auto progress = std::exchange(progress_, nullptr)) {
    ++host_.gone;
    progress->Leave();
  }
}

void Connection::Drop() {
  if (stage_ == Stage::kClosed) return;
  if (stage_ == Stage::kAnswering) {
    error_code ignored;
    socket_.set_option(Tcp::socket::linger(true, 0), ignored);  // what is unsent is forgotten
  }
  Close();
}

void Connection::CloseIfIdle() {
  if (stage_ == Stage::kIdle) Close();
}

void Connection::SetDeadline(std::chrono::milliseconds from_now) {
  timer_.expires_after(from_now);
  timer_.async_wait(Guarded([this](error_code error) {
    // One that was set anew may have been under way.
    if (!error && timer_.expiry() <= Clock::now()) OnDeadline();
  }));
}

void Connection::ClearDeadline() { timer_.expires_at(Clock::time_point::max()); }

void Connection::OnDeadline() {
  switch (stage_) {
    case Stage::kReading:
      return Refuse(ErrorResponse(408, "the request did not come to its end in time"));
    case Stage::kAnswering:
      return Drop();
    default:
      return Close();
  }
}

// --- Reading
// --------------------------------------------------------------------------------------

void Connection::AwaitBytes() {
  if (awaits_bytes_ || sends_no_more_ || stage_ == Stage::kClosed || later_.size() > kMaxLater) {
    return;
  }
  awaits_bytes_ = true;
  socket_.async_wait(Tcp::socket::wait_read, Guarded([this](error_code) {
                       awaits_bytes_ = false;
                       ReadBytes();
                     }));
}

void Connection::ReadBytes() {
  error_code error;
  const size_t size = socket_.read_some(asio::buffer(host_.bytes), error);
  if (error == asio::error::eof && stage_ == Stage::kAnswering) return OnEndOfBytes();
  if (error && error != asio::error::would_block) return Close();
  Take({host_.bytes.data(), size});
  AwaitBytes();
}

void Connection::OnEndOfBytes() {
  sends_no_more_ = true;
  watch_.expires_after(kProbeAfter);
  WatchForLeaving();
}

bool Connection::Probe() {
  const bool quiet = unsent_.empty() && !writes_ && !flush_posted_;
  if (!may_probe_ || !quiet) return true;
  may_probe_ = false;
  // A client that is not there any more answers this with a reset: before the answer an interim
  // one, and between its chunks the first digit of the next one's size.
  const std::string_view probe = has_begun_ ? "0" : kContinue;
  error_code failed;
  return socket_.write_some(asio::buffer(probe), failed) == probe.size();
}

void Connection::WatchForLeaving() {
  watch_.async_wait(Guarded([this](error_code error) {
    if (error || stage_ != Stage::kAnswering) return;
    tcp_info info{};
    socklen_t size = sizeof(info);
    getsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size);
    if (info.tcpi_state == TCP_CLOSE) return Close();
    if (!Probe()) return Drop();
    watch_.expires_after(kWatchEvery);
    WatchForLeaving();
  }));
}

void Connection::Take(std::string_view bytes) {
  if (bytes.empty() || stage_ == Stage::kLingering) return;
  if (stage_ == Stage::kAnswering) {
    later_.append(bytes);
    return;
  }
  if (!reader_) {
    reader_.emplace(RequestLimits{.head_bytes = static_cast<size_t>(host_.options.max_header_bytes),
                                  .body_bytes = static_cast<size_t>(host_.options.max_body_bytes)});
  }
  const size_t taken = reader_->Feed(bytes);
  if (reader_->begun() && stage_ == Stage::kIdle) {
    Enter(Stage::kReading);
    SetDeadline(host_.options.request_timeout);
  }
  if (reader_->begun()) {
    held_bytes_ += static_cast<int64_t>(taken);
    host_.held_bytes += static_cast<int64_t>(taken);
  }
  if (reader_->refusal()) return Refuse(*reader_->refusal());
  if (host_.held_bytes > host_.options.max_held_bytes) {
    return Refuse(ErrorResponse(503, "the requests at work are too long together"));
  }
  if (reader_->done()) {
    later_.assign(bytes.substr(taken));
    return Answer();
  }
  if (reader_->TakeExpectation()) {
    // Nothing is on its way on this connection, so that the system has room for it.
    error_code error;
    if (socket_.write_some(asio::buffer(kContinue), error) != kContinue.size()) Drop();
  }
}

// --- Answering
// ------------------------------------------------------------------------------------

void Connection::Answer() {
  Enter(Stage::kAnswering);
  ClearDeadline();
  ++host_.requests;
  progress_ = std::make_shared<AnswerProgress>(host_.budget);
  has_begun_ = false;
  const auto state = std::make_shared<HttpExchange::State>();
  state->progress = progress_;
  state->mailbox = host_.mailbox;
  state->connection = weak_from_this();
  state->request = reader_->TakeRequest();
  state->peer = peer_;
  state->form = {.head_only = state->request.method == "HEAD",
                 .http_1_0 = reader_->http_1_0(),
                 .keep_alive = reader_->keep_alive() && !host_.stopping};
  may_probe_ = !state->form.http_1_0 && !state->form.head_only;
  reader_.reset();
  try {
    (*host_.handler)(HttpExchange(state));
  } catch (const std::exception& error) {
    state->Fail(error.what());
  } catch (...) {
    state->Fail("the handler failed");
  }
}

void Connection::Refuse(HttpResponse refusal) {
  Enter(Stage::kAnswering);
  ++host_.refused;
  reader_.reset();
  progress_ = std::make_shared<AnswerProgress>(host_.budget);
  std::vector<std::string> pieces = {HeadOf(refusal, {}), std::move(refusal.body)};
  for (const std::string& piece : pieces) progress_->AddUnsent(piece.size());
  Send(std::move(pieces), After::kClose);
}

void Connection::Send(std::vector<std::string> pieces, After after) {
  if (stage_ != Stage::kAnswering) return;
  for (std::string& piece : pieces) unsent_.push_back(std::move(piece));
  after_ = after;
  has_begun_ = true;
  const bool crowded = host_.budget->taken > host_.budget->most;
  const size_t most = crowded ? kFairUnsent : host_.options.max_unsent;
  if (after == After::kMore && progress_->unsent > most) return Drop();
  if (flush_posted_ || writes_) return;
  BeginSending();
  // Later, so that the pieces which are on their way here go together.
  flush_posted_ = true;
  asio::post(socket_.get_executor(), Guarded([this] {
               flush_posted_ = false;
               Flush();
             }));
}

void Connection::Flush() {
  if (unsent_.empty()) {
    ClearDeadline();
    if (after_ != After::kMore) EndAnswer();
    return;
  }
  std::vector<asio::const_buffer> gathered;
  for (const std::string& piece : unsent_) {
    gathered.push_back(asio::buffer(piece));
    if (gathered.size() == kMaxGathered) break;
  }
  gathered.front() += sent_of_first_;
  writes_ = true;
  socket_.async_write_some(gathered, Guarded([this](error_code error, size_t bytes) {
                             writes_ = false;
                             if (error) return Close();
                             OnSent(bytes);
                             Flush();
                           }));
}

void Connection::BeginSending() {
  sent_in_time_ = 0;
  SetDeadline(host_.options.write_timeout);
}

void Connection::OnSent(size_t bytes) {
  progress_->OnSent(bytes);
  sent_in_time_ += static_cast<int64_t>(bytes);
  const auto least = host_.options.min_write_rate * host_.options.write_timeout.count() / 1000;
  if (sent_in_time_ >= std::max<int64_t>(least, 1)) BeginSending();
  bytes += sent_of_first_;
  while (!unsent_.empty() && bytes >= unsent_.front().size()) {
    bytes -= unsent_.front().size();
    unsent_.pop_front();
  }
  sent_of_first_ = bytes;
}

void Connection::EndAnswer() {
  progress_.reset();
  watch_.cancel();
  const After after = std::exchange(after_, After::kMore);
  if (after == After::kClose || host_.stopping) return Linger();
  Enter(Stage::kIdle);
  SetDeadline(host_.options.idle_timeout);
  Take(std::exchange(later_, {}));
  if (sends_no_more_ && stage_ != Stage::kAnswering) return Close();
  AwaitBytes();
}

void Connection::Linger() {
  if (sends_no_more_) return Close();
  later_.clear();
  error_code ignored;
  socket_.shutdown(Tcp::socket::shutdown_send, ignored);
  SetDeadline(kLinger);
  Enter(Stage::kLingering);
  AwaitBytes();
}

}  // namespace tessera::net
