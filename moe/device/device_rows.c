// SPDX-License-Identifier: Apache-2.0
/* Rows from and to the memory of devices; see device_rows.h. */
#include "moe/device/device_rows.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moe/plan/device_window.h"
#include "moe/plan/plan_rows.h"
#include "src/comm.h"
#include "src/op/device.h"

/* A copy of rows by the engine. */
struct piece {
    struct shunti_device_copy copy;
    struct shunti_copy_rows rows;
    bool wanted, done;
};

struct to {
    struct piece piece;
    size_t begin, count; /* the rank's range of the lists `token` and `row` */
};

struct shunti_device_rows {
    struct shunti_plan *plan;
    struct shunti_cut cut;
    enum shunt_moe_buffer which;
    unsigned device;
    const unsigned char *tokens;
    unsigned char *rows;
    unsigned char *device_window; /* this rank's device window; NULL: it has
                                     none */
    size_t first, count;          /* first token of the cut; number of tokens */
    enum shunt_status failed;

    uint32_t *token, *row; /* lists by rank: token[i] goes to row[i] */
    /* Copy of the cut's tokens on the host; NULL until they are needed. */
    unsigned char *host;
    struct piece to_host;
    unsigned char *zero; /* a row of zeros on the host */
    struct piece zeros;

    bool finishing;
    /* (total, hidden) Memory on the host with the rows that came through the
     * host. */
    unsigned char *carried;
    /* Three lists: of rows that came through the device window; of rows that
     * came through the host; and of gaps (make_zeros()). */
    uint32_t *list;
    struct piece landed, from_host;
    bool *lands;    /* (nranks) true: the rank's rows arrive in the device
                       window */
    struct to to[]; /* (nranks) */
};

static struct shunt_comm *comm_of(const struct shunti_device_rows *d)
{
    return d->plan->moe->comm;
}

/* --- making it -------------------------------------------------------------------- */

bool shunti_device_rows_may(const struct shunti_plan *plan)
{
    return shunti_device_shares(plan->moe->comm);
}

static size_t terms_of(const struct shunti_device_rows *d)
{
    const size_t *first = d->plan->first;

    return first[d->first + d->count] - first[d->first];
}

/* List which tokens go to which rows, rank by rank. */
static void list_rows(struct shunti_device_rows *d)
{
    const struct shunti_plan *plan = d->plan;
    const size_t end = d->first + d->count;
    size_t at = 0;

    for (size_t i = plan->first[d->first]; i < plan->first[end]; i++)
        d->to[plan->terms[i].rank].count++;
    for (int r = 0; r < plan->moe->nranks; r++) {
        d->to[r].begin = at;
        at += d->to[r].count;
        d->to[r].count = 0;
    }
    for (size_t t = d->first; t < end; t++)
        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++) {
            const struct shunti_term *term = &plan->terms[i];
            struct to *to = &d->to[term->rank];

            d->token[to->begin + to->count] = (uint32_t)t;
            d->row[to->begin + to->count++] = term->row;
        }
}

static struct piece piece_of(const struct shunti_device_rows *d, void *to,
                             const void *from, size_t rows,
                             const uint32_t *from_list, const uint32_t *to_list)
{
    const size_t bytes = d->plan->moe->row_bytes;
    const bool listed = from_list || to_list;
    struct piece piece = {
        .copy = {.to = to, .from = from, .inside = true},
        .rows = {rows, from_list, to_list, bytes, 0},
        .wanted = rows != 0,
        .done = rows == 0,
    };

    piece.copy.bytes = listed ? bytes : rows * bytes;
    return piece;
}

static bool make_lists(struct shunti_device_rows *d)
{
    const size_t terms = terms_of(d);

    d->token = malloc((2 * terms + 1) * sizeof(*d->token));
    d->lands = calloc((size_t)d->plan->moe->nranks, sizeof(*d->lands));
    if (!d->token || !d->lands)
        return false;
    d->row = d->token + terms;
    list_rows(d);
    return true;
}

/* Prepare to fill the gaps between rows with copies of one row of zeros. */
static bool make_zeros(struct shunti_device_rows *d, char *why, size_t why_len)
{
    const size_t gaps = d->cut.from ? 0 : shunti_plan_list_gaps(d->plan, NULL);
    const size_t bytes = d->plan->moe->row_bytes;
    void *zero = NULL;
    uint32_t *first;

    /* All entries of the list `first` are 0: the row of zeros. */
    d->list = calloc(d->plan->received.total + 2 * gaps + 1, sizeof(*d->list));
    if (!d->list)
        return false;
    first = d->list + d->plan->received.total;
    d->zeros.done = true;
    if (!gaps)
        return true;
    if (shunti_device_host_alloc(comm_of(d), bytes, &zero, why, why_len))
        return false;
    d->zero = memset(zero, 0, bytes);
    (void)shunti_plan_list_gaps(d->plan, first + gaps);
    d->zeros = piece_of(d, d->rows, d->zero, gaps, first, first + gaps);
    return true;
}

