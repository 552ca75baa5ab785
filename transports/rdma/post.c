// SPDX-License-Identifier: Apache-2.0
/*
 * Requests: what is needed to post one, and what comes back when it is complete.
 *
 * All requests ask for a completion, so the send queue, and our part of the
 * completion queue, are counted exactly.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transports/rdma/rdma.h"

/* What a request was for (wr_id), by the lowest bits: a struct rdma_large; or a peer,
 * in the upper half, and below it the place of the record among its targets. */
enum { OF_LARGE, OF_RECORD, OF_REPORT, OF_BITS = 3 };

static uint64_t id_of(const struct shunt_transport_ep *ep, unsigned what,
                      uint32_t place)
{
    return (uint64_t)(uint32_t)ep->peer << 32 | (uint64_t)place << 2 | what;
}

static uint32_t make_imm(enum rdma_kind kind, uint32_t epoch, uint32_t rest)
{
    return (uint32_t)kind << 30 |
           rdma_bits(epoch, RDMA_EPOCH_BITS)
               << (RDMA_LINE_BITS + RDMA_LAP_BITS) |
           rest;
}

static uint32_t imm_of_line(const struct shunt_transport_ep *ep,
                            enum rdma_kind kind, uint32_t line, uint32_t lap)
{
    return make_imm(kind, ep->theirs.epoch,
                    rdma_bits(lap, RDMA_LAP_BITS) << RDMA_LINE_BITS | line);
}

/* Is there room for one request more? */
static bool has_credit(const struct shunt_transport_ep *ep, bool report)
{
    const uint32_t under_way = ep->imms - ep->imms_told;
    const uint32_t most = RDMA_CREDITS - (report ? 0 : RDMA_REPORT_CREDITS);

    return under_way < most && ep->sends < RDMA_CREDITS;
}

/* Post one request. SHUNT_IN_PROGRESS: the NIC has no room. */
static enum shunt_status post(struct shunt_transport_ep *ep, uint64_t id,
                              struct ibv_sge *sge, uint64_t to, uint32_t key,
                              uint32_t imm)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    struct ibv_send_wr wr = {
        .wr_id = id,
        .sg_list = sge,
        .num_sge = sge ? 1 : 0,
        .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
        .send_flags = IBV_SEND_SIGNALED,
        .imm_data = htonl(imm),
        .wr.rdma = {.remote_addr = to, .rkey = key},
    };
    struct ibv_send_wr *bad;
    int error;

    if (sge && sge->length <= ctx->inlined)
        wr.send_flags |= IBV_SEND_INLINE;
    error = ibv_post_send(ep->qp, &wr, &bad);
    if (error == ENOMEM || error == EAGAIN) {
        ctx->retry = true;
        return SHUNT_IN_PROGRESS;
    }
    if (error) {
        rdma_break(ep, "a request cannot be posted: %s", strerror(error));
        return SHUNT_ERR_PEER;
    }
    ep->imms++;
    ep->sends++;
    ctx->sends++;
    ctx->requests++;
    return SHUNT_OK;
}

/* --- records ----------------------------------------------------------------- */

/* A report goes with it. */
static void report_in(struct shunt_transport_ep *ep, struct rdma_record *record)
{
    record->imms = ep->imms_heard;
    record->records = ep->next_record;
    record->refused = ep->refused;
}

static void reported(struct shunt_transport_ep *ep)
{
    ep->imms_reported = ep->imms_heard;
    ep->lines_freed = 0;
    ep->report = false;
    ep->refused = false;
}

/* Where a record goes. */
struct spot {
    uint32_t line, lap, lines;
    uint32_t skipped; /* lines before it, at the end of the ring */
};

static bool find_spot(const struct shunt_transport_ep *ep,
                      const struct rdma_record *record, bool own,
                      struct spot *spot)
{
    const size_t bytes = sizeof(*record) + record->bytes;
    const uint32_t lines = (uint32_t)((bytes + RDMA_LINE - 1) / RDMA_LINE);
    const bool wraps = ep->tail + lines > RDMA_LINES;

