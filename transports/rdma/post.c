// SPDX-License-Identifier: Apache-2.0
/*
 * Requests: how they are posted, and what happens when they complete.
 *
 * All requests ask for a completion, so the use of the send queue, and of this
 * side's part of the completion queue, is counted exactly. A request is
 * remembered until the peer has reported its arrival; a completion here does
 * not prove that.
 *
 * With SHUNT_RDMA_IMMEDIATE=behind, a request without an immediate writes each
 * payload that is not small. A second request behind it has only the immediate.
 * Two requests are correct if completions of a connection are in order
 * (device.c): then the completion of the immediate proves that the earlier data
 * has arrived.
 * Each of the two requests uses a place in the send queue. Together they have
 * one completion, or one each if they fail.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transports/rdma/rdma.h"

/* Returns the wr_id of a request, never 0. It has the peer in the upper half,
 * then the life of the rail, the rail, and the index in the rail's log. */
static uint64_t id_of(const struct rdma_rail *rail, uint32_t slot)
{
    return (uint64_t)(uint32_t)rail->ep->peer << 32 |
           (uint64_t)rdma_bits(rail->life, 16) << 16 |
           (uint64_t)rail->index << 8 | slot << 1 | 1;
}

static uint32_t place_of(uint32_t line, uint32_t lap)
{
    return rdma_bits(lap, RDMA_LAP_BITS) << RDMA_LINE_BITS | line;
}

static bool is_fragment(const struct rdma_request *request)
{
    return request->kind == RDMA_FRAGMENT_OF ||
           request->kind == RDMA_NO_FRAGMENT;
}

static bool is_direct(const struct rdma_request *request)
{
    return request->kind == RDMA_DIRECT || request->kind == RDMA_NO_DIRECT;
}

static uint32_t make_imm(const struct rdma_rail *rail,
                         const struct rdma_request *request)
{
    uint32_t place = request->place;
    uint32_t imm = request->kind;

    if (is_direct(request))
        place |= rdma_bits(request->record, RDMA_TURN_BITS) << RDMA_WORD_BITS;
    if (request->kind == RDMA_NO_FRAGMENT) {
        place =
            RDMA_EXTRA | rdma_bits(place, RDMA_LINE_BITS + RDMA_EXTRA_LAP_BITS);
        imm = RDMA_REPORT;
    } else if (request->kind == RDMA_NO_DIRECT) {
        place |= RDMA_EXTRA | RDMA_EXTRA_DIRECT | RDMA_EXTRA_MISSING;
        imm = RDMA_REPORT;
    } else if (request->kind == RDMA_DIRECT && rail->ep->refused) {
        place |= RDMA_EXTRA | RDMA_EXTRA_DIRECT;
        imm = RDMA_REPORT;
    } else if (request->kind == RDMA_DIRECT) {
        place |= rdma_bits(rail->here.base, RDMA_ARRIVED_BITS)
                 << (RDMA_WORD_BITS + RDMA_TURN_BITS);
    }
    imm =
        imm << RDMA_EPOCH_BITS | rdma_bits(rail->theirs.epoch, RDMA_EPOCH_BITS);
    imm = imm << RDMA_NUMBER_BITS | rdma_bits(rail->posted, RDMA_NUMBER_BITS);
    return imm << (RDMA_LINE_BITS + RDMA_LAP_BITS) | place;
}

/* --- rails ------------------------------------------------------------------- */

/* Returns the nearest rail with room, or NULL. */
struct rdma_rail *rdma_rail_for_record(const struct shunt_transport_ep *ep)
{
    for (int i = 0; i < ep->rails; i++)
        if (rdma_rail_has_room(&ep->rail[i]))
            return &ep->rail[i];
    return NULL;
}

/* Post the payload, and behind it a second request with the immediate. The
 * payload has no completion of its own, unless it fails. */
static int post_behind(struct rdma_rail *rail, const struct ibv_send_wr *both)
{
    struct ibv_send_wr payload = *both, empty = *both;
    struct ibv_send_wr *imm = &empty, *bad = NULL;
    int error;

    payload.opcode = IBV_WR_RDMA_WRITE;
    payload.send_flags = 0;
    payload.next = imm;
    imm->sg_list = NULL;
    imm->num_sge = 0;
    error = ibv_post_send(rail->qp, &payload, &bad);
    if (!error || bad == &payload)
        return error;
    rail->unsaid = *imm;
    rail->ep->ctx->retry = true;
    return 0;
}

