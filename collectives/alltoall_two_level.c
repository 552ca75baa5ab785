// SPDX-License-Identifier: Apache-2.0
/*
 * All-to-all in two levels (Hwang et al., "Tutel: Adaptive Mixture-of-Experts
 * at Scale", 2022, section 3.4: 2DH; here with arbitrary counts).
 *
 * Every rank d has a *relay* in each other node n: the rank of n whose local
 * index is that of d modulo the ranks of n. A rank with a small block for d
 * sends the block to the relay in its own node. The relay sends the blocks of
 * all its local peers for d in one message. So between two nodes there is one
 * message for each destination, not one for each pair of ranks.
 *
 * A block of more than `limit` bytes is sent directly from its source to its
 * destination, at once: one more message costs less than copying the block
 * twice. Source and destination both know the block's size, and so the way in
 * which it is sent. No other rank needs to know that.
 *
 *     package to local peer c:  entries for c itself and for every rank whose
 *                               relay c is (nodes ascending, then local index)
 *     package to rail peer d:   entries of all ranks of the relay's node for d,
 *                               by local index
 *
 * The entries are followed by the blocks that are in the package, in the same
 * order. An entry says how many bytes its source has for its destination, and
 * how many it expects from that destination. So source and destination notice
 * if they disagree. Other ranks do not.
 */
#include <stdint.h>
#include <string.h>

#include "collectives/alltoall.h"
#include "collectives/carry.h"
#include "collectives/two_level.h"
#include "src/base/inline.h"
#include "src/base/kind.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/op/payload_protocol.h"
#include "src/trace/track.h"
#include "src/wire/failure.h"
#include "src/wire/nodes.h"

struct entry {
    uint64_t bytes, expects;
};

struct pair {
    const unsigned char *send;
    size_t send_bytes;
    unsigned char *recv;
    size_t recv_bytes;
};

struct state {
    size_t limit; /* larger blocks are sent directly */
    void *input;  /* copy of the caller's input, released at the end; or NULL */
    void *owned;  /* packages of the second phase, released at the end; or
                     NULL */
    /* For each local peer: the first entry in its package that has not been
     * forwarded yet, and the block of that entry. */
    const unsigned char **entry;  /* (nranks) */
    const unsigned char **cursor; /* (nranks) */
    struct pair pairs[];          /* (nranks) */
};

static struct state *state_of(const struct shunt_request *request)
{
    return shunti_two_level_of(request)->own;
}

static int relay(const struct shunt_comm *comm, int dest, int node)
{
    return shunti_rail(comm, dest, node);
}

/* True if a block of `bytes` is sent directly: between nodes if it has more
 * than s->limit bytes, inside a node if it has more than SHUNTI_WINDOW_MIN
 * bytes. */
static bool is_direct(const struct shunt_comm *comm, const struct state *s,
                      int peer, size_t bytes)
{
    if (comm->peers[peer].node == comm->node)
        return bytes > SHUNTI_WINDOW_MIN;
    return bytes > s->limit;
}

/* --- packages ------------------------------------------------------------- */

/* Iterates over `c`, a rank of this node, and then over the ranks whose relay
 * `c` is. next_dest() returns -1 at the end. `at` keeps the position between
 * calls and starts as {0}. */
struct place {
    bool begun;
    int node, local;
};

static int next_dest(const struct shunt_comm *comm, int c, struct place *at)
{
    if (!at->begun) {
        *at = (struct place){true, 0, -1};
        return c;
    }
    for (; at->node < comm->nodes; at->node++, at->local = -1) {
        if (at->node == comm->node)
            continue;
        while (++at->local < shunti_node_size(comm, at->node)) {
            int d = shunti_node_ranks(comm, at->node)[at->local];

            if (relay(comm, d, comm->node) == c)
                return d;
        }
    }
    return -1;
}

/* Write this rank's block for `peer` to `to`, if it is sent in a package.
 * Returns the bytes of the block. If `to` is NULL, nothing is written. */