    *spot = (struct spot){
        .line = wraps ? 0 : ep->tail,
        .lap = ep->lap + wraps,
        .lines = lines,
        .skipped = wraps ? RDMA_LINES - ep->tail : 0,
    };
    return has_credit(ep, false) &&
           ep->sequence - ep->records_freed < RDMA_RECORDS &&
           ep->used + spot->skipped + lines + (own ? 0 : RDMA_OWN_LINES) <=
               RDMA_LINES;
}

bool rdma_has_room(const struct shunt_transport_ep *ep,
                   const struct rdma_record *record)
{
    struct spot spot;

    return find_spot(ep, record, false, &spot);
}

enum shunt_status rdma_post_record(struct shunt_transport_ep *ep,
                                   struct rdma_record *record,
                                   const void *payload, bool own, uint32_t *imm)
{
    struct ibv_sge sge = {.lkey = ep->rings_mr->lkey};
    enum shunt_status status;
    unsigned char *at;
    struct spot spot;

    if (!find_spot(ep, record, own, &spot))
        return SHUNT_IN_PROGRESS;
    at = ep->rings + (size_t)spot.line * RDMA_LINE;
    sge.addr = (uint64_t)(uintptr_t)at;
    sge.length = (uint32_t)(sizeof(*record) + record->bytes);
    record->sequence = ep->sequence;
    record->lines = (uint16_t)spot.lines;
    report_in(ep, record);
    memcpy(at, record, sizeof(*record));
    if (record->bytes)
        memcpy(at + sizeof(*record), payload, record->bytes);
    status = post(ep, id_of(ep, OF_RECORD, ep->sequence % RDMA_RECORDS), &sge,
                  ep->theirs.ring + (uint64_t)spot.line * RDMA_LINE,
                  ep->theirs.ring_key,
                  imm_of_line(ep, RDMA_RECORD, spot.line, spot.lap));
    if (status)
        return status;
    reported(ep);
    ep->targets[ep->sequence % RDMA_RECORDS] =
        (struct rdma_target){.lines = (uint16_t)(spot.lines + spot.skipped)};
    ep->sequence++;
    ep->tail = spot.line + spot.lines;
    ep->lap = spot.lap;
    ep->used += spot.skipped + spot.lines;
    if (imm)
        *imm = imm_of_line(ep, RDMA_FRAGMENT_OF, spot.line, spot.lap);
    return SHUNT_OK;
}

/* --- fragments --------------------------------------------------------------- */

void rdma_large_add(struct rdma_large *large)
{
    struct shunt_transport_ep *ep = large->ep;

    *ep->last_large = large;
    ep->last_large = &large->next;
    large->next_open = ep->open;
    large->open_at = &ep->open;
    if (ep->open)
        ep->open->open_at = &large->next_open;
    ep->open = large;
    ep->large_count++;
    ep->ctx->larges++;
    if (large->pending) {
        ++*large->pending;
        ep->lent++;
    }
}

/* The NIC does not need its memory any more. */
static void give_back(struct rdma_large *large)
{
    if (large->reg)
        rdma_reg_drop(large->reg);
    else if (large->mr)
        ibv_dereg_mr(large->mr);
    large->reg = NULL;
    large->mr = NULL;
    if (large->pending) {
        --*large->pending;
        large->ep->lent--;
    }
    large->pending = NULL;
}

static void end_large(struct rdma_large *large)
{
    give_back(large);
    *large->open_at = large->next_open;
    if (large->next_open)
        large->next_open->open_at = large->open_at;
    large->ep->large_count--;
    large->ep->ctx->larges--;
    free(large);
}

void rdma_forget_lent(struct shunt_transport_ep *ep)
{
    for (struct rdma_large *large = ep->open; large; large = large->next_open)
        if (large->pending)
            give_back(large);
}

void rdma_end_larges(struct shunt_transport_ep *ep)
{
    while (ep->open)
        end_large(ep->open);
}

