// SPDX-License-Identifier: Apache-2.0
/*
 * An engine makes the calls that are measured: by Shunt, by MPI, by a plain
 * copy, or by plain streams between hosts. All engines have the same interface,
 * so that the code around a call costs each of them the same.
 *
 * The MPI engine is a module that is loaded only if it is needed. It uses no
 * functions of the program. So functions of an engine return error texts
 * instead of calling perf_die().
 */
#ifndef SHUNT_PERF_ENGINE_H
#define SHUNT_PERF_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>
#include <shunt/comm.h>
#include <shunt/moe_parts.h>

#include "perf/base/perf.h"
#include "perf/options/modes.h"

/* A collective call: described once, run many times. Counts and displacements
 * are in elements. */
struct perf_call {
    enum perf_op op;
    enum shunt_dtype dtype;
    enum shunt_op reduce;
    int root;
    int rank, ranks;
    const void *send;
    void *recv;
    bool in_place; /* the input is in `recv`; `send` is not used */
    size_t count;  /* elements of a block: the argument of the call */
    /* Each (ranks). Set only for allgatherv (recv), reduce_scatterv (send) and
     * alltoallv (both). */
    const size_t *send_counts, *send_displs;
    const size_t *recv_counts, *recv_displs;
    const uint64_t *traffic; /* (hosts, hosts) bytes between hosts: traffic.h */
};

/* The exchanges of a plan: to the experts, and back from them. */
enum perf_go {
    PERF_GO_DISPATCH,
    PERF_GO_COMBINE,
    PERF_GO_COMBINE_BACKWARD,
    PERF_GO_DISPATCH_BACKWARD,
};

/* An exchange of tokens: described once, run many times. */
struct perf_exchange {
    int rank, ranks;
    size_t tokens; /* tokens of each rank */
    size_t hidden;
    enum shunt_dtype dtype; /* SHUNT_BF16 or SHUNT_F32 */
    int topk;
    int experts;
    enum shunt_moe_wire wire;
    struct perf_modes modes;
    enum shunt_moe_partials partials;
    int parts;            /* number of parts of Shunt's plan */
    const int32_t *index; /* (tokens, topk) */
    const float *weight;  /* (tokens, topk) */
    const void *x;        /* (tokens, hidden); backward: dy */
    void *y;              /* (tokens, hidden); backward: dx */
    /* Rows in expert-major order, (total, hidden). NULL: buffers of the engine,
     * see moe_buffer(). */
    size_t total;
    void *rows; /* written by dispatch; in combine_backward: dout */
    void *out;  /* read by combine; in dispatch_backward: drows */
    /* (tokens, topk) output of the backward exchanges. NULL: no gradients are
     * computed. */
    float *dweight;
    bool device; /* all arrays of rows, and `dweight`, are memory of a GPU */
    /* (hosts, hosts) bytes of dispatch and of combine. Filled in once Shunt's
     * mode is known. */
    const uint64_t *there, *back;
};

/* The rows that a Shunt plan sends from this rank to other nodes. */
struct perf_sent {
    struct perf_modes modes;
    uint64_t rows, rows_plain;  /* rows of a dispatch */
    uint64_t dispatch, combine; /* bytes of payload */
};

struct perf_engine {
    const char *name;
    bool delivers; /* results arrive and can be checked */

    /*
     * Called after a call, not timed: complete every rank's call. A call may
     * return while the library still holds data that other ranks wait for. If
     * the rank then slept at the gate, it would never send these data. NULL: a
     * call leaves nothing to complete.
     */
    void (*settle)(void);

    /*
     * Called when bytes are counted, never when time is measured: complete what
     * a plan has started, so that its bytes count as the plan's. In timings
     * this is a part of the first exchange. NULL: a plan leaves nothing to
     * complete.
     */
    void (*plan_settle)(void);

    /*
     * Prepare a call. `*state` is the argument of the next two: call_run()
     * makes the call once and blocks. Returns NULL, or why this engine cannot
     * make the call.
     */
    const char *(*call_open)(const struct perf_call *call, void **state);
    void (*call_run)(void *state);
    void (*call_close)(void *state);
    /* The same call in two halves. call_test() lets it advance in between.
     * NULL: not supported. */
    void (*call_start)(void *state);
    void (*call_test)(void *state);
    void (*call_wait)(void *state);

    /*
     * Prepare an exchange, once in a program. Then, for each step: make a plan
     * of the routing, dispatch, combine, release the plan. All exchanges may be
     * repeated under one plan. combine_backward must follow a combine of the
     * same rows.
     */
    const char *(*moe_open)(const struct perf_exchange *exchange, void **state);
    void (*moe_plan)(void *state);
    void (*moe_go)(void *state, enum perf_go what);
    void (*moe_release)(void *state);
    void (*moe_close)(void *state);
    /* An exchange in two halves, like call_start() .. call_wait(). NULL: not
     * supported. */
    void (*moe_start)(void *state, enum perf_go what);
    void (*moe_test)(void *state);
    void (*moe_wait)(void *state);
    /* Under a plan: a buffer in which rows are written or read. NULL if the
     * engine delivers no rows. */
    void *(*moe_buffer)(void *state, enum shunt_moe_buffer which);
    /* A remark to print above the table, or NULL. */
    const char *(*moe_note)(void *state);
};

/* Use this communicator for the engine of Shunt. */
void perf_shunt_use(struct shunt_comm *comm);
extern const struct perf_engine perf_engine_shunt;

/* memcpy(), by one core, of the bytes that a rank receives (calls) or sends
 * (exchanges). For rows of a GPU: one cuMemcpyAsync() for each row. */
extern const struct perf_engine perf_engine_memcpy;
/* One cuMemcpyAsync() of as many bytes as the rows that a rank sends: the rate
 * of the GPU's copies. */
extern const struct perf_engine perf_engine_whole;

/* The rows that the current plan of the Shunt engine `state` sends. */
struct perf_sent perf_shunt_sent(void *state);

/* Plain TCP streams over `net` that send the bytes between hosts. `net` is NULL
 * if there is one host. */
struct perf_net;
void perf_link_use(struct perf_net *net);
extern const struct perf_engine perf_engine_link;

#endif
