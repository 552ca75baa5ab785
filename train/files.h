// SPDX-License-Identifier: Apache-2.0
/*
 * Writing files so that a reader, or a crash, sees the old one or the new one
 * and nothing between.
 */
#ifndef TRAIN_FILES_H
#define TRAIN_FILES_H

#include <stddef.h>
#include <stdio.h>

/* A file being written: a stream to write to, and its final name. */
struct new_file {
    FILE *stream;
    char *path, *temporary;
};

/* False for what exists and is no regular file (a device, a pipe, a link): it
 * must not be replaced by renaming. */
int is_plain_file(const char *path);

/* Opens `path`.tmp for writing; what is no plain file is opened itself. 0, or
 * -1 with train_error_text(). */
int new_file_open(struct new_file *file, const char *path);
/* Brings everything to the disk and gives the file its name. On failure the old
 * file stays, and the temporary one is removed. */
int new_file_commit(struct new_file *file);
/* Gives up; allowed after commit, and on a zeroed struct. */
void new_file_discard(struct new_file *file);

/* mkdir, with parents; existing is fine. */
int make_folder(const char *path);

/* A whole file as text, with '\0' behind its *length bytes; NULL for a length
 * that is not wanted. NULL: train_error_text(), and *missing is set if there is
 * no such file. */
char *read_text(const char *path, size_t *length, int *missing);

#endif
