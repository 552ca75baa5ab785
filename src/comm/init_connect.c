// SPDX-License-Identifier: Apache-2.0
/*
 * Rounds 2 and 3 of the making of a communicator. The ranks exchange the
 * addresses of their transports. Each pair connects by the first transport, in
 * rank 0's order, that both ranks have and that reaches the peer. Then all
 * ranks compare which peers they reached.
 *
 * Transports that stay on a host are tried first. A transport to other hosts
 * opens ports and loads large libraries. So the rounds are repeated with the
 * next transport only if a pair is not connected yet. A transport that reached
 * no rank is closed again.
 */
#include "src/comm/init_rounds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/log.h"

#define NOT_REACHED 0xff
/* The root sends a failure to all ranks at the same time; wait this long for
 * the failure to arrive. */
#define FAILURE_SECONDS 0.1

/* The address of a transport; or the reason why the sender lacks the
 * transport. */
struct address {
    char transport[32];
    uint64_t len; /* 0: the transport is not available */
    union {
        unsigned char blob[SHUNT_TRANSPORT_ADDRESS_MAX];
        char why[SHUNT_TRANSPORT_ADDRESS_MAX];
    };
};

/* A range of rank 0's list of transports, which are tried together. */
struct stage {
    uint32_t begin, end;
};

/* The state of the connection to a peer. */
struct shunti_connecting {
    uint32_t next; /* next transport to try, in rank 0's list */
    bool done;
    /* The first transport that maps a peer on another node. It is used if no
     * better one reaches the peer. */
    struct shunti_context *last_resort;
    struct shunt_transport_ep *last_ep;
};

/* This rank's context of the transport `name`, or -1. */
static int context_by_name(const struct shunt_comm *comm, const char *name)
{
    size_t i;

    for (i = 0; i < comm->contexts.count; i++)
        if (!strcmp(comm->contexts.all[i].transport->name, name))
            return (int)i;
    return -1;
}

static struct shunti_candidate *candidate_by_name(struct shunti_init *init,
                                                  const char *name)
{
    size_t i;

    for (i = 0; i < init->candidates.count; i++)
        if (!strcmp(init->candidates.item[i].name, name))
            return &init->candidates.item[i];
    return NULL;
}

/* Is this the only candidate that reaches other hosts? */
static bool only_far(const struct shunti_init *init,
                     const struct shunti_candidate *candidate)
{
    for (size_t i = 0; i < init->candidates.count; i++)
        if (init->candidates.item[i].far &&
            &init->candidates.item[i] != candidate)
            return false;
    return candidate->far;
}

static int unreached(const struct shunti_init *init)
{
    int r, n = 0;

    for (r = 0; r < init->comm->nranks; r++)
        n += r != init->comm->rank && !init->connections[r].done;
    return n;
}

/* Does the list have a later candidate that reaches other hosts? */
static bool has_successor(const struct shunti_init *init,
                          const struct shunti_candidate *candidate)
{
    const struct shunti_candidate *end =
        init->candidates.item + init->candidates.count;

    for (const struct shunti_candidate *c = candidate + 1; c < end; c++)
        if (c->far)
            return true;
    return false;
}

/* Can ranks do without this transport, which does not work here? Not if a
 * setting of the user is wrong (SHUNT_ERR_INVALID). */
static bool is_dispensable(const struct shunti_init *init,
                           const struct shunti_candidate *candidate,
                           enum shunt_status st)
{
    if (!candidate->far || st == SHUNT_ERR_INVALID)
        return false;
    return !candidate->wanted ||
           (st == SHUNT_ERR_UNSUPPORTED && has_successor(init, candidate));
}

/*
 * Open a transport, if it is installed, and get its address. A transport to
 * other hosts need not work here in two cases: the user did not ask for it, or
 * a later transport reaches other hosts, too. (Hosts may have different NICs.)
 * Then `a` says why it does not work.
 */
