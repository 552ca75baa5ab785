// SPDX-License-Identifier: Apache-2.0
/* Tokens' rows between nodes; see rails_rows.h. */
#include "moe/route/rails_rows.h"

#include <stdlib.h>
#include <string.h>

#include "moe/plan/settings.h"
#include "src/comm.h"
#include "src/kernels/copy.h"
#include "src/kernels/fp8.h"
#include "src/kernels/rows.h"
#include "src/trace/track.h"
#include "src/wire/nodes.h"

bool shunti_rail_rows_init(struct shunti_rail_rows *rows,
                           struct shunti_direction *direction)
{
    const struct shunt_moe *moe = direction->plan->moe;
    size_t local = (size_t)moe->comm->local_size;

    rows->plan = direction->plan;
    rows->lists = &direction->lists;
    rows->rails = direction->state;
    rows->wire =
        rows->fp8 ? shunti_fp8_bytes(moe->config.hidden) : moe->row_bytes;
    rows->chunk = shunti_moe_settings(moe->comm)->chunk / rows->wire;
    if (!rows->chunk)
        rows->chunk = 1;
    rows->to = calloc((size_t)moe->nodes, sizeof(*rows->to));
    rows->from = calloc((size_t)rows->rails->nfrom + 1, sizeof(*rows->from));
    rows->places = calloc(local, sizeof(*rows->places));
    rows->outs = calloc(local, sizeof(*rows->outs));
    rows->scratch = malloc(2 * moe->row_bytes);
    if (rows->to && rows->from && rows->places && rows->outs && rows->scratch) {
        for (int n = 0; n < moe->nodes; n++) {
            const struct shunti_rail_bound *bound = rows->rails->to[n].bound;
            const struct shunti_rail_bound from = bound[rows->cut.from];
            const struct shunti_rail_bound to = bound[rows->cut.to];

            rows->to[n] = (struct shunti_rail_sent){from.row, from.row, to.row,
                                                    !rows->dweight ||
                                                        from.term == to.term};
        }
        for (int i = 0; i < rows->rails->nfrom; i++)
            rows->from[i].done = !rows->rails->from[i].rows;
        return true;
    }
    shunti_rail_rows_finish(rows);
    return false;
}

void shunti_rail_rows_finish(struct shunti_rail_rows *rows)
{
    free(rows->to);
    free(rows->from);
    free(rows->places);
    free(rows->outs);
    free(rows->scratch);
}

size_t shunti_rail_rows_bytes(const struct shunti_rail_rows *rows)
{
    size_t all = 0;

    for (int n = 0; n < rows->plan->moe->nodes; n++)
        all += rows->to[n].end - rows->to[n].rows;
    return all * rows->wire;
}

/* Offset of row number `row` of the plan's list. The offset of a part assumes
 * that each earlier row takes all of its room. So parts do not overlap if one
 * call's rows take less room than another's, as with fp8. */
static size_t place_of(const struct shunti_rail_rows *rows,
                       const struct shunti_rail_bound *bound, size_t row)
{
    const size_t first = bound[rows->cut.from].row;

    return first * rows->rails->own.traffic.row_bytes +
           (row - first) * rows->wire;
}

/* --- out ---------------------------------------------------------------------- */

static bool send_chunk(struct shunti_rail_rows *rows, int node, uint64_t call)
{
    const struct shunti_plan *plan = rows->plan;
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_rail_to *to = &rows->rails->to[node];
    struct shunti_rail_sent *sent = &rows->to[node];
    size_t begin = sent->rows, end = begin + rows->chunk;
    unsigned char *at;
    SHUNTI_TRACK(COPIES);

    if (begin == sent->end)
        return false;
    if (end > sent->end)
        end = sent->end;
    for (; sent->packed < end; sent->packed++) {
        const unsigned char *src =
            rows->src + to->token[sent->packed] * moe->row_bytes;

        at = shunti_rail_memory(
            rows->rails, to->staging + place_of(rows, to->bound, sent->packed));

        if (rows->fp8)
            moe->rows->pack(at, src, moe->config.hidden);
        else
            memcpy(at, src, moe->row_bytes);
    }
    if (!shunti_rail_put(rows->rails, to->relay,
                         to->staging + place_of(rows, to->bound, begin),
                         to->arrival + place_of(rows, to->bound, begin),
                         (end - begin) * rows->wire, SHUNTI_RAIL_ROWS,
                         rows->cut.from, moe->rank, call, (uint32_t)end))
        return false;
    sent->rows = end;
    return true;
}

