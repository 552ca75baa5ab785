// SPDX-License-Identifier: Apache-2.0
/*
 * Checkpoints: the state of a run after a step, in a folder.
 *
 *     FOLDER/step-00000100.rank-0-of-4   the pieces of a rank: raw f32
 *     ...
 *     FOLDER/checkpoint.json             which files make up the checkpoint
 *
 * Each file is written under a temporary name, synced to the disk and renamed.
 * checkpoint.json is written last, when the files of all ranks are on the disk.
 * No file of the previous checkpoint is replaced: if that checkpoint is of the
 * same step, the new files get other names, step-00000100-2.rank-... The
 * previous files are removed afterwards. So at any moment, also after a kill or
 * a power cut, checkpoint.json names a complete checkpoint, or there is none.
 *
 * A lock keeps other jobs from writing to the folder: see folder_lock.h.
 *
 * The state is a few named vectors. Each rank writes the pieces that it has,
 * and checkpoint.json says where each piece is. Any number of ranks can read
 * them: each rank reads the pieces that overlap what it needs.
 *
 * Later damage is noticed, because checkpoint.json has a checksum of itself,
 * the length of each file and the checksum of each piece.
 */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/base/team.h"
#include "train/options/options.h"

/* Elements [begin, begin + count) of the whole run's vector `name`, in f32. */
struct piece {
    const char *name;
    size_t begin, count;
    float *data;
};

/* The part of a checkpoint that is not a vector. */
struct checkpoint_info {
    size_t step;  /* steps done so far */
    size_t steps; /* steps of the whole run */
    uint64_t text_hash;
    size_t ranks; /* number of ranks that wrote the checkpoint; set by
                     checkpoint_write() */
};

/* Creates the folder if need be, and checks that every rank can write to it.
 * Called before the first step, so that no work is lost. Collective. 0, or -1
 * with train_error_text(). */
int checkpoint_folder(struct team *team, const char *folder);

/* Writes a checkpoint. Every element of every vector must be in a piece of
 * exactly one rank. Collective. 0, or -1 on every rank with train_error_text();
 * on failure the previous checkpoint stays. */
int checkpoint_write(struct team *team, const struct options *o,
                     const struct checkpoint_info *info,
                     const struct piece *pieces, size_t count);

/* Reads checkpoint.json, and checks the lengths of the files. Returns 1 if
 * there is a checkpoint, 0 if the folder has neither checkpoint.json nor data
 * files, -1 with train_error_text() if it is damaged. Collective. */
struct checkpoint;
int checkpoint_open(struct team *team, const char *folder,
                    struct checkpoint **checkpoint,
                    struct checkpoint_info *info);

/*
 * Copies the checkpoint's settings to `o`, except those that the user gave.
 * `changes` lists the user's settings that differ ("--lr 0.003, not 0.1; ..."),
 * or is "". *fits is true if the weights have the right shape with the user's
 * settings. -1 with train_error_text(): the checkpoint has a setting that this
 * program does not know. Not collective; the result is the same on all ranks
 * that have the same options.
 */
int checkpoint_settings(const struct checkpoint *checkpoint, struct options *o,
                        char *changes, size_t room, bool *fits);

/* The number of ranks that wrote the checkpoint; and whether the checkpoint has
 * a vector `name`. */
size_t checkpoint_ranks(const struct checkpoint *checkpoint);
bool checkpoint_has(const struct checkpoint *checkpoint, const char *name);

/* Reads the data of all pieces. Collective. -1 with train_error_text() if a
 * file is damaged; then the data must not be used. */
int checkpoint_read(struct team *team, struct checkpoint *checkpoint,
                    const struct piece *pieces, size_t count);
void checkpoint_close(struct checkpoint *checkpoint);

#endif