static enum shunt_status open_context(struct shunti_init *init,
                                      const char *name, struct address *a)
{
    struct shunt_comm *comm = init->comm;
    struct shunti_candidate *candidate = candidate_by_name(init, name);
    struct shunti_context *c = &comm->contexts.all[comm->contexts.count];
    struct shunt_transport_params params = {
        .host = shunti_transport_host(),
        .rank = comm->rank,
        .nranks = comm->nranks,
        .unreached = unreached(init),
        .one_host = comm->node_map.one_host,
    };
    size_t len = sizeof(a->blob);
    enum shunt_status st;

    snprintf(a->transport, sizeof(a->transport), "%.31s", name);
    if (!candidate) {
        snprintf(a->why, sizeof(a->why), "it is not there, or not to be used");
        return SHUNT_OK;
    }
    memcpy(params.secret, comm->secret, sizeof(params.secret));
    params.options = candidate->options;
    params.asked_for = candidate->wanted || only_far(init, candidate);
    st = shunti_candidate_load(candidate, a->why, sizeof(a->why));
    if (!st) {
        c->transport = candidate->transport;
        st = c->transport->open(&params, &c->ctx, a->why, sizeof(a->why));
    }
    explicit_bzero(&params, sizeof(params));
    if (st && is_dispensable(init, candidate, st)) {
        if (candidate->wanted)
            shunti_warn("comm", "transport %s does not work here: %s", name,
                        a->why);
        else
            shunti_info("comm", "transport %s: %s", name, a->why);
        return SHUNT_OK;
    }
    if (st)
        return shunti_fail(NULL, st, "open transport %s: %.450s", name, a->why);
    comm->contexts.count++;
    st = c->transport->address(c->ctx, a->blob, &len);
    if (st)
        return shunti_fail(NULL, st, "address of %s: %s", name,
                           c->transport->error(c->ctx));
    a->len = len;
    return SHUNT_OK;
}

static const struct address *find_address(const struct shunti_blobs *all,
                                          int rank, const char *name)
{
    const unsigned char *data = all->data[rank];
    size_t count = (all->len[rank] - sizeof(struct shunti_init_head)) /
                   sizeof(struct address);
    const struct address *a =
        (const struct address *)(const void *)(data +
                                               sizeof(struct shunti_init_head));
    size_t i;

    for (i = 0; i < count; i++)
        if (!strncmp(a[i].transport, name, sizeof(a[i].transport)) &&
            a[i].len <= sizeof(a[i].blob))
            return &a[i];
    return NULL;
}

static void describe_link(struct shunti_peer *p)
{
    snprintf(p->how, sizeof(p->how), "%s (%s%s)", p->transport->name,
             p->caps & SHUNT_TRANSPORT_MAP ? "map" : "put",
             p->caps & SHUNT_TRANSPORT_GET ? ", read" : "");
}

/* Record why a pair cannot use a transport. The error text has the reason if no
 * other transport connects the pair either. */
static void note_lack(struct shunti_init *init, const char *name, int rank,
                      const struct address *a)
{
    if (a && !a->len)
        snprintf(init->lacking, sizeof(init->lacking),
                 "; %s does not work on rank %d: %.300s", name,
                 shunti_init_name(init, rank), a->why);
}

/* The remedy, for the transport `name`, if a network of a host does not reach
 * the other hosts. */
static const char *network_remedy(const char *name)
{
    if (strstr(name, "ucx"))
        return "; UCX takes any network device that is up, also one that leads "
               "elsewhere: name the job's in UCX_NET_DEVICES";
    return strstr(name, "tcp")
               ? "; SHUNT_TCP_INTERFACES names the job's network interfaces"
               : "";
}

static void take_link(struct shunti_peer *p, struct shunti_context *context,
                      struct shunt_transport_ep *ep, unsigned caps)
{
    p->transport = context->transport;
    p->context = context;
    p->ep = ep;
    p->caps = caps;
    describe_link(p);
}