void rdma_post_fragments(struct shunt_transport_ep *ep)
{
    struct rdma_large *large;

    while ((large = ep->larges) && !ep->broken && has_credit(ep, false)) {
        const size_t rest = large->bytes - large->sent;
        const size_t bytes =
            rest < ep->ctx->fragment ? rest : ep->ctx->fragment;
        struct ibv_sge sge = {
            .addr = (uint64_t)(uintptr_t)(large->local + large->sent),
            .length = (uint32_t)bytes,
            .lkey = large->mr->lkey,
        };

        if (large->waits && (int32_t)(large->after - ep->records_told) > 0)
            return;
        large->waits = false;
        if (post(ep, (uint64_t)(uintptr_t)large, &sge,
                 large->target + large->sent, large->key, large->imm))
            return;
        large->under_way++;
        large->sent += bytes;
        if (large->sent == large->bytes) {
            ep->larges = large->next;
            if (!ep->larges)
                ep->last_large = &ep->larges;
        }
    }
}

void rdma_drop_larges(struct shunt_transport_ep *ep)
{
    struct rdma_large *large;

    while ((large = ep->larges)) {
        ep->larges = large->next;
        large->sent = large->bytes; /* no more of it is */
        if (!large->under_way)
            end_large(large);
    }
    ep->last_large = &ep->larges;
}

/* --- reports ----------------------------------------------------------------- */

void rdma_post_report(struct shunt_transport_ep *ep)
{
    const bool due = ep->report ||
                     ep->imms_heard - ep->imms_reported >= RDMA_REPORT_AT ||
                     ep->lines_freed >= RDMA_LINES / 4;
    uint32_t rest;

    if (!due || ep->broken || !ep->acked || !has_credit(ep, true))
        return;
    rest = (uint32_t)ep->refused << (RDMA_RECORDS_BITS + RDMA_IMMS_BITS) |
           rdma_bits(ep->imms_heard, RDMA_IMMS_BITS) << RDMA_RECORDS_BITS |
           rdma_bits(ep->next_record, RDMA_RECORDS_BITS);
    if (!post(ep, id_of(ep, OF_REPORT, 0), NULL, ep->theirs.ring,
              ep->theirs.ring_key,
              make_imm(RDMA_REPORT, ep->theirs.epoch, rest)))
        reported(ep);
}

/* How much further `now` is than `before`, as far as it can be, or 0: reports may
 * overtake each other. */
static uint32_t further(uint32_t now, uint32_t before, unsigned bits,
                        uint32_t most)
{
    const uint32_t by =
        bits < 32 ? rdma_bits(now - before, bits) : now - before;

    return by <= most ? by : 0;
}

/* Lines are free when the peer has no more use for them, nor the NIC for the
 * mirror. */
static void free_lines(struct shunt_transport_ep *ep)
{
    while (ep->records_freed != ep->records_told) {
        const struct rdma_target *t =
            &ep->targets[ep->records_freed % RDMA_RECORDS];

        if (!t->sent)
            return;
        ep->used -= t->lines;
        ep->records_freed++;
    }
}

void rdma_on_told(struct shunt_transport_ep *ep, uint32_t imms,
                  unsigned imms_bits, uint32_t records, unsigned records_bits)
{
    ep->imms_told +=
        further(imms, ep->imms_told, imms_bits, ep->imms - ep->imms_told);
    ep->records_told += further(records, ep->records_told, records_bits,
                                ep->sequence - ep->records_told);
    free_lines(ep);
}

/* --- completions of our requests --------------------------------------------- */

void rdma_on_sent(struct shunt_transport_ctx *ctx, const struct ibv_wc *wc)
{
    const unsigned what = wc->wr_id & OF_BITS;
    struct rdma_large *large = NULL;
    struct shunt_transport_ep *ep;

    if (what == OF_LARGE) {
        large = (struct rdma_large *)(uintptr_t)wc->wr_id;
        ep = large->ep;
    } else {
        ep = ctx->eps[wc->wr_id >> 32];
    }
    ep->sends--;
    ctx->sends--;
    if (wc->status == IBV_WC_SUCCESS)
        ep->acked = true;
    else if (!ep->broken)
        rdma_break(ep, "a request failed: %s", ibv_wc_status_str(wc->status));
    if (what == OF_RECORD) {
        ep->targets[(uint32_t)wc->wr_id >> 2].sent = true;
        free_lines(ep);
    }
    if (large && --large->under_way == 0 && large->sent == large->bytes)
        end_large(large);
}
