// SPDX-License-Identifier: Apache-2.0
#include "tests/transports/blocks.h"

#include <string.h>

enum { PIECE = 4096 };

/* For functions that access only memory of this thread. */
#define UNWATCHED __attribute__((no_sanitize("thread"), no_sanitize("address")))

UNWATCHED unsigned char block_byte(int rank, size_t i)
{
    return (unsigned char)((size_t)rank * 131 + i * 7 + (i >> 8));
}

UNWATCHED static void fill_piece(unsigned char *piece, int rank, size_t first,
                                 size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        piece[i] = block_byte(rank, first + i);
}

static size_t piece_bytes(size_t at, size_t bytes)
{
    return bytes - at < PIECE ? bytes - at : PIECE;
}

void block_fill(unsigned char *to, int rank, size_t first, size_t bytes)
{
    unsigned char piece[PIECE];

    for (size_t at = 0; at < bytes; at += PIECE) {
        const size_t n = piece_bytes(at, bytes);

        fill_piece(piece, rank, first + at, n);
        memcpy(to + at, piece, n);
    }
}

/* Returns the number of equal bytes at the beginning of `a` and `b`. If the
 * blocks differ at first and are equal when compared again, the last byte
 * counts as different. */
static size_t equal(const unsigned char *a, const unsigned char *b,
                    size_t bytes)
{
    size_t n = 0;

    if (memcmp(a, b, bytes) == 0)
        return bytes;
    while (n < bytes - 1 && a[n] == b[n])
        n++;
    return n;
}

size_t block_alike(const unsigned char *got, int rank, size_t first,
                   size_t bytes)
{
    unsigned char piece[PIECE];

    for (size_t at = 0; at < bytes; at += PIECE) {
        const size_t n = piece_bytes(at, bytes);
        size_t same;

        fill_piece(piece, rank, first + at, n);
        same = equal(got + at, piece, n);
        if (same < n)
            return at + same;
    }
    return bytes;
}

size_t block_empty(const unsigned char *got, size_t bytes)
{
    unsigned char piece[PIECE];

    memset(piece, BLOCK_NONE, sizeof(piece));
    for (size_t at = 0; at < bytes; at += PIECE) {
        const size_t n = piece_bytes(at, bytes);
        const size_t same = equal(got + at, piece, n);

        if (same < n)
            return at + same;
    }
    return bytes;
}