static size_t put_small(const struct shunt_comm *comm, const struct state *s,
                        int peer, unsigned char *to)
{
    const struct pair *p = &s->pairs[peer];

    if (is_direct(comm, s, peer, p->send_bytes))
        return 0;
    if (to && p->send_bytes)
        shunti_copy_payload(to, p->send, p->send_bytes);
    return p->send_bytes;
}

/* Write the package for local peer `c` to `to`, and return the bytes of the
 * package. If `to` is NULL, nothing is written. *payload: bytes of the caller's
 * data in the package. */
static size_t pack_for_local(const struct shunt_comm *comm,
                             const struct state *s, int c, unsigned char *to,
                             size_t *payload)
{
    struct place at = {0};
    size_t entries = 0, blocks = 0, head;
    int d;

    while ((d = next_dest(comm, c, &at)) >= 0)
        entries++;
    head = entries * sizeof(struct entry);
    at = (struct place){0};
    for (size_t i = 0; (d = next_dest(comm, c, &at)) >= 0; i++) {
        struct entry e = {s->pairs[d].send_bytes, s->pairs[d].recv_bytes};

        if (to)
            memcpy(to + i * sizeof(e), &e, sizeof(e));
        blocks += put_small(comm, s, d, to ? to + head + blocks : NULL);
    }
    *payload = blocks;
    return head + blocks;
}

/* Return the entry of local rank `i` for `dest`, a rank of another node. The
 * entry is the next one in the package of `i`. If the package contains the
 * block of that entry, copy the block to `to`, and set *bytes to its size. */
static struct entry take_small(const struct shunt_comm *comm, struct state *s,
                               int i, int dest, unsigned char *to,
                               size_t *bytes)
{
    struct entry e = {s->pairs[dest].send_bytes, s->pairs[dest].recv_bytes};

    if (i == comm->rank) {
        *bytes = put_small(comm, s, dest, to);
        return e;
    }
    memcpy(&e, s->entry[i], sizeof(e));
    s->entry[i] += sizeof(e);
    *bytes = e.bytes > s->limit ? 0 : e.bytes;
    if (*bytes)
        shunti_copy_payload(to, s->cursor[i], *bytes);
    s->cursor[i] += *bytes;
    return e;
}

/* Write the package for rail peer `dest`, from this rank's blocks and its local
 * peers' packages. Returns the bytes of the package. *payload: bytes of the
 * blocks in the package. */
static size_t pack_for_rail(const struct shunt_comm *comm, struct state *s,
                            int dest, unsigned char *to, size_t *payload)
{
    const int *local_peers = shunti_node_ranks(comm, comm->node);
    const size_t head = (size_t)comm->local_size * sizeof(struct entry);
    size_t blocks = 0, bytes;

    for (int i = 0; i < comm->local_size; i++) {
        struct entry e = take_small(comm, s, local_peers[i], dest,
                                    to + head + blocks, &bytes);

        memcpy(to + (size_t)i * sizeof(e), &e, sizeof(e));
        blocks += bytes;
    }
    *payload = blocks;
    return head + blocks;
}

/* --- packages that have arrived ------------------------------------------- */

/* Compare the entry of `from` with this rank's own counts. If they disagree,
 * record the error and drop the block of that direction. Returns true if the
 * block of `from` is as this rank expects. */
static bool judge(struct shunt_request *request, int from, struct entry e)
{
    const struct pair *p = &state_of(request)->pairs[from];

    if (e.bytes != p->recv_bytes) {
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "%s: rank %d sent %llu B, this rank expected "
                             "%zu B",
                             shunti_request_name(request), from,
                             (unsigned long long)e.bytes, p->recv_bytes);
        shunti_two_level_drop_in(request, from);
    }
    if (e.expects != p->send_bytes) {
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "%s: this rank sent %zu B to rank %d, which "
                             "expected %llu B",
                             shunti_request_name(request), p->send_bytes, from,
                             (unsigned long long)e.expects);
        shunti_two_level_drop_out(request, from);
    }
    return e.bytes == p->recv_bytes;
}

