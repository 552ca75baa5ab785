// SPDX-License-Identifier: Apache-2.0
/*
 * Broadcast: where all memory is mapped, a star (star.h). Otherwise an exchange
 * in which only the root has a block, the same for every peer. The other ranks
 * copy it from the root concurrently. The other pairs still exchange empty
 * control messages: without them, ranks that disagree about the root would wait
 * for each other.
 *
 * Between nodes it runs in two levels. The root sends its block to its rail
 * peers, one on each other node. The root and these rail peers forward it to
 * their local peers.
 */
#include "collectives/coll_call.h"
#include "collectives/exchange.h"
#include "collectives/select.h"
#include "collectives/star.h"
#include "collectives/two_level.h"
#include "src/base/inline.h"
#include "src/base/kind.h"
#include "src/base/limits.h"
#include "src/boot/bootstrap.h"
#include "src/comm.h"
#include "src/wire/nodes.h"

static const struct shunti_kind kind = {
    .number = SHUNTI_KIND_BROADCAST,
    .name = "broadcast",
    .detail = SHUNTI_DETAIL_ROOT,
    .typed = true,
};

__attribute__((constructor)) static void register_kind(void)
{
    shunti_kind_register(&kind);
}

_Static_assert(SHUNTI_RANKS_MAX <= SHUNTI_TWO_LEVEL, "a root is below the bit");

/* Checked arguments. */
struct arguments {
    void *buffer;
    size_t count, bytes;
    enum shunt_dtype dtype;
    int root;
};

static const struct shunti_class broadcast_class = {
    .name = "broadcast",
    .algorithm = "flat",
    .step = shunti_exchange_step,
    .awaits = shunti_exchange_awaits,
    .sent = shunti_exchange_sent,
};

static enum shunt_status check(const struct shunti_coll *call,
                               struct arguments *a)
{
    enum shunt_status st = shunti_check_dtype(call, a->dtype, 0);

    if (!st)
        st = shunti_check_count(call, a->count, 1, a->dtype, &a->bytes);
    if (!st)
        st = shunti_check_buffer(call, "buffer", a->buffer, a->bytes);
    if (!st && (a->root < 0 || a->root >= call->comm->nranks))
        st =
            shunti_coll_refuse(call, "root %d is not a rank: ranks are 0 to %d",
                               a->root, call->comm->nranks - 1);
    return st;
}

static enum shunt_status flat(const struct shunti_coll *call,
                              uint32_t signature, const struct arguments *a,
                              struct shunt_request **request)
{
    const struct shunt_comm *comm = call->comm;
    struct shunti_exchange *x;
    enum shunt_status st =
        shunti_exchange_create(call, &broadcast_class, signature, request, &x);

    if (st)
        return st;
    if (comm->rank != a->root) {
        x->peers[a->root].recv = a->buffer;
        x->peers[a->root].recv_bytes = a->bytes;
        return SHUNT_OK;
    }
    for (int r = 0; r < comm->nranks; r++) {
        x->peers[r].send = a->buffer;
        x->peers[r].send_bytes = a->bytes;
    }
    return SHUNT_OK;
}

/* --- in two levels -------------------------------------------------------- */

static const struct shunti_class two_level_class = {
    .name = "broadcast",
    .algorithm = "two_level",
    .step = shunti_two_level_step,
    .awaits = shunti_two_level_awaits,
    .sent = shunti_two_level_sent,
    .received = shunti_two_level_received,
    .must_send = shunti_two_level_must_send,
    .cleanup = shunti_two_level_cleanup,
};

static const struct shunti_two_level_hooks hooks = {0};

/* True if `from` sends the block to `to`. The root sends it to its rail peers.
 * The root and its rail peers send it to their local peers. */
static bool gives(const struct shunt_comm *comm, int root, int from, int to)
{
    const int node = comm->peers[from].node;

    if (shunti_rail(comm, root, node) != from)
        return false;
    return comm->peers[to].node == node ||
           (from == root &&
            shunti_rail(comm, root, comm->peers[to].node) == to);
}

SHUNTI_NOINLINE static enum shunt_status
two_level(const struct shunti_coll *call, uint32_t signature,
          const struct arguments *a, struct shunt_request **request)
{
    const struct shunt_comm *comm = call->comm;
    struct shunti_two_level *x;
    enum shunt_status st =
        shunti_two_level_create(call, &two_level_class, &hooks, signature,
                                SHUNTI_RAILS_FIRST, 0, request, &x);

    if (st)
        return st;
    x->agreed = true;
    x->argument = a->bytes;
    for (int i = 0; i < x->npeers; i++) {
        struct shunti_peer_state *peer_state = &x->peer_states[x->order[i]];

        if (gives(comm, a->root, comm->rank, x->order[i])) {
            peer_state->out[SHUNTI_PACKAGE].data = a->buffer;
            peer_state->out[SHUNTI_PACKAGE].bytes = peer_state->payload =
                a->bytes;
        }
        if (gives(comm, a->root, x->order[i], comm->rank)) {
            peer_state->in[SHUNTI_PACKAGE].to = a->buffer;
            peer_state->in[SHUNTI_PACKAGE].bytes = a->bytes;
        }
    }
    return SHUNT_OK;
}

/* --- the call ------------------------------------------------------------- */

static enum shunt_status begin(const struct shunti_coll *call,
                               uint32_t signature, const struct arguments *a,
                               struct shunt_request **request)
{
    switch (shunti_select(call->comm, SHUNTI_KIND_BROADCAST, a->bytes)) {
    case SHUNTI_STAR:
        return shunti_star_create(call, signature,
                                  &(struct shunti_star){.root = a->root,
                                                        .buffer = a->buffer,
                                                        .bytes = a->bytes},
                                  request);
    case SHUNTI_FLAT:
        return flat(call, signature, a, request);
    default:
        return two_level(call, signature, a, request);
    }
}

static enum shunt_status broadcast(const struct shunti_coll *call,
                                   struct arguments *a)
{
    struct shunt_request *request;
    enum shunt_status st = check(call, a);

    if (!st)
        st = begin(call, SHUNTI_SIGNATURE(call->kind, a->dtype, 0, a->root), a,
                   &request);
    return st ? st : shunti_coll_launch(call, request);
}

static enum shunt_status run(const struct shunti_coll *call,
                             struct arguments *a)
{
    enum shunt_status st = shunti_coll_enter(call);

    return st ? st : shunti_coll_leave(call, broadcast(call, a));
}

SHUNTI_FLATTEN enum shunt_status shunt_broadcast(struct shunt_comm *comm,
                                                 void *buffer, size_t count,
                                                 enum shunt_dtype dtype,
                                                 int root)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_BROADCAST, false, NULL,
                                     &shunti_no_options},
               &(struct arguments){buffer, count, 0, dtype, root});
}

enum shunt_status shunt_broadcast_start(struct shunt_comm *comm, void *buffer,
                                        size_t count, enum shunt_dtype dtype,
                                        int root,
                                        struct shunt_request **request)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_BROADCAST, true, request,
                                     &shunti_no_options},
               &(struct arguments){buffer, count, 0, dtype, root});
}
