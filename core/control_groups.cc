// SPDX-License-Identifier: Apache-2.0
#include "core/control_groups.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/file.h"

namespace tessera {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

double Ratio(double quota, double period) {
  return quota > 0 && period > 0 ? quota / period : kUnlimited;
}

// Cuts what is before the next `separator` off `text`.
std::string_view NextPart(std::string_view* text, char separator) {
  const size_t end = std::min(text->find(separator), text->size());
  const std::string_view part = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return part;
}

// The numbers that a file begins with; none where it cannot be read.
std::vector<double> NumbersIn(const std::string& path) {
  std::vector<double> numbers;
  const StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return numbers;
  const char* at = text->data();
  const char* const end = at + text->size();
  while (true) {
    while (at != end && (*at == ' ' || *at == '\n')) ++at;
    double number = 0;
    const auto read = std::from_chars(at, end, number);
    if (read.ec != std::errc()) return numbers;
    numbers.push_back(number);
    at = read.ptr;
  }
}

// "max 100000" or "150000 100000".
double QuotaOfVersion2(const std::string& group) {
  const std::vector<double> numbers = NumbersIn(group + "/cpu.max");
  return numbers.size() >= 2 ? Ratio(numbers[0], numbers[1]) : kUnlimited;
}

// A quota of -1 is no limit.
double QuotaOfVersion1(const std::string& group) {
  const std::vector<double> quota = NumbersIn(group + "/cpu.cfs_quota_us");
  const std::vector<double> period = NumbersIn(group + "/cpu.cfs_period_us");
  return quota.empty() || period.empty() ? kUnlimited : Ratio(quota[0], period[0]);
}

// Of a file of lines "key number".
double NumberOf(const std::string& path, std::string_view key) {
  const StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return 0;
  for (std::string_view lines = *text; !lines.empty();) {
    std::string_view line = NextPart(&lines, '\n');
    if (NextPart(&line, ' ') != key) continue;
    while (line.starts_with(' ')) line.remove_prefix(1);
    double number = 0;
    std::from_chars(line.data(), line.data() + line.size(), number);
    return number;
  }
  return 0;
}

// Cached files give way to who needs memory.
double MemoryLeftOf(const std::string& group, const char* limit, const char* used,
                    const std::string& prefix) {
  const std::vector<double> most = NumbersIn(group + limit);
  const std::vector<double> now = NumbersIn(group + used);
  if (most.empty() || now.empty()) return kUnlimited;
  const std::string stat = group + "/memory.stat";
  const double cached =
      NumberOf(stat, prefix + "inactive_file") + NumberOf(stat, prefix + "active_file");
  return std::max(0.0, most[0] - std::max(0.0, now[0] - cached));
}
double MemoryLeftOfVersion2(const std::string& group) {
  return MemoryLeftOf(group, "/memory.max", "/memory.current", "");
}
double MemoryLeftOfVersion1(const std::string& group) {
  return MemoryLeftOf(group, "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_");
}

// The least value of `path` below `mount` and of all its ancestors, the mount itself included.
template <typename Value>
double Least(const std::string& mount, std::string path, Value value) {
  double least = kUnlimited;
  while (true) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    least = std::min(least, value(mount + path));
    if (path.empty()) return least;
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
}

bool Lists(std::string_view controllers, std::string_view controller) {
  while (!controllers.empty()) {
    if (NextPart(&controllers, ',') == controller) return true;
  }
  return false;
}

// Over all groups that this process is in.
template <typename Version2, typename Version1>
double LeastOfGroups(const std::string& membership, const std::string& root,
                     const std::string& controller, Version2 version2, Version1 version1) {
  const StatusOr<std::string> text = ReadFile(membership);
  if (!text.ok()) return kUnlimited;
  double least = kUnlimited;
  // Lines are "hierarchy:controllers:path"; version 2's has no controllers.
  for (std::string_view lines = *text; !lines.empty();) {
    const std::string line(NextPart(&lines, '\n'));
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      least = std::min(least, Least(root, path, version2));
      least = std::min(least, Least(root + "/unified", path, version2));
    } else if (Lists(controllers, controller)) {
      least = std::min(least, Least(root + "/" + controller, path, version1));
      least = std::min(least, Least(root + "/" + controllers, path, version1));
    }
  }
  return least;
}

}  // namespace

double CpuQuota(const std::string& membership, const std::string& root) {
  return LeastOfGroups(membership, root, "cpu", QuotaOfVersion2, QuotaOfVersion1);
}

double GroupMemoryLeft(const std::string& membership, const std::string& root) {
  return LeastOfGroups(membership, root, "memory", MemoryLeftOfVersion2, MemoryLeftOfVersion1);
}

double MemoryLeft() {
  constexpr char kMemory[] = "/proc/meminfo";
  const double kib = NumberOf(kMemory, "MemAvailable:") + NumberOf(kMemory, "SwapFree:");
  return std::min(kib > 0 ? kib * 1024 : kUnlimited,
                  GroupMemoryLeft("/proc/self/cgroup", "/sys/fs/cgroup"));
}

}  // namespace tessera