void rdma_post_unsaid(struct shunt_transport_ep *ep)
{
    for (int i = 0; i < ep->rails; i++) {
        struct rdma_rail *rail = &ep->rail[i];
        struct ibv_send_wr *bad;
        int error;

        if (!rail->unsaid.wr_id || rail->stage >= RDMA_BROKEN)
            continue;
        error = ibv_post_send(rail->qp, &rail->unsaid, &bad);
        if (!error)
            rail->unsaid.wr_id = 0;
        else if (error == ENOMEM || error == EAGAIN)
            ep->ctx->retry = true;
        else
            rdma_rail_break(rail, "an immediate cannot be posted: %s",
                            strerror(error));
    }
}

enum shunt_status rdma_post(struct rdma_rail *rail,
                            const struct rdma_request *request,
                            struct ibv_sge *sge, uint64_t to, uint32_t key)
{
    struct shunt_transport_ctx *ctx = rail->ep->ctx;
    const uint32_t slot = rdma_slot(rail, rail->posted);
    const bool behind = rail->nic->behind && sge->length > RDMA_SMALL;
    struct ibv_send_wr *wr = &rail->wr, *bad;
    int error;

    wr->wr_id = id_of(rail, slot);
    wr->sg_list = sge;
    wr->num_sge = sge->length > 0;
    wr->send_flags = IBV_SEND_SIGNALED;
    if (sge->length <= rail->inlined)
        wr->send_flags |= IBV_SEND_INLINE;
    wr->imm_data = htonl(make_imm(rail, request));
    wr->wr.rdma.remote_addr = to;
    wr->wr.rdma.rkey = key;
    error = behind ? post_behind(rail, wr) : ibv_post_send(rail->qp, wr, &bad);
    wr->sg_list = NULL;
    if (error)
        ctx->retry = true;
    if (error == ENOMEM || error == EAGAIN)
        return SHUNT_IN_PROGRESS;
    if (error) {
        rdma_rail_break(rail, "a request cannot be posted: %s",
                        strerror(error));
        return rail->ep->broken ? SHUNT_ERR_PEER : SHUNT_IN_PROGRESS;
    }
    rail->log[slot] = *request;
    rail->log[slot].sent = rail->log[slot].confirmed = false;
    rail->log[slot].behind = behind;
    rail->posted++;
    rail->sends += 1 + behind;
    rail->bytes += sge->length;
    rail->nic->bytes += sge->length;
    ctx->sends += 1 + behind;
    ctx->requests += 1 + behind;
    ctx->behind += behind;
    return SHUNT_OK;
}

/* --- records ----------------------------------------------------------------- */

/* Add a report to the record. */
static void report_in(const struct rdma_rail *rail, struct rdma_record *record)
{
    record->progress = (struct rdma_progress){.requests = rail->here.base,
                                              .records = rail->ep->next_record};
    record->refused = rail->ep->refusals;
}

static void reported(struct rdma_rail *rail)
{
    rail->reported = rail->here.base;
    rail->ep->lines_freed = 0;
    rail->report = false;
    rail->ep->refusals_reported = rail->ep->refusals;
}

/* The lines of the ring that a record gets. */
struct ring_range {
    uint32_t line, lap, lines;
    uint32_t skipped; /* lines skipped before it, at the end of the ring */
};

static bool find_range(const struct shunt_transport_ep *ep,
                       const struct rdma_record *record, bool own,
                       struct ring_range *range)
{
    const size_t bytes = sizeof(*record) + record->bytes;
    const uint32_t lines = (uint32_t)((bytes + RDMA_LINE - 1) / RDMA_LINE);
    const bool wraps = ep->tail + lines > RDMA_LINES;

