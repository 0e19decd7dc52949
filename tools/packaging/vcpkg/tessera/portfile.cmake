# SPDX-License-Identifier: Apache-2.0
# A vcpkg port of the libraries for C, of what tools/package has made:
#
#   TESSERA_PREFIX=out vcpkg install tessera --overlay-ports=tools/packaging/vcpkg
#
# gives the targets tessera::tessera and tessera::training. It was not tried (docs/packages.md).
if("$ENV{TESSERA_PREFIX}" STREQUAL "")
  message(FATAL_ERROR "TESSERA_PREFIX: set it to the folder that tools/package has made")
endif()
get_filename_component(prefix "$ENV{TESSERA_PREFIX}" ABSOLUTE)

# Nothing is compiled here, so there is no other build for debugging. The targets are of the libraries'
# own configuration, which looks beside itself for both kinds of them.
set(VCPKG_BUILD_TYPE release)
set(VCPKG_POLICY_SKIP_MISPLACED_CMAKE_FILES_CHECK enabled)

file(GLOB headers "${prefix}/include/*.h" "${prefix}/include/*.hpp")
file(INSTALL ${headers} DESTINATION "${CURRENT_PACKAGES_DIR}/include")
foreach(library tessera tessera_training)
  file(GLOB files "${prefix}/lib/lib${library}.so*" "${prefix}/lib/lib${library}.a")
  file(INSTALL ${files} DESTINATION "${CURRENT_PACKAGES_DIR}/lib")
endforeach()
file(INSTALL "${prefix}/lib/cmake/tessera" DESTINATION "${CURRENT_PACKAGES_DIR}/lib/cmake")
vcpkg_install_copyright(FILE_LIST "${prefix}/share/doc/tessera/LICENSE" "${prefix}/share/doc/tessera/NOTICE")
