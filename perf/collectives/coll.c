// SPDX-License-Identifier: Apache-2.0
/*
 * Measures collectives at a range of sizes.
 *
 * Sizes, algbw and busbw are those of nccl-tests. algbw is the bytes of the
 * larger of a rank's two buffers over the time. busbw is algbw times the share
 * of these bytes that any algorithm must send over a rank's link.
 *
 * For each size: new input, poisoned output, one call and a check; then the
 * times; then the same check with other input. The second check finds errors
 * that appear only when calls follow one another closely.
 */
#include "perf/collectives/coll.h"

#include <stdlib.h>
#include <string.h>

#include <shunt/memory.h>

#include "perf/base/check.h"
#include "perf/base/random.h"
#include "perf/ranks/pair.h"
#include "perf/sampling/sample.h"
#include "perf/sampling/traffic.h"
#include "perf/sampling/wire.h"
#include "perf/tables/table.h"

enum { STREAM_DATA = 21, STREAM_SHARE };

/* The counts of one call of this size, the same on every rank. */
struct shape {
    size_t count;      /* the argument of the call */
    size_t size;       /* the size in bytes that the table shows */
    size_t send, recv; /* bytes: the largest buffers of any rank */
    size_t *matrix;    /* (ranks, ranks) elements from rank s to d */
    size_t *send_displs;
    size_t *recv_counts, *recv_displs; /* counts and displacements of this
                                        * rank */
};

struct sweep {
    const struct perf_options *o;
    const struct perf_group *g;
    int n; /* number of ranks */
    size_t element;
    struct shape shape;
    uint64_t *keys; /* (ranks) keys of the current inputs */
    struct perf_places places;
    uint64_t *traffic; /* (places, places) */
};

/* One side of the comparison, and its buffers. */
struct side {
    enum perf_role role;
    const struct perf_engine *engine;
    void *send, *recv;
    void *state;
    double wrong;
};

/* --- shapes --------------------------------------------------------------- */

/* Returns the elements that rank s sends to rank d: `even` on average. The
 * number differs between pairs of ranks, in the same proportions for every
 * size. */
static size_t skewed(const struct sweep *w, int s, int d, size_t even)
{
    /* allgatherv has a count for each sender, reduce_scatterv for each
     * receiver. */
    int row = w->o->op == PERF_REDUCE_SCATTERV ? 0 : s;
    int column = w->o->op == PERF_ALLGATHERV ? 0 : d;
    /* In place, the counts of an alltoallv are symmetric. */
    if (w->o->op == PERF_ALLTOALLV && w->o->in_place && d < s) {
        row = d;
        column = s;
    }
    double share = 2 * perf_uniform(perf_key(w->o->seed, STREAM_SHARE,
                                             (uint64_t)row, (uint64_t)column),
                                    0);
    return (size_t)(share * share * 0.75 * (double)even);
}

static void fill_matrix(struct sweep *w)
{
    struct shape *h = &w->shape;
    size_t n = (size_t)w->n, sent = 0, most_sent = 0, most_received = 0;

    for (int s = 0; s < w->n; s++)
        for (int d = 0; d < w->n; d++)
            h->matrix[s * w->n + d] =
                w->o->skewed ? skewed(w, s, d, h->count) : h->count;
    for (size_t r = 0; r < n; r++) {
        size_t out = 0, in = 0;
        for (size_t other = 0; other < n; other++) {
            out += h->matrix[r * n + other];
            in += h->matrix[other * n + r];
        }
        sent += out;
        most_sent = out > most_sent ? out : most_sent;
        most_received = in > most_received ? in : most_received;
    }
    h->send = most_sent * w->element;
    h->recv = most_received * w->element;
    h->size = sent / n * w->element;

    size_t *row = h->matrix + (size_t)w->g->rank * n, out = 0, in = 0;
    for (size_t r = 0; r < n; r++) {
        h->send_displs[r] = out;
        out += row[r];
        h->recv_counts[r] = h->matrix[r * n + (size_t)w->g->rank];
        h->recv_displs[r] = in;
        in += h->recv_counts[r];
    }
    if (w->o->op == PERF_ALLGATHERV) /* one block for all ranks */
        h->send = h->recv;
    if (w->o->op == PERF_REDUCE_SCATTERV) /* one block from each rank,
                                           * reduced */
        h->recv = most_received / n * w->element;
}