    *range = (struct ring_range){
        .line = wraps ? 0 : ep->tail,
        .lap = ep->lap + wraps,
        .lines = lines,
        .skipped = wraps ? RDMA_LINES - ep->tail : 0,
    };
    return !ep->again_count &&
           ep->sequence - ep->records_freed < RDMA_RECORDS &&
           ep->used + range->skipped + lines + (own ? 0 : RDMA_OWN_LINES) <=
               RDMA_LINES;
}

bool rdma_has_room(const struct shunt_transport_ep *ep,
                   const struct rdma_record *record)
{
    struct ring_range range;

    return rdma_rail_for_record(ep) && find_range(ep, record, false, &range);
}

/* Must this record ask for a report? If many records are under way, one of them
 * must ask, because the peer's direct puts report too little. They report only
 * arrivals over their own rail. They do not report arrivals over other rails,
 * or large puts that are in effect. */
static bool must_ask(const struct shunt_transport_ep *ep)
{
    const uint32_t under_way = ep->sequence - ep->records_confirmed;
    const uint32_t asked = ep->ask_sequence - 1 - ep->records_confirmed;

    return under_way >= RDMA_DIRECTS && !(ep->asked && asked < under_way);
}

/* Post the record that is in the mirror of the peer's ring at this place. */
static enum shunt_status post_from_mirror(struct rdma_rail *rail,
                                          const struct rdma_request *request,
                                          uint32_t bytes)
{
    struct shunt_transport_ep *ep = rail->ep;
    const size_t at =
        (size_t)rdma_bits(request->place, RDMA_LINE_BITS) * RDMA_LINE;
    struct ibv_sge sge = {
        .addr = (uint64_t)(uintptr_t)(ep->boxes[0].ring + at),
        .length = bytes,
        .lkey = ep->boxes_mr.only[rail->nic->index]->lkey,
    };
    enum shunt_status status = rdma_post(
        rail, request, &sge, rail->theirs.inbox + at, rail->theirs.inbox_key);

    if (!status)
        reported(rail);
    return status;
}

enum shunt_status rdma_post_record(struct shunt_transport_ep *ep,
                                   struct rdma_record *record,
                                   const void *payload, bool own,
                                   uint32_t *place)
{
    struct rdma_request request = {.kind = RDMA_RECORD};
    struct rdma_rail *rail = rdma_rail_for_record(ep);
    enum shunt_status status;
    unsigned char *at;
    struct ring_range range;

    if (!rail || !find_range(ep, record, own, &range))
        return SHUNT_IN_PROGRESS;
    at = ep->boxes[0].ring + (size_t)range.line * RDMA_LINE;
    record->sequence = ep->sequence;
    record->lines = (uint16_t)range.lines;
    record->asks = record->asks || must_ask(ep);
    report_in(rail, record);
    memcpy(at, record, sizeof(*record));
    if (record->bytes)
        memcpy(at + sizeof(*record), payload, record->bytes);
    request.record = ep->sequence;
    request.place = place_of(range.line, range.lap);
    status = post_from_mirror(rail, &request,
                              (uint32_t)sizeof(*record) + record->bytes);
    if (status)
        return status;
    ep->targets[ep->sequence % RDMA_RECORDS] =
        (struct rdma_target){.lines = (uint16_t)(range.lines + range.skipped),
                             .alone = !record->fragments};
    ep->sequence++;
    if (record->asks) {
        ep->asked = true;
        ep->ask_sequence = ep->sequence;
    }
    ep->tail = range.line + range.lines;
    ep->lap = range.lap;
    ep->used += range.skipped + range.lines;
    if (place)
        *place = request.place;
    return SHUNT_OK;
}

enum shunt_status rdma_repost_record(struct rdma_rail *rail,
                                     const struct rdma_request *request)
{
    const size_t at =
        (size_t)rdma_bits(request->place, RDMA_LINE_BITS) * RDMA_LINE;
    unsigned char *mirror = rail->ep->boxes[0].ring + at;
    struct rdma_target *target =
        &rail->ep->targets[request->record % RDMA_RECORDS];
    struct rdma_record record;
    enum shunt_status status;

    memcpy(&record, mirror, sizeof(record));
    report_in(rail, &record);
    memcpy(mirror, &record, sizeof(record));
    target->sent = false;
    status = post_from_mirror(rail, request,
                              (uint32_t)sizeof(record) + record.bytes);
    if (status)
        target->sent = true;
    return status;
}

