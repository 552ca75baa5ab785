// SPDX-License-Identifier: Apache-2.0
/* The text: where it comes from, what is held out, and which bytes a step
 * sees. */
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

/* The files one after the other, in the order given. */
int text_read_files(char *const *paths, size_t count, struct text *text);
/* This project's own sources and documents below `root`: *.c, *.h, *.md and
 * meson.build, in the order of their paths; hidden folders and build folders
 * left out. */
int text_read_tree(const char *root, struct text *text);
void text_free(struct text *text);

/* A checksum, to see whether a text is still the one it was. */
uint64_t text_hash(const struct text *text);

/* What is held out of training. Every sixteenth file, of nine or more: text
 * that the model has never seen. And every tenth block of 2 KiB of the other
 * files: text whose surroundings it has seen, so that this loss is lower, the
 * more so the more often training passed over the text. */
enum { HELD_FILES, HELD_BLOCKS, HELD };

struct held {
    uint8_t *bytes;
    size_t length; /* 0: there is none */
};

struct data {
    uint8_t *train;
    size_t ntrain;
    struct held held[HELD];
    size_t files; /* of held[HELD_FILES] */
};

/* "unseen files", "unseen blocks" */
const char *held_name(int kind);

/* Splits a text for sequences of T positions. Says so if it is too short. */
int data_split(const struct text *text, size_t T, struct data *data);
void data_free(struct data *data);

/* The sequence of place `place` in the batch of step `step`: T + 1 bytes, of
 * which the first T are read and the last T to be told. Chosen at random from
 * the training text by (seed, step, place) alone. */
const uint8_t *data_sequence(const struct data *data, uint64_t seed,
                             size_t step, size_t place, size_t T);

/* Held-out text is cut into windows of T + 1 bytes that share one byte with the
 * next: how many there are, and the i-th of `count` that are spread evenly. */
size_t data_windows(const struct held *held, size_t T);
const uint8_t *data_window(const struct held *held, size_t i, size_t count,
                           size_t T);

/* What a sample may follow: the first lines of held-out text. */
const uint8_t *data_prompt(const struct data *data, size_t *length);

#endif
