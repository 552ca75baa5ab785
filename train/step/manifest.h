// SPDX-License-Identifier: Apache-2.0
/*
 * checkpoint.json: the list of everything that belongs to a checkpoint. Its
 * last member is a checksum of all bytes before it, so that every change to the
 * file is noticed.
 */
#ifndef TRAIN_MANIFEST_H
#define TRAIN_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "train/step/checkpoint.h"

#define MANIFEST "checkpoint.json"

enum { PIECE_NAME = 24, FILE_NAME = 64 };

/* A piece, and its place in a file. */
struct record {
    char name[PIECE_NAME];
    char file[FILE_NAME];
    uint64_t begin, count; /* elements */
    uint64_t at;           /* offset in the file, in bytes */
    uint64_t sum;          /* checksum of the piece */
};

struct data_file {
    char name[FILE_NAME];
    uint64_t bytes;
};

struct manifest {
    struct checkpoint_info info;
    size_t settings;
    struct setting *setting;
    size_t files, records;
    struct data_file *file; /* all files, also those without a piece */
    struct record *record;
};

/* A change within the 8 bytes of one word always changes the checksum. Any
 * other change does so with a probability of 1 - 2^-64. */
uint64_t checksum(const void *data, size_t bytes);

/* Returns the file's text, which the caller frees. Returns NULL on failure,
 * with train_error_text(). */
char *manifest_print(const struct manifest *m);

/* Parses a text of `length` bytes, followed by '\0'. `where` is the file's name
 * in errors. 0, or -1 with train_error_text() if the text is not one that
 * manifest_print() has written. */
int manifest_parse(struct manifest *m, const char *where, const char *text,
                   size_t length);
void manifest_free(struct manifest *m);

#endif
