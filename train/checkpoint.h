// SPDX-License-Identifier: Apache-2.0
/*
 * Checkpoints: the state of a run after a step, in a folder.
 *
 *     FOLDER/step-00000100.rank-0-of-4   what each rank holds: raw f32
 *     ...
 *     FOLDER/checkpoint.json             which files make up the checkpoint
 *
 * Each file is written under a temporary name, synced to the disk and renamed;
 * checkpoint.json is written last, when every rank's file is safe. No file of
 * the previous checkpoint is replaced (one of the same step gets other names:
 * step-00000100-2.rank-...), and they are removed afterwards. So at any moment,
 * also after a kill or a power cut, checkpoint.json names a complete
 * checkpoint, or there is none.
 *
 * Nor may another job write to the folder meanwhile: see folder_lock.h.
 *
 * The state is a handful of named vectors, of which each rank writes the pieces
 * that it holds; checkpoint.json says which piece is where. Any number of ranks
 * can read them: each takes the pieces that overlap what it needs.
 *
 * Later damage is noticed: checkpoint.json has a checksum of itself, the length
 * of each file and the checksum of each piece.
 */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/options.h"
#include "train/team.h"

/* [begin, begin + count) of the vector `name` of the whole run, in f32. */
struct piece {
    const char *name;
    size_t begin, count;
    float *data;
};

/* What is not a vector. */
struct checkpoint_info {
    size_t step;  /* steps done */
    size_t steps; /* of the whole run */
    uint64_t text_hash;
    size_t ranks; /* that wrote it; checkpoint_write() fills it in */
};

/* Makes the folder, if need be, and looks if every rank can write to it: before
 * the steps that a checkpoint is to keep. Collective. 0, or -1 with
 * train_error_text(). */
int checkpoint_folder(struct team *team, const char *folder);

/* Writes pieces; every element of every vector is given by exactly one rank.
 * Collective. 0, or -1 on every rank: the previous checkpoint is still
 * there. */
int checkpoint_write(struct team *team, const struct options *o,
                     const struct checkpoint_info *info,
                     const struct piece *pieces, size_t count);

/* Reads checkpoint.json, and looks at the lengths of the files. Collective.
 * Returns 1 if there is one, 0 if there is neither it nor a file that it would
 * name, -1 with train_error_text() if it is damaged. */
struct checkpoint;
int checkpoint_open(struct team *team, const char *folder,
                    struct checkpoint **checkpoint,
                    struct checkpoint_info *info);

/*
 * Gives `o` the settings of the checkpoint, but for those that the user gave.
 * Where these are others, `changes` gets them in words ("--lr 0.003, not 0.1;
 * ..."), else ""; *fits: the weights have their shape even so. -1 with
 * train_error_text(): its settings are not known here. Not a collective; the
 * same on all ranks that have the same options.
 */
int checkpoint_settings(const struct checkpoint *checkpoint, struct options *o,
                        char *changes, size_t room, bool *fits);

/* Ranks that wrote it, and whether it has a vector of that name. */
size_t checkpoint_ranks(const struct checkpoint *checkpoint);
bool checkpoint_has(const struct checkpoint *checkpoint, const char *name);

/* Fills in pieces (data is written). Collective. -1 with train_error_text() if
 * a file is damaged; the data is not to be used then. */
int checkpoint_read(struct team *team, struct checkpoint *checkpoint,
                    const struct piece *pieces, size_t count);
void checkpoint_close(struct checkpoint *checkpoint);

#endif
