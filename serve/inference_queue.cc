// SPDX-License-Identifier: Apache-2.0
#include "serve/inference_queue.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <memory>
#include <ranges>
#include <utility>

#include "base/error.h"
#include "core/execution_context.h"
#include "models/generation/written_text.h"

namespace tessera::serve {
namespace {

// Of prompts in a pass: before anything was measured, and ever.
constexpr int64_t kFirstPiece = 32;
constexpr int64_t kLeastPiece = 24;
constexpr int64_t kLongestPiece = 512;

void End(const InferenceQueue::Item& item, const Status& status) {
  if (item.work != nullptr) {
    item.work(status);
    return;
  }
  if (item.text.on_end) item.text.on_end(status);
}

Status GoingDown() { return Status(StatusCode::kUnavailable, "the server is going down"); }

// Whether they differ in nothing that may be refused.
bool AreAlike(const models::TextRequest& a, const models::TextRequest& b) {
  return a.prompt.pointer() == b.prompt.pointer() && a.config.pointer() == b.config.pointer() &&
         a.adapter == b.adapter && a.score_prompt == b.score_prompt;
}

double Seconds(InferenceQueue::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

InferenceQueue::InferenceQueue(const models::Model& model, const data::Tokenizer* tokenizer,
                               const InferenceQueueOptions& options)
    : model_(model),
      tokenizer_(tokenizer),
      options_(options),
      batch_(model, {.slots = options.slots,
                     .tokens_in_pass = kFirstPiece,
                     .tokenizer = tokenizer,
                     .cache = options.cache,
                     .resting = options.resting,
                     .on_pass =
                         [this](const std::vector<int64_t>& texts) {
                           std::vector<int64_t> tickets;
                           for (const int64_t text : texts) {
                             tickets.push_back(places_.at(text).now.ticket);
                           }
                           BeginPass(std::move(tickets));
                         }}),
      thread_([this] { Run(); }) {}

InferenceQueue::~InferenceQueue() {
  {
    const std::lock_guard lock(mutex_);
    BeginEnding(Status(StatusCode::kCancelled, "the server is gone"));
  }
  thread_.join();
}

StatusOr<int64_t> InferenceQueue::Submit(const std::string& client,
                                         std::vector<models::TextRequest> texts) {
  TESSERA_RETURN_IF_ERROR(CheckCount(std::ssize(texts)));
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0 && AreAlike(texts[i - 1], texts[i])) continue;
    TESSERA_RETURN_IF_ERROR(models::WrittenText::Of(model_, texts[i], tokenizer_).status());
  }
  std::vector<Item> items;
  for (models::TextRequest& text : texts) items.push_back({.text = std::move(text)});
  return Enqueue(client, std::move(items));
}

Status InferenceQueue::CheckCount(int64_t count) const {
  const int64_t most = options_.max_waiting + options_.slots;
  if (count <= most) return OkStatus();
  return InvalidArgument("the request has ", count, " texts; the server takes at most ", most,
                         " at once");
}

StatusOr<int64_t> InferenceQueue::SubmitWork(const std::string& client, Work work) {
  std::vector<Item> items(1);
  items[0].work = std::move(work);
  return Enqueue(client, std::move(items));
}

StatusOr<int64_t> InferenceQueue::Enqueue(const std::string& client, std::vector<Item> items) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  if (draining_) return GoingDown();
  const auto count = std::ssize(items);
  // Places that are free count: whoever finds the house empty may bring as many as fit and wait.
  const int64_t room = options_.max_waiting + options_.slots - num_waiting_ - admitting_ -
                       std::ssize(state_.running);
  if (count > room) {
    state_.refused += count;
    return Status(StatusCode::kResourceExhausted,
                  Concat("too many texts wait (", num_waiting_, "); try again later"));
  }
  const int64_t ticket = next_ticket_++;
  for (Item& item : items) {
    item.ticket = ticket;
    item.client = client;
    item.came = now;
  }
  std::deque<Item>& line = waiting_[client];
  const size_t before = line.size();
  try {
    for (Item& item : items) line.push_back(std::move(item));
    if (before == 0 && count > 0) turns_.push_back(client);
  } catch (const std::exception&) {  // all or none
    while (line.size() > before) line.pop_back();
    DropEmptyLines();
    throw;
  }
  DropEmptyLines();
  num_waiting_ += count;
  changed_.notify_all();
  return ticket;
}

