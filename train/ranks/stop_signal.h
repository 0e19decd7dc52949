// SPDX-License-Identifier: Apache-2.0
// Signals that ask a run to finish its step, save and end: SIGINT, SIGTERM, SIGUSR1, and SIGHUP (a
// closed terminal) unless it is ignored, as `nohup` does.
//
//   StopSignals signals;                    // installs handlers, restores the old ones at the end
//   if (signals.received() != 0) ...        // the number of the first one
//
// A second SIGINT ends the process at once, as if no handler were there. Several objects may live
// at once, on any threads: the first installs, the last restores, and all see the same signal.
#ifndef TESSERA_TRAIN_RANKS_STOP_SIGNAL_H_
#define TESSERA_TRAIN_RANKS_STOP_SIGNAL_H_

#include <atomic>
#include <string>

namespace tessera::train {

class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int received() const;
  // True from the first signal on: what cancels work of this process
  // (core/execution_context.h).
  const std::atomic<bool>* flag() const;
  // "SIGINT", ...
  static std::string Name(int signal);
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RANKS_STOP_SIGNAL_H_
