// SPDX-License-Identifier: Apache-2.0
/* Offsets of rows on other ranks; see remote_offsets.h. */
#include "moe/plan/remote_offsets.h"

#include "collectives/alltoall.h"
#include "moe/plan/loads.h"
#include "moe/plan/received_counts.h"
#include "moe/plan/records.h"
#include "moe/route.h"
#include "src/base/error.h"
#include "src/comm.h"
#include "src/progress/turns.h"
#include "src/wire/failure.h"

/* The message that a rank sends to a source. In `more`, the offsets of the
 * directions come first. Then comes the source's first row for each of the
 * rank's experts, and then the sum of all sources' rows for each of them. */
struct start {
    uint64_t total; /* rows of the rank's buffer */
    uint64_t bad;   /* 1 + the first rank whose column is impossible; 0: none */
    unsigned char more[];
};

static size_t local_of(const struct shunt_moe *moe, int rank)
{
    return (size_t)shunti_placement_count(moe->placement, rank);
}

/* True if ranks send each other offsets for this direction. */
static bool sends_offsets(const struct shunti_direction *direction)
{
    return direction->route->measure && shunti_direction_serves(direction);
}

/* Bytes of offsets of all directions of a plan. */
static size_t offset_bytes_of(const struct shunti_plan *plan)
{
    size_t bytes = 0;

    for (int d = 0; d < SHUNTI_TOWARDS; d++)
        if (sends_offsets(&plan->direction[d]))
            bytes += plan->direction[d].route->offset_bytes;
    return bytes;
}

/* A multiple of 8. */
size_t shunti_start_bytes(size_t local, size_t offset_bytes)
{
    return sizeof(struct start) + offset_bytes + 2 * local * sizeof(uint32_t);
}

static size_t start_bytes(const struct shunt_moe *moe, int rank,
                          size_t offset_bytes)
{
    return shunti_start_bytes(local_of(moe, rank), offset_bytes);
}

bool shunti_remote_offsets_prepare(struct shunt_moe *moe)
{
    const size_t offset_bytes = SHUNTI_TOWARDS * SHUNTI_OFFSETS_MAX;
    size_t in = 0;

    if (shunti_records_have_counts(moe))
        return shunti_messages_prepare(
            moe, (size_t)moe->nranks * sizeof(uint32_t *), 0);
    for (int r = 0; r < moe->nranks; r++)
        in += start_bytes(moe, r, offset_bytes);
    return shunti_messages_prepare(
        moe, (size_t)moe->nranks * start_bytes(moe, moe->rank, offset_bytes),
        in);
}

/* --- from all counts -------------------------------------------------------------- */

static void find_from_records(struct shunti_plan *plan)
{
    struct shunt_moe *moe = plan->moe;
    /* No message is sent, so the buffer for messages can hold this array. */
    const uint32_t **rows = (const uint32_t **)(void *)moe->messages.out;
    const struct shunti_counts counts = {
        rows, moe->config.pad_to_capacity ? plan->padded : NULL};
    unsigned char offsets[SHUNTI_OFFSETS_MAX] __attribute__((aligned(8)));

    for (int s = 0; s < moe->nranks; s++)
        rows[s] = shunti_record(moe, s).expert;
    if (plan->waves.max_rows)
        shunti_layout_rows(moe->placement, rows, plan->rank_rows);
    shunti_layout_bases(moe->placement, &counts, moe->config.row_align,
                        moe->rank, plan->rank_total, moe->base, moe->copy_rows);
    for (int d = 0; d < SHUNTI_TOWARDS; d++) {
        struct shunti_direction *direction = &plan->direction[d];

        for (int r = 0; r < moe->nranks && sends_offsets(direction); r++) {
            direction->route->write_offsets(direction, r, moe->rank, offsets);
            (void)direction->route->read_offsets(direction, r, offsets);
        }
    }
}

/* --- from the ranks that receive the rows ------------------------------------------- */

static void write_loads(const struct shunti_received_rows *rows, uint32_t *load)
{
    for (size_t i = 0; i < rows->local; i++) {
        load[i] = 0;
        for (size_t s = 0; s < rows->ranks; s++)
            load[i] += (uint32_t)rows->source_count[s * rows->local + i];
    }
}

static void write_starts(const struct shunti_plan *plan, size_t offset_bytes)
{
    const struct shunt_moe *moe = plan->moe;
    const size_t bytes = start_bytes(moe, moe->rank, offset_bytes);
    const size_t local = local_of(moe, moe->rank);
    const int bad = shunti_received_counts_find_bad(moe);

    for (int r = 0; r < moe->nranks; r++) {
        struct start *start =
            (struct start *)(void *)(moe->messages.out + (size_t)r * bytes);
        unsigned char *at = start->more;

        start->total = plan->received.total;
        start->bad = (uint64_t)(bad + 1);
        for (int d = 0; d < SHUNTI_TOWARDS; d++) {
            const struct shunti_direction *direction = &plan->direction[d];

            if (!sends_offsets(direction))
                continue;
            direction->route->write_offsets(direction, moe->rank, r, at);
            at += direction->route->offset_bytes;
        }
        write_loads(&plan->received, (uint32_t *)(void *)at + local);
        moe->messages.bytes[r] = bytes;
        moe->messages.bytes[moe->nranks + r] =
            start_bytes(moe, r, offset_bytes);
    }
    shunti_layout_starts(
        moe->placement, moe->config.pad_to_capacity ? plan->padded : NULL,
        moe->rank, &plan->received,
        (uint32_t *)(void *)(moe->messages.out + sizeof(struct start) +
                             offset_bytes),
        bytes / sizeof(uint32_t));
}

