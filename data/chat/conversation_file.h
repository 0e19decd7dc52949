// SPDX-License-Identifier: Apache-2.0
// The conversations of a file: JSON lines, or one JSON array, of records (conversation.h).
//
//   TESSERA_RETURN_IF_ERROR(ForEachConversation("chats.jsonl", [&](const Conversation& chat,
//                                                                  const std::string& where) {
//     return Show(chat.messages);       // [{"role": "user", "content": "Hi"}, ...]
//   }));
#ifndef TESSERA_DATA_CHAT_CONVERSATION_FILE_H_
#define TESSERA_DATA_CHAT_CONVERSATION_FILE_H_

#include <functional>
#include <string>

#include "base/status.h"
#include "data/chat/conversation.h"

namespace tessera::data {

// A status of `visit` ends the reading and is returned. `where` is path:line or path[index].
Status ForEachConversation(
    const std::string& path,
    const std::function<Status(const Conversation& chat, const std::string& where)>& visit);

}  // namespace tessera::data

#endif  // TESSERA_DATA_CHAT_CONVERSATION_FILE_H_
