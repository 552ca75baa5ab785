// SPDX-License-Identifier: Apache-2.0
/*
 * Birth of a communicator, in rounds of the bootstrap's all-gather:
 *
 *   1  who and where: place, node name, transports; rank 0's tunables hold
 *   2  the addresses of transports; then each pair connects by the first
 *      transport (in rank 0's order) that both have and that really reaches
 *   3  who reached whom and how: from it follow the nodes
 *   4  the keys of the control windows; then each imports its peers'
 *   5  all is well
 *
 * Rounds 2 and 3 are made with the transports that stay on a host first. Only
 * if they leave a pair apart they are repeated with the next one, as what
 * reaches other hosts opens ports and brings big libraries. A transport that
 * reached nobody is closed again.
 *
 * and, for the first time, a barrier of its own.
 *
 * Every round carries each rank's status, so that one rank's trouble is an
 * error on all, with a text that names it.
 */
#include "src/birth.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "src/agree.h"
#include "src/aside.h"
#include "src/bootstrap.h"
#include "src/comm.h"
#include "src/contexts.h"
#include "src/env.h"
#include "src/error.h"
#include "src/launch.h"
#include "src/live.h"
#include "src/log.h"
#include "src/loss.h"
#include "src/nodes.h"
#include "src/note.h"
#include "src/plugin.h"
#include "src/progress.h"
#include "src/segment.h"
#include "src/topology.h"
#include "src/trace.h"
#include "src/wait.h"

/* Communicators that this thread has already get on while it waits. */
__attribute__((constructor)) static void wait_for_bootstrap(void)
{
    shunti_bootstrap_poll = shunti_poll;
}

#define PROTOCOL 4
#define PAGE 4096u
/* Between two looks at a connection that no descriptor announces. */
#define CONNECT_NAP_MS 2
/* For the others to hear of our failure before our process, with the root in
 * it, ends. */
#define SETTLE_SECONDS 2.0

struct birth {
    struct shunt_comm *comm;
    struct shunti_bootstrap *bootstrap; /* NULL with one rank */
    const struct shunt_comm_config *config;
    struct shunti_candidates candidates; /* ours */
    struct shunti_place *places;         /* (nranks) */
    struct shunti_blobs introductions;   /* (nranks) struct introduction */
    struct courtship *courtships;        /* (nranks) */
    struct shunti_parent *parent;        /* or NULL */
    uint64_t looked_ns;                  /* at the clock: pause_birth() */
    double timeout;
    char lacking[400]; /* what keeps a transport from being used, and whom */
};

/* Head of every blob. */
struct blob_head {
    int32_t status;
    char text[508];
};

/* --- rounds ------------------------------------------------------------------- */

/* What `rank` is called in errors. */
static int name_of(const struct birth *b, int rank)
{
    return shunti_rank_name(b->parent, rank);
}

/* Gather a blob that begins with a blob_head; any rank's failure fails all. */
static enum shunt_status round_trip(struct birth *b, struct blob_head *mine,
                                    size_t len, enum shunt_status status,
                                    struct shunti_blobs *all)
{
    enum shunt_status st;
    int r;

    mine->status = status;
    if (status)
        snprintf(mine->text, sizeof(mine->text), "%.500s",
                 shunti_error_last());
    if (status && shunti_bootstrap_failed(b->bootstrap))
        return status; /* that is why, and its text says so already */
    st = shunti_bootstrap_allgather(b->bootstrap, mine, len, all);
    if (st)
        return st;
    if (status)
        return status;
    for (r = 0; r < b->comm->nranks; r++) {
        const struct blob_head *theirs = all->data[r];

        if (all->len[r] < sizeof(*theirs))
            return shunti_fail(NULL, SHUNT_ERR_MISMATCH,
                               "rank %d speaks another protocol",
                               name_of(b, r));
        if (theirs->status)
            return shunti_fail(NULL, SHUNT_ERR_REMOTE, "on rank %d: %.500s",
                               name_of(b, r), theirs->text);
    }
    return SHUNT_OK;
}

static uint64_t deadline_of(struct birth *b)
{
    b->looked_ns = shunti_now_ns();
    return b->looked_ns + shunti_ns(b->timeout);
}

/* Is it past the deadline? That this process was stopped does not count. */
static bool is_late(struct birth *b, uint64_t *deadline_ns)
{
    *deadline_ns += shunti_stopped_ns(&b->looked_ns);
    return b->looked_ns > *deadline_ns;
}

/* Wait a little for the others; an error if it is for nothing, as another rank
 * has failed, or will not come. Being stopped does not count here either. */
static enum shunt_status pause_birth(struct birth *b, uint64_t *deadline_ns)
{
    if (shunti_parent_gives_up(b->parent))
        return shunti_fail(NULL, SHUNT_ERR_PEER, "%s", b->parent->why);
    shunti_transports_nap(b->comm, CONNECT_NAP_MS);
    *deadline_ns += shunti_stopped_ns(&b->looked_ns);
    return shunti_bootstrap_check(b->bootstrap);
}

/* --- round 1: who and where ------------------------------------------------------ */

struct introduction {
    struct blob_head head;
    uint32_t protocol;
    uint32_t candidates;
    struct shunti_place place;
    struct shunti_tunables tune;
    char node[64];
    char transport[SHUNTI_TRANSPORTS_MAX][32]; /* names, in order */
    unsigned char far[SHUNTI_TRANSPORTS_MAX];
};

static size_t size_or(const char *name, size_t fallback)
{
    size_t value = shunti_env_size(name);

    return value == SHUNTI_ENV_AUTO ? fallback : value;
}