/* Set the shape for about `bytes` bytes, at least one element. */
static void set_shape(struct sweep *w, size_t bytes)
{
    struct shape *h = &w->shape;
    size_t blocks = (size_t)w->n;

    if (w->o->op == PERF_BROADCAST || w->o->op == PERF_ALLREDUCE)
        blocks = 1;
    h->count = bytes / blocks / w->element;
    if (!h->count)
        h->count = 1;
    size_t block = h->count * w->element;
    h->size = h->send = h->recv = blocks * block;
    switch (w->o->op) {
    case PERF_BARRIER:
        h->size = h->send = h->recv = h->count = 0;
        break;
    case PERF_ALLGATHER:
        h->send = block;
        break;
    case PERF_REDUCE_SCATTER:
        h->recv = block;
        break;
    case PERF_ALLTOALLV:
    case PERF_ALLGATHERV:
    case PERF_REDUCE_SCATTERV:
        fill_matrix(w);
        break;
    default:
        break;
    }
    if (w->o->in_place && h->recv < h->send)
        h->recv = h->send;
}

static double bus_factor(const struct sweep *w)
{
    double n = w->n;
    switch (w->o->op) {
    case PERF_ALLREDUCE:
        return 2 * (n - 1) / n;
    case PERF_BROADCAST:
        return 1;
    case PERF_ALLTOALLV:
    case PERF_ALLGATHERV:
    case PERF_REDUCE_SCATTERV: {
        /* The share of bytes that are sent to other ranks. */
        double all = 0, own = 0;
        for (int s = 0; s < w->n; s++)
            for (int d = 0; d < w->n; d++) {
                double c = (double)w->shape.matrix[s * w->n + d];
                all += c;
                own += s == d ? c : 0;
            }
        return all > 0 ? (all - own) / all : 0;
    }
    default:
        return (n - 1) / n;
    }
}

/* --- inputs and results --------------------------------------------------- */

static size_t sum_of(const size_t *values, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += values[i];
    return sum;
}

/* Returns the bytes of this rank's input. */
static size_t input_bytes(const struct sweep *w)
{
    const size_t *row = w->shape.matrix + w->g->rank * w->n;
    if (w->o->op == PERF_ALLTOALLV || w->o->op == PERF_REDUCE_SCATTERV)
        return sum_of(row, w->n) * w->element;
    if (w->o->op == PERF_ALLGATHERV)
        return row[0] * w->element;
    return w->shape.send;
}

/* Make new inputs. Each rank computes the keys of all ranks, and its own
 * data. */
static void fill(struct sweep *w, const struct side *sides, int nsides,
                 int round)
{
    for (int r = 0; r < w->n; r++)
        w->keys[r] = perf_key(w->o->seed + (uint64_t)round, STREAM_DATA,
                              w->shape.size, (uint64_t)r);
    for (int s = 0; s < nsides; s++) {
        uint64_t key = w->keys[w->g->rank];
        if (s > 0 && sides[s].send == sides[0].send)
            continue;
        if (perf_op_reduces(w->o->op))
            perf_fill_values(sides[s].send, w->o->dtype, w->o->reduce, key, 0,
                             w->shape.send / w->element);
        else
            perf_fill_bytes(sides[s].send, key, 0, input_bytes(w));
    }
}

/* Returns the offset in bytes of this rank's input in `recv`. */
static size_t input_place(const struct sweep *w)
{
    if (w->o->op == PERF_ALLGATHER)
        return (size_t)w->g->rank * w->shape.send;
    if (w->o->op == PERF_ALLGATHERV)
        return w->shape.recv_displs[w->g->rank] * w->element;
    return 0;
}

static void poison(const struct sweep *w, const struct side *side)
{
    memset(side->recv, PERF_POISON, w->shape.recv);
    /* With in_place, and at a broadcast's root, the input is in `recv`. */
    if (w->o->in_place ||
        (w->o->op == PERF_BROADCAST && w->g->rank == w->o->root))
        memcpy((char *)side->recv + input_place(w), side->send, input_bytes(w));
}

