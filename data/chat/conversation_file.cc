// SPDX-License-Identifier: Apache-2.0
#include "data/chat/conversation_file.h"

#include "data/dataset/json_records.h"
#include "nlohmann/json.hpp"

namespace tessera::data {

Status ForEachConversation(
    const std::string& path,
    const std::function<Status(const Conversation& chat, const std::string& where)>& visit) {
  return ForEachJsonRecord(
      path, [&](const nlohmann::ordered_json& record, const std::string& where) -> Status {
        TESSERA_ASSIGN_OR_RETURN(const Conversation chat, ConversationOf(record, where));
        return visit(chat, where);
      });
}

}  // namespace tessera::data
