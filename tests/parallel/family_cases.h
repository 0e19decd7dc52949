// SPDX-License-Identifier: Apache-2.0
// A small configuration of every model family and head, with inputs: what the tests of layouts run.
// A new family adds one entry.
#ifndef TESSERA_TESTS_PARALLEL_FAMILY_CASES_H_
#define TESSERA_TESTS_PARALLEL_FAMILY_CASES_H_

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "models/model.h"
#include "nlohmann/json.hpp"

namespace tessera {

struct FamilyCase {
  std::string name;
  nlohmann::json config;
  // A batch with labels; other ones for other `variation`s, with other numbers of targets.
  std::function<models::Bundle(uint64_t variation)> inputs;
};

inline void PrintTo(const FamilyCase& family, std::ostream* out) { *out << family.name; }

const std::vector<FamilyCase>& FamilyCases();

}  // namespace tessera

#endif  // TESSERA_TESTS_PARALLEL_FAMILY_CASES_H_
