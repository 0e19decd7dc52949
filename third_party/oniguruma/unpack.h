/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what pack_tables.c writes. Tables are unpacked when they are first asked for, into memory
 * that the program has anyway: nothing can fail. */
#ifndef TESSERA_THIRD_PARTY_ONIGURUMA_UNPACK_H_
#define TESSERA_THIRD_PARTY_ONIGURUMA_UNPACK_H_

#include <pthread.h>

/* The number at *bytes, which moves behind it. */
static inline unsigned int UnpackNumber(const unsigned char** bytes) {
  unsigned int number = 0;
  for (int shift = 0;; shift += 7) {
    const unsigned char byte = *(*bytes)++;
    number |= (unsigned int)(byte & 127) << shift;
    if (byte < 128) return number;
  }
}

typedef struct {
  pthread_once_t once;
  int done;
} Unpacked;

/* Calls `unpack` once in the process; it has returned when this does. */
static inline void UnpackOnce(Unpacked* unpacked, void (*unpack)(void)) {
  if (__atomic_load_n(&unpacked->done, __ATOMIC_ACQUIRE)) return;
  pthread_once(&unpacked->once, unpack);
  __atomic_store_n(&unpacked->done, 1, __ATOMIC_RELEASE);
}

#endif /* TESSERA_THIRD_PARTY_ONIGURUMA_UNPACK_H_ */
