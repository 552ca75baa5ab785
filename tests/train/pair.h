// SPDX-License-Identifier: Apache-2.0
/*
 * A trainer on all ranks of a world, and on each rank a second trainer that
 * computes the whole batch alone. Both must give the same bits.
 */
#ifndef TEST_PAIR_H
#define TEST_PAIR_H

#include "tests/harness/rank_main.h"
#include "train/base/error.h"
#include "train/base/team.h"
#include "train/options/options.h"
#include "train/step/data.h"
#include "train/step/trainer.h"

#define CHECK_TRAIN(call)                                     \
    do {                                                      \
        if ((call) != 0)                                      \
            return rank_fail(__FILE__, __LINE__, #call, "%s", \
                             train_error_text());             \
    } while (0)

struct pair {
    struct data data;
    struct options o, off; /* `off`: options of the second trainer, without
                              balance */
    struct team all, one;
    struct trainer many, alone;
};

/* Options of a small model, and a text. The options are not checked:
 * pair_begin() sets shares and nodes. */
struct options pair_options(void);
void pair_text(struct data *d);

/* Creates both trainers. Collective, as all calls below. 0, or what rank_fail()
 * returns. */
int pair_begin(const struct rank *self, struct pair *p,
               const struct options *o);
void pair_end(struct pair *p);
/* Compares this rank's state with the same part of the second trainer's. If
 * experts moved in the step, gradients of experts are left out, since gradients
 * do not move. */
int pair_compare(struct pair *p, const char *when);
/* Compares one array of the experts; the slots of `many` say where each expert
 * is. */
int pair_compare_experts(const struct pair *p, const float *many,
                         const float *alone, const char *what,
                         const char *when);
/* Makes a new folder, with the same name on all ranks; and removes it. */
int pair_folder(struct team *team, char *path, size_t room);
void pair_remove_folder(const char *path);
/* Compares steps and validations of both trainers bit by bit. The model must
 * also learn. */
int pair_steps(const struct rank *self, const struct options *o);

#endif
