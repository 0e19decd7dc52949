// page.html, page.css and page.js as the build put them into the program (BUILD.bazel).
#ifndef TESSERA_TOOLS_REPORT_PAGE_ASSETS_H_
#define TESSERA_TOOLS_REPORT_PAGE_ASSETS_H_

#include <string_view>

namespace tessera::report {

extern const std::string_view kPageHtml;  // {{name}} stands for what MakePage puts there
extern const std::string_view kPageCss;
extern const std::string_view kPageJs;
// Of the two, in base64, as a content security policy names them.
extern const std::string_view kPageCssSha256;
extern const std::string_view kPageJsSha256;

}  // namespace tessera::report

#endif  // TESSERA_TOOLS_REPORT_PAGE_ASSETS_H_
