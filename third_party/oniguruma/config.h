// SPDX-License-Identifier: Apache-2.0
// What Oniguruma's configure script would find on Linux with 64 bits, and where it gets memory.
#ifndef TESSERA_THIRD_PARTY_ONIGURUMA_CONFIG_H_
#define TESSERA_THIRD_PARTY_ONIGURUMA_CONFIG_H_

#include <stdlib.h>

#define HAVE_ALLOCA_H 1
#define HAVE_INTTYPES_H 1
#define HAVE_STDINT_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_UNISTD_H 1
#define SIZEOF_INT 4
#define SIZEOF_LONG 8
#define SIZEOF_LONG_LONG 8
#define SIZEOF_VOIDP 8

// memory.cc
void* tessera_oniguruma_malloc(size_t size);
void* tessera_oniguruma_calloc(size_t count, size_t size);
void* tessera_oniguruma_realloc(void* memory, size_t size);
void tessera_oniguruma_free(void* memory);
#define malloc tessera_oniguruma_malloc
#define calloc tessera_oniguruma_calloc
#define realloc tessera_oniguruma_realloc
#define free tessera_oniguruma_free

#endif  // TESSERA_THIRD_PARTY_ONIGURUMA_CONFIG_H_
