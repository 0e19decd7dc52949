// SPDX-License-Identifier: Apache-2.0
// Pictures for the tests of this folder.
#ifndef TESSERA_EXAMPLES_VISION_TEST_PICTURES_H_
#define TESSERA_EXAMPLES_VISION_TEST_PICTURES_H_

#include <string>

namespace tessera {

// A folder of that name with IDX files: 64 pictures to train on and 16 to test, class 0 bright
// above, class 1 below.
std::string WritePictures(const std::string& name);

}  // namespace tessera

#endif  // TESSERA_EXAMPLES_VISION_TEST_PICTURES_H_
