// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/nccl_watch.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/status.h"

namespace tessera::dist {
namespace {

constexpr std::chrono::milliseconds kBetweenWatches{100};
// For NCCL to abort; the process ends even if it does not.
constexpr std::chrono::seconds kForAbort{10};

}  // namespace

NcclWatch& NcclWatch::Instance() {
  static NcclWatch* const watch = new NcclWatch;
  return *watch;
}

void NcclWatch::Remember(ncclComm_t comm, std::mutex* in_use) {
  std::lock_guard<std::mutex> lock(mutex_);
  comms_.push_back({comm, in_use});
  if (!std::exchange(is_running_, true)) std::thread([this] { Run(); }).detach();
}

void NcclWatch::Forget(ncclComm_t comm) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(comms_, [&](const Watched& w) { return w.comm == comm; });
}

void NcclWatch::Watch(EventPtr event, std::string text, double limit) {
  const auto until = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(limit * 1000));
  std::lock_guard<std::mutex> lock(mutex_);
  entries_.push_back({std::move(event), std::move(text), until, limit});
  changed_.notify_all();
}

void NcclWatch::AbortAll(int code) {
  std::vector<Watched> comms;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    comms.swap(comms_);
  }
  std::fflush(nullptr);
  std::thread([code] {
    std::this_thread::sleep_for(kForAbort);
    std::_Exit(code);
  }).detach();
  for (const Watched& w : comms) ncclCommAbort(w.comm);
  std::_Exit(code);
}

void NcclWatch::Fail(const std::string& line) {
  std::fprintf(stderr, "error: %s\n", line.c_str());
  AbortAll(1);
}

void NcclWatch::Run() {
  for (;;) {
    std::string failure;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return !entries_.empty(); });
      std::erase_if(entries_, [](const Entry& e) { return e.event->HasCome(); });
      for (const Entry& e : entries_) {
        if (Clock::now() > e.until) {
          failure = Concat("the limit of ", e.limit, " s for a collective has passed: ", e.text);
          break;
        }
      }
      for (const Watched& w : comms_) {
        ncclResult_t error = ncclSuccess;
        const std::unique_lock<std::mutex> idle(*w.in_use, std::try_to_lock);
        if (!idle) continue;  // who is in a call looks himself
        if (ncclCommGetAsyncError(w.comm, &error) == ncclSuccess && error != ncclSuccess &&
            error != ncclInProgress && failure.empty()) {
          failure = Concat("NCCL says: ", ncclGetErrorString(error),
                           entries_.empty() ? "" : "; " + entries_[0].text);
        }
      }
    }
    if (!failure.empty()) Fail(failure);
    std::this_thread::sleep_for(kBetweenWatches);
  }
}

}  // namespace tessera::dist