struct shunti_device_rows *
shunti_device_rows_create(struct shunti_plan *plan, struct shunti_cut cut,
                          enum shunt_moe_buffer which, unsigned device,
                          const void *tokens, void *rows, char *why,
                          size_t why_len)
{
    const size_t ranks = (size_t)plan->moe->nranks;
    struct shunti_device_rows *d =
        calloc(1, sizeof(*d) + ranks * sizeof(d->to[0]));

    snprintf(why, why_len, "no memory");
    if (!d)
        return NULL;
    d->plan = plan;
    d->cut = cut;
    d->which = which;
    d->device = device;
    d->tokens = tokens;
    d->rows = rows;
    d->first = shunti_parts_token(plan, cut.from);
    d->count = shunti_parts_token(plan, cut.to) - d->first;
    d->to_host.done = d->zeros.done = true;
    if (!make_lists(d) ||
        (device & SHUNTI_DEVICE_ROWS && !make_zeros(d, why, why_len))) {
        shunti_device_rows_destroy(d);
        return NULL;
    }
    if (device & SHUNTI_DEVICE_ROWS && ranks > 1)
        d->device_window = shunti_device_window_own(plan, which);
    for (size_t r = 0; r < ranks; r++)
        d->to[r].piece.done = true; /* until give() makes a piece */
    return d;
}

unsigned shunti_device_rows_flags(const struct shunti_device_rows *d)
{
    return (d->device & SHUNTI_DEVICE_TOKENS ? SHUNTI_DEVICE_SENDS : 0) |
           (d->device_window ? SHUNTI_DEVICE_RECEIVES : 0);
}

/* --- who moves what ----------------------------------------------------------------- */

static void give(struct shunti_device_rows *d, int rank, unsigned char *rows)
{
    struct to *to = &d->to[rank];

    to->piece = piece_of(d, rows, d->tokens, to->count, d->token + to->begin,
                         d->row + to->begin);
    to->piece.copy.between_devices = true;
}

/* Request a copy of the tokens on the host, because some rank receives its rows
 * there. */
static void want_host(struct shunti_device_rows *d, size_t rows)
{
    if (d->device & SHUNTI_DEVICE_TOKENS && rows)
        d->to_host.wanted = true;
}

bool shunti_device_rows_meet(struct shunti_device_rows *d, int rank,
                             unsigned flags)
{
    const struct shunt_moe *moe = d->plan->moe;
    const bool near = moe->node[rank] == moe->node[moe->rank];
    const size_t rows = d->to[rank].count;
    unsigned char *device_window = NULL;

    d->lands[rank] = near && d->device_window && flags & SHUNTI_DEVICE_SENDS;
    if (!near || !(d->device & SHUNTI_DEVICE_TOKENS) ||
        !(flags & SHUNTI_DEVICE_RECEIVES)) {
        want_host(d, rows);
        return false;
    }
    if (rows)
        device_window = shunti_device_window_of(d->plan, rank, d->which);
    if (device_window)
        give(d, rank, device_window);
    else
        want_host(d, rows);
    return device_window || !rows;
}

/* True if the rows that this rank sends to itself go straight to their
 * slots. */
static bool is_own(const struct shunti_device_rows *d)
{
    return d->device == (SHUNTI_DEVICE_TOKENS | SHUNTI_DEVICE_ROWS);
}

bool shunti_device_rows_meet_self(struct shunti_device_rows *d)
{
    const int self = d->plan->moe->rank;

    if (is_own(d))
        give(d, self, d->rows);
    else
        want_host(d, d->to[self].count);
    return is_own(d);
}

/* --- copies ----------------------------------------------------------------------- */

/* Begin a copy, or test it. True: the copy has ended now. */
static bool advance(struct shunti_device_rows *d, struct piece *piece,
                    char *why, size_t why_len)
{
    enum shunt_status st = SHUNT_OK;

    if (!piece->wanted || piece->done || d->failed)
        return false;
    piece->copy.rows = piece->rows.from || piece->rows.to ? &piece->rows : NULL;
    if (!piece->copy.begun)
        st = shunti_device_copy_begin(comm_of(d), &piece->copy, why, why_len);
    if (!st)
        st = shunti_device_copy_test(comm_of(d), &piece->copy, why, why_len);
    if (st == SHUNT_IN_PROGRESS)
        return false;
    piece->done = !st;
    d->failed = st;
    return !st;
}

/* Copy the tokens to the host, if some rank needs them there. */
static bool copy_tokens_to_host(struct shunti_device_rows *d, char *why,
                                size_t why_len)
{
    const size_t bytes = d->plan->moe->row_bytes;
    void *host = NULL;

    if (!d->to_host.wanted || d->failed)
        return false;
    if (!d->host) {
        d->failed = shunti_device_host_alloc(comm_of(d), d->count * bytes,
                                             &host, why, why_len);
        if (d->failed)
            return false;
        d->host = host;
        d->to_host = piece_of(d, d->host, d->tokens + d->first * bytes,
                              d->count, NULL, NULL);
    }
    return advance(d, &d->to_host, why, why_len);
}

