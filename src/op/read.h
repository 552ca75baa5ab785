// SPDX-License-Identifier: Apache-2.0
/*
 * Reading a peer's plain memory, by its transport, in pieces, which may end
 * after the call that begins them.
 *
 * A read belongs to a request. A read that is under way when its request ends,
 * as after a failure, is ended first, since the caller gets the memory back.
 */
#ifndef SHUNTI_READ_H
#define SHUNTI_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/status.h>

struct shunt_request;

/* Zeroed before the first call. It must live until shunti_read_run() returns
 * that it has ended, or until its request ends. */
struct shunti_read {
    size_t done;    /* bytes read; set to 0 to read another block */
    uint32_t piece; /* bytes under way; 0: none */
    bool late;      /* the last piece ended after the call that began it */
    uint64_t begun_ns;
    enum shunt_status status; /* of the piece */
    int peer;                 /* of the piece */
    struct shunti_read *next; /* in the request's list of reads under way */
};

/*
 * Continue to read the `bytes` at the peer's `address` into `to`. SHUNT_OK: all
 * are read, also in further calls. SHUNT_IN_PROGRESS: call again. Otherwise an
 * error, which the caller handles; the content of `to` is then unspecified.
 *
 * whole  bytes of the block that these are a part of; for pair_costs.h
 */
enum shunt_status shunti_read_run(struct shunt_request *request, int peer,
                                  struct shunti_read *read, uint64_t address,
                                  void *to, size_t bytes, size_t whole);

/* Read no more of it. True: nothing is under way any more. */
bool shunti_read_stop(struct shunt_request *request, struct shunti_read *read);

/* The request ends because the communicator does: end its reads. */
void shunti_reads_end(struct shunt_request *request);

#endif
