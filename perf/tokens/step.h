// SPDX-License-Identifier: Apache-2.0
/*
 * A step of `shunt-perf moe-step`: its data, and the times of its phases.
 * perf/tokens/moe_step.c says what is measured.
 */
#ifndef SHUNT_PERF_STEP_H
#define SHUNT_PERF_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/balance.h>
#include <shunt/moe_experts.h>

#include "perf/tokens/moe_bench.h"

enum step_side { STEP_OFF, STEP_BALANCED, STEP_FORCED, STEP_SIDES };

/* The phases of a step, in order. */
enum step_phase {
    STEP_LOADS,    /* gather the loads of all ranks, or predict them */
    STEP_DECISION, /* decide which experts get copies */
    STEP_PLACE,    /* shunt_moe_set_shares() */
    STEP_PLAN,
    STEP_DISPATCH,
    STEP_REFRESH, /* start sending parameters to copies */
    STEP_EXPERTS,
    STEP_REFRESHED, /* wait for the parameters */
    STEP_COPIES,    /* compute the copied experts */
    STEP_COMBINE,
    STEP_COMBINE_BACK,
    STEP_SHARED_BACK, /* backward of experts that have copies */
    STEP_REDUCE,      /* start sending copies' gradients home */
    STEP_EXPERTS_BACK,
    STEP_DISPATCH_BACK,
    STEP_REDUCED, /* wait for the gradients */
    STEP_PHASES
};
const char *step_phase_name(enum step_phase phase);

/* The parameters and gradients of this rank's experts. Experts whose home is
 * here are in slots 0, 1, ...; copies are behind them. */
struct step_experts {
    char *parameters, *gradients;
    int32_t *slot;   /* slot of each expert here, by expert number */
    int32_t *expert; /* (here) the experts' numbers */
    bool *shared;    /* true: the expert has copies, or is a copy */
    int here;
};

struct step {
    const struct perf_options *o;
    const struct perf_group *g;
    struct perf_bench tokens; /* the tokens, with x and y */
    struct perf_routing routing[STEP_SIDES];
    struct shunt_moe *moe[STEP_SIDES];
    struct step_experts own;   /* experts of STEP_BALANCED. The other sides have
                                * only the experts at home. */
    int64_t *rows;             /* (ranks, experts) rows of a step */
    double *loads, *predicted; /* (ranks, experts) loads seen and predicted, for
                                * PERF_BALANCE_REPLICAS */
    bool seen;                 /* a step has run: there is a prediction */
    int64_t *share; /* (experts + ranks * slots) rows of each home and copy */
    struct shunt_moe_replica *replicas; /* (ranks * slots) */
    size_t nreplicas;
    bool placed; /* the last shunt_moe_set_shares() placed copies */
    /* Microseconds of each phase of this rank's latest step, and when the
     * current phase began. */
    double phase[STEP_PHASES], began;
    double total; /* rows of this rank's latest step */
    double wrong; /* wrong results of this rank */
};

void step_must(const struct step *s, enum shunt_status st, const char *what);

/* --- experts -------------------------------------------------------------- */

void step_open_experts(struct step *s);
void step_close_experts(struct step *s);
/* List the experts here, according to the copies that were decided. */
void step_list_experts(struct step *s);

/* How many experts have their home on this rank. */
int step_at_home(const struct step *s);
/* An expert's parameter. */
float step_factor(int expert);
/* The first element of the i-th expert here, in the array of parameters or
 * gradients. */
float *step_first_of(const struct step *s, char *arrays, int i);
bool step_is_copy(const struct step *s, int i);

/* Compute to = parameter * from, for the rows of those experts here for which
 * `wanted` returns true (NULL: all). Each expert takes a time in proportion to
 * its rows, `times` as long as forward. After each expert, the request *travels
 * is tested; NULL: there is none. */
void step_compute(const struct step *s, enum step_side side,
                  const struct shunt_moe_rows *rows,
                  bool (*wanted)(const struct step *s, int i),
                  const float *from, float *to, double times,
                  struct shunt_request **travels);

/* --- a step --------------------------------------------------------------- */

void step_run(struct step *s, enum step_side side);

#endif
