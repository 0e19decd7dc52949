// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_kernels.h"
#include "core/thread_pool.h"
#include "ops/cross_entropy/cross_entropy_kernel.h"
#include "ops/cross_entropy/cross_entropy_rows.h"

namespace tessera {
namespace {

const CrossEntropyRows& Rows() { return ForActiveIsa(TESSERA_FOR_EVERY_ISA(kCrossEntropyRows)); }

template <typename T>
void StatsTyped(const CrossEntropyStatsArgs& args) {
  using Stat = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const CrossEntropyRows& rows = Rows();
  ParallelFor(args.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* x = static_cast<const T*>(args.logits) + i * args.stride;
      Stat max = -HUGE_VAL;
      Stat sum_exp = 0;
      Stat logit_sum = 0;
      if constexpr (std::is_same_v<T, double>) {
        for (int64_t j = 0; j < args.vocab; ++j) {
          max = std::max(max, x[j]);
          logit_sum += x[j] * (args.class_weights != nullptr ? args.class_weights[j] : 1.0);
        }
        for (int64_t j = 0; j < args.vocab; ++j) sum_exp += std::exp(x[j] - max);
      } else if (args.vocab > 0) {
        const LogitsStats s = rows.stats(RowTypeOf(args.dtype), x, args.class_weights, args.vocab);
        max = s.max;
        sum_exp = s.sum_exp;
        logit_sum = s.weighted_sum;
      }
      static_cast<Stat*>(args.max)[i] = max;
      static_cast<Stat*>(args.sum_exp)[i] = sum_exp;
      if (args.logit_sum != nullptr) static_cast<Stat*>(args.logit_sum)[i] = logit_sum;
      const int64_t local = args.targets[i] - args.vocab_begin;
      static_cast<Stat*>(args.target_logit)[i] =
          local >= 0 && local < args.vocab ? static_cast<Stat>(x[local]) : Stat{0};
    }
  });
}

template <typename T>
void GradTyped(const CrossEntropyGradArgs& args) {
  using Stat = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const CrossEntropyRows& rows = Rows();
  ParallelFor(args.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* x = static_cast<const T*>(args.logits) + i * args.stride;
      T* dx = static_cast<T*>(args.dx) + i * args.stride;
      const Stat lse = static_cast<const Stat*>(args.lse)[i];
      const Stat on_target = static_cast<const Stat*>(args.on_target)[i];
      const Stat on_all = static_cast<const Stat*>(args.on_all)[i];
      const Stat on_softmax = static_cast<const Stat*>(args.on_softmax)[i];
      const int64_t local = args.targets[i] - args.vocab_begin;
      const bool here = local >= 0 && local < args.vocab;
      // Computed before dx, which may be x, is written.
      Stat at_target = 0;
      if (here) {
        const Stat w = args.class_weights != nullptr ? args.class_weights[local] : 1.0f;
        at_target =
            on_softmax * std::exp(static_cast<Stat>(x[local]) - lse) - on_all * w - on_target;
      }
      if constexpr (std::is_same_v<T, double>) {
        for (int64_t j = 0; j < args.vocab; ++j) {
          const double w = args.class_weights != nullptr ? args.class_weights[j] : 1.0;
          dx[j] = on_softmax * std::exp(x[j] - lse) - on_all * w;
        }
      } else {
        rows.gradient(RowTypeOf(args.dtype), x, args.class_weights, args.vocab, lse, on_softmax,
                      on_all, dx);
      }
      if (here) dx[local] = T(at_target);
      std::fill(dx + args.vocab, dx + args.columns, T(0));
    }
  });
}

void StatsCpu(const CrossEntropyStatsArgs& args) {
  DispatchFloat(args.dtype, "cross_entropy", [&](auto zero) { StatsTyped<decltype(zero)>(args); });
}

void GradCpu(const CrossEntropyGradArgs& args) {
  DispatchFloat(args.dtype, "cross_entropy", [&](auto zero) { GradTyped<decltype(zero)>(args); });
}

TESSERA_REGISTER_KERNEL(cross_entropy_stats, DeviceType::kCpu, StatsCpu);
TESSERA_REGISTER_KERNEL(cross_entropy_grad, DeviceType::kCpu, GradCpu);

}  // namespace
}  // namespace tessera