/* Fail the communicator, because other ranks have the plan, and would wait for
 * this rank in its calls. */
static enum shunt_status impossible(const struct shunt_moe *moe, int rank,
                                    const char *what)
{
    enum shunt_status st;

    shunti_comm_enter(moe->comm);
    st = shunti_comm_fail(moe->comm, SHUNT_ERR_MISMATCH, rank,
                          "moe_plan_create: rank %d %s", rank, what);
    st = shunti_comm_set_error(moe->comm, st);
    shunti_comm_leave(moe->comm);
    return st;
}

/* Read the totals, and whether any rank found an impossible column. */
static enum shunt_status read_totals(const struct shunti_plan *plan)
{
    const struct shunt_moe *moe = plan->moe;
    const unsigned char *at = moe->messages.in;
    uint64_t bad = 0;

    for (int r = 0; r < moe->nranks; r++) {
        const struct start *start = (const struct start *)(const void *)at;

        plan->rank_total[r] = (size_t)start->total;
        if (start->bad && (!bad || start->bad < bad))
            bad = start->bad;
        if (start->bad > (uint64_t)moe->nranks)
            return impossible(moe, r, "names a rank that is none");
        at += moe->messages.bytes[moe->nranks + r];
    }
    if (!bad)
        return SHUNT_OK;
    return shunti_fail(&moe->comm->error, SHUNT_ERR_MISMATCH,
                       "moe_plan_create: the counts of rank %d contradict each "
                       "other",
                       (int)(bad - 1));
}

/* Read the message of rank `r`. False: it says that this rank's rows begin or
 * end outside of the buffer of `r`. */
static bool read_start(struct shunti_plan *plan, int r,
                       const struct start *start)
{
    struct shunt_moe *moe = plan->moe;
    const struct shunti_placement *p = moe->placement;
    const struct shunti_record_view mine = shunti_record(moe, moe->rank);
    const int32_t *expert = shunti_placement_local(p, r);
    const unsigned char *at = start->more;
    const uint32_t *first;
    bool good = true;

    for (int d = 0; d < SHUNTI_TOWARDS; d++) {
        struct shunti_direction *direction = &plan->direction[d];

        if (!sends_offsets(direction))
            continue;
        good = direction->route->read_offsets(direction, r, at) && good;
        at += direction->route->offset_bytes;
    }
    first = (const uint32_t *)(const void *)at;
    plan->rank_rows[r] = 0;
    for (size_t i = 0; i < local_of(moe, r); i++) {
        const size_t e = (size_t)expert[i];

        shunti_loads_add(plan, expert[i], first[local_of(moe, r) + i]);
        plan->rank_rows[r] += first[local_of(moe, r) + i];
        if (shunti_placement_target(p, moe->rank, expert[i]) != r)
            continue;
        moe->base[e] = first[i];
        good = good && moe->base[e] + mine.expert[e] <= plan->rank_total[r];
    }
    return good;
}

static enum shunt_status read_starts(struct shunti_plan *plan)
{
    const struct shunt_moe *moe = plan->moe;
    const unsigned char *at = moe->messages.in;

    for (int r = 0; r < moe->nranks; r++) {
        if (!read_start(plan, r, (const struct start *)(const void *)at))
            return impossible(moe, r,
                              "says that our rows begin outside of its buffer");
        at += moe->messages.bytes[moe->nranks + r];
    }
    return SHUNT_OK;
}

static enum shunt_status check_totals(const struct shunti_plan *plan)
{
    const struct shunt_moe *moe = plan->moe;

    for (int r = 0; r < moe->nranks; r++)
        if (plan->rank_total[r] > SHUNTI_ROWS_MAX)
            return shunti_fail(
                &moe->comm->error, SHUNT_ERR_INVALID,
                "moe_plan_create: rank %d would get %zu rows; at most %u can "
                "be had",
                r, plan->rank_total[r], (unsigned)SHUNTI_ROWS_MAX);
    return SHUNT_OK;
}

enum shunt_status shunti_remote_offsets_find(struct shunti_plan *plan)
{
    struct shunt_moe *moe = plan->moe;
    const size_t offset_bytes = offset_bytes_of(plan);
    enum shunt_status st;

    for (int d = 0; d < SHUNTI_TOWARDS; d++)
        if (sends_offsets(&plan->direction[d]) &&
            !plan->direction[d].route->measure(&plan->direction[d]))
            return shunti_lists_no_memory(moe);
    if (shunti_records_have_counts(moe)) {
        find_from_records(plan);
        return check_totals(plan);
    }
    write_starts(plan, offset_bytes);
    st = shunti_alltoallv(moe->comm, SHUNTI_IN_PLAN_CREATE, moe->messages.out,
                          moe->messages.bytes, NULL, moe->messages.in,
                          moe->messages.bytes + moe->nranks, NULL, SHUNT_U8);
    if (!st)
        st = read_totals(plan);
    if (!st)
        st = check_totals(plan);
    return st ? st : read_starts(plan);
}
