// SPDX-License-Identifier: Apache-2.0
// Texts of many clients, written by one model on one thread.
//
//   InferenceQueue queue(*model, tokenizer.get(), {.slots = 8});
//   TESSERA_ASSIGN_OR_RETURN(const int64_t ticket, queue.Submit("127.0.0.1:4711",
//   std::move(texts)));
//   ...
//   queue.Cancel(ticket);                       // the client has left
//   queue.Drain(std::chrono::seconds(15));      // what runs is finished, the rest refused
//
// Clients take turns: the next place goes to the client that has waited longest for one, whatever
// it and the others have asked for. Prompts are read in pieces that take about `pass_time` while
// other texts are written, so that nobody waits much longer than that for a token, and about
// `reading_time` while none is. A client that leaves frees its place at once, and a pass that is
// only of texts whose clients have left is given up. What a text becomes depends on none of this
// (models/generation/continuous_batch.h).
//
// All functions may be called from any thread, Submit and Cancel also in callbacks of texts, which
// are the queue's own thread's.
#ifndef TESSERA_SERVE_INFERENCE_QUEUE_H_
#define TESSERA_SERVE_INFERENCE_QUEUE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/continuous_batch.h"
#include "models/generation/text_request.h"
#include "models/model.h"

namespace tessera::serve {

struct InferenceQueueOptions {
  int64_t slots = 8;          // texts that are written at once
  int64_t max_waiting = 256;  // texts; more are refused
  // Of a text, from its arrival to its end; 0: any.
  std::chrono::milliseconds timeout{600'000};
  std::chrono::milliseconds pass_time{35};
  std::chrono::milliseconds reading_time{400};
  nn::KeyValueCacheOptions cache = {};
  int64_t resting = 64;  // texts whose keys are kept for prompts that begin alike
};

class InferenceQueue {
 public:
  using Clock = std::chrono::steady_clock;

  // Model and tokenizer outlive the queue.
  InferenceQueue(const models::Model& model, const data::Tokenizer* tokenizer,
                 const InferenceQueueOptions& options);
  // What still waits or runs ends as Cancelled.
  ~InferenceQueue();
  InferenceQueue(const InferenceQueue&) = delete;
  InferenceQueue& operator=(const InferenceQueue&) = delete;

  // All of the texts, under one ticket, or none. InvalidArgument for a text that Generate would
  // refuse, and for more texts than may ever wait; ResourceExhausted where too many wait now;
  // Unavailable once Drain was called. Their ends may bring DeadlineExceeded.
  StatusOr<int64_t> Submit(const std::string& client, std::vector<models::TextRequest> texts);

  // InvalidArgument for more texts of a request than may ever wait: for callers to ask before they
  // make them.
  Status CheckCount(int64_t count) const;

  // Something else that uses the model, in the client's turns: `work` is called between two passes,
  // once in each turn for as long as it returns true; or with why it may not continue.
  using Work = std::function<bool(const Status& status)>;
  StatusOr<int64_t> SubmitWork(const std::string& client, Work work);

  // What is left of a ticket goes, whatever it is doing; nothing of it is called once the queue's
  // thread has seen this.
  void Cancel(int64_t ticket);

  // Nothing new is taken, and what waits ends as Unavailable. Returns when what runs has ended, or
  // after `grace`, when it ends as Unavailable, too.
  void Drain(std::chrono::milliseconds grace);

  // A text that has a place.
  struct Running {
    int64_t ticket = 0;
    std::string client = {};
    int adapter = 0;
    int64_t prompt = 0;  // tokens
    int64_t read = 0;    // of them
    int64_t made = 0;
    int64_t limit = 0;   // of new tokens
    double seconds = 0;  // since it came
  };
  struct State {
    models::ContinuousBatchCounts batch;
    int64_t waiting = 0;
    int64_t refused = 0;  // for want of places to wait, so far
    int64_t timed_out = 0;
    int64_t ended = 0;  // texts that came to their end
    int64_t cancelled = 0;
    std::vector<Running> running;
    bool draining = false;
  };
  State state() const;

  // One text, or some work, of a ticket. Not for callers.
  struct Item {
    int64_t ticket = 0;
    std::string client = {};
    Clock::time_point came = {};
    models::TextRequest text = {};
    Work work = nullptr;  // instead
  };

 private:
  // A text in the batch.
  struct Place {
    Clock::time_point came = {};
    Running now = {};
    std::function<void(StatusOr<models::GenerationResult> result)> on_end = nullptr;
  };

  StatusOr<int64_t> Enqueue(const std::string& client, std::vector<Item> items);
  // With the lock: a client has its turn as long as something of it waits.
  void DropEmptyLines();
  // With the lock.
  bool HasLeft(int64_t ticket) const;
  void StopUnwantedPass();
  // Nothing of the queue is heard before it has ended.
  void BeginEnding(const Status& status);
  void Run();

  // Of the queue's thread, with the lock. False: it is to end.
  bool Wait(std::unique_lock<std::mutex>& lock);
  // Admits, steps, and ends what is over.
  void Turn(std::unique_lock<std::mutex>& lock);
  // Memory has ended: what waits and runs goes, and is told so where that takes none.
  void GiveUp(std::unique_lock<std::mutex>& lock);
  // What fits the free places, a client's next after another's.
  std::vector<Item> TakeTurns();
  // Those that came before.
  std::vector<Item> TakeWaiting(Clock::time_point since);

  // Without the lock, since they call what came with the texts.
  void Admit(Item item);
  void DoWork(Item item);
  void CancelPlaces(const std::vector<int64_t>& tickets);
  void EndPlace(int64_t number, const Status& status);
  void EndOverduePlaces(Clock::time_point since);
  // What is under way from here on is these tickets'.
  void BeginPass(std::vector<int64_t> tickets);
  void EndPass();
  // How much of prompts the next pass reads.
  int64_t PieceLength() const;
  void Step();
  // What `state` then gives: before a text's end is told, so that whoever hears of it finds its
  // place free.
  void Publish();
  Status Overdue() const;

  const models::Model& model_;
  const data::Tokenizer* const tokenizer_;
  const InferenceQueueOptions options_;

  // Of the thread that runs alone.
  models::ContinuousBatch batch_;
  std::map<int64_t, Place> places_;  // by the batch's number
  // Of passes that read prompts, older ones less and less.
  double seconds_read_ = 0;
  double tokens_read_ = 0;
  int64_t ended_ = 0;
  std::atomic<bool> stop_pass_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Waiting items by client, and the clients in the order of their turns.
  std::map<std::string, std::deque<Item>> waiting_;
  std::deque<std::string> turns_;
  int64_t num_waiting_ = 0;
  int64_t admitting_ = 0;         // that wait no longer and are not in `state_` yet
  std::vector<int64_t> leaving_;  // tickets
  std::vector<int64_t> in_pass_;  // whose the pass is that is under way
  int64_t next_ticket_ = 0;
  bool draining_ = false;
  bool ending_ = false;  // whoever is there ends as `end_status_`
  Status end_status_;
  bool over_ = false;
  bool idle_ = true;
  State state_;  // but for what waits

  std::thread thread_;
};

}  // namespace tessera::serve

#endif  // TESSERA_SERVE_INFERENCE_QUEUE_H_
