// SPDX-License-Identifier: Apache-2.0
/* How far fusing pays; see pays.h. */
#include "fused/pays.h"

#include "src/comm.h"
#include "src/log.h"

/* The bytes that are sent together take at least so many times as long as a
 * small message, which is about what a message costs. */
#define LATENCIES 4
/* Seconds for a byte of a slow link, 4 Gbit/s: its bytes take ten times as long
 * as two copies of them. */
#define SLOW 2e-9

bool shunti_fused_waits(const struct shunt_comm *comm)
{
    return comm->tune.fused == SHUNTI_FUSED_OFF ||
           (comm->tune.fused == SHUNTI_FUSED_AUTO && comm->nodes == 1);
}

bool shunti_fused_streams(const struct shunt_comm *comm)
{
    return comm->nodes > 1 && comm->links.across.byte > SLOW;
}

static void tell(struct shunt_comm *comm, enum shunti_purpose_fused purpose,
                 const char *why)
{
    const uint8_t bit =
        (uint8_t)(1u << (purpose - SHUNTI_PURPOSE_GEMM_REDUCE_SCATTER));

    if (comm->above.told_unfused & bit)
        return;
    comm->above.told_unfused |= bit;
    shunti_info("fused", "%s: product and collective one after the other, %s",
                shunti_purpose_name(purpose), why);
}

size_t shunti_parts_together(struct shunt_comm *comm,
                             enum shunti_purpose_fused purpose, size_t parts,
                             size_t bytes)
{
    const struct shunti_link *across = &comm->links.across;
    const double nodes = comm->nodes;
    double seconds, least;
    size_t together;

    if (parts < 2 || comm->tune.fused == SHUNTI_FUSED_ALWAYS)
        return 1;
    if (comm->tune.fused == SHUNTI_FUSED_OFF) {
        tell(comm, purpose, "as SHUNT_FUSED says");
        return parts;
    }
    if (comm->nodes == 1) {
        tell(comm, purpose,
             "because the processors of one node also make the copies");
        return parts;
    }
    /* What a node sends to the others. */
    seconds = (double)bytes * (nodes - 1) / nodes * across->byte;
    least = LATENCIES * across->latency * comm->links.crowd;
    if (seconds < 2 * least) {
        tell(comm, purpose, "where that takes little longer than a message");
        return parts;
    }
    together = (size_t)((double)parts * least / seconds) + 1;
    return together < parts ? together : parts;
}
