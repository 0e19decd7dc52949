// SPDX-License-Identifier: Apache-2.0
// Rows of texts that a model reads without generating: in turns of the queue, a pass in each.
//
//   auto all = std::make_shared<TextRows>(TextRows{.call = std::move(call), .rows = rows});
//   all->take = [&](std::span<const models::EncodedText> some) { ... };   // Status
//   all->respond = [&] { ... };                                           // after the last
//   WorkInTurns(service, all);
#ifndef TESSERA_SERVE_TEXT_ROWS_H_
#define TESSERA_SERVE_TEXT_ROWS_H_

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "models/open/text_encoder.h"
#include "serve/service.h"

namespace tessera::serve {

// All of a request's, until the last is done.
struct TextRows {
  Call call;
  int adapter = 0;
  std::vector<models::EncodedText> rows = {};
  size_t done = 0;
  std::function<Status(std::span<const models::EncodedText>)> take = nullptr;
  std::function<void()> respond = nullptr;

  size_t tokens() const;  // of all rows
};

// Returns at once. What fails is answered, and what nobody waits for any more ends.
void WorkInTurns(Service& service, const std::shared_ptr<TextRows>& all);

}  // namespace tessera::serve

#endif  // TESSERA_SERVE_TEXT_ROWS_H_
