// SPDX-License-Identifier: Apache-2.0
// Which version of Tessera a program is compiled with.
//
//   #if TESSERA_VERSION_NUMBER >= 900      // 0.9.0: major * 10000 + minor * 100 + patch
//
// runtime/tessera.h has the same number for C (TSR_VERSION); runtime/process.cc holds them equal.
#ifndef TESSERA_BASE_VERSION_H_
#define TESSERA_BASE_VERSION_H_

#define TESSERA_VERSION_MAJOR 0
#define TESSERA_VERSION_MINOR 8
#define TESSERA_VERSION_PATCH 0

#define TESSERA_VERSION_NUMBER \
  (TESSERA_VERSION_MAJOR * 10000 + TESSERA_VERSION_MINOR * 100 + TESSERA_VERSION_PATCH)

#define TESSERA_VERSION_TEXT_(x) #x
#define TESSERA_VERSION_JOINED_(major, minor, patch) \
  TESSERA_VERSION_TEXT_(major) "." TESSERA_VERSION_TEXT_(minor) "." TESSERA_VERSION_TEXT_(patch)
// "0.8.0".
#define TESSERA_VERSION \
  TESSERA_VERSION_JOINED_(TESSERA_VERSION_MAJOR, TESSERA_VERSION_MINOR, TESSERA_VERSION_PATCH)

#endif  // TESSERA_BASE_VERSION_H_
