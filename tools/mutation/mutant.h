// SPDX-License-Identifier: Apache-2.0
// The mutants of an instrumented tree: their list in a file, which of them are run, and which are
// argued to change nothing.
#ifndef TESSERA_TOOLS_MUTATION_MUTANT_H_
#define TESSERA_TOOLS_MUTATION_MUTANT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::mutation {

struct Mutant {
  int64_t number = 0;  // of its switch
  std::string file;
  int64_t line = 0;
  std::string kind;
  std::string function;
  std::string original;  // the whole line, or lines, with one blank for each run of blanks
  std::string mutated;   // the same with the change
};

std::string WriteMutants(const std::vector<Mutant>& mutants);
// Lines that are none are left out.
std::vector<Mutant> ReadMutants(std::string_view text);

// One blank for every run of blanks and newlines.
std::string OneLine(std::string_view text);

// A mutant that no test can kill, by what it is rather than by its number or line:
//
//   core/shape.cc Shape::Strides
//   - if (n > 1) stride *= n;
//   + if (n >= 1) stride *= n;
//   A dimension of 1 multiplies by 1.
//
// Entries have a blank line between; lines that begin with # are comments. An entry without a
// reason is none, and `error` names the first such.
struct Equivalent {
  std::string file;
  std::string function;
  std::string original;
  std::string mutated;
};
std::vector<Equivalent> ReadEquivalents(std::string_view text, std::string* error);
bool IsEquivalent(const Mutant& mutant, const std::vector<Equivalent>& equivalents);

// `count` of the mutants (all, where there are fewer) in an order that `seed` gives, each as likely
// as any other. Those of a smaller count are the first of those of a larger one.
std::vector<Mutant> Draw(std::vector<Mutant> mutants, int64_t count, uint64_t seed);

}  // namespace tessera::mutation

#endif  // TESSERA_TOOLS_MUTATION_MUTANT_H_