/* --- reports ----------------------------------------------------------------- */

static enum shunt_status post_report(struct rdma_rail *rail)
{
    struct shunt_transport_ep *ep = rail->ep;
    const uint32_t slot = rdma_slot(rail, rail->posted);
    struct rdma_report *mirror = &ep->boxes[0].reports[rail->index][slot];
    const struct rdma_request request = {.kind = RDMA_REPORT,
                                         .place = ep->refusals};
    struct ibv_sge sge = {
        .addr = (uint64_t)(uintptr_t)mirror,
        .length = sizeof(*mirror),
        .lkey = ep->boxes_mr.only[rail->nic->index]->lkey,
    };
    enum shunt_status status;

    *mirror =
        (struct rdma_report){{rail->here.base, ep->next_record}, ep->sequence};
    status = rdma_post(rail, &request, &sge,
                       rail->theirs.inbox + (uint64_t)((unsigned char *)mirror -
                                                       ep->boxes[0].ring),
                       rail->theirs.inbox_key);
    if (!status)
        reported(rail);
    return status;
}

void rdma_post_probe(struct rdma_rail *rail)
{
    rail->probed = !post_report(rail);
}

/* Returns 1 + the number of the last request that has arrived. */
static uint32_t end_of(const struct rdma_arrivals *arrivals)
{
    return arrivals->base +
           (arrivals->beyond ? 64 - (uint32_t)__builtin_clzll(arrivals->beyond)
                             : 0);
}

void rdma_want_report(struct shunt_transport_ep *ep)
{
    bool news = false;

    for (int i = 0; i < ep->rails; i++) {
        struct rdma_rail *rail = &ep->rail[i];

        rail->report_to = end_of(&rail->here);
        rail->report = rail->report || rail->here.base != rail->reported;
        news = news || (rail->report && rail->stage == RDMA_REACHED);
    }
    for (int i = 0; i < ep->rails && !news; i++)
        ep->rail[i].report = true; /* no arrivals are new: report the records */
}

void rdma_post_reports(struct shunt_transport_ep *ep)
{
    for (int i = 0; i < ep->rails; i++) {
        struct rdma_rail *rail = &ep->rail[i];

        if (rdma_rail_report_is_due(rail) && rail->stage == RDMA_REACHED &&
            rdma_has_credit(rail, true))
            post_report(rail);
    }
}

/* Free lines that the peer does not need any more, and whose mirror no NIC
 * reads any more. */
static void free_lines(struct shunt_transport_ep *ep)
{
    while (ep->records_freed != ep->records_confirmed) {
        const struct rdma_target *t =
            &ep->targets[ep->records_freed % RDMA_RECORDS];

        if (!t->sent)
            return;
        ep->used -= t->lines;
        ep->records_freed++;
    }
}

/* A record takes effect when it and all records before it have arrived. Count
 * such records as confirmed. */
static void note_effects(struct shunt_transport_ep *ep)
{
    while (ep->records_confirmed != ep->sequence &&
           ep->targets[ep->records_confirmed % RDMA_RECORDS].arrived)
        ep->records_confirmed++;
}

static inline void request_reported(struct rdma_rail *rail,
                                    struct rdma_request *request)
{
    struct shunt_transport_ep *ep = rail->ep;
    struct rdma_target *target = &ep->targets[request->record % RDMA_RECORDS];

    ep->moved += request->kind != RDMA_REPORT;
    if (ep->broken)
        return;
    /* If the put is known to be in effect, another record may already use its
     * place in `targets`. */
    if ((request->kind == RDMA_RECORD || is_direct(request)) &&
        (int32_t)(request->record - ep->records_confirmed) >= 0)
        target->arrived = target->alone;
    if (is_direct(request) &&
        ep->directs[request->record % RDMA_DIRECTS].remote)
        rdma_direct_confirmed(ep, request->record);
    if (!is_fragment(request) || !request->large || request->confirmed)
        return;
    request->confirmed = true;
    request->large->unconfirmed--;
    rdma_large_look(request->large);
}

/* The peer reports that `requests` more requests have arrived. A number beyond
 * the requests under way means that the report is outdated. */
