// SPDX-License-Identifier: Apache-2.0
/*
 * The life of a rail. Each side writes its stage into the mail of the other
 * side, by puts of tcp:
 *
 *     hello    the side has a queue pair, and sends the data for connecting to
 *              it
 *     ready    the side is connected to the other side's queue pair
 *     reached  a request has arrived in both directions; puts use the rail
 *     fenced   the side has put its queue pair into the error state, and
 *              destroyed it; it sends the list of requests that have arrived
 *
 * A side that reads "fenced" from the other breaks its own queue pair, if it
 * has not yet. By then its NIC has had time to report why the rail failed,
 * which a queue pair in the error state no longer does. So both sides are
 * fenced in the end, whichever noticed the failure. A request that one side
 * sent and the other does not list can never arrive: it is sent again over
 * another rail. Then the next life begins, with new queue pairs, as soon as the
 * port can be used again.
 *
 * Queue pairs are destroyed, not reset, so that a late packet of an earlier
 * life finds no queue pair.
 *
 * A peer without a rail is *dark*. It is lost if no rail is repaired in time.
 * Time counts only while the devices and the network could repair a rail. Time
 * does not count while the software of the other side must answer, because that
 * side may be computing. The peer is also lost if its last rail fails again and
 * again without any progress in between.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "transports/rdma/rdma.h"

/* Time limit for the first request. A NIC gives up a request much earlier. */
#define REACH_MS 10000
/* DRAIN_MS: time after the error state in which a NIC reports what arrived
 * before, and in which the other side's NIC reports why the rail failed.
 * MISSING_MS: longest wait for missing completions. */
#define DRAIN_MS 5
#define MISSING_MS 100
/* After this time a call counts as delayed by the kernel. */
#define KEPT_MS 100
/* Pause before the next try. AGAIN_MS: after the first failure. AGAIN_MOST_MS:
 * the longest. NEVER_MOST_MS: the longest if the rail was never reached. */
#define AGAIN_MS 50
#define AGAIN_MOST_MS 1000
#define NEVER_MOST_MS 30000
/* How often a peer may be dark in a row without progress in between. */
#define DARKS_MOST 4

/* --- mail -------------------------------------------------------------------- */

static const struct rdma_rail_mail *mail_of(const struct rdma_rail *rail)
{
    return &rail->ep->ctx->mail[rail->ep->peer].rail[rail->index];
}

uint64_t rdma_rail_theirs(const struct rdma_rail *rail)
{
    return __atomic_load_n(&mail_of(rail)->word, __ATOMIC_ACQUIRE);
}

/* Write to the peer's mail, and then set its word to `word`. */
static bool send_mail(struct rdma_rail *rail, const void *what, size_t offset,
                      size_t bytes, uint64_t word)
{
    struct shunt_transport_ep *ep = rail->ep;
    const size_t at = (size_t)ep->ctx->rank * sizeof(struct rdma_mail) +
                      (size_t)rail->index * sizeof(struct rdma_rail_mail);
    const struct shunt_transport_put put = {
        .local = what,
        .remote = ep->mail,
        .offset = at + offset,
        .bytes = bytes,
        .signal = ep->mail,
        .signal_offset = at + offsetof(struct rdma_rail_mail, word),
        .signal_value = word,
    };
    enum shunt_status status;

    status = ep->ctx->tcp->put(ep->tcp, &put);
    if (status == SHUNT_ERR_INVALID)
        ep->failed = status; /* the failure of an earlier rare put */
    if (status)
        return false;
    rail->word_sent = word;
    return true;
}

/* Send this side's stage to the peer. If it cannot be sent now, a later call
 * sends it. */
static void send_stage(struct rdma_rail *rail)
{
    const uint64_t hello = rdma_word(rail->life, RDMA_HELLO);
    const uint64_t word = rdma_word(rail->life, rail->stage);
    const unsigned odd = rail->life % 2;
    const bool fenced = rail->stage == RDMA_FENCED;

    if (!rail->ep->mail || rail->stage == RDMA_NEW ||
        rail->stage == RDMA_BROKEN || rail->word_sent >= word)
        return;
    if (rail->word_sent < hello && rail->stage < RDMA_BROKEN &&
        !send_mail(rail, &rail->ours, offsetof(struct rdma_rail_mail, hello),
                   sizeof(rail->ours), hello))
        return;
    if (rail->word_sent < word)
        send_mail(rail, &rail->arrivals[odd],
                  offsetof(struct rdma_rail_mail, arrivals) +
                      odd * sizeof(rail->arrivals[0]),
                  fenced ? sizeof(rail->arrivals[0]) : 0, word);
}

/* --- queue pairs ------------------------------------------------------------- */

