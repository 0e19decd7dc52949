# SPDX-License-Identifier: Apache-2.0
# Tessera: find_package(tessera) gives
#
#   tessera::tessera    the runtime for C (tessera.h)
#   tessera::training   the runtime that also trains, for C (tessera_training.h)
#   tessera::nn         models, their parts, optimizers and data, for C++20
#   tessera::train      the trainer and its parallel layouts over it, for C++20
#   tessera::main       the command line over that (tools/program.h), for C++20
#
# and each of them again with _static behind its name, as an archive. Those for C++20 need
# nlohmann_json, and are there where it is; find_package(tessera COMPONENTS nn) asks for them.

# /lib may be a link to /usr/lib.
get_filename_component(_tessera_prefix "${CMAKE_CURRENT_LIST_FILE}" REALPATH)
foreach(_tessera_folder RANGE 3)
  get_filename_component(_tessera_prefix "${_tessera_prefix}" DIRECTORY)
endforeach()

# A target of each kind for lib<file>, where it is there: what users compile with, and what the
# archive needs beside it.
macro(_tessera_library name file includes)
  if(EXISTS "${_tessera_prefix}/lib/lib${file}.a")
    _tessera_targets(${name} ${file} ${includes} ${ARGN})
    set(tessera_${name}_FOUND TRUE)
  endif()
endmacro()

macro(_tessera_targets name file includes)
  foreach(_tessera_kind SHARED STATIC)
    set(_tessera_target tessera::${name})
    set(_tessera_path "${_tessera_prefix}/lib/lib${file}.so")
    if(_tessera_kind STREQUAL STATIC)
      set(_tessera_target tessera::${name}_static)
      set(_tessera_path "${_tessera_prefix}/lib/lib${file}.a")
    endif()
    if(NOT TARGET ${_tessera_target})
      add_library(${_tessera_target} ${_tessera_kind} IMPORTED)
      set_target_properties(${_tessera_target} PROPERTIES
        IMPORTED_LOCATION "${_tessera_path}"
        INTERFACE_INCLUDE_DIRECTORIES "${_tessera_prefix}/${includes}")
    endif()
  endforeach()
  set_target_properties(tessera::${name} PROPERTIES IMPORTED_SONAME lib${file}.so.0)
  set_property(TARGET tessera::${name}_static PROPERTY INTERFACE_LINK_LIBRARIES ${ARGN})
endmacro()

macro(_tessera_cpp name)
  foreach(_tessera_target tessera::${name} tessera::${name}_static)
    set_property(TARGET ${_tessera_target} PROPERTY INTERFACE_COMPILE_FEATURES cxx_std_20)
    set_property(TARGET ${_tessera_target} APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES
      "${_tessera_prefix}/include/tessera/internal/json")
    set_property(TARGET ${_tessera_target} APPEND PROPERTY
      INTERFACE_LINK_LIBRARIES nlohmann_json::nlohmann_json)
  endforeach()
endmacro()

_tessera_library(tessera tessera include m)
_tessera_library(training tessera_training include m)

# Why a part is not there; empty: it is. Those for C++20 come with nlohmann_json.
set(_tessera_why_tessera "libtessera.a is not in ${_tessera_prefix}/lib (Debian: libtessera-dev)")
set(_tessera_why_training
  "libtessera_training.a is not in ${_tessera_prefix}/lib (Debian: libtessera-dev)")
find_package(nlohmann_json QUIET)
foreach(_tessera_part nn train main)
  if(NOT EXISTS "${_tessera_prefix}/lib/libtessera_cpp_${_tessera_part}.a")
    set(_tessera_why_${_tessera_part}
      "libtessera_cpp_${_tessera_part}.a is not in ${_tessera_prefix}/lib (Debian: libtessera-cpp-dev)")
  elseif(NOT nlohmann_json_FOUND)
    set(_tessera_why_${_tessera_part}
      "it needs CMake's package nlohmann_json, which is not found (Debian: nlohmann-json3-dev)")
  endif()
endforeach()

if(nlohmann_json_FOUND AND EXISTS "${_tessera_prefix}/lib/libtessera_cpp_nn.a")
  _tessera_library(nn tessera_cpp_nn include csv jpeg lz4 png snappy yaml-cpp z zstd m)
  _tessera_cpp(nn)
  _tessera_library(train tessera_cpp_train include tessera::nn_static
    absl_str_format_internal absl_strings absl_throw_delegate)
  _tessera_cpp(train)
  set_property(TARGET tessera::train APPEND PROPERTY INTERFACE_LINK_LIBRARIES tessera::nn)
  _tessera_library(main tessera_cpp_main include tessera::train_static
    absl_hash absl_raw_hash_set absl_time absl_time_zone sentencepiece_train sentencepiece xml2 z zstd)
  _tessera_cpp(main)
  set_property(TARGET tessera::main APPEND PROPERTY INTERFACE_LINK_LIBRARIES tessera::train)
endif()

# By the name that find_package was called with: "Tessera" finds this file, too.
set(_tessera_missing "")
foreach(_tessera_part ${${CMAKE_FIND_PACKAGE_NAME}_FIND_COMPONENTS})
  set(${CMAKE_FIND_PACKAGE_NAME}_${_tessera_part}_FOUND ${tessera_${_tessera_part}_FOUND})
  if(${CMAKE_FIND_PACKAGE_NAME}_FIND_REQUIRED_${_tessera_part} AND
     NOT tessera_${_tessera_part}_FOUND)
    set(_tessera_reason "${_tessera_why_${_tessera_part}}")
    if(NOT _tessera_reason)
      set(_tessera_reason "there is no such component; there are tessera, training, nn, train and main")
    endif()
    string(APPEND _tessera_missing "\n  component '${_tessera_part}': ${_tessera_reason}")
  endif()
endforeach()
if(_tessera_missing)
  set(${CMAKE_FIND_PACKAGE_NAME}_FOUND FALSE)
  set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE "Tessera lacks what was asked for:${_tessera_missing}")
endif()
