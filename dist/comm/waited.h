// SPDX-License-Identifier: Apache-2.0
// How long this process has waited for other ranks: what tells a slow rank from those that it
// holds up.
//
//   const double before = SecondsWaited();
//   ...                                                  // a training step
//   const double worked = step_seconds - (SecondsWaited() - before);
#ifndef TESSERA_DIST_COMM_WAITED_H_
#define TESSERA_DIST_COMM_WAITED_H_

namespace tessera::dist {

// Seconds in which a thread waited for a collective over sockets, since the process began.
double SecondsWaited();
void AddSecondsWaited(double seconds);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_WAITED_H_
