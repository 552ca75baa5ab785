// SPDX-License-Identifier: Apache-2.0
/*
 * Links: what a message costs, inside a node and between nodes.
 *
 * Measured when a communicator of several nodes is born, by rank 0 with one
 * local peer and with one rank of another node, by the same writes to control
 * windows that notes and streams are made of; and spread to all with the last
 * round of the birth, because what decides algorithms must be the same
 * everywhere. A few milliseconds; a process remembers what it has measured, for
 * other communicators of the same shape.
 */
#ifndef SHUNTI_LINK_H
#define SHUNTI_LINK_H

#include <shunt/status.h>

struct shunt_comm;

/* Seconds. */
struct shunti_link {
    double latency; /* until a small message is there */
    double gap;     /* for each message more, of many: to handle it */
    double byte;    /* for each byte of a large one */
};

struct shunti_links {
    struct shunti_link inside, across;
    double crowd; /* ranks that share a CPU of rank 0's host; 1 or more */
};

/* On every rank, when control windows can be written to. *links is filled in
 * on rank 0. Returns at once on ranks that are not needed. */
enum shunt_status shunti_links_measure(struct shunt_comm *comm,
                                       struct shunti_links *links);

#endif
