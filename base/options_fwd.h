// SPDX-License-Identifier: Apache-2.0
// For headers that only name OptionTable: a struct of options declares
// `static const OptionTable& Table();`, and its source, which includes base/options.h, defines it.
// Units that do not ask for tables then need not compile them.
#ifndef TESSERA_BASE_OPTIONS_FWD_H_
#define TESSERA_BASE_OPTIONS_FWD_H_

namespace tessera {

class OptionTable;

}  // namespace tessera

#endif  // TESSERA_BASE_OPTIONS_FWD_H_
