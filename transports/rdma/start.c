// SPDX-License-Identifier: Apache-2.0
/*
 * The first put to a peer, which makes the parts that need memory: rings and
 * rails.
 *
 * A pair without puts, or with only rare puts (rare_puts.c), has only a
 * connection of tcp. The rank that puts first makes its rings and rails, and
 * sends a hello for each rail (rail.c). The hello arrives by tcp, which wakes
 * the peer if it sleeps. Then the peer makes its rings and rails, too. Both
 * ranks may begin at the same time. A rail is decided when both sides have
 * reached it, or when it is given up for now. Until all rails are decided,
 * put() has no room. If all rails have failed, the peer is lost, and both sides
 * get the reason.
 *
 * Ports that seem to be in different networks may not reach each other. A pair
 * that has only such ports starts in connect(), so that another transport may
 * serve it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "transports/rdma/rdma.h"

/* How long to wait for other rails after one has been reached. */
#define OTHERS_MS 1000

/* --- pairs ------------------------------------------------------------------- */

/* Pair the NICs of the lower and of the higher rank, each in the order of its
 * rank. NICs in one network are paired first. Both ranks find the same pairs.
 * NICs in different subnets of InfiniBand are not paired. Returns the number of
 * pairs. */
static int find_pairs(const struct rdma_place *low, int lows,
                      const struct rdma_place *high, int highs,
                      uint8_t pairs[RDMA_RAILS][2])
{
    unsigned used_low = 0, used_high = 0;
    int count = 0;

    for (int far = 0; far < 2; far++) {
        for (int i = 0; i < lows; i++) {
            for (int j = 0; j < highs && !(used_low >> i & 1); j++) {
                if (used_high >> j & 1 || !rdma_may_reach(&low[i], &high[j]) ||
                    (!far && !rdma_on_one_network(&low[i], &high[j])))
                    continue;
                used_low |= 1u << i;
                used_high |= 1u << j;
                pairs[count][0] = (uint8_t)i;
                pairs[count++][1] = (uint8_t)j;
            }
        }
    }
    return count;
}

static const char *kind_of(const struct rdma_place *place)
{
    return place->layer == IBV_LINK_LAYER_ETHERNET ? "RoCE" : "InfiniBand";
}

/* Set and return the error that names the first subnet of each side. */
static enum shunt_status fail_subnets(struct shunt_transport_ep *ep,
                                      const struct rdma_place *theirs,
                                      const struct rdma_place *ours)
{
    char there[RDMA_SUBNET], here[RDMA_SUBNET];

    rdma_subnet_name(theirs, there);
    rdma_subnet_name(ours, here);
    return rdma_fail(ep->ctx, SHUNT_ERR_UNSUPPORTED,
                     "rank %d: its ports are in other subnets of InfiniBand "
                     "(%s) than ours (%s): SHUNT_RDMA_DEVICE names ports in "
                     "one, or SHUNT_TRANSPORTS=shm,rdma,ucx adds ucx for it",
                     ep->peer, there, here);
}

enum shunt_status rdma_pair_up(struct shunt_transport_ep *ep,
                               const struct rdma_place *places, int count)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    const bool low = ctx->rank < ep->peer;
    const int ours = ctx->nic_count;
    struct rdma_place own[RDMA_RAILS];
    uint8_t pairs[RDMA_RAILS][2];

    for (int i = 0; i < ours; i++)
        own[i] = ctx->nics[i].found;
    ep->credits = rdma_credits_of(count > ours ? count : ours);
    ep->pairs = low ? find_pairs(own, ours, places, count, pairs)
                    : find_pairs(places, count, own, ours, pairs);
    for (int i = 0; i < ep->pairs; i++) {
        ep->pair[i][0] = pairs[i][!low];
        ep->pair[i][1] = pairs[i][low];
    }
    if (ep->pairs)
        return SHUNT_OK;
    if (places[0].layer != own[0].layer)
        return rdma_fail(ctx, SHUNT_ERR_UNSUPPORTED,
                         "rank %d: its devices are %s, ours are %s", ep->peer,
                         kind_of(&places[0]), kind_of(&own[0]));
    return fail_subnets(ep, &places[0], &own[0]);
}

bool rdma_is_near(const struct shunt_transport_ep *ep,
                  const struct rdma_place *places)
{
    return rdma_on_one_network(&ep->ctx->nics[ep->pair[0][0]].found,
                               &places[ep->pair[0][1]]);
}

/* --- starting ---------------------------------------------------------------- */

