// SPDX-License-Identifier: Apache-2.0
// Text and statuses over a communicator.
//
//   TESSERA_RETURN_IF_ERROR(AgreeOnStatus(*world, OpenMyFiles()));   // all ranks continue, or none
//   const std::vector<std::string> hosts = GatherStrings(*world, hostname);
//
// All are collective and work on every communicator.
#ifndef TESSERA_DIST_COMM_AGREEMENT_H_
#define TESSERA_DIST_COMM_AGREEMENT_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "core/communicator.h"

namespace tessera::dist {

// OK when all ranks are OK. Otherwise every rank gets the failure of the lowest rank that has one,
// with its code; "rank k: " is before the text unless all ranks have the same.
Status AgreeOnStatus(Communicator& world, const Status& mine);

// Every rank's string, in the order of the ranks; any bytes.
std::vector<std::string> GatherStrings(Communicator& world, const std::string& mine);

// The text of rank `root`; what the others give is not looked at.
std::string BroadcastString(Communicator& world, const std::string& text, int root = 0);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_COMM_AGREEMENT_H_