void InferenceQueue::Cancel(int64_t ticket) {
  std::vector<Item> gone;  // which end without the lock
  const std::lock_guard lock(mutex_);
  const auto stays = [&](const Item& item) { return item.ticket != ticket; };
  size_t leave = 0;
  for (const auto& [client, line] : waiting_) {
    leave += line.size() - static_cast<size_t>(std::ranges::count_if(line, stays));
  }
  gone.reserve(leave);  // before anything is moved
  leaving_.reserve(leaving_.size() + 1);
  for (auto& [client, line] : waiting_) {
    const auto theirs = std::stable_partition(line.begin(), line.end(), stays);
    std::move(theirs, line.end(), std::back_inserter(gone));
    line.erase(theirs, line.end());
  }
  DropEmptyLines();
  num_waiting_ -= std::ssize(gone);
  state_.cancelled += std::ssize(gone);
  std::erase_if(state_.running, [&](const Running& text) { return text.ticket == ticket; });
  leaving_.push_back(ticket);
  StopUnwantedPass();
  changed_.notify_all();
}

bool InferenceQueue::HasLeft(int64_t ticket) const {
  return std::find(leaving_.begin(), leaving_.end(), ticket) != leaving_.end();
}

void InferenceQueue::StopUnwantedPass() {
  const bool wanted = std::any_of(in_pass_.begin(), in_pass_.end(),
                                  [&](int64_t ticket) { return !HasLeft(ticket); });
  if (!in_pass_.empty() && (ending_ || !wanted)) stop_pass_ = true;
}

void InferenceQueue::BeginEnding(const Status& status) {
  draining_ = true;
  if (!ending_) end_status_ = status;
  ending_ = true;
  StopUnwantedPass();
  changed_.notify_all();
}

void InferenceQueue::DropEmptyLines() {
  std::erase_if(waiting_, [](const auto& line) { return line.second.empty(); });
  std::erase_if(turns_, [&](const std::string& client) { return !waiting_.contains(client); });
}

void InferenceQueue::Drain(std::chrono::milliseconds grace) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  changed_.wait_for(lock, grace, [&] { return over_ || (idle_ && num_waiting_ == 0); });
  BeginEnding(GoingDown());
  changed_.wait(lock, [&] { return over_; });
}

InferenceQueue::State InferenceQueue::state() const {
  const std::lock_guard lock(mutex_);
  State state = state_;
  state.waiting = num_waiting_;
  state.draining = draining_;
  return state;
}

// ---- The queue's own thread ---------------------------------------------------------------------

bool InferenceQueue::Wait(std::unique_lock<std::mutex>& lock) {
  idle_ = places_.empty() && num_waiting_ == 0;
  if (idle_) changed_.notify_all();
  changed_.wait(
      lock, [&] { return ending_ || num_waiting_ > 0 || !places_.empty() || !leaving_.empty(); });
  idle_ = false;
  return !ending_;
}

std::vector<InferenceQueue::Item> InferenceQueue::TakeTurns() {
  std::vector<Item> taken;
  int64_t places = options_.slots - std::ssize(places_);
  while (places > 0 && !turns_.empty()) {
    const std::string client = std::move(turns_.front());
    turns_.pop_front();
    std::deque<Item>& line = waiting_.at(client);
    // Work is for this turn alone: whoever is written waits no longer than for one piece of it.
    places = line.front().work == nullptr ? places - 1 : 0;
    taken.push_back(std::move(line.front()));
    line.pop_front();
    --num_waiting_;
    if (line.empty()) {
      waiting_.erase(client);
    } else {
      turns_.push_back(client);
    }
  }
  return taken;
}

std::vector<InferenceQueue::Item> InferenceQueue::TakeWaiting(Clock::time_point since) {
  std::vector<Item> taken;
  for (auto& [client, line] : waiting_) {
    while (!line.empty() && line.front().came < since) {
      taken.push_back(std::move(line.front()));
      line.pop_front();
    }
  }
  DropEmptyLines();
  num_waiting_ -= std::ssize(taken);
  return taken;
}

