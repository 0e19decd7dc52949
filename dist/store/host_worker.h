// SPDX-License-Identifier: Apache-2.0
// A thread that does host work (updates of off-loaded buckets) beside the backward pass, one piece
// after the other.
#ifndef TESSERA_DIST_STORE_HOST_WORKER_H_
#define TESSERA_DIST_STORE_HOST_WORKER_H_

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace tessera::dist {

class HostWorker {
 public:
  HostWorker();
  ~HostWorker();  // after the work that was given
  HostWorker(const HostWorker&) = delete;
  HostWorker& operator=(const HostWorker&) = delete;

  void Do(std::function<void()> work);
  // Returns when all is done; rethrows what a piece of work has thrown.
  void Wait();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool busy_ = false;
  bool ends_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_HOST_WORKER_H_
