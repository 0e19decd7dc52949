// SPDX-License-Identifier: Apache-2.0
// MPI's messages for a rank's watchdog (dist/comm/rank_monitor.h): the progress thread answers on a
// communicator of its own.
#ifndef TESSERA_DIST_COMM_MPI_MONITOR_H_
#define TESSERA_DIST_COMM_MPI_MONITOR_H_

#include <list>
#include <optional>
#include <string>
#include <vector>

#include "dist/comm/mpi_library.h"
#include "dist/comm/rank_monitor.h"

namespace tessera::dist {

class MpiRuntime;

// All of it under the runtime's mutex, by the progress thread.
class MpiMonitor {
 public:
  // Collective.
  explicit MpiMonitor(MpiRuntime& runtime);

  // Answers, asks and judges. Returns the line to end the job with, once it is time.
  std::optional<std::string> Poll();
  // This rank calls nothing any more; it still answers.
  void SetEnded() { has_ended_ = true; }
  // Before MPI ends.
  void Close();

 private:
  struct Outgoing {
    std::string text;
    MPI_Request request = nullptr;
  };

  RankState OwnState() const;
  // The own waits, also of what is under way while no thread is blocked.
  std::vector<WaitState> Waits(bool blocked_only) const;
  void PostReceive();
  void ReadMessages();
  void SendTo(int rank, int tag, std::string text);

  MpiRuntime& runtime_;
  MPI_Comm comm_ = nullptr;
  bool has_ended_ = false;
  std::vector<char> buffer_;
  MPI_Request receive_ = nullptr;
  std::list<Outgoing> outgoing_;
  RankMonitor watch_;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_MPI_MONITOR_H_
