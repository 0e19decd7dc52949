// SPDX-License-Identifier: Apache-2.0
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
  // A CUDA event without timing, of the device that is active when it is made.
  class Event {
   public:
    Event() {
      cudaGetDevice(&device_);
      cudaEventCreateWithFlags(&event_, cudaEventDisableTiming);
    }
    ~Event() { cudaEventDestroy(event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    cudaEvent_t get() const { return event_; }
    // From any thread: one that has chosen no device would make a context on the first. A GPU that
    // has failed does no more, which its own thread hears at its next call.
    bool HasCome() const {
      return cudaSetDevice(device_) != cudaSuccess || cudaEventQuery(event_) != cudaErrorNotReady;
    }

   private:
    int device_ = 0;
    cudaEvent_t event_ = nullptr;
  };
  using EventPtr = std::shared_ptr<Event>;
  static EventPtr NewEvent() { return std::make_shared<Event>(); }

  // Never destroyed.
  static NcclWatch& Instance();

  // Communicators that are aborted together. `in_use` is locked while a thread is in a call of
  // `comm`, nonblocking ones until they are done: to ask for its state completes the call as well,
  // which two threads must not do at once. Both outlast Forget.
  void Remember(ncclComm_t comm, std::mutex* in_use);
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
  struct Watched {
    ncclComm_t comm;
    std::mutex* in_use;
  };
  std::vector<Watched> comms_;
  std::vector<Entry> entries_;
  bool is_running_ = false;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_NCCL_WATCH_H_
