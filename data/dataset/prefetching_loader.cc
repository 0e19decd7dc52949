// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/prefetching_loader.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"

namespace tessera::data {

class PrefetchingLoader::Worker {
 public:
  Worker(MakeBatchFn make, const PrefetchingOptions& options)
      : make_(std::move(make)), options_(options), thread_([this] { Run(); }) {}
  ~Worker() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  StatusOr<std::optional<Batch>> Next();

 private:
  void Run();
  StatusOr<Batch> MakeGuarded(int64_t number) const;

  const MakeBatchFn make_;
  const PrefetchingOptions options_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StatusOr<Batch>> ready_;
  bool finished_ = false;  // nothing follows what is ready
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

StatusOr<Batch> PrefetchingLoader::Worker::MakeGuarded(int64_t number) const {
  try {
    return make_(number);
  } catch (const std::exception& error) {
    return Internal("batch ", number, ": ", error.what());
  }
}

void PrefetchingLoader::Worker::Run() {
  for (int64_t number = options_.begin; number < options_.end; ++number) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || std::ssize(ready_) < options_.depth; });
      if (stop_) return;
    }
    StatusOr<Batch> batch = MakeGuarded(number);
    const bool failed = !batch.ok();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ready_.push_back(std::move(batch));
    }
    changed_.notify_all();
    if (failed) return;  // it stays at the front for good
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  finished_ = true;
  changed_.notify_all();
}

StatusOr<std::optional<Batch>> PrefetchingLoader::Worker::Next() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return finished_ || !ready_.empty(); });
  if (ready_.empty()) return std::optional<Batch>();
  if (!ready_.front().ok()) return ready_.front().status();
  std::optional<Batch> batch = std::move(ready_.front()).value();
  ready_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return batch;
}

PrefetchingLoader::PrefetchingLoader(MakeBatchFn make, const PrefetchingOptions& options) {
  TESSERA_CHECK(options.depth >= 1, "PrefetchingLoader", "depth is ", options.depth);
  worker_ = std::make_unique<Worker>(std::move(make), options);
}

PrefetchingLoader::~PrefetchingLoader() = default;

StatusOr<std::optional<Batch>> PrefetchingLoader::Next() { return worker_->Next(); }

}  // namespace tessera::data
