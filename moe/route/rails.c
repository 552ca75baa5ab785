// SPDX-License-Identifier: Apache-2.0
/* Queues, puts and signals of rail windows; see rails.h. */
#include "moe/route/rails.h"

#include "src/comm.h"
#include "src/wire/wire.h"

size_t shunti_rail_signal_at(const struct shunt_moe *moe,
                             enum shunti_rail_signal which, int part, int index)
{
    const size_t each = (size_t)moe->nranks + 2 * (size_t)moe->nodes;
    size_t number = (size_t)part * each + (size_t)index;

    if (which != SHUNTI_RAIL_ROWS)
        number += (size_t)moe->nranks;
    if (which == SHUNTI_RAIL_DOTS)
        number += (size_t)moe->nodes;
    return shunti_rail_signal_place(number);
}

/* Offset of a signal in the window. */
static size_t signal_in_window(const struct shunti_rails *rails,
                               enum shunti_rail_signal which, int part,
                               int index)
{
    return rails->signals +
           shunti_rail_signal_at(rails->moe, which, part, index);
}

unsigned char *shunti_rail_memory(const struct shunti_rails *rails, size_t at)
{
    return rails->rail->window->addr + rails->rail->signals + rails->base + at;
}

size_t shunti_sum_bytes(const struct shunt_moe *moe)
{
    return moe->config.partials == SHUNT_MOE_PARTIALS_F32
               ? moe->config.hidden * sizeof(float)
               : moe->row_bytes;
}

size_t shunti_home_bytes(const struct shunt_moe *moe, size_t terms)
{
    return shunti_rail_sum_bytes(terms, moe->row_bytes, shunti_sum_bytes(moe));
}

bool shunti_home_as_is(const struct shunt_moe *moe, size_t terms)
{
    return terms == 1 && moe->config.partials == SHUNT_MOE_PARTIALS_F32;
}

/* --- the queue for an arrival area ------------------------------------------------ */

void shunti_rail_line_up(struct shunti_rail_turn **line,
                         struct shunti_rail_turn *turn, struct shunti_cut cut)
{
    while (*line)
        line = &(*line)->next;
    *turn = (struct shunti_rail_turn){.cut = cut};
    *line = turn;
}

bool shunti_rail_has_turn(const struct shunti_rail_turn *line,
                          const struct shunti_rail_turn *turn)
{
    for (; line != turn; line = line->next)
        if (!line->sent || shunti_cuts_overlap(line->cut, turn->cut))
            return false;
    return true;
}

void shunti_rail_leave_line(struct shunti_rail_turn **line,
                            const struct shunti_rail_turn *turn)
{
    while (*line != turn)
        line = &(*line)->next;
    *line = turn->next;
}

/* --- rows and signals ------------------------------------------------------------ */

uint64_t shunti_rail_call(const struct shunt_request *request)
{
    bool backward =
        request->signature >> 24 >= SHUNTI_KIND_MOE_COMBINE_BACKWARD;

    return request->seq << 1 | backward;
}

/* Make the value of a signal: the call and the rows in one word. At most
 * sixteen operations are under way, so 32 bits of the call are enough. */
static uint64_t signal_of(uint64_t call, uint32_t rows)
{
    return call << 32 | rows;
}

uint32_t shunti_rail_arrived(const struct shunti_rails *rails,
                             enum shunti_rail_signal which, int part, int index,
                             uint64_t call, size_t most)
{
    const uint64_t *word =
        (const uint64_t *)(const void *)(rails->rail->window->addr +
                                         signal_in_window(rails, which, part,
                                                          index));
    uint64_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    uint32_t rows = (uint32_t)value;

    if (value >> 32 != (call & UINT32_MAX))
        return 0;
    if (rows == SHUNTI_RAIL_BROKEN && which != SHUNTI_RAIL_ROWS)
        return rows;
    return rows < most ? rows : (uint32_t)most;
}

bool shunti_rail_put(const struct shunti_rails *rails, int peer, size_t staging,
                     size_t arrival, size_t bytes,
                     enum shunti_rail_signal which, int part, int index,
                     uint64_t call, uint32_t rows)
{
    const struct shunti_window *window = rails->rail->window;
    struct shunt_comm *comm = rails->moe->comm;
    struct shunti_peer *p = &comm->peers[peer];
    struct shunt_transport_put put = {
        .local = shunti_rail_memory(rails, staging),
        .reg = window->reg[p->context - comm->contexts.all],
        .remote = window->peers[peer].remote,
        .offset = rails->rail->signals + rails->base + arrival,
        .bytes = bytes,
        .signal = window->peers[peer].remote,
        .signal_offset = signal_in_window(rails, which, part, index),
        .signal_value = signal_of(call, rows),
        /* Products are few bytes, and the source of the rows waits for them, so
         * they do not queue behind rows. */
        .channel = which == SHUNTI_RAIL_DOTS ? 1 : SHUNT_TRANSPORT_BULK,
    };

    if (!shunti_put(comm, peer, &put))
        return false;
    if (p->node != comm->node)
        comm->stats.bytes_remote += bytes;
    p->messages++;
    p->bytes_put += bytes;
    return true;
}

/* --- partners ----------------------------------------------------------------------- */

bool shunti_rail_sends(const struct shunti_rails *rails, int rank)
{
    const struct shunti_rail_to *to = &rails->to[rails->moe->node[rank]];

    return to->relay == rank && to->rows;
}

bool shunti_rail_receives(const struct shunti_rails *rails, int rank)
{
    for (int i = 0; i < rails->nfrom; i++)
        if (rails->from[i].source == rank)
            return rails->from[i].rows > 0;
    return false;
}

bool shunti_rail_partner(const struct shunti_rails *rails, int rank)
{
    if (rails->to[rails->moe->node[rank]].relay == rank)
        return true;
    for (int i = 0; i < rails->nfrom; i++)
        if (rails->from[i].source == rank)
            return true;
    return false;
}