/*
 * Continue to connect to `peer`. SHUNT_ERR_UNSUPPORTED: no transport of this
 * stage reaches it.
 *
 * Nodes do not share memory, not even nodes that are on one host because their
 * ranks were given different names. So a transport that maps such a peer is
 * used only if no other one reaches it, and then only for puts.
 */
static enum shunt_status connect_peer(struct shunti_init *init, int peer,
                                      struct stage stage,
                                      const struct shunti_blobs *addresses,
                                      struct shunti_connecting *c)
{
    struct shunt_comm *comm = init->comm;
    struct shunti_peer *p = &comm->peers[peer];
    const struct shunti_introduction *first = shunti_introduction_of(init, 0);

    while (c->next < stage.end) {
        const char *name = first->transport[c->next];
        const struct address *ours = find_address(addresses, comm->rank, name);
        const struct address *theirs = find_address(addresses, peer, name);
        enum shunt_status st = SHUNT_ERR_UNSUPPORTED;
        int i = context_by_name(comm, name);

        if (i >= 0 && theirs && theirs->len) {
            struct shunti_context *context = &comm->contexts.all[i];

            st = context->transport->connect(context->ctx, peer, theirs->blob,
                                             (size_t)theirs->len, &p->ep);
            if (st == SHUNT_IN_PROGRESS)
                return st;
            if (!st) {
                unsigned caps = context->transport->caps(p->ep);

                if (!(caps & SHUNT_TRANSPORT_MAP) ||
                    !shunti_named_apart(init, peer, comm->rank)) {
                    take_link(p, context, p->ep, caps);
                    c->done = true;
                    return SHUNT_OK;
                }
                if (!c->last_resort) {
                    c->last_resort = context;
                    c->last_ep = p->ep;
                }
                p->ep = NULL;
                c->next++;
                continue;
            }
            shunti_debug("comm", "%s does not reach rank %d: %s", name, peer,
                         context->transport->error(context->ctx));
            if (st == SHUNT_ERR_UNSUPPORTED)
                snprintf(init->lacking, sizeof(init->lacking), "%s",
                         network_remedy(name));
            if (st != SHUNT_ERR_UNSUPPORTED)
                return shunti_fail(NULL, st, "%s to rank %d: %s", name,
                                   shunti_init_name(init, peer),
                                   context->transport->error(context->ctx));
        } else {
            note_lack(init, name, peer, theirs);
            note_lack(init, name, comm->rank, ours);
        }
        p->ep = NULL;
        c->next++;
    }
    return SHUNT_ERR_UNSUPPORTED;
}

/* Connect to the peers that this stage reaches. */
static enum shunt_status connect_stage(struct shunti_init *init,
                                       struct stage stage,
                                       const struct shunti_blobs *addresses)
{
    struct shunt_comm *comm = init->comm;
    uint64_t deadline = shunti_init_deadline(init);

    for (;;) {
        int waiting = -1, r;
        enum shunt_status st;

        for (r = 0; r < comm->nranks; r++) {
            struct shunti_connecting *c = &init->connections[r];

            if (r == comm->rank || c->done || c->next >= stage.end)
                continue;
            st = connect_peer(init, r, stage, addresses, c);
            if (st == SHUNT_IN_PROGRESS)
                waiting = r;
            else if (st && st != SHUNT_ERR_UNSUPPORTED)
                return st;
        }
        if (waiting < 0)
            return SHUNT_OK;
        if (shunti_init_is_late(init, &deadline)) {
            shunti_parent_blame(init->parent, shunti_init_name(init, waiting));
            return shunti_fail(
                NULL, SHUNT_ERR_TIMEOUT, "rank %d did not connect in %g s%s",
                shunti_init_name(init, waiting), init->timeout,
                network_remedy(
                    shunti_introduction_of(init, 0)
                        ->transport[init->connections[waiting].next]));
        }
        st = shunti_init_pause(init, &deadline);
        if (st)
            return st;
    }
}

