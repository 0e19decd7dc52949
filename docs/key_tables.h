// SPDX-License-Identifier: Apache-2.0
// The tables of the documentation that follow from the code: of docs/cli.md a run's keys, tasks and
// optimizers, of docs/migration.md what becomes of other systems' keys.
#ifndef TESSERA_DOCS_KEY_TABLES_H_
#define TESSERA_DOCS_KEY_TABLES_H_

#include <string>

#include "base/status.h"

namespace tessera::docs {

// `page` with what is between "<!-- <name>: generated ... -->" and "<!-- end -->" made anew,
// for the names `keys`, `optimizers` and `tasks`. Fails where a mark is missing.
StatusOr<std::string> WithTables(const std::string& page);
// Likewise for `hugging-face`, `flagai`, `colossal-ai`, `deepspeed` and `accelerate`.
StatusOr<std::string> WithMigrationTables(const std::string& page);

}  // namespace tessera::docs

#endif  // TESSERA_DOCS_KEY_TABLES_H_
