// SPDX-License-Identifier: Apache-2.0
//
// The text: where it comes from, what is held out, and which bytes a step sees.
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include <stddef.h>
#include <stdint.h>

struct text {
    uint8_t *bytes;
    size_t length;
};

// The files one after the other, in the order given.
int text_read_files(char *const *paths, size_t count, struct text *text);
// This project's own sources and documents below `root`: *.c, *.h, *.md and
// meson.build, in the order of their paths; hidden folders and build folders
// left out. `*files`: how many.
int text_read_tree(const char *root, struct text *text, size_t *files);
void text_free(struct text *text);

// A checksum, to see whether a text is still the one it was.
uint64_t text_hash(const struct text *text);

// Every tenth block of the text is held out for validation.
struct data {
    uint8_t *train, *valid;
    size_t ntrain, nvalid;
};

// Splits a text for sequences of T positions. Says so if it is too short.
int data_split(const struct text *text, size_t T, struct data *data);
void data_free(struct data *data);

// The sequence of place `place` in the batch of step `step`: T + 1 bytes, of
// which the first T are read and the last T to be told. Chosen at random from
// the training text by (seed, step, place) alone.
const uint8_t *data_sequence(const struct data *data, uint64_t seed,
                             size_t step, size_t place, size_t T);

// The validation text is cut into windows of T + 1 bytes that share one byte
// with the next.
size_t data_windows(const struct data *data, size_t T);
const uint8_t *data_window(const struct data *data, size_t window, size_t T);

// Where a sample may begin: some lines of the validation text.
const uint8_t *data_prompt(const struct data *data, size_t *length);

#endif