static enum shunt_status create_rings(struct shunt_transport_ep *ep)
{
    const size_t bytes = 2 * sizeof(*ep->boxes);
    void *boxes;

    ep->targets = calloc(RDMA_RECORDS, sizeof(*ep->targets));
    ep->words = calloc(RDMA_WORDS, sizeof(*ep->words));
    ep->directs = calloc(RDMA_DIRECTS, sizeof(*ep->directs));
    ep->lines = calloc(RDMA_LINES, sizeof(*ep->lines));
    ep->words_here = calloc(RDMA_WORDS, sizeof(*ep->words_here));
    boxes = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (boxes != MAP_FAILED)
        ep->boxes = boxes;
    if (!ep->targets || !ep->words || !ep->directs || !ep->lines ||
        !ep->words_here || !ep->boxes)
        return rdma_fail(ep->ctx, SHUNT_ERR_MEMORY,
                         "no memory for the rings of rank %d", ep->peer);
    if (!rdma_pieces_register(ep->ctx, NULL, &ep->boxes_mr, boxes, bytes,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                              1))
        return rdma_fail_registration(ep->ctx, bytes, errno);
    return SHUNT_OK;
}

static enum shunt_status create_rails(struct shunt_transport_ep *ep)
{
    struct shunt_transport_ctx *ctx = ep->ctx;

    ep->rail = calloc((size_t)ep->pairs, sizeof(*ep->rail));
    ep->logs = calloc((size_t)ep->pairs * ep->credits, sizeof(*ep->logs));
    if (!ep->rail || !ep->logs)
        return rdma_fail(ctx, SHUNT_ERR_MEMORY,
                         "no memory for the rails of rank %d", ep->peer);
    for (int i = 0; i < ep->pairs; i++) {
        struct rdma_rail *rail = &ep->rail[i];

        rail->ep = ep;
        rail->index = i;
        rail->nic = &ctx->nics[ep->pair[i][0]];
        rail->theirs_nic = ep->pair[i][1];
        rail->credits = ep->credits;
        rail->log = ep->logs + (size_t)i * ep->credits;
        rdma_rail_init(rail);
    }
    ep->rails = ep->pairs;
    ctx->mending += ep->rails;
    ctx->started++;
    return SHUNT_OK;
}

/* If this fails, rings and rails that were made are freed with the endpoint. */
enum shunt_status rdma_start(struct shunt_transport_ep *ep)
{
    enum shunt_status status = create_rings(ep);

    if (!status)
        status = create_rails(ep);
    if (!status)
        rdma_count_connecting(ep, true);
    return status;
}

/* Give the peer up because the start failed; the context has the error text. */
static void give_up(struct shunt_transport_ep *ep, enum shunt_status status)
{
    rdma_break(ep, "%s", ep->ctx->error.text);
    ep->unable = status;
}

enum shunt_status rdma_start_by_put(struct shunt_transport_ep *ep)
{
    enum shunt_status status = ep->rails ? SHUNT_OK : rdma_start(ep);

    if (status) {
        give_up(ep, status);
        return status;
    }
    rdma_start_step(ep, rdma_now());
    ep->ctx->full++;
    return SHUNT_IN_PROGRESS;
}

/* --- deciding ---------------------------------------------------------------- */

/* Has the latest attempt to reach the peer over this rail ended, for now? */
static bool is_decided(const struct rdma_rail *rail)
{
    if (rail->stage == RDMA_REACHED)
        return rdma_rail_theirs(rail) == rdma_word(rail->life, RDMA_REACHED);
    return rail->life > 1 || rail->stage >= RDMA_BROKEN;
}

static bool has_connected(const struct shunt_transport_ep *ep, int64_t now)
{
    bool one = false, all = true;

    for (int i = 0; i < ep->rails; i++) {
        const bool decided = is_decided(&ep->rail[i]);

        one = one || (decided && ep->rail[i].stage == RDMA_REACHED);
        all = all && decided;
    }
    return one && (all || now > ep->first_up + OTHERS_MS);
}

/* --- what it costs ----------------------------------------------------------- */

/* Bytes of a completion, a receive request and a request in the usual
 * formats. */
#define COMPLETION ((size_t)64)
#define RECEIVE ((size_t)32)
#define REQUEST ((size_t)64) /* without inlined bytes */

/* PEER_BYTES: bytes of a peer without its rails. RAIL_BYTES: bytes of each rail
 * for its requests, as many receive requests, the completions of both, and the
 * log. */