void InferenceQueue::Admit(Item item) {
  if (item.work != nullptr) return DoWork(std::move(item));
  Place place = {.came = item.came};
  place.now = {.ticket = item.ticket,
               .client = item.client,
               .adapter = item.text.adapter,
               .prompt = std::ssize(*item.text.prompt),
               .limit = item.text.config->max_new_tokens.value_or(0)};
  // Its number is known once it was added; nothing is called before the next step.
  const auto number = std::make_shared<int64_t>(-1);
  item.text.on_token = [this, number, told = std::move(item.text.on_token)](
                           int64_t id, std::string_view text, const models::TokenScores* scores) {
    ++places_.at(*number).now.made;
    return told ? told(id, text, scores) : OkStatus();
  };
  const auto on_end = item.text.on_end;
  item.text.on_end = [this, number, on_end](StatusOr<models::GenerationResult> result) {
    places_.erase(*number);
    ++ended_;
    Publish();
    if (on_end) on_end(std::move(result));
  };
  const StatusOr<int64_t> added = batch_.Add(std::move(item.text));
  if (!added.ok()) {
    if (on_end) on_end(added.status());
    return;
  }
  *number = *added;
  place.on_end = on_end;
  try {
    places_.emplace(*added, std::move(place));
  } catch (const std::exception&) {
    batch_.Cancel(*added);
    throw;
  }
}

void InferenceQueue::DoWork(Item item) {
  BeginPass({item.ticket});
  try {
    const bool goes_on = item.work(OkStatus());
    EndPass();
    if (!goes_on) return;
  } catch (const CancelledError&) {
    EndPass();
  } catch (const std::exception& error) {
    EndPass();
    item.work(Internal(error.what()));
    return;
  }
  const std::lock_guard lock(mutex_);
  if (HasLeft(item.ticket)) return;
  const std::string client = item.client;
  if (!waiting_.contains(client)) turns_.push_back(client);
  waiting_[client].push_front(std::move(item));
  ++num_waiting_;
}

void InferenceQueue::CancelPlaces(const std::vector<int64_t>& tickets) {
  int64_t count = 0;
  for (auto place = places_.begin(); place != places_.end();) {
    if (std::find(tickets.begin(), tickets.end(), place->second.now.ticket) == tickets.end()) {
      ++place;
      continue;
    }
    batch_.Cancel(place->first);
    place = places_.erase(place);
    ++count;
  }
  {
    const std::lock_guard lock(mutex_);
    state_.cancelled += count;
  }
  Publish();
}

void InferenceQueue::EndPlace(int64_t number, const Status& status) {
  batch_.Cancel(number);
  const auto on_end = std::move(places_.at(number).on_end);
  places_.erase(number);
  Publish();
  if (on_end) on_end(status);
}

Status InferenceQueue::Overdue() const {
  return Status(StatusCode::kDeadlineExceeded,
                Concat("the text was not done within ", Seconds(options_.timeout), " seconds"));
}

void InferenceQueue::EndOverduePlaces(Clock::time_point since) {
  std::vector<int64_t> overdue;
  for (const auto& [number, place] : places_) {
    if (place.came < since) overdue.push_back(number);
  }
  {
    const std::lock_guard lock(mutex_);
    state_.timed_out += std::ssize(overdue);
  }
  for (const int64_t number : overdue) EndPlace(number, Overdue());
}

void InferenceQueue::BeginPass(std::vector<int64_t> tickets) {
  const std::lock_guard lock(mutex_);
  in_pass_ = std::move(tickets);
  StopUnwantedPass();
}

void InferenceQueue::EndPass() {
  const std::lock_guard lock(mutex_);
  in_pass_.clear();
  stop_pass_ = false;
}

int64_t InferenceQueue::PieceLength() const {
  if (tokens_read_ == 0) return kFirstPiece;
  const bool others_wait = std::any_of(places_.begin(), places_.end(),
                                       [](const auto& place) { return place.second.now.made > 0; });
  const auto time = others_wait ? options_.pass_time : options_.reading_time;
  const auto fits = static_cast<int64_t>(Seconds(time) * tokens_read_ / seconds_read_);
  return std::clamp(fits, kLeastPiece, kLongestPiece);
}