bool shunti_rail_rows_send(struct shunti_rail_rows *rows, uint64_t call)
{
    const struct shunti_plan *plan = rows->plan;
    const int nodes = plan->moe->nodes, node = plan->moe->node[plan->moe->rank];
    bool any = false;

    if (!shunti_rail_has_turn(rows->rails->rows_line, &rows->turn))
        return false;
    rows->turn.sent = true;
    for (int i = 1; i < nodes; i++) {
        const struct shunti_rail_sent *sent = &rows->to[(node + i) % nodes];

        any = send_chunk(rows, (node + i) % nodes, call) || any;
        rows->turn.sent = rows->turn.sent && sent->rows == sent->end;
    }
    return any;
}

/* --- in ------------------------------------------------------------------------- */

static void place(const struct shunti_rail_rows *rows, unsigned char *dst,
                  const void *src)
{
    size_t bytes = rows->plan->moe->row_bytes;

    if (rows->stream)
        shunti_copy_stream(dst, src, bytes);
    else
        memcpy(dst, src, bytes);
}

static void pass_row(const struct shunti_rail_rows *rows,
                     const struct shunti_rail_from *from, uint32_t k,
                     const unsigned char *row, float *dots)
{
    const struct shunt_moe *moe = rows->plan->moe;
    const size_t hidden = moe->config.hidden, bytes = moe->row_bytes;

    if (rows->fp8) {
        moe->rows->unpack(rows->scratch, row, hidden);
        row = rows->scratch;
    }
    for (uint32_t i = from->first[k]; i < from->first[k + 1]; i++) {
        const struct shunti_rail_entry *entry = &from->entry[i];
        unsigned char *dst = rows->places[entry->local];
        const unsigned char *out = rows->outs[entry->local];

        /* Read the row of `out` first: the new row may overwrite it. */
        if (dots)
            dots[i] = out ? moe->rows->dot(row, out + entry->row * bytes, NULL,
                                           hidden)
                          : 0;
        if (dst && rows->weighted) {
            moe->rows->scale(rows->scratch + bytes, row, entry->weight, hidden);
            place(rows, dst + entry->row * bytes, rows->scratch + bytes);
        } else if (dst) {
            place(rows, dst + entry->row * bytes, row);
        }
    }
}

/* Send the products of a source's rows. False: no room now. */
static bool send_dots(const struct shunti_rail_rows *rows,
                      const struct shunti_rail_from *from, uint64_t call)
{
    const struct shunt_moe *moe = rows->plan->moe;
    const size_t first = from->bound[rows->cut.from].term;
    const size_t n = from->bound[rows->cut.to].term - first;
    const size_t at = first * sizeof(float);

    return !n ||
           shunti_rail_put(rows->rails, from->source, from->dots_staging + at,
                           from->dots + at, n * sizeof(float), SHUNTI_RAIL_DOTS,
                           rows->cut.from, moe->node[moe->rank], call,
                           rows->broken ? SHUNTI_RAIL_BROKEN : 1);
}

/* True if this rank knows whether the source wants products. A rank without
 * tokens learns that from the note of the source, so the rows wait for the
 * note. */
static bool knows_wants(const struct shunti_rail_rows *rows,
                        const struct shunti_rail_passed *passed)
{
    return !rows->offers || rows->plan->tokens || passed->entered;
}

static bool wants_dots(const struct shunti_rail_rows *rows,
                       const struct shunti_rail_passed *passed)
{
    return rows->offers && (rows->plan->tokens || passed->wants);
}

/* Pass on the rows that have arrived from a source, at most a chunk. */
static bool pass_chunk(struct shunti_rail_rows *rows, int index, uint64_t call)
{
    const struct shunti_rail_from *from = &rows->rails->from[index];
    struct shunti_rail_passed *passed = &rows->from[index];
    uint32_t here, begin = passed->rows, end;
    float *dots = NULL;
    SHUNTI_TRACK(COPIES);

    if (passed->done || !knows_wants(rows, passed))
        return false;
    here = shunti_rail_arrived(rows->rails, SHUNTI_RAIL_ROWS, rows->cut.from,
                               from->source, call, passed->end);
    /* Nothing new. If there are fewer rows than before, the signal is of a
     * later call. Then the source has given up this call, and has sent a note
     * that says so. */
    if (here <= passed->rows && passed->rows < passed->end)
        return false;
    if (here < passed->rows)
        here = passed->rows;
    end = here - passed->rows > rows->chunk
              ? passed->rows + (uint32_t)rows->chunk
              : here;
    if (wants_dots(rows, passed))
        dots = (float *)(void *)shunti_rail_memory(rows->rails,
                                                   from->dots_staging);
    for (; passed->rows < end; passed->rows++)
        pass_row(rows, from, passed->rows,
                 shunti_rail_memory(
                     rows->rails,
                     from->arrival + place_of(rows, from->bound, passed->rows)),
                 dots);
    if (passed->rows == passed->end)
        passed->done = !dots || send_dots(rows, from, call);
    return passed->rows != begin || passed->done;
}

