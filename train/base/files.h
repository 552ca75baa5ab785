// SPDX-License-Identifier: Apache-2.0
/*
 * Writing files so that a reader, also after a crash, sees either the old file
 * or the new one, and never a part of one.
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

/* Is `path` a regular file, or missing? False for a device, a pipe or a link,
 * which must not be replaced by renaming. */
int is_plain_file(const char *path);

/* Opens `path`.tmp for writing; if `path` is not a plain file, opens `path`
 * itself. 0, or -1 with train_error_text(). */
int new_file_open(struct new_file *file, const char *path);
/* Syncs the file to the disk and renames it to its final name. 0, or -1 with
 * train_error_text(). On failure the old file stays, and the temporary file is
 * removed. */
int new_file_commit(struct new_file *file);
/* Removes the temporary file. Does nothing after a commit, or for a zeroed
 * struct. */
void new_file_discard(struct new_file *file);

/* mkdir with parents. A folder that exists is no error. */
int make_folder(const char *path);

/* Reads a whole file as text, with a '\0' behind its *length bytes. `length`
 * may be NULL. Returns NULL with train_error_text() on failure, and sets
 * *missing if there is no such file. The caller frees the text. */
char *read_text(const char *path, size_t *length, int *missing);

#endif