/* Copy the small block of `from` for this rank, which is at `at`. Returns its
 * bytes. */
static size_t deliver(struct shunt_request *request, int from, struct entry e,
                      const unsigned char *at)
{
    const struct shunt_comm *comm = request->comm;
    const struct state *s = state_of(request);
    const struct pair *p = &s->pairs[from];
    bool well = judge(request, from, e);

    if (is_direct(comm, s, from, e.bytes))
        return 0;
    if (well && e.bytes)
        shunti_copy_payload(p->recv, at, e.bytes);
    return e.bytes;
}

/* True if the package is as long as its entries say. The first entry of a local
 * peer's package is for this rank itself, and has the limit of blocks inside a
 * node. */
static bool is_whole(const struct state *s, const struct shunti_incoming *in,
                     size_t entries, bool from_local)
{
    size_t left = in->bytes;

    if (left < entries * sizeof(struct entry))
        return false;
    left -= entries * sizeof(struct entry);
    for (size_t i = 0; i < entries; i++) {
        struct entry e;

        memcpy(&e, in->at + i * sizeof(e), sizeof(e));
        if (e.bytes > (from_local && i == 0 ? SHUNTI_WINDOW_MIN : s->limit))
            continue; /* it is sent directly */
        if (e.bytes > left)
            return false;
        left -= e.bytes;
    }
    return !left;
}

/* The number of ranks whose relay this rank is, plus 1 for this rank itself. */
static size_t entries_for_us(const struct shunt_comm *comm)
{
    struct place place = {0};
    size_t entries = 0;

    while (next_dest(comm, comm->rank, &place) >= 0)
        entries++;
    return entries;
}

static void arrived_from_local(struct shunt_request *request, int local_peer,
                               const unsigned char *at)
{
    const struct shunt_comm *comm = request->comm;
    struct state *s = state_of(request);
    const size_t entries = entries_for_us(comm);
    struct entry e;

    memcpy(&e, at, sizeof(e));
    s->entry[local_peer] = at + sizeof(e);
    at += entries * sizeof(e);
    s->cursor[local_peer] = at + deliver(request, local_peer, e, at);
}

static void arrived_from_rail(struct shunt_request *request, int rail_peer,
                              const unsigned char *at)
{
    const struct shunt_comm *comm = request->comm;
    const int node = comm->peers[rail_peer].node;
    const int *sources = shunti_node_ranks(comm, node);
    const int size = shunti_node_size(comm, node);
    const unsigned char *blocks = at + (size_t)size * sizeof(struct entry);

    for (int i = 0; i < size; i++) {
        struct entry e;

        memcpy(&e, at + (size_t)i * sizeof(e), sizeof(e));
        blocks += deliver(request, sources[i], e, blocks);
    }
}

static bool arrived(struct shunt_request *request, struct shunti_two_level *x,
                    int peer)
{
    const struct shunt_comm *comm = request->comm;
    const int node = comm->peers[peer].node;
    const struct shunti_incoming *in = &x->peer_states[peer].in[SHUNTI_PACKAGE];

    if (node == comm->node) {
        if (!is_whole(x->own, in, entries_for_us(comm), true))
            return false;
        arrived_from_local(request, peer, in->at);
    } else if (relay(comm, comm->rank, node) == peer) {
        if (!is_whole(x->own, in, (size_t)shunti_node_size(comm, node), false))
            return false;
        arrived_from_rail(request, peer, in->at);
    }
    return true;
}

/* --- the two phases ------------------------------------------------------- */

static size_t aligned(size_t bytes)
{
    return (bytes + 15) & ~(size_t)15;
}

/* Allocate memory for packages, which is released with the operation. */
static unsigned char *make_room(struct shunt_request *request, void **owned,
                                size_t bytes)
{
    *owned = shunti_scratch_get(bytes);
    if (!*owned)
        shunti_comm_fail(request->comm, SHUNT_ERR_MEMORY, request->comm->rank,
                         "%s: no memory for %zu bytes",
                         shunti_request_name(request), bytes);
    return *owned;
}

