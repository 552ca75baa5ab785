// SPDX-License-Identifier: Apache-2.0
/* Data that ranks send each other by their NICs; and data about the NICs and
 * rails that they send by tcp. See rdma.h. */
#ifndef SHUNT_RDMA_WIRE_H
#define SHUNT_RDMA_WIRE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "transports/rdma/limits.h"

/* Kinds of requests. RDMA_NO_FRAGMENT, RDMA_NO_DIRECT: the payload cannot be
 * written, and the put has no effect. */
enum rdma_kind {
    RDMA_FRAGMENT_OF,
    RDMA_RECORD,
    RDMA_REPORT,
    RDMA_DIRECT,
    RDMA_NO_FRAGMENT,
    RDMA_NO_DIRECT
};

/* Fields of an immediate, from the lowest bit on. A report has the number of
 * refusals in 8 bits, in place of line and lap. */
#define RDMA_LINE_BITS 10
#define RDMA_LAP_BITS 8
#define RDMA_NUMBER_BITS 7 /* number of the request, modulo twice the credits */
#define RDMA_EPOCH_BITS 5
/* The last two bits are the kind. Rare kinds are sent as a report with EXTRA:
 *   - a fragment that is missing, with its line and fewer bits of the lap;
 *   - with EXTRA_DIRECT, a direct put that reports no arrivals, because it
 *     would have to report refusals, too;
 *   - with EXTRA_MISSING as well, a direct put that is missing. */
#define RDMA_EXTRA (1u << 17)
#define RDMA_EXTRA_DIRECT (1u << 16)
#define RDMA_EXTRA_MISSING (1u << 15)
#define RDMA_EXTRA_LAP_BITS 6

/* Returns the credits of each rail of a rank with this many NICs, a power of
 * two. A pair of ranks uses the smaller of its two values. So a peer needs no
 * more memory with four rails than with two. */
static inline uint32_t rdma_credits_of(int nics)
{
    return nics <= 2 ? RDMA_CREDITS : RDMA_CREDITS / 2;
}

/* Returns the most bytes inside a request, for a rank with this many NICs. */
static inline uint32_t rdma_inlined_of(int nics)
{
    return nics <= 2 ? RDMA_INLINED : RDMA_INLINED / 2;
}

static inline uint32_t rdma_bits(uint32_t value, unsigned bits)
{
    return value & ((1u << bits) - 1);
}

/* Requests and records that the sender of this struct has received from the
 * other side. */
struct rdma_progress {
    uint32_t
        requests; /* requests of this rail that have arrived, without a gap */
    uint32_t records; /* records in effect */
};

/* A report. `sent`: the number of records that its sender had sent before. The
 * refusals of the report take effect after these records. */
struct rdma_report {
    struct rdma_progress progress;
    uint32_t sent;
};

/* A record in the ring. The payload of a small put is behind it. */
struct rdma_record {
    uint32_t sequence; /* number of the record, from 0 */
    uint16_t lines;
    /* the receiver reports when this is the next record to take effect, and
     * when it has taken effect */
    uint8_t asks;
    uint8_t refused; /* number of refusals, as in a report */
    struct rdma_progress progress;
    uint32_t fragments;
    uint32_t bytes;  /* payload bytes behind the record */
    uint64_t region; /* 0: no payload */
    uint64_t offset;
    uint64_t signal_region; /* 0: no signal */
    uint64_t signal_offset;
    uint64_t signal_value;
};

/* Number of lines that may be freed without being reported. The sender still
 * counts them as used. Even so it has room for the longest record, and for as
 * many skipped lines at the end of the ring. */
#define RDMA_LONGEST                                                   \
    ((sizeof(struct rdma_record) + RDMA_COPIED_MOST + RDMA_LINE - 1) / \
     RDMA_LINE)
#define RDMA_UNREPORTED (RDMA_LINES - RDMA_OWN_LINES - 2 * RDMA_LONGEST)

/* Memory of each side that the other side writes to: a ring, and the reports of
 * each rail, with a place for each request that may be under way. */
struct rdma_inbox {
    unsigned char ring[RDMA_RING];
    struct rdma_report reports[RDMA_RAILS][RDMA_CREDITS];
};

struct rdma_place {
    union ibv_gid gid;
    uint16_t lid;
    uint8_t mtu; /* enum ibv_mtu */
    uint8_t layer;
    bool global; /* requests to the port need a global header, as with RoCE */
};

/* Sent by each side of a rail before they connect. */
struct rdma_hello {
    struct rdma_place place;
    uint64_t inbox; /* address */
    uint32_t inbox_key;
    uint32_t qp, psn;
    uint32_t epoch; /* for the immediates that are sent to this side */
};

/* The requests that have arrived: the first `base`, and behind them those with
 * a bit in `beyond`. */
struct rdma_arrivals {
    uint64_t beyond;
    uint32_t base, zero;
};

/* The stage of one side of a rail, in its present life. */
enum rdma_stage {
    RDMA_NEW,
    RDMA_HELLO,   /* this side has a queue pair, and its hello can be sent */
    RDMA_READY,   /* this side can receive requests of the other side */
    RDMA_REACHED, /* requests have arrived in both directions */
    RDMA_BROKEN,  /* the connection has failed */
    RDMA_FENCED,  /* nothing more arrives; the list of arrivals is final */
};

/* Life and stage as one word, which only grows. */
static inline uint64_t rdma_word(uint32_t life, enum rdma_stage stage)
{
    return (uint64_t)life * 8 + (uint64_t)stage;
}

/* Memory to which a peer writes the state of its side of a rail, by tcp. */
struct rdma_rail_mail {
    struct rdma_hello hello;
    struct rdma_arrivals arrivals[2]; /* of an even life, and of an odd life */
    uint64_t word;
};

struct rdma_mail {
    struct rdma_rail_mail rail[RDMA_RAILS];
    uint64_t broken; /* 1: no rail is left, and `reason` says why */
    char reason[RDMA_REASON];
};

#endif
