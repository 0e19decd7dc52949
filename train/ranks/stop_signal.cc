// SPDX-License-Identifier: Apache-2.0
#include "train/ranks/stop_signal.h"

#include <atomic>
#include <csignal>
#include <iterator>
#include <mutex>

namespace tessera::train {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};

std::atomic<int> first_signal = 0;  // without a lock: a handler writes it
std::atomic<bool> any_signal = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

std::mutex mutex;  // of what follows: ranks may be threads
int living_objects = 0;
struct sigaction previous[std::size(kSignals)];

void Remember(int signal) {
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
  any_signal = true;
  // A step may take long: who asks twice does not want to wait.
  if (signal == SIGINT) std::signal(SIGINT, SIG_DFL);
}

}  // namespace

StopSignals::StopSignals() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (living_objects++ > 0) return;
  first_signal = 0;
  any_signal = false;
  struct sigaction action = {};
  action.sa_handler = Remember;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], &action, &previous[i]);
    // `nohup` lets a run outlive its terminal.
    const bool ignored = kSignals[i] == SIGHUP && previous[i].sa_handler == SIG_IGN;
    if (ignored) sigaction(SIGHUP, &previous[i], nullptr);
  }
}

StopSignals::~StopSignals() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (--living_objects > 0) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &previous[i], nullptr);
}

int StopSignals::received() const { return first_signal; }

const std::atomic<bool>* StopSignals::flag() const { return &any_signal; }

std::string StopSignals::Name(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGHUP:
      return "SIGHUP";
    default:
      return "SIGUSR1";
  }
}

}  // namespace tessera::train