static bool create_qp(struct rdma_rail *rail)
{
    struct rdma_rail **same;

    rail->qp = rdma_qp_create(rail->nic, rail->credits, &rail->inlined);
    if (!rail->qp)
        return false;
    rail->qp_num = rail->qp->qp_num;
    same = rdma_rail_hash(rail->nic, rail->qp_num);
    rail->next_of_qp = *same;
    *same = rail;
    return true;
}

void rdma_rail_stop(struct rdma_rail *rail)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    if (rail->qp && rail->task != RDMA_DESTROY && rdma_slow_ended(rail))
        (void)ibv_modify_qp(rail->qp, &attr, IBV_QP_STATE);
}

/* Remove the queue pair, which is destroyed, from the rail. Handles its last
 * completions first. */
static void forget_qp(struct rdma_rail *rail)
{
    struct rdma_rail **p;

    rail->qp = NULL;
    rail->task = RDMA_NO_TASK;
    while (rdma_poll_nic(rail->nic))
        ;
    for (p = rdma_rail_hash(rail->nic, rail->qp_num); *p != rail;)
        p = &(*p)->next_of_qp;
    *p = rail->next_of_qp;
    for (uint32_t i = 0; i < rail->credits; i++)
        if (!rail->log[i].sent)
            rdma_request_sent(rail, &rail->log[i], false);
}

/* Do one step of destroying the rail's queue pair. True: it is destroyed. */
static bool destroy_qp(struct rdma_rail *rail)
{
    if (!rdma_slow_ended(rail))
        return false;
    if (rail->qp && rail->task != RDMA_DESTROY) {
        while (rdma_poll_nic(rail->nic))
            ;
        rdma_slow_begin(rail, RDMA_DESTROY);
        if (!rdma_slow_ended(rail))
            return false;
    }
    if (rail->qp)
        forget_qp(rail);
    return true;
}

bool rdma_rail_drained(const struct rdma_rail *rail, int64_t now)
{
    if (!rail->qp || !rail->connected || rail->nic->dead)
        return true;
    if (rail->sends > 0 && now < rail->broken_at + MISSING_MS)
        return false;
    return (rail->drained && rail->ep->broken) ||
           now >= rail->broken_at + DRAIN_MS;
}

/* --- failing ----------------------------------------------------------------- */

bool rdma_rail_is_last(const struct rdma_rail *rail)
{
    const struct shunt_transport_ep *ep = rail->ep;

    for (int i = 0; i < ep->rails; i++)
        if (&ep->rail[i] != rail && ep->rail[i].stage == RDMA_REACHED)
            return false;
    return true;
}

/* May a rail of a peer that is being connected still be reached for the first
 * time? */
static bool has_hope(const struct shunt_transport_ep *ep)
{
    for (int i = 0; i < ep->rails; i++)
        if (ep->rail[i].stage == RDMA_REACHED ||
            (ep->rail[i].life == 1 && ep->rail[i].stage < RDMA_BROKEN))
            return true;
    return false;
}

/* The last rail has failed after it was reached: the peer is dark. */
static void go_dark(struct rdma_rail *rail, const char *reason)
{
    struct shunt_transport_ep *ep = rail->ep;
    const struct rdma_nic *nic = rail->nic;
    bool alive = false;

    for (int i = 0; i < ep->rails; i++)
        alive = alive || !ep->rail[i].nic->dead;
    ep->darks = ep->moved == ep->dark_moved ? ep->darks + 1 : 1;
    ep->dark_moved = ep->moved;
    if (!alive || ep->darks > DARKS_MOST) {
        rdma_break(ep, "%s: %s", nic->name, reason);
        return;
    }
    snprintf(ep->reason, sizeof(ep->reason), "%s: %s", nic->name, reason);
    rdma_dark_begin(&ep->dark, rail->broken_at,
                    nic->down ? nic->down_at : rail->broken_at);
    ep->ctx->dark++;
}

/* Does the rail wait for the software of the other side? True also while the
 * rail drains, and while a thread of this side makes a call for it. A call that
 * the kernel delays does not count. */
static bool waits_for_peer(const struct rdma_rail *rail, int64_t now)
{
    const uint64_t theirs = rdma_rail_theirs(rail);

    if (rail->nic->down || rail->nic->dead || rail->stage == RDMA_NEW)
        return false;
    if (!rdma_slow_ended(rail))
        return now < rail->task_at + KEPT_MS;
    if (rail->stage == RDMA_READY &&
        theirs >= rdma_word(rail->life, RDMA_READY))
        return rail->acked && !rail->probe_arrived;
    return rail->stage == RDMA_BROKEN ||
           theirs < rdma_word(rail->life, rail->stage);
}

