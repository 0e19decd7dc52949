// SPDX-License-Identifier: Apache-2.0
// Serves one page to browsers of this machine, made anew when it is asked for: as often as that
// takes a tenth of a processor's time, which training wants.
//
//   TESSERA_ASSIGN_OR_RETURN(FollowServer server, FollowServer::Listen(/*port=*/0));
//   std::cout << server.url();                        // http://127.0.0.1:41234/
//   TESSERA_RETURN_IF_ERROR(server.ServeUntilSignal([&] { return MakeMyPage(); }));
//
// It listens on the loopback address alone, and answers GET and HEAD of "/" alone. A request whose
// Host is another name than this machine's own is refused: a page from elsewhere whose name was
// turned to 127.0.0.1 reads nothing. Answers carry an ETag; who has the page already gets 304.
#ifndef TESSERA_TOOLS_REPORT_FOLLOW_SERVER_H_
#define TESSERA_TOOLS_REPORT_FOLLOW_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"

namespace tessera::report {

class FollowServer {
 public:
  // Port 0: any that is free. InvalidArgument for one that cannot be had. From here on SIGINT and
  // SIGTERM wait for ServeUntilSignal.
  static StatusOr<FollowServer> Listen(int port);

  FollowServer(FollowServer&&) noexcept;
  ~FollowServer();

  int port() const;
  std::string url() const;

  // Returns after SIGINT or SIGTERM. A page that cannot be made is answered with 500 and the
  // message. `make_page` is called by a thread of its own: while it runs, others are answered.
  Status ServeUntilSignal(const std::function<StatusOr<std::string>()>& make_page);

 private:
  struct State;
  explicit FollowServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tessera::report

#endif  // TESSERA_TOOLS_REPORT_FOLLOW_SERVER_H_
