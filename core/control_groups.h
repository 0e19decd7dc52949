// SPDX-License-Identifier: Apache-2.0
// How many cores' worth of time, and how much memory, the kernel's control groups grant this
// process.
//
//   double quota = CpuQuota("/proc/self/cgroup", "/sys/fs/cgroup");   // 1.5; infinity if unlimited
//   double bytes = GroupMemoryLeft("/proc/self/cgroup", "/sys/fs/cgroup");
//
// Knows version 1 (cpu.cfs_quota_us and cpu.cfs_period_us; memory.limit_in_bytes and
// memory.usage_in_bytes), version 2 (cpu.max; memory.max and memory.current) and both side by side.
// The limit of every ancestor counts as well; where the process's own path is not mounted
// (a container without a control-group namespace) the mount's root speaks for it.
#ifndef TESSERA_CORE_CONTROL_GROUPS_H_
#define TESSERA_CORE_CONTROL_GROUPS_H_

#include <string>

namespace tessera {

// `membership` is the file that names the process's groups, `root` where groups are mounted. What
// cannot be read or understood sets no limit. The result is > 0.
double CpuQuota(const std::string& membership, const std::string& root);
// Bytes that may still be used; what is cached of files can be. Infinity: no limit.
double GroupMemoryLeft(const std::string& membership, const std::string& root);
// What this process can still get of the machine's memory: what is free or gives way, and swap, by
// /proc/meminfo, within its groups.
double MemoryLeft();

}  // namespace tessera

#endif  // TESSERA_CORE_CONTROL_GROUPS_H_