void rdma_rails_look(struct shunt_transport_ep *ep, int64_t now)
{
    char reason[sizeof(ep->reason)];
    bool waits = false;

    if (!ep->dark.is || ep->broken)
        return;
    for (int i = 0; i < ep->rails; i++)
        waits = waits || waits_for_peer(&ep->rail[i], now);
    if (!rdma_dark_look(&ep->dark, now, waits))
        return;
    snprintf(reason, sizeof(reason), "%s", ep->reason);
    rdma_break(ep, "%s", reason);
}

static void log_break(const struct rdma_rail *rail, bool reached,
                      const char *reason)
{
    const struct shunt_transport_ep *ep = rail->ep;
    const struct shunt_transport_host *host = ep->ctx->host;

    if (!host->log)
        return;
    if (reached)
        host->log(SHUNT_TRANSPORT_WARN, "rdma",
                  "rank %d: no longer over %s, %s: %s", ep->peer,
                  rail->nic->name,
                  ep->dark.is ? "which was the last device"
                              : "but over another device",
                  reason);
    else
        host->log(SHUNT_TRANSPORT_DEBUG, "rdma", "rank %d: not over %s: %s",
                  ep->peer, rail->nic->name, reason);
}

void rdma_rail_break(struct rdma_rail *rail, const char *format, ...)
{
    struct shunt_transport_ep *ep = rail->ep;
    struct shunt_transport_ctx *ctx = ep->ctx;
    const bool reached = rail->stage == RDMA_REACHED;
    /* If this side has reached a rail, the peer may be ready and may put, even
     * if its mail does not say so yet. */
    const bool ready = ep->ready || ep->first_up != 0;
    char reason[160];
    va_list args;

    if (rail->stage >= RDMA_BROKEN || ep->broken)
        return;
    va_start(args, format);
    vsnprintf(reason, sizeof(reason), format, args);
    va_end(args);
    rail->stage = RDMA_BROKEN;
    rail->broken_at = rdma_now();
    rail->failures++;
    ctx->fencing++;
    ctx->look = true;
    ctx->mending += reached;
    rdma_rail_stop(rail);
    if (!ready && !has_hope(ep))
        rdma_break(ep, "%s: %s", rail->nic->name, reason);
    else if (ready && !ep->dark.is && rdma_rail_is_last(rail))
        go_dark(rail, reason);
    if (ep->broken)
        return;
    ctx->rails_lost += reached;
    log_break(rail, reached, reason);
    send_stage(rail);
}

/* Fence the rail once its queue pair is destroyed, because nothing more arrives
 * over it then. */
static void fence(struct rdma_rail *rail)
{
    struct shunt_transport_ep *ep = rail->ep;

    if (!destroy_qp(rail) || ep->broken)
        return;
    rail->arrivals[rail->life % 2] = rail->here;
    rail->stage = RDMA_FENCED;
    ep->ctx->fencing--;
    ep->ctx->events++;
}

/* --- living ------------------------------------------------------------------ */

/* Returns the pause in ms before the next try, after `failures`. */
static int64_t pause_of(const struct rdma_rail *rail)
{
    const int64_t most = rail->was_up ? AGAIN_MOST_MS : NEVER_MOST_MS;
    int64_t pause = AGAIN_MS;

    for (unsigned i = 1; i < rail->failures && pause < most; i++)
        pause *= 2;
    return pause < most ? pause : most;
}

static void begin_life(struct rdma_rail *rail)
{
    rail->life++;
    rail->stage = RDMA_NEW;
    rail->connected = rail->probed = rail->report = false;
    rail->acked = rail->probe_arrived = rail->drained = false;
    rail->unsaid.wr_id = 0;
    rail->posted = rail->confirmed = rail->reported = rail->report_to = 0;
    rail->newest_report = 0;
    rail->here = (struct rdma_arrivals){.base = 0};
    for (uint32_t i = 0; i < rail->credits; i++)
        rail->log[i] = (struct rdma_request){.sent = true};
    /* The first try for a dark peer is immediate. */
    rail->try_at = rail->life > 1 && !(rail->ep->dark.is && rail->failures < 2)
                       ? rdma_now() + pause_of(rail)
                       : 0;
}

void rdma_rail_init(struct rdma_rail *rail)
{
    rail->life = 0;
    rail->wr = (struct ibv_send_wr){.opcode = IBV_WR_RDMA_WRITE_WITH_IMM};
    begin_life(rail);
}

