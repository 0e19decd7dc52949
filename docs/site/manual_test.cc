// SPDX-License-Identifier: Apache-2.0
#include "docs/site/manual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace tessera::site {
namespace {

using testing::HasSubstr;

constexpr char kManual[] = R"(.TH TESSERA 1 "" "tessera 0.8.0"
.SH NAME
tessera \- trains
.SH SYNOPSIS
.B tessera COMMAND [OPTIONS]
.SH COMMANDS
.TP
.B train
trains a model
.TP
.B corpus run
runs
a pipeline
.SH OPTIONS
.SS Options
.TP
.B \-\-version
the version
.SH TRAIN
.B tessera train [MODEL] [OPTIONS]
.PP
trains a model
.SS Speed
.TP
.B \-\-lr, \-\-learning\-rate FLOAT
how <fast>
\&.5 is much
.PP
.nf
Example:
  tessera train \-\-lr 1 \e
.fi
.SH CORPUS RUN
.B tessera corpus run [OPTIONS]
.PP
runs a pipeline
.SS Speed
As of train.
.PP
.nf

.fi
.SH EXIT STATUS
0: done
)";

TEST(ManualTest, HasAPageForEachCommand) {
  const Manual manual = ManualOf(kManual);
  EXPECT_EQ(manual.version, "tessera 0.8.0");
  ASSERT_EQ(manual.pages.size(), 3u);
  EXPECT_EQ(manual.pages[0].path, "commands/index.html");
  EXPECT_THAT(manual.pages[0].body, HasSubstr("<a href=\"corpus-run.html\">"));
  EXPECT_THAT(manual.pages[0].body, HasSubstr("<dd>runs a pipeline</dd>"));
  EXPECT_THAT(manual.pages[0].body, HasSubstr("<p>0: done</p>"));
  EXPECT_EQ(manual.pages[1].path, "commands/train.html");
  EXPECT_EQ(manual.pages[1].title, "tessera train");
  EXPECT_THAT(manual.pages[1].body, HasSubstr("<pre><code>Example:\n  tessera train --lr 1 \\\n"));
  EXPECT_THAT(manual.pages[1].body,
              HasSubstr("<dt id=\"--lr\"><code>--lr, --learning-rate FLOAT</code></dt>\n"
                        "<dd>how &lt;fast&gt; .5 is much</dd>"));
  EXPECT_EQ(manual.pages[1].sections.back().anchor, "--lr");
  EXPECT_EQ(manual.pages[2].path, "commands/corpus-run.html");
  EXPECT_THAT(manual.pages[2].body, HasSubstr("As of <a href=\"train.html\">tessera train</a>."));
}

TEST(ManualTest, NamesAMacroThatItDoesNotRead) {
  try {
    ManualOf(".SH TRAIN\n.XY z\n");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr(".XY"));
  }
}

}  // namespace
}  // namespace tessera::site
