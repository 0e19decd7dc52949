// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/attention_kernel.h"

namespace tessera {

TESSERA_REGISTER_KERNEL(attention_forward, DeviceType::kCpu, FlashForward);
TESSERA_REGISTER_KERNEL(attention_backward, DeviceType::kCpu, FlashBackward);

}  // namespace tessera
