// SPDX-License-Identifier: Apache-2.0
// The way from any thread to the server's: it is shared by all that may outlive the server.
#ifndef TESSERA_NET_HTTP_MAILBOX_H_
#define TESSERA_NET_HTTP_MAILBOX_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <mutex>
#include <utility>

namespace tessera::net {

class Mailbox {
 public:
  explicit Mailbox(boost::asio::io_context* io) : io_(io) {}

  // Runs f on the server's thread, after what was posted before; never, once the server has gone.
  template <typename F>
  void Post(F&& f) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (io_ != nullptr) boost::asio::post(*io_, std::forward<F>(f));
  }
  void Close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    io_ = nullptr;
  }

 private:
  std::mutex mutex_;
  boost::asio::io_context* io_;
};

}  // namespace tessera::net

#endif  // TESSERA_NET_HTTP_MAILBOX_H_
