// SPDX-License-Identifier: Apache-2.0
// Answers as the bytes that are sent, by the kind of client.
#ifndef TESSERA_NET_HTTP_ANSWER_BYTES_H_
#define TESSERA_NET_HTTP_ANSWER_BYTES_H_

#include <string>
#include <string_view>
#include <vector>

#include "net/http/http_message.h"

namespace tessera::net {

struct AnswerForm {
  bool head_only = false;   // HEAD
  bool http_1_0 = false;    // knows no chunks, and keeps a connection only where it is told so
  bool keep_alive = false;  // the connection continues after the answer
};

// Everything up to the body. These throw Error where a header's name is none, or a value holds a
// control character.
std::string HeadOf(const HttpResponse& response, const AnswerForm& form);
// Of an answer in pieces.
std::string StreamHead(int status, std::string_view content_type,
                       const std::vector<HttpHeader>& headers, const AnswerForm& form);

// A piece as a chunk, and what ends them.
std::string Chunk(std::string_view piece);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// Whether answers of this status have a body.
bool HasBody(int status);

}  // namespace tessera::net

#endif  // TESSERA_NET_HTTP_ANSWER_BYTES_H_