bool shunti_rail_rows_pass_on(struct shunti_rail_rows *rows, uint64_t call)
{
    bool any = false;

    if (!rows->lists->here)
        return false;
    for (int i = 0; i < rows->rails->nfrom && !rows->began; i++) {
        const struct shunti_rail_bound *bound = rows->rails->from[i].bound;

        rows->from[i].rows = (uint32_t)bound[rows->cut.from].row;
        rows->from[i].end = (uint32_t)bound[rows->cut.to].row;
    }
    rows->began = true;
    for (int i = 0; i < rows->rails->nfrom; i++)
        any = pass_chunk(rows, i, call) || any;
    return any;
}

/* Store the products of a node. Products arrive in the order of the list's
 * terms. */
static void scatter_dots(const struct shunti_rail_rows *rows, int node)
{
    const struct shunti_plan *plan = rows->plan;
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_rail_to *to = &rows->rails->to[node];
    const float *dots =
        (const float *)(const void *)shunti_rail_memory(rows->rails, to->dots) +
        to->bound[rows->cut.from].term;

    for (size_t k = to->bound[rows->cut.from].row; k < rows->to[node].end;
         k++) {
        size_t t = to->token[k];

        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++)
            if (moe->node[plan->terms[i].rank] == node)
                rows->dweight[t * (size_t)moe->config.topk +
                              plan->terms[i].slot] = *dots++;
    }
}

void shunti_rail_rows_take_dots(struct shunti_rail_rows *rows, uint64_t call)
{
    for (int n = 0; n < rows->plan->moe->nodes; n++) {
        struct shunti_rail_sent *sent = &rows->to[n];
        uint32_t word;

        if (sent->dots)
            continue;
        word = shunti_rail_arrived(rows->rails, SHUNTI_RAIL_DOTS,
                                   rows->cut.from, n, call, 1);
        if (!word)
            continue;
        sent->dots = true;
        if (word == SHUNTI_RAIL_BROKEN)
            rows->broken = true;
        else
            scatter_dots(rows, n);
    }
}

/* --- progress ---------------------------------------------------------------------- */

bool shunti_rail_rows_passed(const struct shunti_rail_rows *rows, int source)
{
    for (int i = 0; i < rows->rails->nfrom; i++)
        if (rows->rails->from[i].source == source)
            return rows->from[i].done;
    return true;
}

bool shunti_rail_rows_all_passed(const struct shunti_rail_rows *rows)
{
    for (int i = 0; i < rows->rails->nfrom; i++)
        if (!rows->from[i].done)
            return false;
    return true;
}

bool shunti_rail_rows_put_any(const struct shunti_rail_rows *rows, int rank)
{
    const struct shunti_plan *plan = rows->plan;
    int node = plan->moe->node[rank];

    return rows->rails->to[node].relay == rank &&
           rows->to[node].rows >
               rows->rails->to[node].bound[rows->cut.from].row;
}

void shunti_rail_rows_give_up(struct shunti_rail_rows *rows, int rank)
{
    const struct shunti_plan *plan = rows->plan;
    int node = plan->moe->node[rank];

    rows->broken = true;
    for (int i = 0; i < rows->rails->nfrom; i++)
        if (rows->rails->from[i].source == rank)
            rows->from[i].done = true;
    if (rows->rails->to[node].relay == rank) {
        rows->to[node].rows = rows->to[node].end;
        rows->to[node].dots = true;
    }
}

void shunti_rail_rows_meet(struct shunti_rail_rows *rows, int rank, bool offers)
{
    int node = rows->plan->moe->node[rank];

    for (int i = 0; i < rows->rails->nfrom; i++)
        if (rows->rails->from[i].source == rank) {
            rows->from[i].entered = true;
            rows->from[i].wants = offers;
        }
    if (!offers && rows->rails->to[node].relay == rank)
        rows->to[node].dots = true;
}

bool shunti_rail_rows_miss(const struct shunti_rail_rows *rows, int rank)
{
    const struct shunti_plan *plan = rows->plan;
    const int node = plan->moe->node[rank];

    return rows->rails->to[node].relay == rank &&
           (rows->to[node].rows != rows->to[node].end || !rows->to[node].dots);
}

bool shunti_rail_rows_done(const struct shunti_rail_rows *rows)
{
    const struct shunti_plan *plan = rows->plan;

    for (int n = 0; n < plan->moe->nodes; n++)
        if (rows->rails->to[n].relay >= 0 &&
            (rows->to[n].rows != rows->to[n].end || !rows->to[n].dots))
            return false;
    return shunti_rail_rows_all_passed(rows);
}
