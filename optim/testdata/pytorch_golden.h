// SPDX-License-Identifier: Apache-2.0
// By testdata/pytorch_golden.py with PyTorch 2.15.0.
#ifndef TESSERA_OPTIM_TESTDATA_PYTORCH_GOLDEN_H_
#define TESSERA_OPTIM_TESTDATA_PYTORCH_GOLDEN_H_

#include <vector>

namespace tessera::optim {

inline const std::vector<double> kSgdGolden = {0.8968224614737144, 0.5488528947842071,
                                               -0.19296854500802343, -0.7819491058082596,
                                               -0.8081544741775604};
inline const std::vector<double> kSgdMomentumGolden = {0.4495238133381919, 0.30051283786276756,
                                                       -0.009743432680916365, -0.3660319156764761,
                                                       -0.5523630378334972};
inline const std::vector<double> kSgdNesterovGolden = {0.9441464699377852, 0.6068841138868838,
                                                       -0.07145895090091553, -0.7635241438342552,
                                                       -1.0623392604558552};
inline const std::vector<double> kAdamGolden = {0.699700165452088, 0.4685352195530361,
                                                -0.12414772265027399, -0.7638838002807983,
                                                -0.8293568122110697};
inline const std::vector<double> kAdamWGolden = {0.8884731480698792, 0.5709592461380032,
                                                 -0.13821402620682313, -0.8188082637300267,
                                                 -0.8844568450781715};
inline const std::vector<double> kAdamWClippedGolden = {0.8968911431091481, 0.5683742614532211,
                                                        -0.1475333878431064, -0.8209295855801999,
                                                        -0.8796820117406506};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_TESTDATA_PYTORCH_GOLDEN_H_
