#include "train/stop_signal.h"

namespace tessera::train {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1};

volatile std::sig_atomic_t first_signal = 0;
int living_objects = 0;

void Remember(int signal) {
  if (first_signal == 0) first_signal = signal;
  // A step may take long: who asks twice does not want to wait.
  if (signal == SIGINT) std::signal(SIGINT, SIG_DFL);
}

}  // namespace

StopSignals::StopSignals() {
  if (living_objects++ > 0) return;
  first_signal = 0;
  struct sigaction action = {};
  action.sa_handler = Remember;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &action, &previous_[i]);
}

StopSignals::~StopSignals() {
  if (--living_objects > 0) return;
  for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &previous_[i], nullptr);
}

int StopSignals::received() const { return first_signal; }

std::string StopSignals::Name(int signal) {
  return signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "SIGUSR1";
}

}  // namespace tessera::train
