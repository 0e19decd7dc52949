// SPDX-License-Identifier: Apache-2.0
// The report as one HTML page that needs nothing else: no network, no script to be complete.
//
//   TESSERA_ASSIGN_OR_RETURN(const std::vector<RunRecord> runs, ReadRuns({"runs/a", "runs/b"}));
//   TESSERA_RETURN_IF_ERROR(WriteFileAtomically("page.html", MakePage(runs, {})));
//
// The page is a function of the runs. Its style and script stand in page.css and page.js; a content
// security policy names their hashes, so that a browser runs nothing else, whatever the runs hold.
#ifndef TESSERA_TOOLS_REPORT_PAGE_H_
#define TESSERA_TOOLS_REPORT_PAGE_H_

#include <string>
#include <vector>

#include "tools/report/run_record.h"

namespace tessera::report {

struct PageOptions {
  // The page asks for itself that often and shows what has changed; 0: it stays as it is.
  int refresh_ms = 0;
};

// `runs` is not empty.
std::string MakePage(const std::vector<RunRecord>& runs, const PageOptions& options);

}  // namespace tessera::report

#endif  // TESSERA_TOOLS_REPORT_PAGE_H_
