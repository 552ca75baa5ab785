// SPDX-License-Identifier: Apache-2.0
/*
 * Links: the cost of a message, inside a node and between nodes.
 *
 * The cost is measured in the init of a communicator of several nodes. Rank 0
 * measures with one local peer and with one rank of another node. It uses the
 * same writes to control windows as notes and streams. The last round of the
 * init sends the result to all ranks, because the choice between algorithms
 * must be the same everywhere. The measurement takes a few milliseconds. A
 * process remembers it for other communicators of the same shape.
 */
#ifndef SHUNTI_LINK_H
#define SHUNTI_LINK_H

#include <shunt/status.h>

struct shunti_init;

/* The cost of a message, in seconds. */
struct shunti_link {
    double latency; /* one way, of a small message */
    double gap;     /* added by each further message of a burst */
    double byte;    /* for each byte of a large message */
};

/* Part of a communicator: the measured costs. link.c writes it; init_nodes.c
 * writes `crowd`. */
struct shunti_links {
    struct shunti_link inside, across;
    double crowd; /* ranks for each CPU of rank 0's host; 1 or more */
};

/* Called on every rank, as soon as control windows can be written to. *links is
 * filled in on rank 0. Returns at once on ranks that the measurement does not
 * need. */
enum shunt_status shunti_links_measure(struct shunti_init *init,
                                       struct shunti_links *links);

#endif
