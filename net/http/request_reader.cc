// SPDX-License-Identifier: Apache-2.0
#include "net/http/request_reader.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/status.h"
#include "net/http/message_parser.h"

namespace tessera::net {
namespace {

using boost::beast::iequals;

uint32_t Clamp32(size_t value) {
  return static_cast<uint32_t>(std::min<size_t>(value, std::numeric_limits<uint32_t>::max()));
}

HttpResponse RefusalOf(const error_code& error, const RequestLimits& limits) {
  if (error == http::error::header_limit) {
    return ErrorResponse(
        431, Concat("the request's headers are longer than ", limits.head_bytes, " bytes"));
  }
  if (error == http::error::body_limit) {
    return ErrorResponse(413,
                         Concat("the request's body is longer than ", limits.body_bytes, " bytes"));
  }
  if (error == http::error::bad_version) return ErrorResponse(505, "only HTTP/1.0 and HTTP/1.1");
  return ErrorResponse(400, Concat("the request cannot be read: ", error.message()));
}

}  // namespace

class RequestReader::Parser : public MessageParser</*kIsRequest=*/true> {
 public:
  explicit Parser(const RequestLimits& limits)
      : MessageParser(Clamp32(limits.head_bytes), limits.body_bytes), limits_(limits) {}

  size_t Read(std::string_view bytes) {
    size_t before = 0;
    if (!begun()) {
      before = std::min(bytes.find_first_not_of("\r\n"), bytes.size());
      if (before == bytes.size()) return before;
    }
    error_code error;
    const size_t used = Feed(bytes.substr(before), error);
    if (error && !refusal) refusal = RefusalOf(error, limits_);
    return before + used;
  }

  HttpRequest request;
  std::optional<HttpResponse> refusal;
  bool http_1_0 = false;
  bool expects = false;

 protected:
  void on_request_impl(http::verb, string_view method, string_view target, int version,
                       error_code& error) override {
    http_1_0 = version == 10;
    request.method = std::string(method);
    SetTarget({target.data(), target.size()}, error);
  }

  void OnField(http::field field, std::string_view value, error_code& error) override {
    if (field == http::field::host && ++hosts_ > 1) {
      return Refuse(400, "there is more than one Host", error);
    }
    if (field == http::field::content_length) {
      // Beast takes lists, too.
      if (++lengths_ > 1 || value.find(',') != std::string_view::npos) {
        return Refuse(400, "there is more than one Content-Length", error);
      }
    }
    if (field == http::field::transfer_encoding) {
      if (++encodings_ > 1) return Refuse(400, "there is more than one Transfer-Encoding", error);
      if (!iequals({value.data(), value.size()}, "chunked")) {
        return Refuse(501, "no Transfer-Encoding but 'chunked' is known", error);
      }
    }
    if (encodings_ > 0 && (lengths_ > 0 || http_1_0)) {
      return Refuse(400, "Transfer-Encoding beside Content-Length or in HTTP/1.0", error);
    }
    if (field == http::field::content_encoding &&
        !iequals({value.data(), value.size()}, "identity")) {
      return Refuse(415, "no Content-Encoding is known; send the body as it is", error);
    }
    if (field == http::field::expect && !http_1_0) {
      if (!iequals({value.data(), value.size()}, "100-continue")) {
        return Refuse(417, "no expectation but '100-continue' is known", error);
      }
      expects = true;
    }
  }

  void on_header_impl(error_code& error) override {
    MessageParser::on_header_impl(error);
    if (hosts_ == 0 && !http_1_0) return Refuse(400, "there is no Host", error);
    if (!authority_.empty()) {
      // It counts for more than what the header says.
      std::erase_if(headers, [](const HttpHeader& h) { return iequals(h.name, "host"); });
      headers.push_back({"Host", authority_});
    }
    request.headers = std::move(headers);
  }

  void OnBody(std::string_view piece) override {
    expects = false;  // it did not wait
    request.body.append(piece);
  }

 private:
  void Refuse(int status, std::string_view message, error_code& error) {
    refusal = ErrorResponse(status, message);
    error = http::error::bad_value;
  }

  // "/path?query", "http://authority/path?query" or "*".
  void SetTarget(std::string_view target, error_code& error) {
    constexpr std::string_view kScheme = "http://";
    if (target.starts_with(kScheme)) {
      target.remove_prefix(kScheme.size());
      const size_t end = std::min(target.find_first_of("/?"), target.size());
      authority_ = target.substr(0, end);
      target.remove_prefix(end);
      if (authority_.empty()) error = http::error::bad_target;
    } else if (!target.starts_with("/") && target != "*") {
      error = http::error::bad_target;
    }
    const size_t question = std::min(target.find('?'), target.size());
    request.path = question == 0 ? "/" : target.substr(0, question);
    if (question < target.size()) request.query = target.substr(question + 1);
  }

  RequestLimits limits_;
  int hosts_ = 0, lengths_ = 0, encodings_ = 0;
  std::string authority_;
};

RequestReader::RequestReader(const RequestLimits& limits)
    : parser_(std::make_unique<Parser>(limits)) {}
RequestReader::RequestReader(RequestReader&&) noexcept = default;
RequestReader::~RequestReader() = default;

size_t RequestReader::Feed(std::string_view bytes) { return parser_->Read(bytes); }
bool RequestReader::begun() const { return parser_->begun(); }
bool RequestReader::done() const { return !parser_->refusal && parser_->is_done(); }
const std::optional<HttpResponse>& RequestReader::refusal() const { return parser_->refusal; }

bool RequestReader::TakeExpectation() {
  return parser_->is_header_done() && !parser_->is_done() && std::exchange(parser_->expects, false);
}

HttpRequest RequestReader::TakeRequest() { return std::move(parser_->request); }
bool RequestReader::keep_alive() const { return parser_->keep_alive(); }
bool RequestReader::http_1_0() const { return parser_->http_1_0; }

}  // namespace tessera::net
