# SPDX-License-Identifier: Apache-2.0
# Makes this project's comments Doxygen's: those in front of what they are about, those behind it, and a
# header's opening one, which is about the file. Their text is plain, so that what Doxygen would take
# for commands and tags is quoted, and lines that are further in are code.

function quoted(text,    parts, n, i, out) {
  n = split(text, parts, "`")
  if (n % 2 == 0) {                                             # it is closed on another line
    gsub(/`/, "", text)
    n = split(text, parts, "`")
  }
  out = ""
  for (i = 1; i <= n; i++) {
    if (i % 2 == 1 || i == n) {
      gsub(/[\\@<>#%&]/, "\\\\&", parts[i])
      gsub(/ al\. /, " al.\\ ", parts[i])                         # no sentence ends there
    }
    out = out (i > 1 ? "`" : "") parts[i]
  }
  return out
}

# `text` follows the two slashes of a line that is all comment.
function comment_line(indent, mark, text) {
  if (text ~ /^   / && text !~ /^ +[-0-9|]/) {
    if (!in_code) print indent mark
    in_code = 1
    print indent mark "    " text
    return
  }
  in_code = 0
  print indent mark quoted(text)
}

FNR == 1 { opened = 0 }

/SPDX-License-Identifier/ { print ""; next }

!opened {
  opened = 1
  opening = /^\/\//
  behind = 0
  in_code = 0
  if (opening) print "/// @file"
}

/^[ ]*\/\// {
  match($0, /^[ ]*/)
  indent = substr($0, 1, RLENGTH)
  text = substr($0, RLENGTH + 3)
  if (text ~ /^ ?---/) { print ""; next }                       # a headline
  comment_line(indent, behind && RLENGTH >= behind ? "///<" : "///", text)
  next
}

{
  if (opening) { print ""; opening = 0 }
  in_code = 0
  behind = 0
  at = match($0, /[;,{})]  ?\/\/ /)
  if (at > 0 && $0 !~ /"[^"]*\/\/[^"]*"/ && $0 !~ /^(#|}|namespace)/ && $0 !~ /NOLINT/) {
    behind = at + RLENGTH - 3
    print substr($0, 1, behind - 1) "///<" quoted(substr($0, behind + 2))
    next
  }
  print
}
