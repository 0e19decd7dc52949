// SPDX-License-Identifier: Apache-2.0
#include "tools/mutation/mutant.h"

#include <algorithm>
#include <cctype>
#include <random>
#include <utility>

#include "tools/mutation/point.h"

namespace tessera::mutation {
namespace {

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

std::string WriteMutants(const std::vector<Mutant>& mutants) {
  std::string text;
  for (const Mutant& m : mutants) {
    text += JoinFields({std::to_string(m.number), m.file, std::to_string(m.line), m.kind,
                        m.function, m.original, m.mutated}) +
            "\n";
  }
  return text;
}

std::vector<Mutant> ReadMutants(std::string_view text) {
  std::vector<Mutant> mutants;
  for (const std::string& line : Lines(text)) {
    const std::vector<std::string> f = SplitFields(line);
    if (f.size() != 7 || NumberOf(f[0]) < 0) continue;
    mutants.push_back({NumberOf(f[0]), f[1], NumberOf(f[2]), f[3], f[4], f[5], f[6]});
  }
  return mutants;
}

std::string OneLine(std::string_view text) {
  std::string line;
  for (char c : text) {
    const bool blank = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (!blank) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::vector<Equivalent> ReadEquivalents(std::string_view text, std::string* error) {
  std::vector<Equivalent> equivalents;
  std::vector<std::string> lines = Lines(text);
  lines.emplace_back();
  std::vector<std::string> entry;
  for (const std::string& line : lines) {
    if (line.rfind('#', 0) == 0) continue;
    if (!line.empty()) {
      entry.push_back(line);
      continue;
    }
    if (entry.empty()) continue;
    const size_t blank = entry[0].find(' ');
    if (entry.size() < 4 || blank == std::string::npos || entry[1].rfind("- ", 0) != 0 ||
        entry[2].rfind("+ ", 0) != 0) {
      if (error->empty()) {
        *error = "'" + entry[0] + "' is no entry: FILE FUNCTION, - ORIGINAL, + MUTATED, a reason";
      }
    } else {
      equivalents.push_back({entry[0].substr(0, blank), entry[0].substr(blank + 1),
                             entry[1].substr(2), entry[2].substr(2)});
    }
    entry.clear();
  }
  return equivalents;
}

bool IsEquivalent(const Mutant& m, const std::vector<Equivalent>& equivalents) {
  return std::any_of(equivalents.begin(), equivalents.end(), [&](const Equivalent& e) {
    return e.file == m.file && e.function == m.function && e.original == m.original &&
           e.mutated == m.mutated;
  });
}

std::vector<Mutant> Draw(std::vector<Mutant> mutants, int64_t count, uint64_t seed) {
  // Not std::shuffle, whose order is each library's own.
  std::mt19937_64 random(seed);
  const size_t size = std::min(mutants.size(), static_cast<size_t>(std::max<int64_t>(count, 0)));
  for (size_t i = 0; i < size; ++i) {
    std::swap(mutants[i], mutants[i + random() % (mutants.size() - i)]);
  }
  mutants.resize(size);
  return mutants;
}

}  // namespace tessera::mutation
