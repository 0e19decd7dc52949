// SPDX-License-Identifier: Apache-2.0
// The U-Net's loop learns on pictures made here.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "examples/vision/test_pictures.h"
#include "tests/process/process.h"

namespace tessera {
namespace {

TEST(DenoiseTest, UNetTakesNoiseOut) {
  const std::string root = WritePictures("vision_unet");
  Process run({{.ranks = 1, .arguments = {root, "60"}, .program = "examples/vision/denoise"}},
              root + "/log");
  ASSERT_EQ(run.ExitCode(), 0) << run.Errors();
  const std::string output = run.Output();
  const size_t last = output.rfind("loss ");
  ASSERT_NE(last, std::string::npos) << output;
  EXPECT_LT(std::atof(output.c_str() + last + 5), 0.15) << output;
}

TEST(DenoiseTest, AFailureIsOneLine) {
  Process run(
      {{.ranks = 1, .arguments = {"/no/such/pictures", "5"}, .program = "examples/vision/denoise"}},
      testing::TempDir() + "/denoise_failure");
  EXPECT_NE(run.ExitCode(), 0);
  EXPECT_TRUE(run.Errors().starts_with("error: ")) << run.Errors();
  EXPECT_NE(run.Errors().find("/no/such/pictures"), std::string::npos) << run.Errors();
}

}  // namespace
}  // namespace tessera
