// SPDX-License-Identifier: Apache-2.0
// Serves a model until a signal asks it to end: what `tessera serve` does once it has a model.
#ifndef TESSERA_SERVE_SERVER_H_
#define TESSERA_SERVE_SERVER_H_

#include <functional>
#include <string>

#include "base/status.h"
#include "net/http/http_server.h"
#include "net/http/waiting_signals.h"
#include "serve/service.h"

namespace tessera::serve {

// Listens, says its address to `listening`, and answers. When a signal comes, what runs is finished
// and the rest refused, and it returns OK within 20 seconds; a second signal ends the process.
Status ServeUntilSignal(const ServedModel& served, const ServiceOptions& options,
                        const net::HttpServerOptions& http, const net::WaitingSignals& signals,
                        const std::function<Status(const std::string& url)>& listening);

}  // namespace tessera::serve

#endif  // TESSERA_SERVE_SERVER_H_