/* Create a queue pair and send the hello, if the port can be used. */
static void say_hello(struct rdma_rail *rail, int64_t now)
{
    struct shunt_transport_ep *ep = rail->ep;
    char why[256] = "the device has failed";
    uint32_t random[2];

    if (rail->nic->dead ||
        !rdma_port_look(ep->ctx->host, rail->nic, why, sizeof(why))) {
        rail->failures++;
        rail->try_at = now + pause_of(rail);
        if (rail->life == 1)
            rdma_rail_break(rail, "%s", why);
        return;
    }
    if (!rdma_post_receives(rail)) {
        rdma_rail_break(rail, "no receive requests: %s", strerror(errno));
        return;
    }
    if (!create_qp(rail) ||
        getrandom(random, sizeof(random), 0) != sizeof(random)) {
        rdma_rail_break(rail, "no queue pair: %s", strerror(errno));
        return;
    }
    rail->nic->down = false;
    rail->ours = (struct rdma_hello){
        .place = rail->nic->place,
        .inbox = (uint64_t)(uintptr_t)&ep->boxes[1],
        .inbox_key = ep->boxes_mr.only[rail->nic->index]->rkey,
        .qp = rail->qp_num,
        .psn = rdma_bits(random[0], 24),
        .epoch = rdma_bits(random[1], RDMA_EPOCH_BITS),
    };
    rail->gid_index = rail->nic->gid_index;
    rail->stage = RDMA_HELLO;
}

/* Do one step of connecting to the peer's queue pair. */
static void connect_qp(struct rdma_rail *rail)
{
    const struct rdma_place *theirs = &rail->theirs.place;
    char subnet[RDMA_SUBNET];

    if (rail->task == RDMA_NO_TASK) {
        rail->theirs = mail_of(rail)->hello;
        /* The prefix of the peer's subnet may have changed since the NICs were
         * paired. */
        if (!rdma_may_reach(&rail->ours.place, theirs)) {
            rdma_subnet_name(theirs, subnet);
            rdma_rail_break(rail, "the port there is in another subnet now: %s",
                            subnet);
            return;
        }
        rdma_slow_begin(rail, RDMA_CONNECT);
    }
    if (!rdma_slow_ended(rail))
        return;
    rail->task = RDMA_NO_TASK;
    rail->connected = true;
    rail->stage = RDMA_READY;
    if (rail->task_error)
        rdma_rail_break(rail, "the queue pair cannot be connected: %s",
                        strerror(rail->task_error));
}

static void reach(struct rdma_rail *rail, int64_t now)
{
    struct shunt_transport_ep *ep = rail->ep;
    struct shunt_transport_ctx *ctx = ep->ctx;

    rail->stage = RDMA_REACHED;
    rail->failures = 0;
    ctx->mending--;
    ctx->retry = true;
    if (!ep->first_up)
        ep->first_up = now;
    ctx->dark -= ep->dark.is;
    ep->dark.is = false;
    if (rail->was_up) {
        ctx->rails_back++;
        if (ctx->host->log)
            ctx->host->log(SHUNT_TRANSPORT_INFO, "rdma",
                           "rank %d: over %s again", ep->peer, rail->nic->name);
    }
    rail->was_up = true;
}

static void step_connecting(struct rdma_rail *rail, uint64_t theirs,
                            int64_t now)
{
    if (rail->stage == RDMA_NEW && now >= rail->try_at)
        say_hello(rail, now);
    if (rail->stage == RDMA_HELLO &&
        theirs >= rdma_word(rail->life, RDMA_HELLO))
        connect_qp(rail);
    if (rail->stage != RDMA_READY)
        return;
    if (theirs >= rdma_word(rail->life, RDMA_READY) && !rail->probed) {
        rdma_post_probe(rail);
        rail->deadline = now + REACH_MS;
    }
    /* The peer's NIC acknowledges by itself. The first request of the peer may
     * be late, as long as its process does not call the library. */
    if (rail->acked && rail->probe_arrived)
        reach(rail, now);
    else if (rail->probed && !rail->acked && now > rail->deadline)
        rdma_rail_break(rail, "nothing comes from there");
}

void rdma_rail_step(struct rdma_rail *rail, int64_t now)
{
    const uint64_t theirs = rdma_rail_theirs(rail);
    const bool ended = theirs >= rdma_word(rail->life, RDMA_BROKEN);

    if (rail->stage == RDMA_NEW && ended) {
        rail->arrivals[rail->life % 2] = rail->here; /* nothing has arrived */
        rail->stage = RDMA_FENCED;
    } else if (rail->stage < RDMA_BROKEN && ended) {
        rdma_rail_break(rail, "the other side has lost it");
    } else if (rail->stage < RDMA_REACHED) {
        step_connecting(rail, theirs, now);
    }
    if (rail->ep->broken)
        return;
    if (rail->stage == RDMA_BROKEN && rdma_rail_drained(rail, now))
        fence(rail);
    if (rail->ep->broken)
        return;
    send_stage(rail);
    if (rail->stage == RDMA_FENCED &&
        rail->word_sent == rdma_word(rail->life, RDMA_FENCED) &&
        theirs >= rdma_word(rail->life, RDMA_FENCED)) {
        rdma_settle(rail, &mail_of(rail)->arrivals[rail->life % 2]);
        begin_life(rail);
    }
}
