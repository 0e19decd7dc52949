// SPDX-License-Identifier: Apache-2.0
// What the report's pictures share: sizes, colours, letters, frames.
//
// A picture is inline SVG, complete as it stands. It is scaled to its column, whose width is near
// that of its own coordinates, so that its letters keep their size. Colours are classes (`r0` ...
// of runs, `k-forward` ... of kinds of work) that the style sheet gives, for light and for dark.
#ifndef TESSERA_TOOLS_REPORT_CHART_PARTS_H_
#define TESSERA_TOOLS_REPORT_CHART_PARTS_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "tools/report/markup.h"

namespace tessera::report {

// Of a run: "r3". There are as many colours as the style sheet has; then they come again.
std::string ColourOf(size_t run);
// "A" ... "Z", "A2", ...: what tells runs apart without colours.
std::string LetterOf(size_t run);
// A name as part of an element's id: what is no letter, digit or _ becomes its code.
std::string IdOf(std::string_view name);

struct Picture {
  std::string id;
  std::string title;        // what a screen reader says first
  std::string description;  // and then
  double width = 0;
  double height = 0;
  std::string css_class = {};
};
// Opens <svg role="img"> with its title and description; the caller closes it.
void OpenPicture(const Picture& picture, Markup* out);

// A <div> in which what is wider than the page is scrolled, by keys as well; the caller closes it.
void OpenScroll(std::string_view label, Markup* out);

// The table behind a picture: <details> with a caption. The caller puts rows into the
// table and closes it with CloseTable.
void OpenTable(const std::string& id, std::string_view summary, std::string_view caption,
               Markup* out);
void CloseTable(Markup* out);

}  // namespace tessera::report

#endif  // TESSERA_TOOLS_REPORT_CHART_PARTS_H_
