// SPDX-License-Identifier: Apache-2.0
// "Did you mean ...?" and lists of what is known, for unknown keys, flags and names.
#ifndef TESSERA_BASE_NEAREST_NAME_H_
#define TESSERA_BASE_NEAREST_NAME_H_

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The entry of `known` with the least edit distance to `name`; "" where none is near (more than a
// third of the name would have to change, at least two characters allowed).
std::string NearestName(std::string_view name, const std::vector<std::string>& known);

// "; did you mean 'weight_decay'?", or nothing where no name is near.
std::string DidYouMean(std::string_view name, const std::vector<std::string>& known);

// "1, 2 or 3".
std::string OneOf(const std::vector<std::string>& names);

}  // namespace tessera

#endif  // TESSERA_BASE_NEAREST_NAME_H_
