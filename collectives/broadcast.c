// SPDX-License-Identifier: Apache-2.0
/*
 * Broadcast: an exchange in which only the root has a block, the same for
 * everyone; the others pull it from there all at once. Every pair's empty note
 * is kept: without it, ranks that disagree about the root would wait for each
 * other.
 */
#include "coll_call.h"
#include "comm.h"
#include "exchange.h"

static const struct shunti_class broadcast_class = {
    .name = "broadcast",
    .step = shunti_exchange_step,
    .awaits = shunti_exchange_awaits,
};

struct arguments {
    void *buffer;
    size_t count;
    enum shunt_dtype dtype;
    int root;
};

static enum shunt_status check(const struct shunti_coll *call,
                               const struct arguments *a, size_t *bytes)
{
    enum shunt_status st = shunti_check_dtype(call, a->dtype, 0);

    if (!st)
        st = shunti_check_count(call, a->count, 1, a->dtype, bytes);
    if (!st)
        st = shunti_check_buffer(call, "buffer", a->buffer, *bytes);
    if (!st && (a->root < 0 || a->root >= call->comm->nranks))
        st = shunti_coll_refuse(call, "root %d is no rank of %d", a->root,
                                call->comm->nranks);
    return st;
}

static enum shunt_status broadcast(const struct shunti_coll *call,
                                   const struct arguments *a)
{
    struct shunt_comm *comm = call->comm;
    struct shunt_request *request;
    struct shunti_exchange *x;
    enum shunt_status st;
    size_t bytes;

    st = check(call, a, &bytes);
    if (st)
        return st;
    st = shunti_exchange_create(
        comm, &broadcast_class,
        SHUNTI_SIGNATURE(call->kind, a->dtype, 0, a->root), &request, &x);
    if (st)
        return st;
    if (comm->rank != a->root) {
        x->peers[a->root].recv = a->buffer;
        x->peers[a->root].recv_bytes = bytes;
    } else {
        for (int r = 0; r < comm->nranks; r++) {
            x->peers[r].send = a->buffer;
            x->peers[r].send_bytes = bytes;
        }
    }
    return shunti_coll_launch(call, request);
}

static enum shunt_status run(const struct shunti_coll *call,
                             const struct arguments *a)
{
    enum shunt_status st = shunti_coll_enter(call);

    return st ? st : shunti_coll_leave(call, broadcast(call, a));
}

enum shunt_status shunt_broadcast(struct shunt_comm *comm, void *buffer,
                                  size_t count, enum shunt_dtype dtype,
                                  int root)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_BROADCAST, false, NULL},
               &(struct arguments){buffer, count, dtype, root});
}

enum shunt_status shunt_broadcast_start(struct shunt_comm *comm, void *buffer,
                                        size_t count, enum shunt_dtype dtype,
                                        int root,
                                        struct shunt_request **request)
{
    return run(
        &(struct shunti_coll){comm, SHUNTI_KIND_BROADCAST, true, request},
        &(struct arguments){buffer, count, dtype, root});
}