/* Use the last resorts, after the last stage. */
static void take_last_resorts(struct shunti_init *init)
{
    int r;

    for (r = 0; r < init->comm->nranks; r++) {
        struct shunti_connecting *c = &init->connections[r];

        if (c->done || !c->last_resort)
            continue;
        take_link(&init->comm->peers[r], c->last_resort, c->last_ep,
                  c->last_resort->transport->caps(c->last_ep) &
                      SHUNT_TRANSPORT_ZCOPY);
        c->done = true;
    }
}

/* After the last stage: SHUNT_OK if every rank is reached. Otherwise the error
 * names a rank that is not. */
static enum shunt_status check_reached(struct shunti_init *init)
{
    const struct shunt_comm *comm = init->comm;
    int r;

    for (r = 0; r < comm->nranks; r++)
        if (r != comm->rank && !init->connections[r].done)
            return shunti_fail(NULL, SHUNT_ERR_UNSUPPORTED,
                               "no transport reaches rank %d (%s) from rank %d "
                               "(%s)%s; SHUNT_LOG=debug tells what was tried",
                               shunti_init_name(init, r), init->places[r].host,
                               shunti_init_name(init, comm->rank),
                               init->places[comm->rank].host, init->lacking);
    return SHUNT_OK;
}

/* check_reached(), but a peer may be out of reach because it has failed: then
 * return the reason that the root has. */
static enum shunt_status why_not_reached(struct shunti_init *init)
{
    enum shunt_status st = check_reached(init), failure = SHUNT_OK;

    if (st)
        failure = shunti_bootstrap_check(init->bootstrap, FAILURE_SECONDS);
    return failure ? failure : st;
}

/* The stage that begins at `begin` in rank 0's list: the near transports up to
 * the next far one, or that far one alone. */
static struct stage stage_at(const struct shunti_init *init, uint32_t begin)
{
    const struct shunti_introduction *first = shunti_introduction_of(init, 0);
    struct stage stage = {begin, begin};

    while (stage.end < first->candidates && !first->far[stage.end])
        stage.end++;
    stage.end += stage.end == begin && begin < first->candidates;
    return stage;
}

static enum shunt_status try_stage(struct shunti_init *init, struct stage stage)
{
    const struct shunti_introduction *first = shunti_introduction_of(init, 0);
    size_t count = stage.end - stage.begin, i;
    struct shunti_blobs all = {0};
    enum shunt_status st = SHUNT_OK;
    struct shunti_init_head *mine;
    struct address *a;
    size_t len = sizeof(*mine) + count * sizeof(*a);

    mine = calloc(1, len);
    if (!mine)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    a = (struct address *)(void *)(mine + 1);
    for (i = 0; !st && i < count; i++)
        st = open_context(init, first->transport[stage.begin + i], &a[i]);
    st = shunti_init_gather(init, mine, len, st, &all);
    if (!st) {
        st = connect_stage(init, stage, &all);
        if (!st && stage.end == first->candidates) {
            take_last_resorts(init);
            st = why_not_reached(init);
        }
        /* Peers that wait for this rank reach the next round much later. So
         * send them an error at once, unless the error is only that a peer is
         * silent. */
        if (st && st != SHUNT_ERR_PEER && st != SHUNT_ERR_TIMEOUT)
            shunti_bootstrap_abort(init->bootstrap, shunti_error_last());
    }
    shunti_blobs_finish(&all);
    free(mine);
    return st;
}

const unsigned char *shunti_caps_of(const struct shunti_blobs *reach, int rank)
{
    return (const unsigned char *)reach->data[rank] +
           sizeof(struct shunti_init_head);
}

