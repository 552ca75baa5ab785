// SPDX-License-Identifier: Apache-2.0
/* How far fusing is worthwhile; see worthwhile.h. */
#include "collectives/fused/worthwhile.h"

#include <strings.h>

#include "src/base/log.h"
#include "src/comm.h"

/* The parts that are sent together should take at least this many times the
 * latency of a small message. That latency is about the cost of a message. */
#define LATENCIES 4
/* On a link that is not SLOW, they should take this many times longer still.
 * There, the processor's own work for the bytes takes about as long as the
 * link, so less is overlapped. */
#define FAST 8
/* For more bytes, the cost of gathering the terms is negligible. */
#define TRUSTS_MAX ((size_t)1 << 20)
/* Seconds per byte of a slow link, 4 Gbit/s: its bytes take ten times as long
 * as two copies of them. */
#define SLOW 2e-9

static void begin(void *state, int nranks,
                  const struct shunti_shared_env *values)
{
    struct shunti_fused_state *s = state;
    const char *word = shunti_shared_choice(values, "SHUNT_FUSED");

    (void)nranks;
    s->setting = !strcasecmp(word, "auto")     ? SHUNTI_FUSED_AUTO
                 : !strcasecmp(word, "always") ? SHUNTI_FUSED_ALWAYS
                                               : SHUNTI_FUSED_OFF;
}

static struct shunti_layer layer = {
    .name = "fused",
    .bytes = sizeof(struct shunti_fused_state),
    .begin = begin,
};

__attribute__((constructor)) static void declare_layer(void)
{
    shunti_layer_declare(&layer);
}

struct shunti_fused_state *shunti_fused_state(const struct shunt_comm *comm)
{
    return shunti_layer_state(&comm->layers, &layer);
}

static bool is_set(const struct shunt_comm *comm, enum shunti_fused setting)
{
    return shunti_fused_state(comm)->setting == setting;
}

bool shunti_fused_waits(const struct shunt_comm *comm)
{
    return is_set(comm, SHUNTI_FUSED_OFF) ||
           (is_set(comm, SHUNTI_FUSED_AUTO) && comm->nodes == 1);
}

bool shunti_fused_streams(const struct shunt_comm *comm)
{
    return comm->nodes > 1 && comm->links.across.byte > SLOW;
}

/* The time to send a node's share of `bytes` to the other nodes. */
static double seconds_of(const struct shunt_comm *comm, size_t bytes)
{
    const double nodes = comm->nodes;

    return (double)bytes * (nodes - 1) / nodes * comm->links.across.byte;
}

/* The least time that a part should take. */
static double least_of(const struct shunt_comm *comm)
{
    return LATENCIES * comm->links.across.latency * comm->links.crowd *
           (shunti_fused_streams(comm) ? 1 : FAST);
}

bool shunti_fused_trusts(const struct shunt_comm *comm, size_t bytes,
                         bool waits)
{
    return bytes <= TRUSTS_MAX &&
           (waits || (is_set(comm, SHUNTI_FUSED_AUTO) &&
                      seconds_of(comm, bytes) < 2 * least_of(comm)));
}

static void tell(struct shunt_comm *comm, enum shunti_purpose purpose,
                 const char *why)
{
    struct shunti_fused_state *state = shunti_fused_state(comm);
    const uint8_t bit =
        (uint8_t)(1u << (purpose - SHUNTI_PURPOSE_GEMM_REDUCE_SCATTER));

    if (state->logged & bit)
        return;
    state->logged |= bit;
    shunti_info("fused", "%s: product and collective one after the other, %s",
                shunti_purpose_name(purpose), why);
}

size_t shunti_parts_together(struct shunt_comm *comm,
                             enum shunti_purpose purpose, size_t parts,
                             size_t bytes)
{
    double seconds, least;
    size_t together;

    if (is_set(comm, SHUNTI_FUSED_ALWAYS))
        return 1;
    if (is_set(comm, SHUNTI_FUSED_AUTO) && comm->nodes == 1)
        tell(comm, purpose,
             "because the processors of one node also make the copies");
    if (parts < 2)
        return 1;
    if (is_set(comm, SHUNTI_FUSED_OFF))
        tell(comm, purpose, "as SHUNT_FUSED says");
    /* On one node, panels are as large as scratch memory that is kept
     * (grid.h). */
    if (comm->nodes == 1 && purpose == SHUNTI_PURPOSE_GEMM_REDUCE_SCATTER)
        return 1;
    if (shunti_fused_waits(comm))
        return parts;
    seconds = seconds_of(comm, bytes);
    least = least_of(comm);
    if (seconds < 2 * least) {
        tell(comm, purpose, "where that takes little longer than a message");
        return parts;
    }
    together = (size_t)((double)parts * least / seconds) + 1;
    return together < parts ? together : parts;
}
