// SPDX-License-Identifier: Apache-2.0
// The bound of recursion that templates cause, beside the number of levels: a thread's stack may be
// a small one.
#ifndef TESSERA_DATA_CHAT_STACK_ROOM_H_
#define TESSERA_DATA_CHAT_STACK_ROOM_H_

namespace tessera::data::chat {

// Whether the stack of this thread has 128 KiB left, or half of a stack smaller than 256 KiB.
bool StackHasRoom();

}  // namespace tessera::data::chat

#endif  // TESSERA_DATA_CHAT_STACK_ROOM_H_