/* Keep only capabilities that both sides of a pair have. */
static void keep_mutual_caps(struct shunt_comm *comm,
                             const struct shunti_blobs *reach)
{
    for (int r = 0; r < comm->nranks; r++) {
        const unsigned theirs = shunti_caps_of(reach, r)[comm->rank];

        if (r != comm->rank && !(theirs & SHUNT_TRANSPORT_ZCOPY))
            comm->peers[r].caps &= ~(unsigned)SHUNT_TRANSPORT_ZCOPY;
    }
}

/* Exchange the caps of every pair; NOT_REACHED for a pair that no stage has
 * connected. */
static enum shunt_status compare_reach(struct shunti_init *init,
                                       enum shunt_status status,
                                       struct shunti_blobs *reach)
{
    struct shunt_comm *comm = init->comm;
    size_t n = (size_t)comm->nranks, len = sizeof(struct shunti_init_head) + n;
    struct shunti_init_head *mine = calloc(1, len);
    enum shunt_status st;
    unsigned char *caps;
    int r;

    if (!mine)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    caps = (unsigned char *)(mine + 1);
    for (r = 0; r < comm->nranks; r++)
        caps[r] = r == comm->rank || init->connections[r].done
                      ? (unsigned char)comm->peers[r].caps
                      : NOT_REACHED;
    st = shunti_init_gather(init, mine, len, status, reach);
    free(mine);
    for (r = 0; !st && r < comm->nranks; r++)
        if (reach->len[r] != len)
            st = shunti_fail(NULL, SHUNT_ERR_MISMATCH,
                             "rank %d has another version of the library",
                             shunti_init_name(init, r));
    if (!st)
        keep_mutual_caps(comm, reach);
    return st;
}

static bool all_reached(const struct shunt_comm *comm,
                        const struct shunti_blobs *reach)
{
    int r;

    for (r = 0; r < comm->nranks; r++)
        if (memchr(shunti_caps_of(reach, r), NOT_REACHED, (size_t)comm->nranks))
            return false;
    return true;
}

/* Close the transports that reached no peer. They are of no use, cost time in
 * every wait, and need not accept connections of others. */
static void close_idle_contexts(struct shunt_comm *comm)
{
    size_t i, kept = 0;
    int r;

    for (i = 0; i < comm->contexts.count; i++) {
        struct shunti_context *from = &comm->contexts.all[i];
        struct shunti_context *to = &comm->contexts.all[kept];
        bool used = false;

        for (r = 0; r < comm->nranks; r++)
            used |= comm->peers[r].context == from;
        if (!used) {
            from->transport->close(from->ctx);
            continue;
        }
        for (r = 0; to != from && r < comm->nranks; r++)
            if (comm->peers[r].context == from)
                comm->peers[r].context = to;
        *to = *from;
        kept++;
    }
    comm->contexts.count = kept;
}

/* *reach: the caps of every pair. */
enum shunt_status shunti_init_connect(struct shunti_init *init,
                                      struct shunti_blobs *reach)
{
    struct shunt_comm *comm = init->comm;
    const struct shunti_introduction *first = shunti_introduction_of(init, 0);
    struct stage stage = {0, 0};
    enum shunt_status st;
    int r;

    comm->node_map.one_host = true;
    for (r = 0; r < comm->nranks; r++)
        comm->node_map.one_host &=
            shunti_place_same_loopback(&init->places[0], &init->places[r]);
    init->connections =
        calloc((size_t)comm->nranks, sizeof(*init->connections));
    comm->contexts.all =
        calloc(SHUNTI_TRANSPORTS_MAX, sizeof(*comm->contexts.all));
    if (!init->connections || !comm->contexts.all)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    do {
        shunti_blobs_finish(reach);
        stage = stage_at(init, stage.end);
        st = try_stage(init, stage);
        /* Do not join the next round: the other ranks may be waiting for this
         * rank to connect. They notice that this rank leaves. */
        if (st == SHUNT_ERR_MEMORY)
            return st;
        st = compare_reach(init, st, reach);
    } while (!st && !all_reached(comm, reach) && stage.end < first->candidates);
    if (!st)
        close_idle_contexts(comm);
    return st;
}