static void on_report(struct rdma_rail *rail, uint32_t requests)
{
    if (requests > rail->posted - rail->confirmed)
        return;
    for (; requests > 0; requests--)
        request_reported(rail, &rail->log[rdma_slot(rail, rail->confirmed++)]);
}

void rdma_on_report(struct rdma_rail *rail, uint32_t number,
                    const struct rdma_progress *progress)
{
    struct shunt_transport_ep *ep = rail->ep;
    const uint32_t records = progress->records - ep->records_confirmed;

    if ((int32_t)(number - rail->newest_report) >= 0)
        rail->newest_report = number + 1;
    on_report(rail, progress->requests - rail->confirmed);
    if (records <= ep->sequence - ep->records_confirmed)
        ep->records_confirmed += records;
    note_effects(ep);
    free_lines(ep);
}

/* The bits identify the total only if this report is the newest, because each
 * request reports at least as many arrivals as the requests before it. */
void rdma_on_report_bits(struct rdma_rail *rail, uint32_t number,
                         uint32_t place)
{
    const uint32_t arrived = place >> (RDMA_WORD_BITS + RDMA_TURN_BITS);
    const uint32_t requests =
        rdma_bits(arrived - rail->confirmed, RDMA_ARRIVED_BITS);

    if ((int32_t)(number - rail->newest_report) < 0)
        return;
    rail->newest_report = number + 1;
    if (!requests)
        return;
    on_report(rail, requests);
    note_effects(rail->ep);
    free_lines(rail->ep);
}

/* --- what becomes of requests ------------------------------------------------ */

void rdma_request_confirmed(struct rdma_rail *rail,
                            struct rdma_request *request)
{
    request_reported(rail, request);
}

void rdma_request_sent(struct rdma_rail *rail, struct rdma_request *request,
                       bool ok)
{
    struct shunt_transport_ep *ep = rail->ep;
    struct rdma_large *large = request->large;

    request->sent = true;
    rail->sends -= 1 + request->behind;
    ep->ctx->sends -= 1 + request->behind;
    if (request->kind == RDMA_RECORD) {
        ep->targets[request->record % RDMA_RECORDS].sent = true;
        free_lines(ep);
    }
    if (is_direct(request))
        rdma_direct_sent(ep, request->record, ok);
    if (!is_fragment(request) || !large)
        return;
    large->under_way--;
    /* With one rail, the acknowledgement of the peer's NIC counts as a report
     * of the peer. If the NIC loses a request that it has acknowledged, the
     * peer is lost anyway. */
    if (ok && ep->rails == 1) {
        large->unconfirmed -= !request->confirmed;
        request->large = NULL;
    }
    rdma_large_look(large);
}

/* The peer's NIC refused a write. If the owner has deregistered the memory
 * meanwhile, nothing more is written there, and the put is refused like a put
 * through the ring. */
static void on_refused(struct rdma_rail *rail,
                       const struct rdma_request *request)
{
    if (is_fragment(request) && request->large)
        request->large->remote->refused = true;
    else if (request->kind == RDMA_DIRECT && request->bytes)
        rdma_direct_refused(rail->ep, request->record);
    else
        rdma_break(rail->ep, "%s: its ring cannot be written to",
                   rail->nic->name);
}

void rdma_on_sent(struct rdma_nic *nic, const struct ibv_wc *wc)
{
    struct shunt_transport_ep *ep = nic->ctx->eps[wc->wr_id >> 32];
    struct rdma_rail *rail = &ep->rail[wc->wr_id >> 8 & 0xff];
    struct rdma_request *request = &rail->log[wc->wr_id >> 1 & 0x7f];

    if (rdma_bits(rail->life, 16) != (wc->wr_id >> 16 & 0xffff) ||
        request->sent)
        return; /* a completion of a queue pair that no longer exists */
    if (wc->status == IBV_WC_REM_ACCESS_ERR)
        on_refused(rail, request);
    rdma_request_sent(rail, request, wc->status == IBV_WC_SUCCESS);
    if (wc->status == IBV_WC_SUCCESS)
        rail->acked = true;
    else
        rdma_rail_break(rail, "a request failed: %s",
                        ibv_wc_status_str(wc->status));
}
