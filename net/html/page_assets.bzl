# SPDX-License-Identifier: Apache-2.0
"""Pages of the web as text of a program.

    load("//net/html:page_assets.bzl", "page_assets")

    page_assets(
        name = "page_assets",
        namespace = "tessera::report",
    )

makes page_assets.h and page_assets.cc, which say what page.html, page.css and page.js of the folder
hold: `extern const net::PageAssets kPageAssets` (net/html/page_assets.h) in that namespace. Both are
among the sources of a library.
"""

def page_assets(name, namespace):
    native.genrule(
        name = name,
        srcs = [
            "page.css",
            "page.html",
            "page.js",
        ],
        outs = [
            name + ".cc",
            name + ".h",
        ],
        cmd = """
          text() {  # FILE
            echo -n 'R"ASSET('; cat "$$1"; echo ')ASSET",'
          }
          # The hash is of what is between the tags.
          sha256() {  # FILE
            echo "\\"$$(printf "$$(sha256sum < "$$1" | cut -c1-64 | sed 's/../\\\\x&/g')" | base64)\\","
          }
          {
            echo '#pragma once'
            echo '#include "net/html/page_assets.h"'
            echo 'namespace NAMESPACE { extern const ::tessera::net::PageAssets kPageAssets; }'
          } > $(location NAME.h)
          {
            echo '#include "PACKAGE/NAME.h"'
            echo 'const ::tessera::net::PageAssets NAMESPACE::kPageAssets = {'
            text $(location page.html)
            text $(location page.css)
            text $(location page.js)
            sha256 $(location page.css)
            sha256 $(location page.js)
            echo '};'
          } > $(location NAME.cc)
        """.replace("NAMESPACE", namespace).replace("PACKAGE", native.package_name()).replace("NAME", name),
    )
