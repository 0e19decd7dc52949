// SPDX-License-Identifier: Apache-2.0
// The client's side of a connection as bytes, for what no decent client sends.
//
//   RawConnection client(server.port());
//   client.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
//   EXPECT_EQ(client.ReadAnswer().status, 200);
#ifndef TESSERA_NET_HTTP_TESTING_RAW_CONNECTION_H_
#define TESSERA_NET_HTTP_TESTING_RAW_CONNECTION_H_

#include <chrono>
#include <string>
#include <string_view>

namespace tessera::net {

// An answer's bytes without its Date, which must be one, and of now.
std::string WithoutDate(std::string answer);

class RawConnection {
 public:
  // `receive_buffer`: bytes that the system takes for a client that does not read; 0: as it likes.
  explicit RawConnection(int port, int receive_buffer = 0);
  ~RawConnection();
  RawConnection(RawConnection&& other) noexcept;
  RawConnection(const RawConnection&) = delete;

  // False: the server refused, or the system has no socket left.
  bool connected() const { return !ended_; }

  // False: the server has closed.
  bool Send(std::string_view bytes);

  // The next answer by its head and Content-Length or chunks; status 0: the connection ended
  // before.
  struct Answer {
    int status = 0;
    std::string head, body;
  };
  Answer ReadAnswer(bool head_only = false);
  // What the system has in one piece.
  std::string ReadSome();
  // Until the server closes, or the time is over.
  std::string ReadAll(std::chrono::milliseconds time = std::chrono::seconds(5));
  // Whether the server closes within the time; what it sends before is thrown away.
  bool Closes(std::chrono::milliseconds time = std::chrono::seconds(5));

  void EndSending();  // closes this side alone
  void Reset();       // closes without a word: the server's system hears RST

 private:
  // False: nothing more comes.
  bool ReadMore(std::chrono::milliseconds time);
  bool ReadUntil(std::string_view end, std::string* before);
  bool ReadBytes(size_t size, std::string* bytes);

  int socket_;
  bool ended_ = false;
  std::string buffer_;
};

}  // namespace tessera::net

#endif  // TESSERA_NET_HTTP_TESTING_RAW_CONNECTION_H_
