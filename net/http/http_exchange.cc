// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/error.h"
#include "net/http/connection.h"
#include "net/http/http_exchange_state.h"
#include "net/http/mailbox.h"

namespace tessera::net {

using Stage = AnswerProgress::Stage;
using Lock = std::lock_guard<std::mutex>;

AnswerProgress::~AnswerProgress() {
  OnSent(unsent);
  ReleaseReserved();
}

void AnswerProgress::AddUnsent(size_t bytes) {
  unsent += bytes;
  budget->taken += static_cast<int64_t>(bytes);
}

void AnswerProgress::OnSent(size_t bytes) {
  unsent -= bytes;
  budget->taken -= static_cast<int64_t>(bytes);
}

bool AnswerProgress::Reserve(size_t bytes) {
  const auto count = static_cast<int64_t>(bytes);
  if (budget->taken.fetch_add(count) + count > budget->most) {
    budget->taken -= count;
    return false;
  }
  reserved += bytes;
  return true;
}

void AnswerProgress::ReleaseReserved() {
  budget->taken -= static_cast<int64_t>(reserved.exchange(0));
}

void AnswerProgress::Leave() {
  std::function<void()> callback;
  {
    const Lock lock(mutex);
    gone = true;
    OnSent(unsent);  // the connection has dropped it
    callback = std::exchange(on_gone, nullptr);
  }
  if (callback) callback();
}

void HttpExchange::State::Send(std::vector<std::string> pieces, After after) {
  for (const std::string& piece : pieces) progress->AddUnsent(piece.size());
  mailbox->Post([connection = connection, pieces = std::move(pieces), after]() mutable {
    if (const auto there = connection.lock()) there->Send(std::move(pieces), after);
  });
}

void HttpExchange::State::SendWhole(HttpResponse response) {
  std::vector<std::string> pieces = {HeadOf(response, form)};
  if (HasBody(response.status) && !form.head_only) pieces.push_back(std::move(response.body));
  progress->stage = Stage::kEnded;
  progress->on_gone = nullptr;
  progress->ReleaseReserved();
  Send(std::move(pieces), AfterAnswer());
}

void HttpExchange::State::Fail(std::string_view message) {
  const Lock lock(progress->mutex);
  if (progress->gone || progress->stage == Stage::kEnded) return;
  if (progress->stage == Stage::kNone) {
    SendWhole(ErrorResponse(500, message));
  } else if (progress->stage == Stage::kBegun) {
    mailbox->Post([connection = connection] {
      if (const auto there = connection.lock()) there->Drop();
    });
  }
  progress->stage = Stage::kFailed;
}

HttpExchange::State::~State() {
  try {
    Fail("the request was given up");
  } catch (const std::exception&) {
    // No memory to say so: the client waits until it leaves.
  }
}

const HttpRequest& HttpExchange::request() const { return state_->request; }
const std::string& HttpExchange::peer() const { return state_->peer; }
bool HttpExchange::gone() const { return state_->progress->gone; }
size_t HttpExchange::unsent() const { return state_->progress->unsent; }
bool HttpExchange::Reserve(size_t bytes) { return state_->progress->Reserve(bytes); }

namespace {
// Whether calls mean nothing any more.
bool Ignored(const AnswerProgress& progress) {
  return progress.gone || progress.stage == Stage::kFailed;
}
}  // namespace

void HttpExchange::Respond(HttpResponse response) {
  AnswerProgress& progress = *state_->progress;
  const Lock lock(progress.mutex);
  if (Ignored(progress)) return;
  TESSERA_CHECK(progress.stage == Stage::kNone, "HttpExchange", "it is answered already");
  state_->SendWhole(std::move(response));
}

void HttpExchange::Begin(int status, std::string content_type, std::vector<HttpHeader> headers) {
  AnswerProgress& progress = *state_->progress;
  const Lock lock(progress.mutex);
  if (Ignored(progress)) return;
  TESSERA_CHECK(progress.stage == Stage::kNone, "HttpExchange", "it is answered already");
  TESSERA_CHECK(HasBody(status), "HttpExchange", "answers of status ", status, " have no pieces");
  state_->form.keep_alive &= !state_->form.http_1_0;  // its end is the connection's
  std::vector<std::string> head = {StreamHead(status, content_type, headers, state_->form)};
  progress.stage = Stage::kBegun;
  state_->Send(std::move(head), After::kMore);
}

void HttpExchange::Write(std::string_view piece) {
  AnswerProgress& progress = *state_->progress;
  const Lock lock(progress.mutex);
  if (Ignored(progress)) return;
  TESSERA_CHECK(progress.stage == Stage::kBegun, "HttpExchange",
                "a piece outside of Begin and End");
  if (piece.empty() || state_->form.head_only) return;
  state_->Send({state_->form.http_1_0 ? std::string(piece) : Chunk(piece)}, After::kMore);
}

void HttpExchange::End() {
  AnswerProgress& progress = *state_->progress;
  const Lock lock(progress.mutex);
  if (Ignored(progress)) return;
  TESSERA_CHECK(progress.stage == Stage::kBegun, "HttpExchange", "End without Begin");
  progress.stage = Stage::kEnded;
  progress.on_gone = nullptr;
  std::vector<std::string> tail;
  if (!state_->form.http_1_0 && !state_->form.head_only) tail.emplace_back(kLastChunk);
  state_->Send(std::move(tail), state_->AfterAnswer());
}

void HttpExchange::OnGone(std::function<void()> callback) {
  AnswerProgress& progress = *state_->progress;
  const Lock lock(progress.mutex);
  if (progress.stage == Stage::kEnded || progress.stage == Stage::kFailed) return;
  if (progress.gone) {
    state_->mailbox->Post(std::move(callback));
  } else {
    progress.on_gone = std::move(callback);
  }
}

}  // namespace tessera::net
