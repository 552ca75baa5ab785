// SPDX-License-Identifier: Apache-2.0
/*
 * Reading a peer's plain memory, by its transport, in pieces that may end later.
 *
 * A read belongs to a request. One that is under way when its request ends, as in
 * a failure, is ended first: the caller gets the memory back.
 */
#ifndef SHUNTI_READ_H
#define SHUNTI_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/status.h>

struct shunt_request;

/* Zeroed before. It must live until shunti_read_run() says how it ended, or its
 * request ends. */
struct shunti_read {
    size_t done;    /* bytes that are there: set to 0 to read others */
    uint32_t piece; /* bytes under way; 0: none */
    bool late;      /* the last piece ended after the call that began it */
    uint64_t begun_ns;
    enum shunt_status status; /* of the piece */
    int peer;                 /* of the piece */
    struct shunti_read *next; /* of its request, that are under way */
};

/*
 * Go on reading the `bytes` at the peer's `address` into `to`: SHUNT_OK once all
 * are there, however often it is called after; SHUNT_IN_PROGRESS, call again; an
 * error, which is the caller's to tell, and `to` is unspecified.
 *
 * whole  bytes of the block of which these are some; for ways.h
 */
enum shunt_status shunti_read_run(struct shunt_request *request, int peer,
                                  struct shunti_read *read, uint64_t address,
                                  void *to, size_t bytes, size_t whole);

/* Read no more of it. True once nothing is under way. */
bool shunti_read_stop(struct shunt_request *request, struct shunti_read *read);

/* The request ends, because the communicator does: so do its reads. */
void shunti_reads_end(struct shunt_request *request);

#endif
