// SPDX-License-Identifier: Apache-2.0
/*
 * A trainer on all ranks of a world, and on each rank one that is alone and
 * does the whole batch by itself: what the first computes must have the bits of
 * the second.
 */
#ifndef TEST_PAIR_H
#define TEST_PAIR_H

#include "tests/harness/rank_main.h"
#include "train/data.h"
#include "train/error.h"
#include "train/options.h"
#include "train/team.h"
#include "train/trainer.h"

#define CHECK_TRAIN(call)                                     \
    do {                                                      \
        if ((call) != 0)                                      \
            return rank_fail(__FILE__, __LINE__, #call, "%s", \
                             train_error_text());             \
    } while (0)

struct pair {
    struct data data;
    struct options o, off; /* off: without balance, of the one that is alone */
    struct team all, one;
    struct trainer many, alone;
};

/* A small model and a text; options are not checked: shares and nodes are set
 * by pair_begin(). */
struct options pair_options(void);
void pair_text(struct data *d);

/* Collective, like what follows; 0, or what rank_fail() returns. */
int pair_begin(const struct rank *self, struct pair *p,
               const struct options *o);
void pair_end(struct pair *p);
/* Is this rank's state its part of the state of the trainer that is alone? Of
 * experts that moved in the step without their gradients, which stay behind. */
int pair_compare(struct pair *p, const char *when);
/* The same of experts: of one array, as the slots of `many` say. */
int pair_compare_experts(const struct pair *p, const float *many,
                         const float *alone, const char *what,
                         const char *when);
/* A new folder, the same on all ranks; and its end. */
int pair_folder(struct team *team, char *path, size_t room);
void pair_remove_folder(const char *path);
/* Steps and validations of both have the same bits, and learn. */
int pair_steps(const struct rank *self, const struct options *o);

#endif
