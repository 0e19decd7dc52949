// SPDX-License-Identifier: Apache-2.0
// How many cores' worth of time the kernel's control groups grant this process.
//
//   double quota = CpuQuota("/proc/self/cgroup", "/sys/fs/cgroup");   // 1.5; infinity if unlimited
//
// Knows version 1 (cpu.cfs_quota_us and cpu.cfs_period_us), version 2 (cpu.max) and both side by
// side. The limit of every ancestor counts as well; where the process's own path is not mounted
// (a container without a control-group namespace) the mount's root speaks for it.
#ifndef TESSERA_CORE_CPU_QUOTA_H_
#define TESSERA_CORE_CPU_QUOTA_H_

#include <string>

namespace tessera {

// `membership` is the file that names the process's groups, `root` where groups are mounted. What
// cannot be read or understood sets no limit. The result is > 0.
double CpuQuota(const std::string& membership, const std::string& root);

}  // namespace tessera

#endif  // TESSERA_CORE_CPU_QUOTA_H_
