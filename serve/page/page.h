// SPDX-License-Identifier: Apache-2.0
// The page that the server shows at "/": a conversation with the model, a text that it continues,
// and how loaded the server is.
//
//   exchange.Respond({.content_type = "text/html; charset=utf-8",
//                     .headers = {{"Content-Security-Policy", std::string(PageSecurityPolicy())}},
//                     .body = Page()});
//
// It is the same for every server. Its style and script stand in page.css and page.js; it asks for
// /load, /v1/models, /v1/chat/completions and /v1/completions of where it came from.
#ifndef TESSERA_SERVE_PAGE_PAGE_H_
#define TESSERA_SERVE_PAGE_PAGE_H_

#include <string>
#include <string_view>

namespace tessera::serve {

std::string Page();

// A browser that follows it runs the page's own script and no other, and calls nobody else.
std::string_view PageSecurityPolicy();

}  // namespace tessera::serve

#endif  // TESSERA_SERVE_PAGE_PAGE_H_
