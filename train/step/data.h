// SPDX-License-Identifier: Apache-2.0
/* The text: reading it, holding out parts, and choosing the bytes of a step. */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include <stddef.h>
#include <stdint.h>

struct text {
    uint8_t *bytes;
    size_t length;
    uint64_t *end; /* (files) where each file ends */
    uint64_t files;
};

/* Read files, one after the other, in the order given. 0, or -1 with
 * train_error_text(). */
int text_read_files(char *const *paths, size_t count, struct text *text);
/* Read this project's own sources and documents below `root`: *.c, *.h, *.md
 * and meson.build, in the order of their paths. Hidden folders and build
 * folders are skipped. */
int text_read_tree(const char *root, struct text *text);
void text_free(struct text *text);

/* A checksum, to check that a text is still the same. */
uint64_t text_hash(const struct text *text);

/* Two kinds of text are held out of training. HELD_FILES: every sixteenth file,
 * if there are nine or more. The model has never seen this text. HELD_BLOCKS:
 * every tenth block of 2 KiB of the other files. The model has seen the text
 * around these blocks, so its loss on them is lower. The more often training
 * has passed over the text, the lower is that loss. */
enum { HELD_FILES, HELD_BLOCKS, HELD };

struct held {
    uint8_t *bytes;
    size_t length; /* 0: there is none */
};

struct data {
    uint8_t *train;
    size_t ntrain;
    struct held held[HELD];
    size_t files; /* number of files in held[HELD_FILES] */
};

/* The name of a kind: "unseen files", "unseen blocks". */
const char *held_name(int kind);

/* Splits a text for sequences of T positions. 0, or -1 with train_error_text(),
 * for example if the text is too short. */
int data_split(const struct text *text, size_t T, struct data *data);
void data_free(struct data *data);

/* Sequence number `place` of the batch of step `step`. The sequence has T + 1
 * bytes: the first T are the input, the last T the targets. It begins at a
 * random byte of the training text, a function of (seed, step, place) alone. */
const uint8_t *data_sequence(const struct data *data, uint64_t seed,
                             size_t step, size_t place, size_t T);

/* Held-out text is cut into windows of T + 1 bytes; neighbors share one byte.
 * data_windows() is their number, data_window() the i-th of `count` windows
 * that are spread evenly over the text. */
size_t data_windows(const struct held *held, size_t T);
const uint8_t *data_window(const struct held *held, size_t i, size_t count,
                           size_t T);

/* A default prompt for a sample: the first lines of held-out text. */
const uint8_t *data_prompt(const struct data *data, size_t *length);

#endif
