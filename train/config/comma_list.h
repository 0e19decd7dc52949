// SPDX-License-Identifier: Apache-2.0
// Text that stands for a list: "sentence,label" is {"sentence", "label"}; "" is empty.
#ifndef TESSERA_TRAIN_CONFIG_COMMA_LIST_H_
#define TESSERA_TRAIN_CONFIG_COMMA_LIST_H_

#include <string>
#include <vector>

namespace tessera::train {

// What is between commas, empty parts included.
std::vector<std::string> SplitAtCommas(const std::string& text);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_COMMA_LIST_H_
