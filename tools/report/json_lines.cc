// SPDX-License-Identifier: Apache-2.0
#include "tools/report/json_lines.h"

#include <string_view>

#include "base/file.h"
#include "base/json_ordered.h"

namespace tessera::report {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kGreatestStep = int64_t{1} << 53;  // whole numbers of JSON's readers end there

bool IsStep(const ordered_json& value) {
  if (value.is_number_unsigned()) {
    return value.get<uint64_t>() <= static_cast<uint64_t>(kGreatestStep);
  }
  return value.is_number_integer() && value.get<int64_t>() >= 0;
}

}  // namespace

Status ForEachRow(const std::string& path, const std::function<void(const Row& row)>& visit) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::string_view rest = text;
  for (int number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    const bool ended = end != std::string_view::npos;
    rest.remove_prefix(ended ? end + 1 : rest.size());
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const ordered_json json = ParseOrderedJson(line, path).value_or(ordered_json());
    if (!json.is_object()) {
      if (!ended) break;
      return InvalidArgument(path, ":", number, ": is no JSON object");
    }
    const auto step = json.find("step");
    if (step == json.end()) continue;
    if (!IsStep(*step)) {
      return InvalidArgument(path, ":", number, ": its step is no whole number from 0 to 2^53");
    }
    visit({step->get<int64_t>(), json});
  }
  return OkStatus();
}

}  // namespace tessera::report