#define PEER_BYTES                                                  \
    (sizeof(struct shunt_transport_ep) + sizeof(struct rdma_mail) + \
     RDMA_RECORDS * sizeof(struct rdma_target) +                    \
     RDMA_DIRECTS * sizeof(struct rdma_direct) +                    \
     2 * RDMA_WORDS * sizeof(struct rdma_known) +                   \
     RDMA_LINES * sizeof(struct rdma_line))
#define RAIL_BYTES(credits, inlined)                               \
    (sizeof(struct rdma_rail) +                                    \
     (credits) * (REQUEST + (inlined) + RECEIVE + 2 * COMPLETION + \
                  sizeof(struct rdma_request)))

/* A peer has two rails with all credits, or four rails with half of them. */
_Static_assert(PEER_BYTES + 2 * RAIL_BYTES(RDMA_CREDITS, RDMA_INLINED) <=
                   64 << 10,
               "a peer with two rails costs more than 64 KiB");
_Static_assert(PEER_BYTES + RDMA_RAILS * RAIL_BYTES(RDMA_CREDITS / 2,
                                                    RDMA_INLINED / 2) <=
                   64 << 10,
               "a peer with all rails costs more than 64 KiB");

static size_t bytes_of(const struct shunt_transport_ep *ep)
{
    size_t bytes = PEER_BYTES;

    for (int i = 0; i < ep->rails; i++)
        bytes += RAIL_BYTES(ep->credits, ep->rail[i].inlined);
    return bytes;
}

size_t rdma_bytes_of_a_peer(const struct shunt_transport_ctx *ctx)
{
    size_t most = 0;

    for (int p = 0; p < ctx->nranks; p++) {
        const struct shunt_transport_ep *ep = ctx->eps[p];

        if (ep && ep->ready && bytes_of(ep) > most)
            most = bytes_of(ep);
    }
    return most;
}

/* Log which rails carry this peer. */
static void log_rails(const struct shunt_transport_ep *ep)
{
    const struct shunt_transport_host *host = ep->ctx->host;
    char names[4 * 96] = "";
    size_t n = 0;

    if (!host->log)
        return;
    for (int i = 0; i < ep->rails; i++)
        n += (size_t)snprintf(
            names + n, sizeof(names) - n, "%s%s%s", i ? ", " : "",
            ep->rail[i].nic->name,
            ep->rail[i].stage == RDMA_REACHED ? "" : " (not reached)");
    host->log(SHUNT_TRANSPORT_DEBUG, "rdma", "rank %d: over %s", ep->peer,
              names);
}

/* Log the memory of the peers with rails. */
static void log_costs(const struct shunt_transport_ctx *ctx)
{
    int pairs = 0;

    for (int p = 0; p < ctx->nranks; p++)
        if (ctx->eps[p] && ctx->eps[p]->ready)
            pairs += ctx->eps[p]->rails;
    if (ctx->host->log)
        ctx->host->log(
            SHUNT_TRANSPORT_INFO, "rdma",
            "peers: %d, of which %d are connected, queue pairs: %d; "
            "such a peer costs %zu KiB of memory beside its rings of "
            "%zu KiB",
            ctx->connections, ctx->started, pairs,
            (rdma_bytes_of_a_peer(ctx) + 1023) / 1024,
            2 * sizeof(struct rdma_inbox) / 1024);
}

/* --- steps ------------------------------------------------------------------- */

/* Has the peer made its rails? The first mail that it sends is for rail 0. */
static bool has_begun(const struct shunt_transport_ep *ep)
{
    const uint64_t *word = &ep->ctx->mail[ep->peer].rail[0].word;

    return __atomic_load_n(word, __ATOMIC_ACQUIRE) != 0;
}

void rdma_start_step(struct shunt_transport_ep *ep, int64_t now)
{
    enum shunt_status status = SHUNT_OK;

    if (!ep->rails && ep->up && has_begun(ep))
        status = rdma_start(ep);
    if (status) {
        give_up(ep, status);
        return;
    }
    for (int i = 0; i < ep->rails && !ep->broken; i++)
        rdma_rail_step(&ep->rail[i], now);
    if (ep->broken && !ep->ready && !ep->left && !ep->died)
        ep->unable = SHUNT_ERR_SYSTEM;
    if (ep->ready || !ep->rails || ep->broken || !has_connected(ep, now))
        return;
    ep->ready = true;
    rdma_count_connecting(ep, false);
    ep->ctx->events++; /* puts that had no room have room now */
    log_rails(ep);
    if (!ep->ctx->connecting)
        log_costs(ep->ctx);
}
