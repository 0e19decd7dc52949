#include "core/cpu_quota.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace tessera {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

double Ratio(double quota, double period) {
  return quota > 0 && period > 0 ? quota / period : kUnlimited;
}

// "max 100000" or "150000 100000".
double QuotaOfVersion2(const std::string& group) {
  std::ifstream in(group + "/cpu.max");
  double quota = 0;
  double period = 0;
  return in >> quota >> period ? Ratio(quota, period) : kUnlimited;
}

// A quota of -1 is no limit.
double QuotaOfVersion1(const std::string& group) {
  std::ifstream quota_in(group + "/cpu.cfs_quota_us");
  std::ifstream period_in(group + "/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  return quota_in >> quota && period_in >> period ? Ratio(quota, period) : kUnlimited;
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

bool ListsCpu(const std::string& controllers) {
  std::istringstream in(controllers);
  for (std::string name; std::getline(in, name, ',');) {
    if (name == "cpu") return true;
  }
  return false;
}

}  // namespace

double CpuQuota(const std::string& membership, const std::string& root) {
  std::ifstream in(membership);
  double least = kUnlimited;
  // Lines are "hierarchy:controllers:path"; version 2's has no controllers.
  for (std::string line; std::getline(in, line);) {
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
