// SPDX-License-Identifier: Apache-2.0
// Signals that ask a server to end, taken when it asks for them.
//
//   const WaitingSignals signals;       // first of all: threads that begin later have the same
//   mask
//   ...
//   signals.Wait();                     // until there is one, or was
#ifndef TESSERA_NET_HTTP_WAITING_SIGNALS_H_
#define TESSERA_NET_HTTP_WAITING_SIGNALS_H_

#include <pthread.h>

#include <csignal>

namespace tessera::net {

// SIGINT and SIGTERM wait until they are asked for, in this thread and those that it starts.
class WaitingSignals {
 public:
  WaitingSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~WaitingSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WaitingSignals(const WaitingSignals&) = delete;
  WaitingSignals& operator=(const WaitingSignals&) = delete;

  void Wait() const {
    int signal = 0;
    sigwait(&signals_, &signal);
  }
  // From now on, one of them ends the process: this thread takes it.
  void LetThrough() const { pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr); }

 private:
  sigset_t signals_;
  sigset_t before_;
};

}  // namespace tessera::net

#endif  // TESSERA_NET_HTTP_WAITING_SIGNALS_H_
