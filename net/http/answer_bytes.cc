// SPDX-License-Identifier: Apache-2.0
#include "net/http/answer_bytes.h"

#include <algorithm>
#include <boost/beast/http/status.hpp>
#include <charconv>
#include <cstdio>
#include <ctime>

#include "base/error.h"

namespace tessera::net {
namespace {

bool IsControl(char c) { return (static_cast<unsigned char>(c) < 32 && c != '\t') || c == 127; }

bool IsOfName(char c) {
  return c > 32 && c < 127 &&
         std::string_view("\"(),/:;<=>?@[\\]{}").find(c) == std::string_view::npos;
}

void AppendHeader(std::string_view name, std::string_view value, std::string& head) {
  TESSERA_CHECK(!name.empty() && std::ranges::all_of(name, IsOfName), "HttpExchange",
                "no name of a header: '", name, "'");
  TESSERA_CHECK(std::ranges::none_of(value, IsControl), "HttpExchange",
                "a control character in the header ", name);
  head.append(name).append(": ").append(value).append("\r\n");
}

// As RFC 9110 writes it (5.6.7), whatever the program's locale: Sun, 06 Nov 1994 08:49:37 GMT.
std::string DateOf(std::time_t time) {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm at = {};
  gmtime_r(&time, &at);
  char text[64];
  std::snprintf(text, sizeof(text), "%s, %02d %s %04d %02d:%02d:%02d GMT", kDays[at.tm_wday],
                at.tm_mday, kMonths[at.tm_mon], 1900 + at.tm_year, at.tm_hour, at.tm_min,
                at.tm_sec);
  return text;
}

// `framing` says where the body ends.
std::string Head(int status, std::string_view content_type, const std::vector<HttpHeader>& headers,
                 std::string_view framing, const AnswerForm& form) {
  TESSERA_CHECK(status >= 200 && status <= 999, "HttpExchange", "no status of an answer: ", status);
  namespace http = boost::beast::http;
  const auto reason = http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status)));
  std::string head =
      Concat("HTTP/1.1 ", status, " ", std::string_view(reason.data(), reason.size()), "\r\n");
  if (!content_type.empty()) AppendHeader("Content-Type", content_type, head);
  for (const HttpHeader& header : headers) AppendHeader(header.name, header.value, head);
  head.append(framing).append("Date: ").append(DateOf(std::time(nullptr))).append("\r\n");
  if (!form.keep_alive) {
    head.append("Connection: close\r\n");
  } else if (form.http_1_0) {
    head.append("Connection: keep-alive\r\n");
  }
  return head.append("\r\n");
}

}  // namespace

bool HasBody(int status) { return status >= 200 && status != 204 && status != 304; }

std::string HeadOf(const HttpResponse& response, const AnswerForm& form) {
  if (!HasBody(response.status)) return Head(response.status, "", response.headers, "", form);
  return Head(response.status, response.content_type, response.headers,
              Concat("Content-Length: ", response.body.size(), "\r\n"), form);
}

std::string StreamHead(int status, std::string_view content_type,
                       const std::vector<HttpHeader>& headers, const AnswerForm& form) {
  return Head(status, content_type, headers,
              form.http_1_0 || !HasBody(status) ? "" : "Transfer-Encoding: chunked\r\n", form);
}

std::string Chunk(std::string_view piece) {
  char size[16];
  const char* const end = std::to_chars(size, size + sizeof(size), piece.size(), 16).ptr;
  std::string chunk;
  chunk.reserve(piece.size() + 20);
  return chunk.append(size, static_cast<size_t>(end - size))
      .append("\r\n")
      .append(piece)
      .append("\r\n");
}

}  // namespace tessera::net
