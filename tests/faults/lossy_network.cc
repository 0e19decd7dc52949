// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/lossy_network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <queue>
#include <random>

#include "base/error.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
using MacAddress = std::array<char, 6>;

constexpr int kPacketBytes = 9000;  // as networks of clusters have

// A process that does nothing in a network namespace of its own; -1: not permitted.
pid_t HoldNamespace() {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return -1;
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare(CLONE_NEWNET) != 0 || write(ready[1], "x", 1) != 1) _exit(1);
    while (true) pause();
  }
  close(ready[1]);
  char word = 0;
  const bool is_ready = pid > 0 && read(ready[0], &word, 1) == 1;
  close(ready[0]);
  if (is_ready) return pid;
  if (pid > 0) waitpid(pid, nullptr, 0);
  return -1;
}

// Gives the device of the present namespace its address, and sets it going.
bool Configure(int socket, const char* device, const std::string& address) {
  ifreq request = {};
  std::strncpy(request.ifr_name, device, IFNAMSIZ - 1);
  if (!address.empty()) {
    sockaddr_in own = {};
    own.sin_family = AF_INET;
    inet_pton(AF_INET, address.c_str(), &own.sin_addr);
    std::memcpy(&request.ifr_addr, &own, sizeof(own));
    if (ioctl(socket, SIOCSIFADDR, &request) != 0) return false;
    inet_pton(AF_INET, "255.255.255.0", &own.sin_addr);
    std::memcpy(&request.ifr_netmask, &own, sizeof(own));
    if (ioctl(socket, SIOCSIFNETMASK, &request) != 0) return false;
    request.ifr_mtu = kPacketBytes;
    if (ioctl(socket, SIOCSIFMTU, &request) != 0) return false;
  }
  if (ioctl(socket, SIOCGIFFLAGS, &request) != 0) return false;
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP | IFF_RUNNING);
  return ioctl(socket, SIOCSIFFLAGS, &request) == 0;
}

// Moves this thread into the holder's namespace.
bool EnterNamespace(pid_t holder) {
  const std::string path = Concat("/proc/", holder, "/ns/net");
  const int ns = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = ns >= 0 && setns(ns, CLONE_NEWNET) == 0;
  if (ns >= 0) close(ns);
  return entered;
}

// The other end of a network device in the holder's namespace; -1: it could not be made. On a
// thread of its own, which enters that namespace.
int OpenTap(pid_t holder, const std::string& address) {
  int tap = -1;
  std::thread([&] {
    if (!EnterNamespace(holder)) return;
    const int device = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    ifreq request = {};
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    std::strncpy(request.ifr_name, "net0", IFNAMSIZ - 1);
    const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool is_up = device >= 0 && socket >= 0 && ioctl(device, TUNSETIFF, &request) == 0 &&
                       Configure(socket, "net0", address) && Configure(socket, "lo", "");
    if (socket >= 0) close(socket);
    if (is_up) {
      tap = device;
    } else if (device >= 0) {
      close(device);
    }
  }).join();
  return tap;
}

}  // namespace

StatusOr<std::unique_ptr<LossyNetwork>> LossyNetwork::Open(const LossyNetworkOptions& options) {
  std::unique_ptr<LossyNetwork> network(new LossyNetwork(options));
  for (int i = 0; i < options.hosts; ++i) TESSERA_RETURN_IF_ERROR(network->AddHost(i));
  network->thread_ = std::thread([&own = *network] { own.Switch(); });
  return network;
}

LossyNetwork::~LossyNetwork() {
  ends_ = true;
  if (thread_.joinable()) thread_.join();
  for (const std::unique_ptr<Host>& host : hosts_) {
    if (host->tap >= 0) close(host->tap);
    if (host->holder <= 0) continue;
    kill(host->holder, SIGKILL);
    waitpid(host->holder, nullptr, 0);
  }
}

Status LossyNetwork::AddHost(int number) {
  hosts_.push_back(std::make_unique<Host>());
  Host& host = *hosts_.back();
  host.holder = HoldNamespace();
  if (host.holder < 0) return SystemFailure(EPERM, "a network namespace");
  host.tap = OpenTap(host.holder, AddressOf(number));
  if (host.tap < 0) return SystemFailure(EPERM, "a network device in a namespace");
  return OkStatus();
}

std::vector<std::string> LossyNetwork::Enter(int host) const {
  const Host& entered = *hosts_[static_cast<size_t>(host)];
  return {"nsenter", Concat("--net=/proc/", entered.holder, "/ns/net"), "--"};
}

void LossyNetwork::MoveThread(int host) const {
  TESSERA_CHECK(EnterNamespace(hosts_[static_cast<size_t>(host)]->holder), "lossy_network", "host ",
                host, " cannot be entered");
}

std::string LossyNetwork::AddressOf(int host) { return Concat("10.77.0.", host + 1); }

// Learns behind which device an address is, as any switch does; a packet to all, or to an address
// that is not known yet, goes to all others.
void LossyNetwork::Switch() {
  struct Packet {
    Clock::time_point due;
    size_t to = 0;
    std::string bytes;
    bool operator<(const Packet& other) const { return due > other.due; }
  };
  std::priority_queue<Packet> waiting;
  std::map<MacAddress, size_t> behind;
  std::vector<Clock::time_point> last_due(hosts_.size());
  std::mt19937 random(1);
  std::uniform_real_distribution<double> even(0, 1);
  std::vector<char> frame(1 << 16);
  const auto forward = [&](size_t from, size_t to, const std::string& bytes) {
    if (hosts_[from]->is_cut || hosts_[to]->is_cut || even(random) < options_.loss) {
      ++dropped_;
      return;
    }
    const auto jitter = std::chrono::duration_cast<std::chrono::microseconds>(
        even(random) * std::chrono::duration<double, std::micro>(options_.jitter));
    last_due[to] = std::max(last_due[to] + std::chrono::nanoseconds(1),
                            Clock::now() + options_.delay + jitter);
    waiting.push({last_due[to], to, bytes});
  };
  while (!ends_) {
    std::vector<pollfd> readable;
    for (const std::unique_ptr<Host>& host : hosts_) readable.push_back({host->tap, POLLIN, 0});
    poll(readable.data(), readable.size(), 1);
    for (size_t from = 0; from < hosts_.size(); ++from) {
      ssize_t size = 0;
      while ((size = read(hosts_[from]->tap, frame.data(), frame.size())) >= 14) {
        const std::string bytes(frame.data(), static_cast<size_t>(size));
        MacAddress destination, source;
        std::copy_n(bytes.data(), 6, destination.data());
        std::copy_n(bytes.data() + 6, 6, source.data());
        behind[source] = from;
        const auto known = behind.find(destination);
        for (size_t to = 0; to < hosts_.size(); ++to) {
          if (to != from && (known == behind.end() || known->second == to)) {
            forward(from, to, bytes);
          }
        }
      }
    }
    for (; !waiting.empty() && waiting.top().due <= Clock::now(); waiting.pop()) {
      const Packet& packet = waiting.top();
      // A device whose queue is full drops it.
      const ssize_t written =
          write(hosts_[packet.to]->tap, packet.bytes.data(), packet.bytes.size());
      ++(written > 0 ? passed_ : dropped_);
    }
  }
}

}  // namespace tessera
