// SPDX-License-Identifier: Apache-2.0
// GET /: a page to chat with the model, and to see what the server does.
#include "serve/page/page.h"

#include "serve/endpoints/endpoints.h"

namespace tessera::serve {

void AnswerPage(Service& service, Call call) {
  service.RespondText(call.exchange,
                      {.content_type = "text/html; charset=utf-8",
                       .headers = {{"Content-Security-Policy", std::string(PageSecurityPolicy())},
                                   {"Cache-Control", "no-cache"},
                                   {"X-Content-Type-Options", "nosniff"}},
                       .body = Page()});
}

}  // namespace tessera::serve
