// SPDX-License-Identifier: Apache-2.0
#include "corpus/io/warc.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/status.h"
#include "base/utf8.h"
#include "corpus/io/charset.h"
#include "corpus/io/record_reader.h"
#include "data/dataset/byte_source.h"

namespace tessera::corpus {
namespace {

std::string Lower(std::string_view text) { return absl::AsciiStrToLower(std::string(text)); }

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// Where the header's blank line ends; npos where there is none.
size_t HeaderEnd(std::string_view bytes) {
  const size_t with_returns = bytes.find("\r\n\r\n");
  const size_t bare = bytes.substr(0, with_returns).find("\n\n");
  if (with_returns == std::string_view::npos && bare == std::string_view::npos) return bare;
  return with_returns < bare ? with_returns + 4 : bare + 2;
}

// A field of a header, by its name in lower case.
std::string_view Field(std::string_view header, std::string_view name) {
  for (size_t begin = header.find('\n'); begin < header.size();) {
    ++begin;
    const size_t end = std::min(header.find('\n', begin), header.size());
    const std::string_view line = header.substr(begin, end - begin);
    const size_t colon = line.find(':');
    if (colon == name.size() && Lower(line.substr(0, colon)) == name) {
      return Trimmed(line.substr(colon + 1));
    }
    begin = end;
  }
  return {};
}

std::optional<std::string> Unchunked(std::string_view body) {
  std::string out;
  for (;;) {
    size_t size = 0;
    const auto [end, error] =
        std::from_chars(body.data(), body.data() + body.size(), size, /*base=*/16);
    if (error != std::errc()) return std::nullopt;
    const size_t feed = body.find('\n', static_cast<size_t>(end - body.data()));
    if (feed == std::string_view::npos) return std::nullopt;
    body.remove_prefix(feed + 1);
    if (size == 0) return out;
    if (size > body.size()) return std::nullopt;
    out.append(body.substr(0, size));
    body.remove_prefix(size);
    body.remove_prefix(std::min(body.find('\n'), body.size() - 1) + (body.empty() ? 0 : 1));
  }
}

struct Body {
  std::string wrong;
  std::string bytes;
  std::string type;     // of the content, in lower case
  std::string charset;  // as the header says
};

Body BodyOf(std::string_view http) {
  Body body;
  const size_t end = HeaderEnd(http);
  if (!http.starts_with("HTTP/") || end == std::string_view::npos) {
    body.wrong = "no HTTP response";
    return body;
  }
  const std::string_view header = http.substr(0, end);
  body.bytes = http.substr(end);
  if (Lower(Field(header, "transfer-encoding")).find("chunked") != std::string::npos) {
    // Crawlers may have put the pieces together and left the field.
    if (auto whole = Unchunked(body.bytes)) body.bytes = *std::move(whole);
  }
  const std::string encoding = Lower(Field(header, "content-encoding"));
  const bool compressed = body.bytes.starts_with("\x1F\x8B") || encoding == "deflate";
  if (compressed) {
    StatusOr<std::string> inflated = data::Inflated(body.bytes, kMaxRecordBytes);
    if (!inflated.ok()) {
      body.wrong = Message(inflated.status());
      return body;
    }
    body.bytes = *std::move(inflated);
  }
  const std::string type = Lower(Field(header, "content-type"));
  body.type = Trimmed(std::string_view(type).substr(0, type.find(';')));
  if (const size_t at = type.find("charset="); at != std::string::npos) {
    body.charset = type.substr(at + 8, type.find(';', at) - at - 8);
  }
  return body;
}

void SetText(Document* document, std::string_view name, std::string_view text) {
  if (text.empty()) return;
  std::string quoted;
  AppendJsonString(ReplaceInvalidUtf8(text), &quoted);
  document->Set(name, std::move(quoted));
}

}  // namespace

WarcHeader ParseWarcHeader(std::string_view bytes) {
  WarcHeader header;
  const size_t end = HeaderEnd(bytes.substr(0, size_t{64} << 10));
  if (!bytes.starts_with("WARC/1")) {
    header.wrong = "no WARC record";
  } else if (end == std::string_view::npos) {
    header.wrong = "a WARC header that does not end";
  } else {
    header.size = end;
    const std::string_view length = Field(bytes.substr(0, end), "content-length");
    const auto [stop, error] =
        std::from_chars(length.data(), length.data() + length.size(), header.content_length);
    if (error != std::errc() || stop != length.data() + length.size() ||
        header.content_length < 0) {
      header.wrong = "a WARC record without a Content-Length";
    }
  }
  return header;
}

std::string DocumentOfWarc(std::string_view record, Document* document, bool* passed_over) {
  const size_t end = HeaderEnd(record);
  const std::string_view header = record.substr(0, end), content = record.substr(end);
  const std::string type = Lower(Field(header, "warc-type"));
  const bool page = type == "response" || type == "resource";
  std::string_view url = Field(header, "warc-target-uri");
  // WARC 1.0 writes it between brackets, as wget does; 1.1 without.
  if (url.starts_with('<') && url.ends_with('>')) url = url.substr(1, url.size() - 2);
  // wget keeps its arguments and log as resources.
  *passed_over = (!page && type != "conversion") || url.starts_with("metadata:");
  if (*passed_over) return "";
  const int64_t number = document->number;
  if (type == "conversion") {
    if (FindInvalidUtf8(content) != kNoInvalidUtf8) return "invalid UTF-8";
    document->Assign(content);
  } else {
    Body body;
    if (type == "response") {
      body = BodyOf(content);
    } else {
      body.bytes = content;
      body.type = Lower(Field(header, "content-type"));
    }
    if (!body.wrong.empty()) return body.wrong;
    const bool html = body.type.find("html") != std::string::npos || body.type.empty();
    if (!html && body.type != "text/plain") return "content of type " + body.type;
    std::string text = Utf8OfPage(body.bytes, body.charset);
    document->Assign(html ? "" : text);
    if (html) {
      document->RemoveText();
      SetText(document, "html", text);
    }
  }
  document->number = number;
  SetText(document, "id", Field(header, "warc-record-id"));
  SetText(document, "url", url);
  SetText(document, "date", Field(header, "warc-date"));
  return "";
}

void AppendWet(const Document& document, std::string* out) {
  std::string text = document.text();
  *out += "WARC/1.0\r\nWARC-Type: conversion\r\n";
  const auto field = [&](std::string_view name, std::string value) {
    if (value.empty()) return;
    std::replace_if(
        value.begin(), value.end(), [](char c) { return c == '\r' || c == '\n'; }, ' ');
    *out += Concat(name, ": ", value, "\r\n");
  };
  field("WARC-Target-URI", document.Url());
  field("WARC-Date", document.Text("date"));
  field("WARC-Record-ID", document.id());
  field("Content-Type", "text/plain");
  field("Content-Length", std::to_string(text.size()));
  *out += "\r\n" + text + "\r\n\r\n";
}

}  // namespace tessera::corpus