/* Returns how many elements precede rank d's block in the send buffer of rank
 * s. */
static size_t sent_before(const struct sweep *w, int s, int d)
{
    if (w->o->op == PERF_ALLTOALLV)
        return sum_of(w->shape.matrix + s * w->n, d);
    return w->o->op == PERF_ALLTOALL ? (size_t)d * w->shape.count : 0;
}

static size_t check(const struct sweep *w, const void *recv)
{
    const struct shape *h = &w->shape;
    size_t element = w->element, wrong = 0;
    int rank = w->g->rank;

    switch (w->o->op) {
    case PERF_BARRIER:
        return 0;
    case PERF_BROADCAST:
        return perf_check_bytes(recv, w->keys[w->o->root], 0, h->recv, element);
    case PERF_ALLREDUCE:
    case PERF_REDUCE_SCATTER:
        return perf_check_values(
            recv, w->o->dtype, w->o->reduce, w->keys, w->n,
            w->o->op == PERF_ALLREDUCE ? 0 : (size_t)rank * h->count, h->count);
    case PERF_REDUCE_SCATTERV:
        return perf_check_values(recv, w->o->dtype, w->o->reduce, w->keys, w->n,
                                 sum_of(h->matrix, rank), h->matrix[rank]);
    default:
        break;
    }
    const char *p = recv;
    for (int s = 0; s < w->n; s++) {
        size_t count =
            perf_op_has_counts(w->o->op) ? h->recv_counts[s] : h->count;
        wrong +=
            perf_check_bytes(p, w->keys[s], sent_before(w, s, rank) * element,
                             count * element, element);
        p += count * element;
    }
    return wrong;
}

static void run_once(const struct sweep *w, const struct side *side)
{
    if (!w->o->overlap) {
        side->engine->call_run(side->state);
        return;
    }
    side->engine->call_start(side->state);
    side->engine->call_wait(side->state);
}

/* Make one call of each side on new input, and check the result. */
static void try_once(struct sweep *w, struct side *sides, int nsides, int round)
{
    fill(w, sides, nsides, round);
    for (int s = 0; s < nsides; s++) {
        poison(w, &sides[s]);
        perf_gate_wait(w->g);
        run_once(w, &sides[s]);
        if (sides[s].engine->settle)
            sides[s].engine->settle();
        if (sides[s].engine->delivers)
            sides[s].wrong += (double)check(w, sides[s].recv);
    }
}

/* --- sides ---------------------------------------------------------------- */

static bool in_windows(const struct sweep *w, const struct side *side)
{
    return side->engine == &perf_engine_shunt && w->o->mem == PERF_MEM_WINDOW;
}

static void *buffer(const struct sweep *w, bool window, size_t bytes)
{
    void *p;

    if (!window) {
        p = perf_alloc(bytes);
        memset(p, 0, bytes);
        return p;
    }
    if (shunt_mem_alloc(w->g->comm, bytes, &p) != SHUNT_OK)
        perf_die(PERF_EXIT_FAILED, "mem_alloc of %zu B: %s", bytes,
                 shunt_last_error(w->g->comm));
    return p;
}

/* Allocate buffers for the largest size. All sizes use them, as a program that
 * calls often would. */
static void open_buffers(const struct sweep *w, struct side *sides, int nsides,
                         size_t send, size_t recv)
{
    for (int s = 0; s < nsides; s++) {
        if (s > 0 && !in_windows(w, &sides[0])) {
            sides[s].send = sides[0].send;
            sides[s].recv = sides[0].recv;
            continue;
        }
        sides[s].send = buffer(w, in_windows(w, &sides[s]), send);
        sides[s].recv = buffer(w, in_windows(w, &sides[s]), recv);
    }
}

static void release(const struct sweep *w, bool window, void *p)
{
    if (!window)
        free(p);
    else if (shunt_mem_free(w->g->comm, p) != SHUNT_OK)
        perf_die(PERF_EXIT_FAILED, "mem_free: %s",
                 shunt_last_error(w->g->comm));
}

