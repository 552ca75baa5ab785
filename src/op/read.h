// SPDX-License-Identifier: Apache-2.0
/*
 * Reading a peer's plain memory, by its transport, in pieces. A piece may end
 * after the call that begins it.
 *
 * A read belongs to a request. If the request ends before the read, as after a
 * failure, the read is ended first, because the caller then uses the memory
 * again.
 */
#ifndef SHUNTI_READ_H
#define SHUNTI_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/status.h>

struct shunt_request;

/* A read. Zeroed before the first call. It must live until shunti_read_run()
 * returns a status other than SHUNT_IN_PROGRESS, or until its request ends. */
struct shunti_read {
    size_t done;    /* bytes read; set to 0 to read another block */
    uint32_t piece; /* bytes under way; 0: none */
    bool late;      /* the last piece ended after the call that began it */
    uint64_t begun_ns;
    enum shunt_status status; /* status of the piece */
    int peer;                 /* the peer that the piece is read from */
    /* next in the request's list of reads under way */
    struct shunti_read *next;
};

/*
 * Continue to read the `bytes` at the peer's `address` into `to`. SHUNT_OK: all
 * bytes are read; further calls return SHUNT_OK, too. SHUNT_IN_PROGRESS: call
 * again. Any other status is an error, which the caller handles; the content of
 * `to` is then unspecified.
 *
 * whole  bytes of the block that these bytes are a part of; for pair_costs.h
 */
enum shunt_status shunti_read_run(struct shunt_request *request, int peer,
                                  struct shunti_read *read, uint64_t address,
                                  void *to, size_t bytes, size_t whole);

/* Begin no more pieces of `read`. True: no piece is under way any more. */
bool shunti_read_stop(struct shunt_request *request, struct shunti_read *read);

/* End the reads of a request that ends because the communicator has failed. */
void shunti_reads_end(struct shunt_request *request);

#endif
