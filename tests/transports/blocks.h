// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks of bytes that differ by rank and place. Blocks are filled and compared
 * in pieces, by memcpy() and memcmp(): a sanitizer then checks a whole piece at
 * once, and not each byte.
 */
#ifndef SHUNT_TEST_BLOCKS_H
#define SHUNT_TEST_BLOCKS_H

#include <stddef.h>

/* The value of bytes that no put has written. */
#define BLOCK_NONE 0xee

/* Byte `i` of the memory of `rank`. */
unsigned char block_byte(int rank, size_t i);

/* Fills `to` with the bytes of `rank` from `first` on. */
void block_fill(unsigned char *to, int rank, size_t first, size_t bytes);

/* Returns how many bytes at the beginning equal the bytes of `rank` from
 * `first` on. */
size_t block_alike(const unsigned char *got, int rank, size_t first,
                   size_t bytes);

/* Returns how many bytes at the beginning are BLOCK_NONE. */
size_t block_empty(const unsigned char *got, size_t bytes);

#endif