/* The maximum size of a package with this many entries. */
static size_t most_bytes(size_t entries, size_t limit)
{
    size_t bytes;

    return __builtin_mul_overflow(entries, limit + sizeof(struct entry),
                                  &bytes) ||
                   bytes > PTRDIFF_MAX
               ? PTRDIFF_MAX
               : bytes;
}

static void expect(struct shunti_two_level *x, const struct shunt_comm *comm)
{
    const struct state *s = x->own;
    const size_t limit =
        s->limit > SHUNTI_WINDOW_MIN ? s->limit : SHUNTI_WINDOW_MIN;
    const size_t from_local = most_bytes(entries_for_us(comm), limit);

    x->varies = true;
    for (int i = 0; i < x->npeers; i++) {
        const int peer = x->order[i], node = comm->peers[peer].node;
        struct shunti_incoming *in = &x->peer_states[peer].in[SHUNTI_PACKAGE];

        if (node == comm->node)
            in->bytes = from_local;
        else if (relay(comm, comm->rank, node) == peer)
            in->bytes = most_bytes((size_t)shunti_node_size(comm, node), limit);
    }
}

/* The first phase: make the packages for local peers. */
static void pack_first(struct shunt_request *request,
                       struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    const int *local_peers = shunti_node_ranks(comm, comm->node);
    struct state *s = x->own;
    size_t total = 0, payload;
    unsigned char *to;

    for (int i = 0; i < comm->local_size; i++)
        if (local_peers[i] != comm->rank)
            total += aligned(
                pack_for_local(comm, s, local_peers[i], NULL, &payload));
    to = make_room(request, &x->owned, total);
    for (int i = 0; i < comm->local_size && to; i++) {
        struct shunti_peer_state *peer_state = &x->peer_states[local_peers[i]];
        struct shunti_outgoing *out = &peer_state->out[SHUNTI_PACKAGE];

        if (local_peers[i] == comm->rank)
            continue;
        out->data = to;
        out->bytes =
            pack_for_local(comm, s, local_peers[i], to, &peer_state->payload);
        to += aligned(out->bytes);
    }
}

/* An upper bound of the total bytes of this rank's packages for its rail
 * peers. */
static size_t bound_second(const struct shunt_request *request,
                           const struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    const struct state *s = x->own;
    struct place at = {0};
    size_t total = 0;
    int d;

    for (int i = 0; i < comm->local_size; i++) {
        int local_peer = shunti_node_ranks(comm, comm->node)[i];

        total += x->peer_states[local_peer].in[SHUNTI_PACKAGE].bytes;
    }
    while ((d = next_dest(comm, comm->rank, &at)) >= 0)
        total += sizeof(struct entry) + 15 + put_small(comm, s, d, NULL);
    return total;
}

/* The second phase: make the packages for rail peers, in the order in which
 * their entries are in the local peers' packages. */
static void pack_second(struct shunt_request *request,
                        struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    struct state *s = x->own;
    struct place at = {0};
    unsigned char *to = make_room(request, &s->owned, bound_second(request, x));
    int d;

    (void)next_dest(comm, comm->rank, &at);
    while (to && (d = next_dest(comm, comm->rank, &at)) >= 0) {
        struct shunti_peer_state *peer_state = &x->peer_states[d];
        struct shunti_outgoing *out = &peer_state->out[SHUNTI_PACKAGE];

        out->data = to;
        out->bytes = pack_for_rail(comm, s, d, to, &peer_state->payload);
        to += aligned(out->bytes);
    }
}

static void finish(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct state *s = x->own;
    const struct pair *own = &s->pairs[request->comm->rank];

    if (own->recv_bytes && own->recv != own->send)
        shunti_copy_payload(own->recv, own->send, own->recv_bytes);
}

