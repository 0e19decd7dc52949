// SPDX-License-Identifier: Apache-2.0
// Beast's incremental parser as both ends of this folder need it: fed with whatever pieces the
// network gives, the body handed on as it comes. A head is parsed when it is whole: Beast alone
// would find other errors with other pieces, and takes any number of headers that come one by one.
// For sources of this folder alone: it includes Boost.
#ifndef TESSERA_NET_HTTP_MESSAGE_PARSER_H_
#define TESSERA_NET_HTTP_MESSAGE_PARSER_H_

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "net/http/http_message.h"

namespace tessera::net {

namespace http = boost::beast::http;
using boost::beast::error_code;

template <bool kIsRequest>
class MessageParser : public http::basic_parser<kIsRequest> {
 public:
  MessageParser(uint32_t max_head_bytes, uint64_t max_body_bytes)
      : max_head_bytes_(max_head_bytes) {
    this->eager(true);
    this->header_limit(max_head_bytes + 4);
    this->body_limit(max_body_bytes);
  }

  // Returns how many of the bytes were the message's: all, unless its end is among them. After an
  // error, or the end, nothing more may be fed.
  size_t Feed(std::string_view bytes, error_code& error);

  // A byte of the message is there.
  bool begun() const { return !held_.empty() || this->got_some(); }

  std::vector<HttpHeader> headers;

 protected:
  using string_view = boost::beast::string_view;

  virtual void OnField(http::field, std::string_view /*value*/, error_code&) {}
  virtual void OnBody(std::string_view piece) = 0;

  void on_request_impl(http::verb, string_view, string_view, int, error_code&) override {}
  void on_response_impl(int, string_view, int, error_code&) override {}
  void on_header_impl(error_code&) override { in_head_ = false; }
  void on_chunk_header_impl(uint64_t, string_view extensions, error_code& error) override {
    has_chunk_ = true;
    CountMore(extensions.size(), error);
  }
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  void on_finish_impl(error_code&) override {}

  void on_field_impl(http::field field, string_view name, string_view value,
                     error_code& error) override {
    if (!in_head_) return CountMore(name.size() + value.size(), error);  // a trailer
    headers.push_back({std::string(name), std::string(value)});
    OnField(field, headers.back().value, error);
  }
  size_t on_body_impl(string_view piece, error_code&) override {
    OnBody({piece.data(), piece.size()});
    return piece.size();
  }
  size_t on_chunk_body_impl(uint64_t, string_view piece, error_code&) override {
    OnBody({piece.data(), piece.size()});
    return piece.size();
  }

 private:
  // What chunks have beside their bytes may be as long as a head, and means nothing.
  void CountMore(size_t bytes, error_code& error) {
    more_bytes_ += bytes;
    if (more_bytes_ > max_head_bytes_) error = http::error::header_limit;
  }

  size_t max_head_bytes_;
  size_t more_bytes_ = 0;
  bool in_head_ = true;
  bool has_chunk_ = false;
  size_t searched_ = 0;  // of held_, for the end of the head
  std::string held_;     // what cannot be understood without what follows
};

// Behind the empty line; npos: it is not there. Lines that end wrongly are lines, too.
inline size_t EndOfHead(std::string_view bytes, size_t from) {
  for (size_t at = from; (at = bytes.find('\n', at)) != std::string_view::npos;) {
    const std::string_view next = bytes.substr(++at);
    if (next.starts_with("\n")) return at + 1;
    if (next.starts_with("\r\n")) return at + 2;
  }
  return std::string_view::npos;
}

inline bool HasBareLineFeed(std::string_view head) {
  for (size_t at = 0; (at = head.find('\n', at)) != std::string_view::npos; ++at) {
    if (at == 0 || head[at - 1] != '\r') return true;
  }
  return false;
}

template <bool kIsRequest>
size_t MessageParser<kIsRequest>::Feed(std::string_view bytes, error_code& error) {
  const size_t fed = bytes.size();
  const bool holds = !held_.empty();
  if (holds) bytes = held_.append(bytes);
  size_t used = 0;
  error = {};
  if (in_head_) {
    const size_t end = EndOfHead(bytes, searched_);
    const size_t head = std::min(end, bytes.size());
    searched_ = std::max<size_t>(head, 2) - 2;
    if (head > max_head_bytes_) {
      error = http::error::header_limit;
    } else if (end != std::string_view::npos && HasBareLineFeed(bytes.substr(0, end))) {
      error = http::error::bad_line_ending;
    } else if (end != std::string_view::npos) {
      used = this->put(boost::asio::buffer(bytes.substr(0, end)), error);
      // It asks for more of lines that end wrongly.
      if (in_head_ && (!error || error == http::error::need_more)) {
        error = http::error::bad_line_ending;
      }
    }
  }
  // The shortest chunks are of five bytes; Beast asserts that the first has them.
  const size_t least = this->chunked() && !has_chunk_ ? 5 : 1;
  if (!in_head_ && !error && !this->is_done() && bytes.size() - used >= least) {
    used += this->put(boost::asio::buffer(bytes.substr(used)), error);
  }
  if (error == http::error::need_more) error = {};
  if (error) return fed;
  const size_t rest = bytes.size() - used;
  if (this->is_done()) return fed - rest;
  // Beside an incomplete head, of which this was seen to: the line of a chunk, or trailers.
  if (rest > max_head_bytes_ + 32) error = http::error::header_limit;
  if (holds) {
    held_.erase(0, used);
  } else {
    held_.assign(bytes.substr(used));
  }
  return fed;
}

}  // namespace tessera::net

#endif  // TESSERA_NET_HTTP_MESSAGE_PARSER_H_