void InferenceQueue::Step() {
  if (places_.empty()) return;
  batch_.set_tokens_in_pass(PieceLength());
  const auto begin = Clock::now();
  const int64_t read = batch_.counts().tokens_read;
  try {
    batch_.Step();
    EndPass();
  } catch (const CancelledError&) {  // nobody waits for it
    EndPass();
    return;
  } catch (const std::exception& error) {
    EndPass();
    // The pass would fail again: whoever came last goes.
    if (!places_.empty()) {
      EndPlace(places_.rbegin()->first, Status(StatusCode::kResourceExhausted, error.what()));
    }
    return;
  }
  const int64_t tokens = batch_.counts().tokens_read - read;
  if (tokens == 0) return;
  seconds_read_ = 0.75 * seconds_read_ + Seconds(Clock::now() - begin);
  tokens_read_ = 0.75 * tokens_read_ + static_cast<double>(tokens);
}

void InferenceQueue::Publish() {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  admitting_ = 0;
  state_.batch = batch_.counts();
  state_.ended = ended_;
  state_.running.clear();
  for (const auto& [number, place] : places_) {
    if (HasLeft(place.now.ticket)) continue;
    state_.running.push_back(place.now);
    state_.running.back().read = std::min(batch_.tokens_read(number), place.now.prompt);
    state_.running.back().seconds = Seconds(now - place.came);
  }
}

void InferenceQueue::Turn(std::unique_lock<std::mutex>& lock) {
  const std::vector<int64_t> leaving = std::exchange(leaving_, {});
  // Nobody who came before this may still be here.
  const auto since =
      options_.timeout.count() == 0 ? Clock::time_point::min() : Clock::now() - options_.timeout;
  std::vector<Item> overdue = TakeWaiting(since);
  state_.timed_out += std::ssize(overdue);
  std::vector<Item> refused;
  if (draining_) refused = TakeWaiting(Clock::time_point::max());
  state_.refused += std::ssize(refused);
  lock.unlock();
  for (const Item& item : overdue) End(item, Overdue());
  for (const Item& item : refused) End(item, GoingDown());
  overdue.clear();
  refused.clear();
  if (!leaving.empty()) CancelPlaces(leaving);
  EndOverduePlaces(since);
  lock.lock();
  std::vector<Item> taken = TakeTurns();
  admitting_ = std::ssize(taken);
  lock.unlock();
  for (Item& item : taken) Admit(std::move(item));
  taken.clear();
  Publish();  // a pass may take its time
  Step();
  Publish();
  lock.lock();
}

void InferenceQueue::GiveUp(std::unique_lock<std::mutex>& lock) {
  if (!lock.owns_lock()) lock.lock();
  const auto waiting = std::move(waiting_);  // their clients are told by the exchanges' ends
  waiting_.clear();
  turns_.clear();
  num_waiting_ = 0;
  admitting_ = 0;
  state_.running.clear();
  lock.unlock();
  try {
    while (!places_.empty()) {
      batch_.Cancel(places_.begin()->first);
      places_.erase(places_.begin());
    }
  } catch (const std::exception&) {
    // Not even for this: the texts that are left run on.
  }
  lock.lock();
}

void InferenceQueue::Run() {
  const ExecutionModeScope<&ExecutionContext::cancelled> scope(&stop_pass_);
  std::unique_lock lock(mutex_);
  while (Wait(lock)) {
    try {
      Turn(lock);
    } catch (const std::exception&) {
      GiveUp(lock);
    }
  }
  try {
    const std::vector<Item> waiting = TakeWaiting(Clock::time_point::max());
    const Status status = end_status_;
    lock.unlock();
    for (const Item& item : waiting) End(item, status);
    while (!places_.empty()) EndPlace(places_.begin()->first, status);
    lock.lock();
  } catch (const std::exception&) {
    GiveUp(lock);
  }
  over_ = true;
  changed_.notify_all();
}

}  // namespace tessera::serve
