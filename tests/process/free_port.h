// SPDX-License-Identifier: Apache-2.0
// A TCP port for a test's own server or rendezvous.
//
//   const int port = FreePort();
#ifndef TESSERA_TESTS_PROCESS_FREE_PORT_H_
#define TESSERA_TESTS_PROCESS_FREE_PORT_H_

namespace tessera {

// A port that no program listens on now. Another program may take it before the test does.
int FreePort();

}  // namespace tessera

#endif  // TESSERA_TESTS_PROCESS_FREE_PORT_H_
