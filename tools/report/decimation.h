// SPDX-License-Identifier: Apache-2.0
// Fewer points that draw the same picture.
//
//   const Curve drawn = Decimate(curve, 400);
//
// The steps are cut into equal spans, and of each the least and the greatest value stay: no spike
// is lost. So do the first and the last point, and one that is not finite of each span that has
// any. A curve of no more than `most` points stays as it is.
#ifndef TESSERA_TOOLS_REPORT_DECIMATION_H_
#define TESSERA_TOOLS_REPORT_DECIMATION_H_

#include "tools/report/run_record.h"

namespace tessera::report {

// `most` is at least 8.
Curve Decimate(const Curve& curve, int most);

}  // namespace tessera::report

#endif  // TESSERA_TOOLS_REPORT_DECIMATION_H_
