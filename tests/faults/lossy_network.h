// SPDX-License-Identifier: Apache-2.0
// Hosts on one machine: network namespaces that are joined by a switch in this process, which
// delays and drops packets, and cuts hosts off.
//
//   StatusOr<std::unique_ptr<LossyNetwork>> network = LossyNetwork::Open({.hosts = 4, ...});
//   network->Enter(2);              // {"nsenter", ...}: what a command of host 2 begins with
//   network->AddressOf(2);          // "10.77.0.2"
//   network->Cut(2, true);          // nothing reaches host 2, and nothing leaves it
//
// It needs the right to make namespaces (root), and /dev/net/tun. Each namespace lives as long as a
// process of this one's, and ends with it.
#ifndef TESSERA_TESTS_FAULTS_LOSSY_NETWORK_H_
#define TESSERA_TESTS_FAULTS_LOSSY_NETWORK_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"

namespace tessera {

struct LossyNetworkOptions {
  int hosts = 2;
  std::chrono::microseconds delay{1000};  // of a packet
  std::chrono::microseconds jitter{500};  // added, evenly from none to all of it
  double loss = 0;                        // the share of packets that is dropped
};

class LossyNetwork {
 public:
  // Fails, with the reason, where this process may not make namespaces.
  static StatusOr<std::unique_ptr<LossyNetwork>> Open(const LossyNetworkOptions& options);
  ~LossyNetwork();
  LossyNetwork(const LossyNetwork&) = delete;
  LossyNetwork& operator=(const LossyNetwork&) = delete;

  // Hosts are counted from 0.
  std::vector<std::string> Enter(int host) const;
  // Moves this thread, and the processes that it starts, to the host. It does not come back.
  void MoveThread(int host) const;
  static std::string AddressOf(int host);
  void Cut(int host, bool is_cut) { hosts_[static_cast<size_t>(host)]->is_cut = is_cut; }

  int64_t passed() const { return passed_; }
  int64_t dropped() const { return dropped_; }

 private:
  struct Host {
    pid_t holder = -1;  // keeps the namespace
    int tap = -1;       // the other end of its network device
    std::atomic<bool> is_cut = false;
  };

  explicit LossyNetwork(const LossyNetworkOptions& options) : options_(options) {}
  Status AddHost(int number);
  void Switch();

  const LossyNetworkOptions options_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::atomic<bool> ends_ = false;
  std::atomic<int64_t> passed_ = 0;
  std::atomic<int64_t> dropped_ = 0;
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_FAULTS_LOSSY_NETWORK_H_
