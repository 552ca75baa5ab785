// SPDX-License-Identifier: Apache-2.0
/*
 * Is the copy engine worthwhile? (engine.h)
 *
 * Where a CPU is free, a copy beside the caller's computation costs the caller
 * nothing. Where none is, the engine's thread takes its time from a rank that
 * computes, and what it takes to wake it comes on top. The number of CPUs does
 * not tell which it is: the caller may compute in several threads, and its peers
 * may wait. So it is measured in use, for each kind of call and size class. Some
 * calls go by the engine and some without it, and what counts is what a call
 * costs its caller: the time from its start to the end of its wait, without the
 * CPU time that the caller's thread used for itself in between. If the engine's
 * thread was run in its place, that is not its own CPU time, so it counts.
 *
 * What is free for the caller may still be expensive: a thread that is woken for each of
 * many small copies, or that takes cache and memory from the computation. So CPU time
 * counts, too: the caller's from start to end, its computation included, and what the
 * engine says that it spent. With the engine this may be 1.05 times what it is without,
 * as if one came after the other, or else it is turned off for such calls. As
 * computations vary, that takes two series of trials.
 *
 * Only calls are measured that were the only ones under way on their
 * communicator. The order of the trials is the same on all ranks, so all of them
 * try the engine together. It is tried again after some hundred calls.
 *
 * If SHUNT_ENGINE_MIN is set it is the limit, and nothing is learnt.
 */
#ifndef SHUNTI_ENGINE_WORTHWHILE_H
#define SHUNTI_ENGINE_WORTHWHILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shunt_comm;
struct shunt_request;
struct shunti_class;

enum {
    SHUNTI_PAYS_KINDS = 12,
    /* of a kind: half of them by the engine */
    SHUNTI_PAYS_TRIALS = 16,
};

/* What is known of a kind of call. */
struct shunti_worthwhile {
    const struct shunti_class *class; /* NULL: unused */
    uint8_t log2;                     /* of the least bytes of its size class */
    bool use;                         /* the engine */
    bool known;                       /* it was found out, not assumed */
    uint8_t tried;                    /* trials, of which the first are over */
    uint16_t since;                   /* calls since they were */
    /* by whether the engine was used: ns for the least bytes */
    float trial[2][SHUNTI_PAYS_TRIALS / 2];
    float cost[2]; /* the medians */
    /* likewise: ns of CPU time, the caller's and the engine's */
    float trial_cpu[2][SHUNTI_PAYS_TRIALS / 2];
    float cpu[2];
    uint8_t expensive; /* times in a row that the engine took too much of it */
};

/* Part of a communicator: engine_worthwhile.c writes it. */
struct shunti_engine_worthwhile {
    struct shunti_worthwhile kind[SHUNTI_PAYS_KINDS];
    /* the call that is measured now */
    struct {
        struct shunti_worthwhile *worthwhile; /* NULL: none */
        bool engine, away;                    /* used; the caller is outside */
        uint64_t begun_ns, begun_cpu_ns, left_cpu_ns, away_cpu_ns;
        /* the engine had used and copied so much (spent()), and of it for this
         * communicator */
        uint64_t spent_ns, spent_bytes, own_bytes;
        uint64_t thread; /* of the caller */
        uint64_t seq;
        size_t bytes;
    } trial;
    /* One that is over. What it cost the engine is known when the next call comes:
     * its thread goes to sleep after the copy. */
    struct {
        struct shunti_worthwhile *worthwhile; /* NULL: none */
        float ns, cpu_ns;
    } ended;
};

/* Is the engine to be used for this request, which copies `bytes` at least? May
 * begin a trial: request->on_trial. */
bool shunti_worthwhile_choose(struct shunt_request *request, size_t bytes);

/* Of a request on trial: its caller leaves the library while it is under way, and
 * comes back to it; it is collected; or it ends in another way. */
void shunti_worthwhile_leave(struct shunt_request *request);
void shunti_worthwhile_return(struct shunt_request *request);
void shunti_worthwhile_end(struct shunt_request *request);
void shunti_worthwhile_cancel(struct shunt_request *request);

#endif