bool shunti_device_rows_step(struct shunti_device_rows *d,
                             enum shunt_status *status, char *why,
                             size_t why_len)
{
    bool any = false;

    for (int r = 0; r < d->plan->moe->nranks; r++)
        any |= advance(d, &d->to[r].piece, why, why_len);
    any |= advance(d, &d->zeros, why, why_len);
    any |= copy_tokens_to_host(d, why, why_len);
    *status = d->failed;
    return any;
}

const void *shunti_device_rows_host(const struct shunti_device_rows *d)
{
    return d->host && d->to_host.done ? d->host : NULL;
}

bool shunti_device_rows_sent(const struct shunti_device_rows *d, int rank)
{
    return d->to[rank].piece.done;
}

/* --- the end ------------------------------------------------------------------------ */

/* List rows of the cut. landed: those that came through the device window;
 * otherwise those in the host window. */
static size_t list_from(struct shunti_device_rows *d, bool landed,
                        uint32_t *list)
{
    struct shunti_ranges ranges = shunti_ranges_of(d->plan, d->cut);
    const int self = d->plan->moe->rank;
    struct shunti_range range;
    size_t n = 0;

    while (shunti_ranges_next(&ranges, &range)) {
        if (range.source == self && is_own(d))
            continue;
        for (size_t i = 0; d->lands[range.source] == landed && i < range.count;
             i++)
            list[n++] = (uint32_t)(range.row + i);
    }
    return n;
}

/* Correct `lands`: rows of ranks that cannot open the device window came
 * through the host. */
static void forget_unreached(struct shunti_device_rows *d)
{
    for (int r = 0; r < d->plan->moe->nranks; r++)
        d->lands[r] = d->lands[r] &&
                      shunti_device_window_is_reached(d->plan, r, d->which);
}

static enum shunt_status carry(struct shunti_device_rows *d, size_t n,
                               const uint32_t *list,
                               const unsigned char *window, char *why,
                               size_t why_len)
{
    const size_t bytes = d->plan->moe->row_bytes;
    enum shunt_status st;
    void *carried = NULL;

    st = shunti_device_host_alloc(comm_of(d), d->plan->received.total * bytes,
                                  &carried, why, why_len);
    if (st)
        return st;
    d->carried = carried;
    for (size_t i = 0; i < n; i++)
        memcpy(d->carried + list[i] * bytes, window + list[i] * bytes, bytes);
    return SHUNT_OK;
}

static void prepare_to_finish(struct shunti_device_rows *d,
                              const unsigned char *window, char *why,
                              size_t why_len)
{
    uint32_t *host;
    size_t landed, n;

    d->finishing = true;
    forget_unreached(d);
    landed = list_from(d, true, d->list);
    host = d->list + landed;
    n = list_from(d, false, host);
    d->landed =
        piece_of(d, d->rows, d->device_window, landed, d->list, d->list);
    d->landed.copy.between_devices = true;
    if (n)
        d->failed = carry(d, n, host, window, why, why_len);
    d->from_host = piece_of(d, d->rows, d->carried, n, host, host);
}

enum shunt_status shunti_device_rows_finish(struct shunti_device_rows *d,
                                            const unsigned char *window,
                                            char *why, size_t why_len)
{
    if (!(d->device & SHUNTI_DEVICE_ROWS))
        return SHUNT_OK;
    if (!d->finishing)
        prepare_to_finish(d, window, why, why_len);
    (void)advance(d, &d->landed, why, why_len);
    (void)advance(d, &d->from_host, why, why_len);
    (void)advance(d, &d->zeros, why, why_len);
    if (d->failed)
        return d->failed;
    return d->landed.done && d->from_host.done && d->zeros.done &&
                   d->to[d->plan->moe->rank].piece.done
               ? SHUNT_OK
               : SHUNT_IN_PROGRESS;
}

/* Wait for a copy that is under way and still uses the memory. */
static void await(struct shunti_device_rows *d, struct piece *piece)
{
    char why[512];

    if (!piece->copy.begun || piece->done)
        return;
    while (shunti_device_copy_test(comm_of(d), &piece->copy, why,
                                   sizeof(why)) == SHUNT_IN_PROGRESS)
        sched_yield();
}

void shunti_device_rows_destroy(struct shunti_device_rows *d)
{
    if (!d)
        return;
    for (int r = 0; r < d->plan->moe->nranks; r++)
        await(d, &d->to[r].piece);
    await(d, &d->to_host);
    await(d, &d->zeros);
    await(d, &d->landed);
    await(d, &d->from_host);
    shunti_device_host_free(comm_of(d), d->host);
    shunti_device_host_free(comm_of(d), d->zero);
    shunti_device_host_free(comm_of(d), d->carried);
    free(d->token);
    free(d->list);
    free(d->lands);
    free(d);
}