static const struct shunti_two_level_hooks hooks = {
    .arrived = arrived,
    .turn = pack_second,
    .finish = finish,
};

static void cleanup(struct shunt_request *request)
{
    struct state *s = state_of(request);

    shunti_scratch_put(request->comm, s->owned);
    shunti_scratch_put(request->comm, s->input);
    shunti_two_level_cleanup(request);
}

static const struct shunti_class alltoall_class = {
    .name = "alltoall",
    .algorithm = "two_level",
    .step = shunti_two_level_step,
    .awaits = shunti_two_level_awaits,
    .sent = shunti_two_level_sent,
    .received = shunti_two_level_received,
    .must_send = shunti_two_level_must_send,
    .cleanup = cleanup,
};

static const struct shunti_class alltoallv_class = {
    .name = "alltoallv",
    .algorithm = "two_level",
    .step = shunti_two_level_step,
    .awaits = shunti_two_level_awaits,
    .sent = shunti_two_level_sent,
    .received = shunti_two_level_received,
    .must_send = shunti_two_level_must_send,
    .cleanup = cleanup,
};

/* --- the call ------------------------------------------------------------- */

static void fill_pairs(struct state *s, int nranks,
                       const struct shunti_alltoall *a)
{
    size_t sent = 0, received = 0, at;

    for (int r = 0; r < nranks; r++) {
        struct pair *p = &s->pairs[r];

        shunti_block_at(&a->send_blocks, r, &at, &p->send_bytes, &sent);
        p->send = p->send_bytes ? a->send + at : NULL;
        shunti_block_at(&a->recv_blocks, r, &at, &p->recv_bytes, &received);
        p->recv = p->recv_bytes ? a->recv + at : NULL;
    }
}

static void add_block(struct shunt_request *request, const struct state *s,
                      int r)
{
    const struct shunt_comm *comm = request->comm;
    const struct pair *p = &s->pairs[r];

    if (is_direct(comm, s, r, p->send_bytes))
        shunti_two_level_send_block(request, r, p->send, p->send_bytes);
    if (is_direct(comm, s, r, p->recv_bytes))
        shunti_two_level_recv_block(request, r, p->recv, p->recv_bytes);
}

/* Add the directly sent blocks in an order that uses all links: node after
 * node. In each node, this rank chooses another rank than its local peers do at
 * the same time. So no rank is the target of all of them. */
static void add_large(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    const struct state *s = x->own;
    int left = comm->nranks;

    for (int round = 0; left; round++) {
        for (int n = 1; n <= comm->nodes; n++) {
            int node = (comm->node + n) % comm->nodes, r;

            if (round >= shunti_node_size(comm, node))
                continue;
            r = shunti_nth_of_node(comm, node, round);
            left--;
            if (r != comm->rank)
                add_block(request, s, r);
        }
    }
}

SHUNTI_NOINLINE enum shunt_status
shunti_alltoall_two_level(const struct shunti_coll *call, uint32_t signature,
                          const struct shunti_alltoall *a,
                          struct shunt_request **request)
{
    struct shunt_comm *comm = call->comm;
    const size_t n = (size_t)comm->nranks;
    struct shunti_two_level *x;
    struct state *s;
    enum shunt_status st = shunti_two_level_create(
        call,
        signature >> 24 == SHUNTI_KIND_ALLTOALLV ? &alltoallv_class
                                                 : &alltoall_class,
        &hooks, signature, SHUNTI_LOCALS_FIRST,
        sizeof(*s) + n * (sizeof(s->pairs[0]) + 2 * sizeof(*s->entry)), request,
        &x);

    if (st)
        return st;
    s = x->own;
    s->limit = shunti_carry_limit(comm);
    s->entry = (const unsigned char **)(void *)(s->pairs + n);
    s->cursor = s->entry + n;
    s->input = a->owned;
    fill_pairs(s, comm->nranks, a);
    expect(x, comm);
    add_large(*request, x);
    pack_first(*request, x);
    return SHUNT_OK;
}