static void close_buffers(const struct sweep *w, struct side *sides, int nsides)
{
    for (int s = 0; s < nsides; s++) {
        if (s > 0 && sides[s].send == sides[0].send)
            continue;
        release(w, in_windows(w, &sides[s]), sides[s].send);
        release(w, in_windows(w, &sides[s]), sides[s].recv);
    }
}

static void open_call(const struct sweep *w, struct side *side)
{
    const struct shape *h = &w->shape;
    struct perf_call call = {
        .op = w->o->op,
        .dtype = w->o->dtype,
        .reduce = w->o->reduce,
        .root = w->o->root,
        .rank = w->g->rank,
        .ranks = w->n,
        .send = side->send,
        .recv = side->recv,
        .in_place = w->o->in_place,
        .count = h->count,
        .traffic = w->traffic,
    };
    if (perf_op_has_counts(w->o->op)) {
        call.recv_counts = h->recv_counts;
        call.recv_displs = h->recv_displs;
    }
    if (w->o->op == PERF_ALLTOALLV || w->o->op == PERF_REDUCE_SCATTERV) {
        call.send_counts = h->matrix + w->g->rank * w->n;
        call.send_displs = h->send_displs;
    }
    const char *why = "it has no calls that return at once";
    if (!w->o->overlap || side->engine->call_start)
        why = side->engine->call_open(&call, &side->state);
    if (why)
        perf_die(PERF_EXIT_USAGE, "--peer %s: %s", side->engine->name, why);
    side->wrong = 0;
}

/* --- the sweep ------------------------------------------------------------ */

/* Compute the bytes that must cross between places. A fixed order of summation
 * may need more. */
static void find_traffic(struct sweep *w, struct perf_row *row)
{
    const struct perf_call call = {
        .op = w->o->op,
        .dtype = w->o->dtype,
        .root = w->o->root,
        .ranks = w->n,
        .count = w->shape.count,
    };
    int n = w->places.n;

    perf_traffic_call(&call,
                      perf_op_has_counts(w->o->op) ? w->shape.matrix : NULL,
                      &w->places, w->traffic);
    row->between = n > 1;
    for (int r = 0; r < PERF_ROLES; r++)
        row->need[r] = (struct perf_need){
            .total = perf_traffic_total(w->traffic, n),
            .busiest = perf_traffic_busiest(w->traffic, n),
        };
}

static void measure_calls(const struct sweep *w, const struct side *sides,
                          int nsides, const struct perf_side *timed,
                          struct perf_row *row)
{
    const struct perf_options *o = w->o;
    struct perf_plan plan = {o->warmup, o->samples, o->batch, o->seconds};
    struct perf_series series[PERF_MAX_SIDES];

    perf_measure(w->g, &plan, timed, nsides, series);
    row->samples = series[0].samples;
    row->batch = series[0].batch;
    for (int s = 0; s < nsides; s++) {
        row->times[sides[s].role] = perf_series_times(&series[s], 0, 0);
        perf_series_finish(&series[s]);
    }
}

static void measure_overlap(const struct sweep *w, const struct side *sides,
                            int nsides, struct perf_row *row)
{
    const struct perf_options *o = w->o;
    struct perf_plan plan = {o->warmup, o->samples, o->batch, o->seconds};
    struct perf_halves halves[PERF_MAX_SIDES];
    struct perf_overlap results[PERF_MAX_SIDES];

    for (int s = 0; s < nsides; s++)
        halves[s] = (struct perf_halves){
            .state = sides[s].state,
            .start = sides[s].engine->call_start,
            .test = sides[s].engine->call_test,
            .wait = sides[s].engine->call_wait,
            .settle = sides[s].engine->settle,
        };
    perf_overlap_measure(w->g, &plan, o->tests, halves, nsides, results);
    row->samples = results[0].samples;
    row->batch = results[0].batch;
    for (int s = 0; s < nsides; s++) {
        row->times[sides[s].role] = results[s].pure;
        row->overlap[sides[s].role] = results[s];
    }
}

