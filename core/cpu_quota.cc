// SPDX-License-Identifier: Apache-2.0
#include "core/cpu_quota.h"

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

// The least quota of `path` below `mount` and of all its ancestors, the mount itself included.
template <typename QuotaOf>
double LeastQuota(const std::string& mount, std::string path, QuotaOf quota_of) {
  double least = kUnlimited;
  while (true) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    least = std::min(least, quota_of(mount + path));
    if (path.empty()) return least;
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
}

// Cuts what is before the next `separator` off `text`.
std::string_view NextPart(std::string_view* text, char separator) {
  const size_t end = std::min(text->find(separator), text->size());
  const std::string_view part = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return part;
}

bool ListsCpu(std::string_view controllers) {
  while (!controllers.empty()) {
    if (NextPart(&controllers, ',') == "cpu") return true;
  }
  return false;
}

}  // namespace

double CpuQuota(const std::string& membership, const std::string& root) {
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
      least = std::min(least, LeastQuota(root, path, QuotaOfVersion2));
      least = std::min(least, LeastQuota(root + "/unified", path, QuotaOfVersion2));
    } else if (ListsCpu(controllers)) {
      least = std::min(least, LeastQuota(root + "/cpu", path, QuotaOfVersion1));
      least = std::min(least, LeastQuota(root + "/" + controllers, path, QuotaOfVersion1));
    }
  }
  return least;
}

}  // namespace tessera
