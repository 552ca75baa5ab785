// SPDX-License-Identifier: Apache-2.0
/* Reading a peer's plain memory; see read.h. */
#include "src/op/read.h"

#include "src/base/inline.h"
#include "src/comm.h"
#include "src/op/request.h"
#include "src/trace/trace.h"
#include "src/wire/pair_costs.h"
#include "src/wire/reclaim.h"
#include "src/wire/wire.h"

/* Bytes of a piece: so large that few calls are needed, and so small that one
 * call of the kernel does not hold a rank for long. */
#define PIECE ((size_t)4 << 20)

static enum shunt_status begin(struct shunt_request *request, int peer,
                               struct shunti_read *read, uint64_t address,
                               void *to, size_t bytes)
{
    const size_t rest = bytes - read->done;
    const struct shunt_transport_get get = {
        .address = address + read->done,
        .local = (unsigned char *)to + read->done,
        .bytes = rest < PIECE ? rest : PIECE,
        .status = &read->status,
    };
    enum shunt_status st;

    read->begun_ns = shunti_now_ns();
    read->status = SHUNT_OK;
    st = shunti_get(request->comm, peer, &get);
    if (st == SHUNT_IN_PROGRESS)
        return st;
    read->piece = (uint32_t)get.bytes;
    read->peer = peer;
    if (st)
        read->status = st;
    read->late = read->status == SHUNT_IN_PROGRESS;
    if (read->late) {
        read->next = request->reads;
        request->reads = read;
    }
    return read->status;
}

static void unlist(struct shunt_request *request,
                   const struct shunti_read *read)
{
    struct shunti_read **at = &request->reads;

    while (*at && *at != read)
        at = &(*at)->next;
    if (*at)
        *at = read->next;
}

/* Finish a piece that has ended, with or without an error. */
static void end(struct shunt_request *request, struct shunti_read *read,
                size_t whole)
{
    unlist(request, read);
    if (!read->status) {
        shunti_pair_costs_was_read(request->comm, read->peer, whole,
                                   read->piece,
                                   shunti_now_ns() - read->begun_ns);
        read->done += read->piece;
        request->comm->stats.bytes_read += read->piece;
    }
    read->piece = 0;
}

SHUNTI_NOINLINE enum shunt_status shunti_read_run(struct shunt_request *request,
                                                  int peer,
                                                  struct shunti_read *read,
                                                  uint64_t address, void *to,
                                                  size_t bytes, size_t whole)
{
    while (read->done < bytes) {
        enum shunt_status st =
            read->piece ? read->status
                        : begin(request, peer, read, address, to, bytes);

        if (st == SHUNT_IN_PROGRESS)
            return st;
        end(request, read, whole);
        if (st)
            return st;
    }
    return SHUNT_OK;
}

SHUNTI_NOINLINE bool shunti_read_stop(struct shunt_request *request,
                                      struct shunti_read *read)
{
    if (read->piece && read->status == SHUNT_IN_PROGRESS)
        return false;
    unlist(request, read);
    read->piece = 0;
    return true;
}

SHUNTI_NOINLINE void shunti_reads_end(struct shunt_request *request)
{
    const uint64_t deadline = shunti_reclaim_deadline();

    for (; request->reads; request->reads = request->reads->next)
        if (request->reads->status == SHUNT_IN_PROGRESS)
            shunti_reclaim(request->comm, request->reads->peer, deadline);
}
