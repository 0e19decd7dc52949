// SPDX-License-Identifier: Apache-2.0
#include "serve/text_rows.h"

namespace tessera::serve {
namespace {

// Tokens of a turn, unless the first row has more: so that others wait for one pass at most.
constexpr size_t kTurnTokens = 2048;

size_t RowsOfTurn(const TextRows& all) {
  size_t count = 0;
  size_t tokens = 0;
  while (all.done + count < all.rows.size()) {
    tokens += all.rows[all.done + count].ids.size();
    if (count > 0 && tokens > kTurnTokens) break;
    ++count;
  }
  return count;
}

}  // namespace

size_t TextRows::tokens() const {
  size_t count = 0;
  for (const models::EncodedText& row : rows) count += row.ids.size();
  return count;
}

void WorkInTurns(Service& service, const std::shared_ptr<TextRows>& all) {
  all->call.body = nullptr;  // was read
  const auto work = [&service, all](const Status& status) {
    if (!status.ok()) {
      service.Refuse(all->call.exchange, status);
      return false;
    }
    const size_t count = RowsOfTurn(*all);
    const Status taken = all->take({all->rows.data() + all->done, count});
    if (!taken.ok()) {
      service.Refuse(all->call.exchange, taken);
      return false;
    }
    all->done += count;
    if (all->done < all->rows.size()) return true;
    all->respond();
    return false;
  };
  const StatusOr<int64_t> ticket = service.queue().SubmitWork(all->call.client, work);
  if (!ticket.ok()) return service.Refuse(all->call.exchange, ticket.status());
  all->call.exchange.OnGone([&queue = service.queue(), number = *ticket] { queue.Cancel(number); });
}

}  // namespace tessera::serve
