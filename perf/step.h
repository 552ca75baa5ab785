// SPDX-License-Identifier: Apache-2.0
/*
 * A step of `shunt-perf moe-step`: what it is made of, and where its time goes.
 * perf/moe_step.c says what is measured.
 */
#ifndef SHUNT_PERF_STEP_H
#define SHUNT_PERF_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/balance.h>
#include <shunt/moe_experts.h>

#include "perf/moe_bench.h"

enum step_side { STEP_OFF, STEP_BALANCED, STEP_FORCED, STEP_SIDES };

/* Where its time goes, in their order. */
enum step_phase {
    STEP_LOADS,    /* to all ranks, or predicted */
    STEP_DECISION, /* which experts get copies */
    STEP_PLACE,    /* shunt_moe_set_shares() */
    STEP_PLAN,
    STEP_DISPATCH,
    STEP_REFRESH, /* begun */
    STEP_EXPERTS,
    STEP_REFRESHED, /* waited for */
    STEP_COPIES,    /* experts that have come */
    STEP_COMBINE,
    STEP_COMBINE_BACK,
    STEP_SHARED_BACK, /* experts that have copies */
    STEP_REDUCE,      /* begun */
    STEP_EXPERTS_BACK,
    STEP_DISPATCH_BACK,
    STEP_REDUCED, /* waited for */
    STEP_PHASES
};
const char *step_phase_name(enum step_phase phase);

/* The experts' parameters and gradients of this rank: experts at home, in slots
 * 0, 1, ..., and copies behind them. */
struct step_experts {
    char *parameters, *gradients;
    int32_t *slot;   /* of the experts here, ascending */
    int32_t *expert; /* their numbers */
    bool *shared;    /* has it a copy, or is it one? */
    int here;
};

struct step {
    const struct perf_options *o;
    const struct perf_group *g;
    struct perf_bench tokens; /* its x and y */
    struct perf_routing routing[STEP_SIDES];
    struct shunt_moe *moe[STEP_SIDES];
    struct step_experts own;   /* of BALANCED; the others': those at home */
    int64_t *rows;             /* (ranks, experts) of a step */
    double *loads, *predicted; /* likewise, with PERF_BALANCE_REPLICAS */
    bool seen;                 /* a step: there is a prediction */
    int64_t *share; /* (experts + ranks * slots) rows of homes and copies */
    struct shunt_moe_replica *replicas; /* (ranks * slots) */
    size_t nreplicas;
    bool placed; /* copies, by the last shunt_moe_set_shares() */
    /* Microseconds of this rank's latest step, and when the phase began. */
    double phase[STEP_PHASES], began;
    double total; /* rows of this rank's latest step */
    double wrong; /* results of this rank */
};

void step_must(const struct step *s, enum shunt_status st, const char *what);

/* --- experts ---------------------------------------------------------------- */

void step_open_experts(struct step *s);
void step_close_experts(struct step *s);
/* Which experts are here, by the copies that were decided. */
void step_list_experts(struct step *s);

/* How many have their home here. */
int step_at_home(const struct step *s);
/* An expert's parameter. */
float step_factor(int expert);
/* The first element of the parameters or gradients of the i-th expert here. */
float *step_first_of(const struct step *s, char *arrays, int i);
bool step_is_copy(const struct step *s, int i);

/* to = parameter * from, of the rows of those experts here of which `wanted` says
 * so; NULL: of all. Each takes as long as it has rows, `times` as long as forward.
 * A request that `travels` is tested behind each; NULL: there is none. */
void step_compute(const struct step *s, enum step_side side,
                  const struct shunt_moe_rows *rows,
                  bool (*wanted)(const struct step *s, int i),
                  const float *from, float *to, double times,
                  struct shunt_request **travels);

/* --- a step ----------------------------------------------------------------- */

void step_run(struct step *s, enum step_side side);

#endif
