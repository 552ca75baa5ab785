// SPDX-License-Identifier: Apache-2.0
/* What ranks send each other: by their NICs, and by tcp about these. See rdma.h. */
#ifndef SHUNT_RDMA_WIRE_H
#define SHUNT_RDMA_WIRE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "transports/rdma/limits.h"

/* RDMA_NO_FRAGMENT, RDMA_NO_DIRECT: what must not be written; its put has no effect. */
enum rdma_kind {
    RDMA_FRAGMENT_OF,
    RDMA_RECORD,
    RDMA_REPORT,
    RDMA_DIRECT,
    RDMA_NO_FRAGMENT,
    RDMA_NO_DIRECT
};

/* The fields of an immediate, from the lowest bit on; of a report, instead of line
 * and lap: how many puts have been refused, in 8 bits. */
#define RDMA_LINE_BITS 10
#define RDMA_LAP_BITS 8
#define RDMA_NUMBER_BITS 7 /* of the request: twice the credits */
#define RDMA_EPOCH_BITS 5
/* Two bits say what it is. What is rare goes as a report with EXTRA: a fragment that is
 * missing, with its line and less of the lap; or a direct put that tells nothing of what
 * has come, as it would have to tell of puts that were refused, too; or one that is
 * MISSING. */
#define RDMA_EXTRA (1u << 17)
#define RDMA_EXTRA_DIRECT (1u << 16)
#define RDMA_EXTRA_MISSING (1u << 15)
#define RDMA_EXTRA_LAP_BITS 6

/* The credits of each rail of a rank with so many NICs, a power of two. Those of a pair
 * are the fewer of its ranks': so a peer costs no more with four rails than with two. */
static inline uint32_t rdma_credits_of(int nics)
{
    return nics <= 2 ? RDMA_CREDITS : RDMA_CREDITS / 2;
}

/* Bytes that a request of such a rank can carry itself. */
static inline uint32_t rdma_inlined_of(int nics)
{
    return nics <= 2 ? RDMA_INLINED : RDMA_INLINED / 2;
}

static inline uint32_t rdma_bits(uint32_t value, unsigned bits)
{
    return value & ((1u << bits) - 1);
}

/* How far the sender of this has come with what the other side sends. */
struct rdma_progress {
    uint32_t
        requests; /* of the rail over which it goes: so many, from the first */
    uint32_t records; /* in effect */
};

/* A report. `sent`: records that its sender had sent by then, which take effect before
 * what it says of puts that were refused. */
struct rdma_report {
    struct rdma_progress progress;
    uint32_t sent;
};

/* What is in the ring: a record, and behind it the payload of a small put. */
struct rdma_record {
    uint32_t sequence; /* of the record, from 0 */
    uint16_t lines;
    /* the receiver reports when this is the next record to take effect, and when it
     * has */
    uint8_t asks;
    uint8_t refused; /* as in a report */
    struct rdma_progress progress;
    uint32_t fragments;
    uint32_t bytes;  /* behind the record */
    uint64_t region; /* 0: no payload */
    uint64_t offset;
    uint64_t signal_region; /* 0: no signal */
    uint64_t signal_offset;
    uint64_t signal_value;
};

/* Lines that may be free without being reported: with no more than these in use there is
 * room for the longest record, before which almost as many are lost at the end of the
 * ring. */
#define RDMA_LONGEST                                                   \
    ((sizeof(struct rdma_record) + RDMA_COPIED_MOST + RDMA_LINE - 1) / \
     RDMA_LINE)
#define RDMA_UNREPORTED (RDMA_LINES - RDMA_OWN_LINES - 2 * RDMA_LONGEST)

/* What each side has of the other's: a ring, and words for the reports of each
 * rail, one for each request that may be under way. */
struct rdma_inbox {
    unsigned char ring[RDMA_RING];
    struct rdma_report reports[RDMA_RAILS][RDMA_CREDITS];
};

struct rdma_place {
    union ibv_gid gid;
    uint16_t lid;
    uint8_t mtu; /* enum ibv_mtu */
    uint8_t layer;
    bool global; /* what goes there has a global header: always by RoCE */
};

/* What the sides of a rail tell each other before they connect. */
struct rdma_hello {
    struct rdma_place place;
    uint64_t inbox; /* address */
    uint32_t inbox_key;
    uint32_t qp, psn;
    uint32_t epoch; /* for immediates that go to its sender */
};

/* Which requests have come: so many from the first on, and of those behind them the
 * ones with a bit. */
struct rdma_come {
    uint64_t beyond;
    uint32_t base, zero;
};

/* How far a side of a rail has come, in its present life. */
enum rdma_stage {
    RDMA_NEW,
    RDMA_HELLO,   /* the hello is there */
    RDMA_READY,   /* and what the other sends is received */
    RDMA_REACHED, /* a request has arrived, and ours there */
    RDMA_BROKEN,  /* the connection is of no use any more */
    RDMA_FENCED, /* nothing comes over it any more, and what has come is told */
};

/* Life and stage, as one word that grows. */
static inline uint64_t rdma_word(uint32_t life, enum rdma_stage stage)
{
    return (uint64_t)life * 8 + (uint64_t)stage;
}

/* Where peers write, by tcp, what this is about. */
struct rdma_rail_mail {
    struct rdma_hello hello;
    struct rdma_come come[2]; /* of even lives, and of odd ones */
    uint64_t word;
};

struct rdma_mail {
    struct rdma_rail_mail rail[RDMA_RAILS];
    uint64_t broken; /* 1: no rail is left, because: */
    char reason[RDMA_REASON];
};

#endif
