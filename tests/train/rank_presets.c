// SPDX-License-Identifier: Apache-2.0
/*
 * Trains a few steps with each preset that a host has memory and time for: the
 * twins of published models, the ways to balance, and the small sizes.
 */
#include "tests/train/pair.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/options/presets.h"

enum { STEPS = 8 };

/* Models that are too large are left out: these are the models that have twins.
 * `medium` is left out because it takes hours. */
static bool is_trained(const char *name)
{
    char twin[64];

    snprintf(twin, sizeof(twin), "%s-twin", name);
    for (const struct preset *p = presets; p->name; p++)
        if (strcmp(p->name, twin) == 0)
            return false;
    return strcmp(name, "medium") != 0;
}

static int parse(const struct rank *self, const char *name, struct options *o)
{
    char preset[64], *argv[] = {(char *)"shunt-train",
                                preset,
                                (char *)"--seq=16",
                                (char *)"--batch=8",
                                (char *)"--warmup=2",
                                (char *)"--lr=0.003",
                                NULL};

    snprintf(preset, sizeof(preset), "--preset=%s", name);
    CHECK(options_parse(6, argv, o) == OPTIONS_RUN, "%s", train_error_text());
    CHECK_TRAIN(options_check(o, (size_t)self->size,
                              (size_t)shunt_comm_nodes(self->comm)));
    return 0;
}

/* The loss of every step must be a number, and the last must be lower than the
 * first. */
static int learns(const struct rank *self, const struct data *data,
                  const char *name)
{
    struct team team = {
        .comm = self->comm, .rank = self->rank, .size = self->size};
    double first = 0, last = 0;
    struct options o;
    struct trainer t;

    CHECK_RUN(parse(self, name, &o));
    CHECK_TRAIN(trainer_create(&t, &o, &team, data));
    for (size_t step = 1; step <= STEPS; step++) {
        struct step_metrics m;

        CHECK_TRAIN(trainer_step(&t, step, STEPS, 0, &m));
        CHECK(isfinite(m.loss) && m.grad_norm > 0 && isfinite(m.grad_norm),
              "%s, step %zu: loss %g, norm %g", name, step, m.loss,
              m.grad_norm);
        first = step == 1 ? m.loss : first;
        last = m.loss;
    }
    CHECK(last < 0.95 * first, "%s: loss %g, and %g at first", name, last,
          first);
    trainer_destroy(&t);
    options_free(&o);
    return 0;
}

static int presets_learn(const struct rank *self)
{
    struct data data;
    size_t trained = 0, twins = 0;

    pair_text(&data);
    for (const struct preset *p = presets; p->name; p++) {
        if (!is_trained(p->name))
            continue;
        CHECK_RUN(learns(self, &data, p->name));
        trained++;
        twins += strstr(p->name, "-twin") != NULL;
    }
    CHECK(twins == 4 && trained > twins, "%zu twins of %zu presets", twins,
          trained);
    data_free(&data);
    return 0;
}

static const struct rank_case cases[] = {
    {.name = "presets_learn", .run = presets_learn},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