static size_t clamp(size_t value, size_t low, size_t high)
{
    return value < low ? low : value > high ? high : value;
}

/*
 * Where a message costs more than to copy what it carries: as much as one
 * segment of UCX's TCP takes (transports/ucx), while all inboxes of a rank
 * together stay small.
 */
static size_t eager_far(const struct shunti_tunables *tune, size_t nranks)
{
    if (shunti_env_size("SHUNT_EAGER") != SHUNTI_ENV_AUTO)
        return tune->eager;
    return clamp((8 << 20) / (SHUNTI_DEPTH * nranks), tune->eager, 60 << 10);
}

/*
 * Measured: docs/performance.md. Every pair has an inbox and a ring. The deeper
 * a ring and the larger its chunks the better for two ranks; but the rings of
 * all pairs together should stay in the last-level cache.
 */
static void choose_tunables(struct shunti_tunables *tune, size_t nranks)
{
    size_t pairs = nranks * nranks;
    size_t ring = clamp((16 << 20) / pairs, 64 << 10, 1 << 20);
    size_t chunk = clamp(ring / 8, 16 << 10, 64 << 10);
    const char *algorithm = shunti_env_string("SHUNT_ALGORITHM");

    tune->eager = clamp(size_or("SHUNT_EAGER", 8192), 512, 1 << 20);
    tune->eager_far = clamp(size_or("SHUNT_EAGER_FAR", eager_far(tune, nranks)),
                            tune->eager, 1 << 20);
    tune->chunk = clamp(size_or("SHUNT_CHUNK", chunk), 1024, 1 << 24);
    tune->chunks = clamp(size_or("SHUNT_CHUNKS", ring / tune->chunk), 2, 4096);
    tune->read_min = size_or("SHUNT_READ_MIN", SIZE_MAX);
    tune->zcopy_min = size_or("SHUNT_ZCOPY_MIN", 64 << 10);
    if (tune->zcopy_min < 64) /* what a note's body holds is not named */
        tune->zcopy_min = 64;
    /* With its header one segment of UCX's TCP (transports/ucx). */
    tune->moe_chunk = clamp(size_or("SHUNT_MOE_CHUNK", 60 << 10), 1, 1 << 28);
    tune->allreduce_direct = size_or("SHUNT_ALLREDUCE_DIRECT",
                                     clamp((512 << 10) / pairs, 0, 64 << 10));
    tune->carry = size_or("SHUNT_CARRY", SHUNTI_ENV_AUTO);
    snprintf(tune->algorithm, sizeof(tune->algorithm), "%.127s",
             algorithm ? algorithm : "");
    tune->eager = (tune->eager + 63) & ~(size_t)63;
    tune->eager_far = (tune->eager_far + 63) & ~(size_t)63;
    tune->chunk = (tune->chunk + 63) & ~(size_t)63;
}

static enum shunt_status introduce(struct birth *b)
{
    struct shunt_comm *comm = b->comm;
    const char *spec = b->config->transports
                           ? b->config->transports
                           : shunti_env_string("SHUNT_TRANSPORTS");
    const char *node =
        b->config->node ? b->config->node : shunti_env_string("SHUNT_NODE");
    struct introduction *mine = calloc(1, sizeof(*mine));
    struct shunti_blobs all = {0};
    enum shunt_status st = SHUNT_OK;
    size_t i;
    int r;

    if (!mine)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    if (comm->nranks > 1)
        st = shunti_transport_candidates(spec, &b->candidates);
    mine->protocol = PROTOCOL;
    mine->candidates = (uint32_t)b->candidates.count;
    for (i = 0; i < b->candidates.count; i++) {
        snprintf(mine->transport[i], sizeof(mine->transport[i]), "%.31s",
                 b->candidates.item[i].name);
        mine->far[i] = b->candidates.item[i].far;
    }
    shunti_place_here(&mine->place);
    choose_tunables(&mine->tune, (size_t)comm->nranks);
    snprintf(mine->node, sizeof(mine->node), "%.63s", node ? node : "");
    if (comm->nranks == 1) {
        comm->tune = mine->tune;
        b->places[0] = mine->place;
        free(mine);
        return st;
    }
    st = round_trip(b, &mine->head, sizeof(*mine), st, &all);
    for (r = 0; !st && r < comm->nranks; r++) {
        const struct introduction *theirs = all.data[r];

        if (all.len[r] != sizeof(*theirs) || theirs->protocol != PROTOCOL ||
            theirs->candidates > SHUNTI_TRANSPORTS_MAX)
            st = shunti_fail(NULL, SHUNT_ERR_MISMATCH,
                             "rank %d has another version of the library",
                             name_of(b, r));
        else
            b->places[r] = theirs->place;
    }
    if (!st) {
        comm->tune = ((const struct introduction *)all.data[0])->tune;
        b->introductions = all;
        memset(&all, 0, sizeof(all));
    }
    shunti_blobs_finish(&all);
    free(mine);
    return st;
}

static const struct introduction *introduction_of(const struct birth *b, int r)
{
    return b->introductions.data[r];
}

/* --- round 2: addresses, connections ---------------------------------------------- */

/* Of a transport; or why the sender does not have it. */
struct address {
    char transport[32];
    uint64_t len; /* 0: not to be had */
    union {
        unsigned char blob[SHUNT_TRANSPORT_ADDRESS_MAX];
        char why[SHUNT_TRANSPORT_ADDRESS_MAX];
    };
};

/* Some transports in a row of rank 0's list, which are tried together. */
struct stage {
    uint32_t begin, end;
};

