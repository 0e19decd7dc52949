// SPDX-License-Identifier: Apache-2.0
#include "net/http/http_message.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tessera::net {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

const std::string* FindHeader(const std::vector<HttpHeader>& headers, std::string_view name) {
  for (const HttpHeader& header : headers) {
    if (std::ranges::equal(header.name, name, {}, Lower, Lower)) return &header.value;
  }
  return nullptr;
}

}  // namespace

const std::string* HttpRequest::Find(std::string_view name) const {
  return FindHeader(headers, name);
}

const std::string* HttpResponse::Find(std::string_view name) const {
  return FindHeader(headers, name);
}

HttpResponse ErrorResponse(int status, std::string_view message) {
  const bool servers = status == 500 || status == 503;
  const nlohmann::ordered_json error = {
      {"message", message},
      {"type", servers ? "server_error" : "invalid_request_error"},
      {"param", nullptr},
      {"code", nullptr}};
  // A message may quote bytes that are no UTF-8.
  const nlohmann::ordered_json body = {{"error", error}};
  return {.status = status,
          .body = body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)};
}

}  // namespace tessera::net