static void measure(struct sweep *w, struct side *sides, int nsides)
{
    const struct perf_options *o = w->o;
    struct perf_side timed[PERF_MAX_SIDES] = {{0}};
    struct perf_row row = {
        .op = perf_op_name(o->op),
        .bytes = w->shape.size,
        .count = w->shape.count,
        .bus = bus_factor(w),
        .pair = perf_pair_latency(w->g),
        .checked = o->op != PERF_BARRIER,
        .part = o->op != PERF_BARRIER && !w->shape.size, /* skewed counts may
                                                          * all be 0 */
        .sent_rows = -1,
    };

    find_traffic(w, &row);
    for (int s = 0; s < nsides; s++) {
        open_call(w, &sides[s]);
        timed[s].state = sides[s].state;
        timed[s].phases = 1;
        timed[s].phase[0] = sides[s].engine->call_run;
        timed[s].settle = sides[s].engine->settle;
    }
    try_once(w, sides, nsides, 0);
    if (o->overlap)
        measure_overlap(w, sides, nsides, &row);
    else
        measure_calls(w, sides, nsides, timed, &row);
    for (int s = 0; s < nsides; s++) {
        enum perf_role role = sides[s].role;

        row.has[role] = true;
        if (row.between && role != PERF_LINK)
            perf_wire_count(w->g, &timed[s],
                            perf_wire_calls(row.times[role].median),
                            &row.wire[role]);
    }
    try_once(w, sides, nsides, 1);
    for (int s = 0; s < nsides; s++) {
        row.wrong[sides[s].role] = perf_sum(w->g, sides[s].wrong);
        sides[s].engine->call_close(sides[s].state);
    }
    perf_table_row(&row);
}

static size_t next_size(const struct perf_options *o, size_t size)
{
    double next = (double)size * o->factor;
    return next >= 0x1p62            ? SIZE_MAX
           : next > (double)size + 1 ? (size_t)next
                                     : size + 1;
}

static void sweep_open(struct sweep *w)
{
    size_t n = (size_t)w->n * sizeof(size_t);
    w->shape.matrix = perf_alloc(n * (size_t)w->n);
    memset(w->shape.matrix, 0, n * (size_t)w->n);
    w->shape.send_displs = perf_alloc(n);
    w->shape.recv_counts = perf_alloc(n);
    w->shape.recv_displs = perf_alloc(n);
    w->keys = perf_alloc((size_t)w->n * sizeof(*w->keys));
    w->places = perf_group_places(w->g);
    w->traffic = perf_alloc((size_t)w->places.n * (size_t)w->places.n *
                            sizeof(*w->traffic));
}

static void sweep_close(struct sweep *w)
{
    free(w->shape.matrix);
    free(w->shape.send_displs);
    free(w->shape.recv_counts);
    free(w->shape.recv_displs);
    free(w->keys);
    free(w->traffic);
}

void perf_coll(const struct perf_contest *contest)
{
    const struct perf_options *o = contest->options;
    const struct perf_group *g = contest->group;
    struct sweep w = {.o = o, .g = g, .n = g->ranks};
    struct side sides[PERF_MAX_SIDES] = {{0}};
    int nsides = 0;

    for (int r = 0; r < PERF_ROLES; r++)
        if (contest->engine[r])
            sides[nsides++] = (struct side){
                (enum perf_role)r, contest->engine[r], 0, 0, 0, 0};
    if (o->root >= g->ranks)
        perf_die(PERF_EXIT_USAGE, "--root %d: there are %d ranks", o->root,
                 g->ranks);
    w.element = shunt_dtype_size(o->dtype);
    sweep_open(&w);

    set_shape(&w, o->end);
    open_buffers(&w, sides, nsides, w.shape.send, w.shape.recv);
    size_t last = 0;
    for (size_t size = o->begin; size <= o->end; size = next_size(o, size)) {
        set_shape(&w, size);
        /* With many ranks, the smallest sizes all round up to one element. */
        if (w.shape.size == last && size != o->begin)
            continue;
        last = w.shape.size;
        measure(&w, sides, nsides);
        if (o->op == PERF_BARRIER)
            break;
    }
    close_buffers(&w, sides, nsides);
    sweep_close(&w);
}
