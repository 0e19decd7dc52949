// The watchdog of NCCL: one thread per process that looks at what is under way, every 100 ms.
#ifndef TESSERA_DIST_COMM_NCCL_WATCH_H_
#define TESSERA_DIST_COMM_NCCL_WATCH_H_

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tessera::dist {

class NcclWatch {
 public:
  // A CUDA event without timing.
  class Event {
   public:
    Event() { cudaEventCreateWithFlags(&event_, cudaEventDisableTiming); }
    ~Event() { cudaEventDestroy(event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    cudaEvent_t get() const { return event_; }

   private:
    cudaEvent_t event_ = nullptr;
  };
  using EventPtr = std::shared_ptr<Event>;
  static EventPtr NewEvent() { return std::make_shared<Event>(); }

  // Never destroyed.
  static NcclWatch& Instance();

  // Communicators that are aborted together.
  void Remember(ncclComm_t comm);
  void Forget(ncclComm_t comm);
  // Ends the process when the event has not come within `limit` seconds; `text` says what it is.
  void Watch(EventPtr event, std::string text, double limit);
  // Aborts all communicators and ends the process.
  [[noreturn]] void AbortAll(int code);

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    EventPtr event;
    std::string text;
    Clock::time_point until;
    double limit;
  };

  NcclWatch() = default;
  void Run();
  [[noreturn]] void Fail(const std::string& line);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ncclComm_t> comms_;
  std::vector<Entry> entries_;
  bool is_running_ = false;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_NCCL_WATCH_H_