/* Our context of the transport `name`, or -1. */
static int context_by_name(const struct shunt_comm *comm, const char *name)
{
    size_t i;

    for (i = 0; i < comm->ncontexts; i++)
        if (!strcmp(comm->contexts[i].transport->name, name))
            return (int)i;
    return -1;
}

static struct shunti_candidate *candidate_by_name(struct birth *b,
                                                  const char *name)
{
    size_t i;

    for (i = 0; i < b->candidates.count; i++)
        if (!strcmp(b->candidates.item[i].name, name))
            return &b->candidates.item[i];
    return NULL;
}

/* One peer's way through the candidates. */
struct courtship {
    uint32_t next; /* in rank 0's list */
    bool done;
    /* The first that maps a peer on another node, for want of a better one. */
    struct shunti_context *last_resort;
    struct shunt_transport_ep *last_ep;
};

static int unreached(const struct birth *b)
{
    int r, n = 0;

    for (r = 0; r < b->comm->nranks; r++)
        n += r != b->comm->rank && !b->courtships[r].done;
    return n;
}

/*
 * Open a transport and find its address, if we have it. One that is far and
 * that nobody asked for may fail: `a` says why.
 */
static enum shunt_status open_context(struct birth *b, const char *name,
                                      struct address *a)
{
    struct shunt_comm *comm = b->comm;
    struct shunti_candidate *candidate = candidate_by_name(b, name);
    struct shunti_context *c = &comm->contexts[comm->ncontexts];
    struct shunt_transport_params params = {
        .host = shunti_transport_host(),
        .rank = comm->rank,
        .nranks = comm->nranks,
        .unreached = unreached(b),
        .one_host = comm->one_host,
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
    st = shunti_candidate_load(candidate, a->why, sizeof(a->why));
    if (!st) {
        c->transport = candidate->transport;
        st = c->transport->open(&params, &c->ctx, a->why, sizeof(a->why));
    }
    explicit_bzero(&params, sizeof(params));
    if (st && candidate->far && !candidate->wanted) {
        shunti_info("comm", "transport %s: %s", name, a->why);
        return SHUNT_OK;
    }
    if (st)
        return shunti_fail(NULL, st, "open transport %s: %.450s", name, a->why);
    comm->ncontexts++;
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
    size_t count =
        (all->len[rank] - sizeof(struct blob_head)) / sizeof(struct address);
    const struct address *a =
        (const struct address *)(const void *)(data + sizeof(struct blob_head));
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

/* Why a pair cannot use a transport, for when no other reaches either. */
static void note_lack(struct birth *b, const char *name, int rank,
                      const struct address *a)
{
    if (a && !a->len)
        snprintf(b->lacking, sizeof(b->lacking),
                 "; %s does not work on rank %d: %.300s", name,
                 name_of(b, rank), a->why);
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

/* Are these two on different nodes because they say so? */
static bool named_apart(const struct birth *b, int i, int j)
{
    return strcmp(introduction_of(b, i)->node, introduction_of(b, j)->node);
}

/*
 * Try a little further to reach `peer`: SHUNT_ERR_UNSUPPORTED, not by a
 * transport of this stage.
 *
 * Nodes do not share memory, also those that are on one host because their
 * ranks were given different names: a transport that maps such a peer is only
 * used if no other one reaches it, and then only puts.
 */
static enum shunt_status court(struct birth *b, int peer, struct stage stage,
                               const struct shunti_blobs *addresses,
                               struct courtship *c)
{
    struct shunt_comm *comm = b->comm;
    struct shunti_peer *p = &comm->peers[peer];
    const struct introduction *first = introduction_of(b, 0);

    while (c->next < stage.end) {
        const char *name = first->transport[c->next];
        const struct address *ours = find_address(addresses, comm->rank, name);
        const struct address *theirs = find_address(addresses, peer, name);
        enum shunt_status st = SHUNT_ERR_UNSUPPORTED;
        int i = context_by_name(comm, name);

        if (i >= 0 && theirs && theirs->len) {
            struct shunti_context *context = &comm->contexts[i];

            st = context->transport->connect(context->ctx, peer, theirs->blob,
                                             (size_t)theirs->len, &p->ep);
            if (st == SHUNT_IN_PROGRESS)
                return st;
            if (!st) {
                unsigned caps = context->transport->caps(p->ep);

                if (!(caps & SHUNT_TRANSPORT_MAP) ||
                    !named_apart(b, peer, comm->rank)) {
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
            if (st != SHUNT_ERR_UNSUPPORTED)
                return shunti_fail(NULL, st, "%s to rank %d: %s", name,
                                   name_of(b, peer),
                                   context->transport->error(context->ctx));
        } else {
            note_lack(b, name, peer, theirs);
            note_lack(b, name, comm->rank, ours);
        }
        p->ep = NULL;
        c->next++;
    }
    return SHUNT_ERR_UNSUPPORTED;
}

/* Reach whom this stage reaches. */
static enum shunt_status connect_stage(struct birth *b, struct stage stage,
                                       const struct shunti_blobs *addresses)
{
    struct shunt_comm *comm = b->comm;
    uint64_t deadline = deadline_of(b);

    for (;;) {
        int waiting = -1, r;
        enum shunt_status st;

        for (r = 0; r < comm->nranks; r++) {
            struct courtship *c = &b->courtships[r];

            if (r == comm->rank || c->done || c->next >= stage.end)
                continue;
            st = court(b, r, stage, addresses, c);
            if (st == SHUNT_IN_PROGRESS)
                waiting = r;
            else if (st && st != SHUNT_ERR_UNSUPPORTED)
                return st;
        }
        if (waiting < 0)
            return SHUNT_OK;
        if (is_late(b, &deadline)) {
            shunti_parent_blame(b->parent, name_of(b, waiting));
            return shunti_fail(NULL, SHUNT_ERR_TIMEOUT,
                               "rank %d did not connect in %g s",
                               name_of(b, waiting), b->timeout);
        }
        st = pause_birth(b, &deadline);
        if (st)
            return st;
    }
}

/* After the last stage. */
static void take_last_resorts(struct birth *b)
{
    int r;

    for (r = 0; r < b->comm->nranks; r++) {
        struct courtship *c = &b->courtships[r];

        if (c->done || !c->last_resort)
            continue;
        take_link(&b->comm->peers[r], c->last_resort, c->last_ep,
                  c->last_resort->transport->caps(c->last_ep) &
                      SHUNT_TRANSPORT_ZCOPY);
        c->done = true;
    }
}

/* After the last stage: all are reached, or who is not. */
static enum shunt_status check_reached(struct birth *b)
{
    const struct shunt_comm *comm = b->comm;
    int r;

    for (r = 0; r < comm->nranks; r++)
        if (r != comm->rank && !b->courtships[r].done)
            return shunti_fail(NULL, SHUNT_ERR_UNSUPPORTED,
                               "no transport reaches rank %d (%s) from rank %d "
                               "(%s)%s: SHUNT_LOG=debug tells what was tried",
                               name_of(b, r), b->places[r].host,
                               name_of(b, comm->rank),
                               b->places[comm->rank].host, b->lacking);
    return SHUNT_OK;
}

/* Rank 0's transports from `begin` on: the near ones up to the next that is
 * far, or that one alone. */
static struct stage stage_at(const struct birth *b, uint32_t begin)
{
    const struct introduction *first = introduction_of(b, 0);
    struct stage stage = {begin, begin};

    while (stage.end < first->candidates && !first->far[stage.end])
        stage.end++;
    stage.end += stage.end == begin && begin < first->candidates;
    return stage;
}

static enum shunt_status try_stage(struct birth *b, struct stage stage)
{
    const struct introduction *first = introduction_of(b, 0);
    size_t count = stage.end - stage.begin, i;
    struct shunti_blobs all = {0};
    enum shunt_status st = SHUNT_OK;
    struct blob_head *mine;
    struct address *a;
    size_t len = sizeof(*mine) + count * sizeof(*a);

    mine = calloc(1, len);
    if (!mine)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    a = (struct address *)(void *)(mine + 1);
    for (i = 0; !st && i < count; i++)
        st = open_context(b, first->transport[stage.begin + i], &a[i]);
    st = round_trip(b, mine, len, st, &all);
    if (!st) {
        st = connect_stage(b, stage, &all);
        /* The next round is far off for those who wait for us: what has to do
         * with nobody's silence they hear at once. */
        if (st == SHUNT_ERR_SYSTEM || st == SHUNT_ERR_MEMORY ||
            st == SHUNT_ERR_MISMATCH)
            shunti_bootstrap_abort(b->bootstrap, shunti_error_last());
    }
    if (!st && stage.end == first->candidates) {
        take_last_resorts(b);
        st = check_reached(b);
    }
    shunti_blobs_finish(&all);
    free(mine);
    return st;
}

/* --- round 3: who reached whom --------------------------------------------------- */

#define NOT_REACHED 0xff

static const unsigned char *reach_of(const struct shunti_blobs *reach, int rank)
{
    return (const unsigned char *)reach->data[rank] + sizeof(struct blob_head);
}

/* What both sides of a pair must be able to do. */
static void keep_mutual_caps(struct shunt_comm *comm,
                             const struct shunti_blobs *reach)
{
    for (int r = 0; r < comm->nranks; r++) {
        const unsigned theirs = reach_of(reach, r)[comm->rank];

        if (r != comm->rank && !(theirs & SHUNT_TRANSPORT_ZCOPY))
            comm->peers[r].caps &= ~(unsigned)SHUNT_TRANSPORT_ZCOPY;
    }
}

/* The caps of every pair, NOT_REACHED where a stage left them apart. */
static enum shunt_status compare_reach(struct birth *b,
                                       enum shunt_status status,
                                       struct shunti_blobs *reach)
{
    struct shunt_comm *comm = b->comm;
    size_t n = (size_t)comm->nranks, len = sizeof(struct blob_head) + n;
    struct blob_head *mine = calloc(1, len);
    enum shunt_status st;
    unsigned char *caps;
    int r;

    if (!mine)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    caps = (unsigned char *)(mine + 1);
    for (r = 0; r < comm->nranks; r++)
        caps[r] = r == comm->rank || b->courtships[r].done
                      ? (unsigned char)comm->peers[r].caps
                      : NOT_REACHED;
    st = round_trip(b, mine, len, status, reach);
    free(mine);
    for (r = 0; !st && r < comm->nranks; r++)
        if (reach->len[r] != len)
            st = shunti_fail(NULL, SHUNT_ERR_MISMATCH,
                             "rank %d has another version of the library",
                             name_of(b, r));
    if (!st)
        keep_mutual_caps(comm, reach);
    return st;
}

static bool all_reached(const struct shunt_comm *comm,
                        const struct shunti_blobs *reach)
{
    int r;

    for (r = 0; r < comm->nranks; r++)
        if (memchr(reach_of(reach, r), NOT_REACHED, (size_t)comm->nranks))
            return false;
    return true;
}

/* Transports that reached nobody are of no use, and cost time in every wait;
 * nor need they be there for others to find. */
static void close_idle_contexts(struct shunt_comm *comm)
{
    size_t i, kept = 0;
    int r;

    for (i = 0; i < comm->ncontexts; i++) {
        struct shunti_context *from = &comm->contexts[i];
        struct shunti_context *to = &comm->contexts[kept];
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
    comm->ncontexts = kept;
}

/* *reach: the caps of every pair. */
static enum shunt_status reach_peers(struct birth *b,
                                     struct shunti_blobs *reach)
{
    struct shunt_comm *comm = b->comm;
    const struct introduction *first = introduction_of(b, 0);
    struct stage stage = {0, 0};
    enum shunt_status st;
    int r;

    comm->one_host = true;
    for (r = 0; r < comm->nranks; r++)
        comm->one_host &=
            shunti_place_same_loopback(&b->places[0], &b->places[r]);
    b->courtships = calloc((size_t)comm->nranks, sizeof(*b->courtships));
    comm->contexts = calloc(SHUNTI_TRANSPORTS_MAX, sizeof(*comm->contexts));
    if (!b->courtships || !comm->contexts)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    do {
        shunti_blobs_finish(reach);
        stage = stage_at(b, stage.end);
        st = try_stage(b, stage);
        /* The others may wait for our connections and not for a message: to
         * leave tells them. */
        if (st == SHUNT_ERR_MEMORY)
            return st;
        st = compare_reach(b, st, reach);
    } while (!st && !all_reached(comm, reach) && stage.end < first->candidates);
    if (!st)
        close_idle_contexts(comm);
    return st;
}

/* --- nodes ------------------------------------------------------------------ */

static int root_of(const int *parent, int r)
{
    while (parent[r] != r)
        r = parent[r];
    return r;
}

/* Same node: mapped, and not told otherwise; or told so by name. */
static bool node_mates(const struct birth *b, const struct shunti_blobs *reach,
                       int i, int j)
{
    const struct introduction *a = introduction_of(b, i);
    const unsigned char *caps = reach_of(reach, i);

    if (named_apart(b, i, j))
        return false;
    return a->node[0] || caps[j] & SHUNT_TRANSPORT_MAP;
}

/* Number the nodes by their lowest rank, and their ranks by locality. */
static void number_nodes(struct birth *b, const int *parent)
{
    struct shunt_comm *comm = b->comm;
    int r, o;

    comm->nodes = 0;
    for (r = 0; r < comm->nranks; r++) {
        int root = root_of(parent, r);

        comm->peers[r].node =
            root == r ? comm->nodes++ : comm->peers[root].node;
    }
    for (r = 0; r < comm->nranks; r++) {
        int local = 0;

        for (o = 0; o < comm->nranks; o++) {
            int order;

            if (o == r || comm->peers[o].node != comm->peers[r].node)
                continue;
            order = shunti_place_compare(&b->places[o], &b->places[r]);
            local += order < 0 || (order == 0 && o < r);
        }
        comm->peers[r].local = local;
    }
    comm->node = comm->peers[comm->rank].node;
    comm->local_rank = comm->peers[comm->rank].local;
    comm->local_size = 0;
    for (r = 0; r < comm->nranks; r++)
        comm->local_size += comm->peers[r].node == comm->node;
}

/* Ranks of `rank`'s host for each CPU that they may use. */
static double crowd_of(const struct birth *b, int rank,
                       struct shunti_place *here)
{
    size_t count = 0;
    int cpus;

    for (int r = 0; r < b->comm->nranks; r++)
        if (shunti_place_same_host(&b->places[r], &b->places[rank]))
            here[count++] = b->places[r];
    cpus = shunti_places_cpus(here, count);
    return cpus > 0 && (int)count > cpus ? (double)count / cpus : 1;
}

/* More ranks on this host than CPUs for them: spinning would hurt. What it is like
 * on rank 0's is the same figure on all ranks, since algorithms depend on it. */
static enum shunt_status find_oversubscription(struct birth *b)
{
    struct shunt_comm *comm = b->comm;
    struct shunti_place *here = calloc((size_t)comm->nranks, sizeof(*here));

    if (!here)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    comm->oversubscribed = crowd_of(b, comm->rank, here) > 1;
    comm->links.crowd = crowd_of(b, 0, here);
    free(here);
    return SHUNT_OK;
}

static enum shunt_status find_nodes(struct birth *b,
                                    const struct shunti_blobs *reach)
{
    struct shunt_comm *comm = b->comm;
    int *parent = calloc((size_t)comm->nranks, sizeof(*parent));
    int i, j;

    if (!parent)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    comm->all_mapped = true;
    for (i = 0; i < comm->nranks; i++)
        parent[i] = i;
    for (i = 0; i < comm->nranks; i++) {
        const unsigned char *caps = reach_of(reach, i);

        for (j = 0; j < comm->nranks; j++) {
            int a = root_of(parent, i), c = root_of(parent, j);

            if (i == j)
                continue;
            if (!(caps[j] & SHUNT_TRANSPORT_MAP))
                comm->all_mapped = false;
            if (a != c && node_mates(b, reach, i, j))
                parent[a < c ? c : a] = a < c ? a : c;
        }
    }
    number_nodes(b, parent);
    free(parent);
    comm->nodes_mapped = true;
    for (i = 0; i < comm->nranks; i++)
        for (j = 0; j < comm->nranks; j++)
            if (i != j && comm->peers[i].node == comm->peers[j].node &&
                !(reach_of(reach, i)[j] & SHUNT_TRANSPORT_MAP))
                comm->nodes_mapped = false;
    if (!shunti_nodes_init(comm))
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    return find_oversubscription(b);
}

/* --- round 4: control windows ----------------------------------------------------------- */

struct key {
    char transport[32];
    uint64_t len;
    unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
};

static size_t round_up(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

void shunti_layout_compute(struct shunti_layout *l, int nranks, bool all_mapped,
                           const struct shunti_tunables *tune)
{
    size_t n = (size_t)nranks;

    memset(l, 0, sizeof(*l));
    l->eager = all_mapped ? tune->eager : tune->eager_far;
    l->chunk = tune->chunk;
    l->chunks = (unsigned)tune->chunks;
    l->completed = 0;
    l->abort = SHUNT_TRANSPORT_LINE;
    l->bell = 2 * SHUNT_TRANSPORT_LINE;
    l->inbox = PAGE;
    l->slot_bytes = sizeof(struct shunti_note) + l->eager;
    if (!all_mapped)
        l->slot_bytes += SHUNTI_ZCOPY_PAYLOADS * SHUNTI_ZCOPY_NAME;
    l->slot_bytes = round_up(l->slot_bytes, 64);
    l->inbox_stride =
        round_up(SHUNTI_DEPTH * l->slot_bytes, SHUNT_TRANSPORT_LINE);
    l->acks = round_up(l->inbox + n * l->inbox_stride, PAGE);
    l->ack_stride = round_up(SHUNTI_DEPTH * 8, SHUNT_TRANSPORT_LINE);
    l->landed = round_up(l->acks + n * l->ack_stride, PAGE);
    l->landed_stride = all_mapped
                           ? 0
                           : round_up(SHUNTI_DEPTH * SHUNTI_ZCOPY_PAYLOADS * 8,
                                      SHUNT_TRANSPORT_LINE);
    l->words = round_up(l->landed + n * l->landed_stride, PAGE);
    l->word_stride = round_up(SHUNTI_WORDS * 64, SHUNT_TRANSPORT_LINE);
    l->loss = round_up(l->words + n * l->word_stride, PAGE);
    l->loss_stride = round_up(shunti_loss_bytes(nranks), SHUNT_TRANSPORT_LINE);
    l->ring = round_up(l->loss + n * l->loss_stride, PAGE);
    l->ring_stride = round_up(l->chunk * l->chunks, SHUNT_TRANSPORT_LINE);
    l->bytes = round_up(l->ring + n * l->ring_stride, PAGE);
}

static enum shunt_status make_control(struct shunt_comm *comm)
{
    shunti_layout_compute(&comm->layout, comm->nranks, comm->all_mapped,
                          &comm->tune);
    comm->control_segment =
        shunti_segment_create("shunt-control", comm->layout.bytes);
    if (!comm->control_segment)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY,
                           "control window of %zu bytes of shared memory: %s%s",
                           comm->layout.bytes, strerror(errno),
                           shunti_remedy(errno));
    comm->control = comm->control_segment->addr;
    return SHUNT_OK;
}

static const struct key *find_key(const struct shunti_blobs *all, int rank,
                                  const char *name)
{
    const unsigned char *data = all->data[rank];
    const struct key *k =
        (const struct key *)(const void *)(data + sizeof(struct blob_head));
    size_t count =
        (all->len[rank] - sizeof(struct blob_head)) / sizeof(struct key);
    size_t i;

    for (i = 0; i < count; i++)
        if (!strncmp(k[i].transport, name, sizeof(k[i].transport)) &&
            k[i].len <= sizeof(k[i].key))
            return &k[i];
    return NULL;
}

static enum shunt_status import_control(struct birth *b, int peer,
                                        const struct shunti_blobs *all)
{
    struct shunt_comm *comm = b->comm;
    struct shunti_peer *p = &comm->peers[peer];
    const struct key *k = find_key(all, peer, p->transport->name);
    uint64_t deadline = deadline_of(b);
    enum shunt_status st;

    if (!k)
        return shunti_fail(NULL, SHUNT_ERR_MISMATCH,
                           "rank %d sent no key for %s", name_of(b, peer),
                           p->transport->name);
    for (;;) {
        st = p->transport->import(p->ep, k->key, (size_t)k->len,
                                  &p->control_remote);
        if (st != SHUNT_IN_PROGRESS)
            break;
        if (is_late(b, &deadline))
            return shunti_fail(NULL, SHUNT_ERR_TIMEOUT,
                               "rank %d's control window did not come",
                               name_of(b, peer));
        st = pause_birth(b, &deadline);
        if (st)
            return st;
    }
    if (st)
        return shunti_fail(NULL, st, "control window of rank %d: %s",
                           name_of(b, peer),
                           p->transport->error(p->context->ctx));
    if (p->caps & SHUNT_TRANSPORT_MAP) {
        p->control = p->transport->map(p->ep, p->control_remote);
    } else {
        p->outbox =
            calloc(1, comm->layout.inbox_stride + comm->layout.ring_stride);
        if (!p->outbox)
            return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    }
    return SHUNT_OK;
}

static enum shunt_status share_control(struct birth *b)
{
    struct shunt_comm *comm = b->comm;
    size_t len =
        sizeof(struct blob_head) + comm->ncontexts * sizeof(struct key);
    struct blob_head *mine = calloc(1, len);
    struct shunti_blobs all = {0};
    enum shunt_status st;
    struct key *k;
    size_t i;
    int r;

    if (!mine)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    k = (struct key *)(void *)(mine + 1);
    st = make_control(comm);
    for (i = 0; !st && i < comm->ncontexts; i++) {
        struct shunti_context *c = &comm->contexts[i];
        size_t key_len = sizeof(k[i].key);

        snprintf(k[i].transport, sizeof(k[i].transport), "%.31s",
                 c->transport->name);
        st = shunti_context_register(c, comm->control_segment, k[i].key,
                                     &key_len, &c->control_reg);
        k[i].len = key_len;
        if (st)
            shunti_fail(NULL, st, "register the control window with %s: %s",
                        c->transport->name, c->transport->error(c->ctx));
    }
    st = round_trip(b, mine, len, st, &all);
    for (r = 0; !st && r < comm->nranks; r++)
        if (r != comm->rank)
            st = import_control(b, r, &all);
    shunti_blobs_finish(&all);
    free(mine);
    return st;
}

/* Rank 0's figures for all. */
static enum shunt_status share_links(struct birth *b)
{
    struct shunt_comm *comm = b->comm;
    struct link_blob {
        struct blob_head head;
        struct shunti_links links;
    } mine = {.head = {0}};
    struct shunti_blobs all = {0};
    enum shunt_status st = shunti_links_measure(comm, &mine.links);

    mine.links.crowd = comm->links.crowd;
    st = round_trip(b, &mine.head, sizeof(mine), st, &all);
    if (!st && all.len[0] >= sizeof(mine))
        memcpy(&comm->links,
               (const char *)all.data[0] + offsetof(struct link_blob, links),
               sizeof(comm->links));
    shunti_blobs_finish(&all);
    return st;
}

/* --- all together ----------------------------------------------------------------------- */

static enum shunt_status meet(struct birth *b, const struct shunt_id *id)
{
    struct shunt_comm *comm = b->comm;
    struct shunti_blobs all = {0};
    struct blob_head head = {0};
    enum shunt_status st;

    if (comm->nranks > 1 || id) {
        st = shunti_bootstrap_join_from(b->parent, id, comm->nranks, comm->rank,
                                        b->timeout, &b->bootstrap);
        if (st)
            return st;
        shunti_bootstrap_secret(b->bootstrap, comm->secret);
    }
    st = introduce(b);
    if (st)
        return st;
    if (comm->nranks == 1) {
        comm->all_mapped = comm->nodes_mapped = true;
        comm->nodes = comm->local_size = 1;
        return shunti_nodes_init(comm)
                   ? make_control(comm)
                   : shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    }
    st = reach_peers(b, &all);
    if (!st)
        st = find_nodes(b, &all);
    shunti_blobs_finish(&all);
    if (!st)
        st = share_control(b);
    else
        return st;
    st = round_trip(b, &head, sizeof(head), st, &all);
    shunti_blobs_finish(&all);
    return st || comm->nodes == 1 ? st : share_links(b);
}

static void set_waiting(struct shunt_comm *comm)
{
    double spin_us = shunti_env_number("SHUNT_SPIN");

    if (spin_us >= 0) {
        comm->spin_ns = spin_us < 4e6 ? (unsigned)(spin_us * 1e3) : UINT_MAX;
        comm->oversubscribed = spin_us == 0;
    } else {
        comm->spin_ns = 50000;
    }
}

static void report(const struct shunt_comm *comm)
{
    int r;

    if (!shunti_log_wanted(SHUNTI_LOG_INFO, "comm"))
        return;
    shunti_info("comm", "rank %d of %d, node %d of %d, local rank %d of %d%s",
                comm->rank, comm->nranks, comm->node, comm->nodes,
                comm->local_rank, comm->local_size,
                comm->oversubscribed ? ", more ranks than CPUs" : "");
    for (r = 0; r < comm->nranks; r++)
        if (r != comm->rank)
            shunti_info("comm", "  rank %d: %s", r, comm->peers[r].how);
}

static struct shunt_comm *comm_new(int nranks, int rank)
{
    struct shunt_comm *comm = calloc(1, sizeof(*comm));

    if (!comm)
        return NULL;
    comm->rank = rank;
    comm->nranks = nranks;
    comm->next_seq = 1;
    comm->active_tail = &comm->active;
    comm->deferred_tail = &comm->deferred;
    comm->aside.held = 1;
    comm->spare_state = 1024 + 96 * (size_t)nranks;
    comm->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    comm->peers = calloc((size_t)nranks, sizeof(*comm->peers));
    comm->lost = calloc((size_t)nranks, sizeof(*comm->lost));
    if (comm->wake_fd < 0 || !comm->peers || !comm->lost) {
        int error = errno;

        shunti_comm_free(comm);
        errno = error;
        return NULL;
    }
    return comm;
}

static bool wants_thread(const struct shunt_comm_config *config)
{
    if (config->progress_thread)
        return config->progress_thread > 0;
    return !strcasecmp(shunti_env_choice("SHUNT_PROGRESS"), "thread");
}

/* This rank's arguments are wrong, or it lacks what it needs: the others must
 * not wait for it. */
static enum shunt_status refuse_birth(struct shunti_parent *parent,
                                      const struct shunt_id *id, int nranks,
                                      int rank, enum shunt_status status)
{
    struct shunti_bootstrap *bootstrap = NULL;
    double timeout = shunti_env_number("SHUNT_TIMEOUT");
    bool sane =
        nranks >= 1 && nranks <= SHUNTI_RANKS_MAX && rank >= 0 && rank < nranks;
    char text[256];

    snprintf(text, sizeof(text), "%.250s", shunti_error_last());
    if (!id)
        return status;
    /* Ranks out of range are judged, told to the others and described by
     * this; with good ones it joins, and we can say why we leave, unless what
     * we lack is needed for that as well. */
    if (!shunti_bootstrap_join_from(parent, id, nranks, rank, timeout,
                                    &bootstrap)) {
        shunti_bootstrap_abort(bootstrap, text);
        shunti_bootstrap_leave(bootstrap);
        shunti_bootstrap_settle(SETTLE_SECONDS);
    } else if (!sane) {
        return SHUNT_ERR_INVALID;
    }
    return shunti_fail(NULL, status, "%s", text);
}

/*
 * The last round, which is the new communicator's own, has failed. Returns the
 * status of the birth, with a text that names ranks as the parent does. Those
 * that are silent in it are so in the parent, too.
 */
static enum shunt_status tell_disagreement(struct birth *b,
                                           enum shunt_status status)
{
    const struct shunt_comm *comm = b->comm;
    char names[128] = "";
    size_t len = 0;

    /* What another rank lacks is not lacking here. */
    if (comm->failure && !comm->nlost && comm->culprit >= 0 &&
        comm->culprit != comm->rank)
        return shunti_fail(NULL, SHUNT_ERR_REMOTE, "on rank %d: %s",
                           name_of(b, comm->culprit), shunt_strerror(status));
    if (!b->parent || !comm->nlost)
        return shunti_fail(NULL, status, "%s", comm->error.text);
    for (size_t i = 0; i < comm->nlost; i++) {
        int name = name_of(b, comm->lost[i]);

        if (status == SHUNT_ERR_TIMEOUT && comm->lost[i] != comm->rank)
            shunti_parent_blame(b->parent, name);
        if (len + 16 < sizeof(names))
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%d",
                                    i ? ", " : "", name);
    }
    return shunti_fail(
        NULL, status, "%s %s %s while the communicator was being made",
        comm->nlost > 1 ? "ranks" : "rank", names,
        status == SHUNT_ERR_TIMEOUT ? "did not answer" : "went away");
}

/* Infinity is a figure to reckon with. */
static double limited(double seconds)
{
    return seconds < SHUNTI_NEVER_SECONDS ? seconds : SHUNTI_NEVER_SECONDS;
}

enum shunt_status shunti_comm_birth(const struct shunt_id *id, int nranks,
                                    int rank,
                                    const struct shunt_comm_config *given,
                                    struct shunti_parent *parent,
                                    struct shunt_comm **out)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct birth b = {0};
    enum shunt_status st;

    *out = NULL;
    if (nranks < 1 || nranks > SHUNTI_RANKS_MAX || rank < 0 || rank >= nranks)
        return refuse_birth(parent, id, nranks, rank, SHUNT_ERR_INVALID);
    if (given) {
        if (given->size < sizeof(size_t) || given->size > sizeof(config)) {
            shunti_fail(NULL, SHUNT_ERR_INVALID,
                        "config: size is %zu, not %zu; use "
                        "SHUNT_COMM_CONFIG_INIT",
                        given->size, sizeof(config));
            return refuse_birth(parent, id, nranks, rank, SHUNT_ERR_INVALID);
        }
        memcpy(&config, given, given->size);
    }
    shunti_log_set_rank(rank);
    if (shunti_launch_speaks(rank))
        shunti_env_report();
    b.config = &config;
    b.parent = parent;
    b.timeout =
        limited(config.timeout > 0 ? config.timeout
                                   : shunti_env_number("SHUNT_TIMEOUT"));
    b.comm = comm_new(nranks, rank);
    b.places = calloc((size_t)nranks, sizeof(*b.places));
    if (!b.comm || !b.places) {
        st = shunti_fail(NULL,
                         errno == ENOMEM ? SHUNT_ERR_MEMORY : SHUNT_ERR_SYSTEM,
                         "memory and an event descriptor for a communicator of "
                         "%d ranks: %s%s",
                         nranks, strerror(errno), shunti_remedy(errno));
        shunti_comm_free(b.comm);
        free(b.places);
        return refuse_birth(parent, id, nranks, rank, st);
    }
    b.comm->timeout = b.comm->birth_timeout = b.timeout;
    b.comm->call_timeout = config.call_timeout;
    b.comm->idle_call = config.idle;
    b.comm->idle_arg = config.idle_arg;
    snprintf(b.comm->name, sizeof(b.comm->name), "%.31s",
             config.name ? config.name : "");
    snprintf(b.comm->transports, sizeof(b.comm->transports), "%.127s",
             config.transports ? config.transports : "");
    snprintf(b.comm->node_name, sizeof(b.comm->node_name), "%.63s",
             config.node ? config.node : "");
    st = meet(&b, id);
    if (st && b.bootstrap)
        shunti_bootstrap_abort(b.bootstrap, shunti_error_last());
    if (!st) {
        set_waiting(b.comm);
        /* Whoever runs the root may exit as soon as it returns from here: not
         * before everybody has had the last round. */
        st = shunti_agree(b.comm, SHUNTI_KIND_BIRTH, SHUNT_OK);
        if (st)
            st = tell_disagreement(&b, st);
    }
    for (int r = 0; !st && r < nranks; r++)
        b.comm->peers[r].messages = b.comm->peers[r].bytes_put = 0;
    if (!st && config.call_timeout)
        b.comm->timeout =
            limited(config.call_timeout < 0 ? INFINITY : config.call_timeout);
    if (!st) {
        if (wants_thread(&config))
            st = shunti_progress_thread_start(b.comm);
    }
    if (!st) {
        shunti_trace_begin(rank, nranks);
        report(b.comm);
        shunti_live_add(b.comm);
        shunti_aside_own(b.comm);
        *out = b.comm;
    }
    shunti_bootstrap_leave(b.bootstrap);
    shunti_blobs_finish(&b.introductions);
    free(b.courtships);
    free(b.places);
    if (st) {
        shunti_comm_free(b.comm);
        shunti_bootstrap_settle(SETTLE_SECONDS);
    }
    return st;
}
