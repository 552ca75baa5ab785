// SPDX-License-Identifier: Apache-2.0
/*
 * Is the copy engine worthwhile? (engine.h)
 *
 * If a CPU is free, a copy beside the caller's computation costs the caller
 * nothing. If none is, the engine's thread takes its time from a rank that
 * computes, and each wake-up of the thread adds to that. The number of CPUs
 * does not decide this: the caller may compute in several threads, and its
 * peers may wait. So the library measures both ways while the program runs, for
 * each kind of call and size class: some calls use the engine, and some do not.
 * The cost of a call is the time from its start to the end of its wait. The CPU
 * time that the caller's thread used in between for its own work is subtracted.
 * If the engine's thread ran in the caller's place meanwhile, that time is not
 * subtracted, so it is part of the cost.
 *
 * A copy that costs the caller nothing may still be expensive. The engine's
 * thread may be woken for each of many small copies, or may take cache and
 * memory bandwidth from the computation. So CPU time counts as well: the
 * caller's from start to end, computation included, plus the time that the
 * engine reports. With the engine, this sum may be 1.05 times the sum without
 * it. If it is larger, the engine is turned off for such calls. Because
 * computations vary, this takes two series of trials.
 *
 * Only a call that was the only one under way on its communicator is measured.
 * The order of the trials is the same on all ranks, so all ranks try the engine
 * together. The trials are repeated after some hundred calls.
 *
 * If SHUNT_ENGINE_MIN is set, it is the limit, and nothing is measured.
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
    SHUNTI_WORTHWHILE_KINDS = 12,
    /* trials of each kind of call; half of them use the engine */
    SHUNTI_WORTHWHILE_TRIALS = 16,
};

/* The figures for a kind of call. */
struct shunti_worthwhile {
    const struct shunti_class *class; /* NULL: unused */
    /* log2 of the smallest size of the class, in bytes */
    uint8_t log2;
    bool use;       /* use the engine */
    bool known;     /* `use` was measured, not assumed */
    uint8_t tried;  /* number of trials that are over */
    uint16_t since; /* calls since all trials were over */
    /* times of the trials, in ns for the smallest size of the class; [1]: with
     * the engine, [0]: without it */
    float trial[2][SHUNTI_WORTHWHILE_TRIALS / 2];
    float cost[2]; /* the medians of `trial` */
    /* the same for the CPU time of the caller and the engine together */
    float trial_cpu[2][SHUNTI_WORTHWHILE_TRIALS / 2];
    float cpu[2];
    /* how often in a row the engine used too much CPU time */
    uint8_t expensive;
};

/* Part of a communicator: trials of the engine. engine_worthwhile.c writes
 * it. */
struct shunti_engine_worthwhile {
    struct shunti_worthwhile kind[SHUNTI_WORTHWHILE_KINDS];
    /* the call that is measured now */
    struct {
        struct shunti_worthwhile *worthwhile; /* NULL: none */
        /* engine: this trial uses the engine. away: the caller is outside of
         * the library. */
        bool engine, away;
        uint64_t begun_ns, begun_cpu_ns, left_cpu_ns, away_cpu_ns;
        /* Values when the trial began: the engine's CPU time and copied bytes
         * (spent()), and the bytes that it has copied for this communicator. */
        uint64_t spent_ns, spent_bytes, own_bytes;
        uint64_t thread; /* the caller's thread */
        uint64_t seq;
        size_t bytes;
    } trial;
    /* The call that was measured last. The engine's CPU time is read only when
     * the next call begins, because the engine's thread still runs for a while
     * after the copy. */
    struct {
        struct shunti_worthwhile *worthwhile; /* NULL: none */
        float ns, cpu_ns;
    } ended;
};

/* Shall the engine be used for this request, which copies at least `bytes`? May
 * begin a trial, and then sets request->on_trial. */
bool shunti_worthwhile_choose(struct shunt_request *request, size_t bytes);

/* Record the steps of a request on trial. leave: its caller leaves the library
 * while the request is under way. return: the caller is back. end: the request
 * is collected. cancel: the request ends in another way. */
void shunti_worthwhile_leave(struct shunt_request *request);
void shunti_worthwhile_return(struct shunt_request *request);
void shunti_worthwhile_end(struct shunt_request *request);
void shunti_worthwhile_cancel(struct shunt_request *request);

#endif
