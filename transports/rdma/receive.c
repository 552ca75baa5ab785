// SPDX-License-Identifier: Apache-2.0
/*
 * Completions.
 *
 * An immediate proves that the data of its own request has arrived, and nothing
 * about other requests. So a record is read only after its own immediate. The
 * signal of a record is raised when the record is the first in the ring and the
 * immediates of all its fragments have arrived, in any order.
 */
#include <arpa/inet.h>
#include <string.h>

#include "transports/rdma/rdma.h"

/* --- puts -------------------------------------------------------------------- */

/* Returns the registration with this number if the bytes are inside it, or
 * NULL. */
static struct shunt_transport_reg *region_of(struct shunt_transport_ctx *ctx,
                                             uint64_t id, uint64_t offset,
                                             uint64_t bytes)
{
    struct transport_region *region = transport_region_find(&ctx->regs, id);

    return region && transport_region_has(region, offset, bytes)
               ? (struct shunt_transport_reg *)(void *)region
               : NULL;
}

/* Returns the registration that has the signal word, or NULL. */
static struct shunt_transport_reg *
signal_region_of(struct shunt_transport_ctx *ctx, uint64_t id, uint64_t offset)
{
    return id && offset % 8 == 0 ? region_of(ctx, id, offset, 8) : NULL;
}

/* Refuse a put, and count it for the next report. All refusals since the last
 * report count as one, because the count in a report has only 8 bits. After the
 * failure of a rail, many puts may take effect at once. */
static void refuse(struct shunt_transport_ep *ep)
{
    if (ep->refusals == ep->refusals_reported)
        ep->refusals++;
    ep->refused = true;
}

static void take_effect(struct shunt_transport_ep *ep,
                        const struct rdma_record *record,
                        const unsigned char *payload)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    struct shunt_transport_reg *reg = NULL, *signal;

    if (record->region)
        reg = region_of(ctx, record->region, record->offset, record->bytes);
    signal =
        signal_region_of(ctx, record->signal_region, record->signal_offset);
    if (!reg != !record->region || !signal != !record->signal_region) {
        refuse(ep);
        return;
    }
    if (reg && record->bytes)
        memcpy((unsigned char *)reg->region.memory.addr + record->offset,
               payload, record->bytes);
    if (signal)
        transport_region_signal(&signal->region, record->signal_offset,
                                record->signal_value);
}

/* Raise the signal of a direct put. */
static void take_direct_effect(struct shunt_transport_ep *ep,
                               const struct rdma_known *word)
{
    struct shunt_transport_reg *signal =
        signal_region_of(ep->ctx, word->region, word->offset);

    if (signal)
        transport_region_signal(&signal->region, word->offset, word->value);
    else
        refuse(ep);
}

#define DIRECT_MISSING 0x80

/* Note that a direct put has arrived, or is missing; `place` is from its
 * immediate. False: another put has the same turn, so memory is damaged. */
static bool note_direct(struct shunt_transport_ep *ep, uint32_t place,
                        bool missing)
{
    uint8_t *arrived =
        &ep->arrived[rdma_bits(place >> RDMA_WORD_BITS, RDMA_TURN_BITS)];

    if (*arrived)
        return false;
    *arrived = (uint8_t)((1 + rdma_bits(place, RDMA_WORD_BITS)) |
                         (missing ? DIRECT_MISSING : 0));
    return true;
}

/* Let the next put take effect if it is a direct put that has arrived. False:
 * it is not. */
static bool take_direct(struct shunt_transport_ep *ep)
{
    uint8_t *arrived = &ep->arrived[ep->next_record % RDMA_DIRECTS];
    const bool missing = *arrived & DIRECT_MISSING;
    const unsigned number = (*arrived & ~(unsigned)DIRECT_MISSING) - 1;

    if (!*arrived)
        return false;
    if (number != RDMA_NO_WORD)
        ep->words_here[number].value += ep->words_here[number].step;
    if (missing)
        refuse(ep);
    else if (number != RDMA_NO_WORD)
        take_direct_effect(ep, &ep->words_here[number]);
    *arrived = 0;
    ep->next_record++;
    return true;
}

/* --- the ring ---------------------------------------------------------------- */

static const unsigned char *line_at(const struct shunt_transport_ep *ep,
                                    uint32_t line)
{
    return ep->boxes[1].ring + (size_t)line * RDMA_LINE;
}

static void record_at(const struct shunt_transport_ep *ep, uint32_t line,
                      struct rdma_record *record)
{
    memcpy(record, line_at(ep, line), sizeof(*record));
}

/* Give the peer up: it is of another version, or memory is damaged. */
static void damaged(struct shunt_transport_ep *ep)
{
    rdma_break(ep, "its ring is damaged at record %u", ep->next_record);
}

/* If the next record had no room in the rest of the ring, it is at the
 * beginning of the ring. Then skip the rest and return true. */
static bool skip_rest(struct shunt_transport_ep *ep)
{
    struct rdma_record record;

    if (ep->head == 0 || !ep->lines[0].record)
        return false;
    record_at(ep, 0, &record);
    if (record.sequence != ep->next_record)
        return false;
    ep->lines_freed += RDMA_LINES - ep->head;
    ep->head = 0;
    ep->head_lap++;
    return true;
}

/* Let puts take effect in the order of their records, up to the first put that
 * has not arrived with all its fragments. */
static void advance(struct shunt_transport_ep *ep)
{
    while (!ep->gone) {
        struct rdma_line *line = &ep->lines[ep->head % RDMA_LINES];
        struct rdma_record record;

        if (take_direct(ep))
            continue;
        if (ep->head == RDMA_LINES || !line->record) {
            if (!skip_rest(ep))
                return;
            continue;
        }
        record_at(ep, ep->head, &record);
        if (record.sequence - ep->next_record - 1 < RDMA_DIRECTS)
            return; /* earlier direct puts have not arrived */
        if (record.fragments > line->fragments) {
            if (record.asks && !line->reported)
                rdma_want_report(ep);
            line->reported = true;
            return;
        }
        if (record.sequence != ep->next_record ||
            record.fragments < line->fragments || !record.lines ||
            record.lines > RDMA_LINES - ep->head ||
            sizeof(record) + record.bytes > (size_t)record.lines * RDMA_LINE) {
            damaged(ep);
            return;
        }
        if (record.signal_region)
            rdma_word_learn(ep->words_here, record.signal_region,
                            record.signal_offset, record.signal_value);
        if (line->missing)
            refuse(ep);
        else
            take_effect(ep, &record, line_at(ep, ep->head) + sizeof(record));
        *line = (struct rdma_line){.record = false};
        ep->head += record.lines;
        ep->lines_freed += record.lines;
        ep->next_record++;
        if (record.asks)
            rdma_want_report(ep);
    }
}

/* The peer had refused `count` puts of this rank before it sent its record
 * `after`. A smaller count than known is outdated. A peer that withdraws memory
 * sends the reason in an earlier record. So the refusal takes effect only after
 * the records before `after`. */
static void on_refusals(struct shunt_transport_ep *ep, uint8_t count,
                        uint32_t after)
{
    if ((int8_t)(uint8_t)(count - ep->refusals_known) <= 0)
        return;
    ep->refusals_known = count;
    ep->refusals_wait = true;
    ep->refusals_after = after;
}

static void look_at_refusals(struct shunt_transport_ep *ep)
{
    if (!ep->refusals_wait ||
        (int32_t)(ep->refusals_after - ep->next_record) > 0)
        return;
    ep->refusals_wait = false;
    ep->has_refused = true;
    ep->failed = SHUNT_ERR_INVALID;
}

/* A record has arrived. Its report is valid even before it takes effect. */
static void on_record(struct rdma_rail *rail, uint32_t number, uint32_t line)
{
    struct shunt_transport_ep *ep = rail->ep;
    struct rdma_record record;

    if (line * RDMA_LINE + sizeof(record) > RDMA_RING ||
        ep->lines[line].record) {
        damaged(ep);
        return;
    }
    ep->lines[line].record = true;
    record_at(ep, line, &record);
    rdma_on_report(rail, number, &record.progress);
    on_refusals(ep, record.refused, record.sequence);
}

static void on_report(struct rdma_rail *rail, uint32_t number, uint8_t refused)
{
    const struct rdma_report *words = rail->ep->boxes[1].reports[rail->index];
    struct rdma_report report;

    memcpy(&report, &words[rdma_slot(rail, number)], sizeof(report));
    rdma_on_report(rail, number, &report.progress);
    on_refusals(rail->ep, refused, report.sent);
    rail->probe_arrived = true;
}

/* Note that a request has arrived. `*number` has the lowest bits of its number,
 * and is set to the whole number. False: the request had arrived before, or it
 * cannot exist. */
static bool note_number(struct rdma_rail *rail, uint32_t *number)
{
    struct rdma_arrivals *here = &rail->here;
    const uint32_t behind = rdma_bits(*number - here->base, RDMA_NUMBER_BITS);

    if (behind >= rail->credits || (here->beyond >> behind & 1))
        return false;
    *number = here->base + behind;
    here->beyond |= (uint64_t)1 << behind;
    for (; here->beyond & 1; here->beyond >>= 1)
        here->base++;
    return true;
}

static void on_direct(struct shunt_transport_ep *ep, uint32_t place,
                      bool missing)
{
    if (!note_direct(ep, place, missing)) {
        damaged(ep);
        return;
    }
    advance(ep);
    look_at_refusals(ep);
}

static void on_imm(struct rdma_rail *rail, uint32_t imm)
{
    struct shunt_transport_ep *ep = rail->ep;
    const uint32_t line = rdma_bits(imm, RDMA_LINE_BITS);
    const uint32_t kind = imm >> 30;
    const uint32_t place = rdma_bits(imm, RDMA_LINE_BITS + RDMA_LAP_BITS);
    const unsigned lap_bits =
        kind == RDMA_REPORT ? RDMA_EXTRA_LAP_BITS : RDMA_LAP_BITS;
    const uint32_t lap = rdma_bits(imm >> RDMA_LINE_BITS, lap_bits);
    const bool ahead = line < ep->head; /* the line is in the next lap */
    uint32_t number = imm >> (RDMA_LINE_BITS + RDMA_LAP_BITS);
    const uint32_t epoch =
        rdma_bits(number >> RDMA_NUMBER_BITS, RDMA_EPOCH_BITS);

    number = rdma_bits(number, RDMA_NUMBER_BITS);
    if (epoch != rdma_bits(rail->ours.epoch, RDMA_EPOCH_BITS) ||
        !note_number(rail, &number)) {
        damaged(ep);
        return;
    }
    if (kind == RDMA_REPORT && !(place & RDMA_EXTRA)) {
        on_report(rail, number, (uint8_t)line);
        look_at_refusals(ep);
        return;
    }
    ep->moved++;
    if (kind == RDMA_DIRECT)
        rdma_on_report_bits(rail, number, place);
    if (kind == RDMA_DIRECT ||
        (kind == RDMA_REPORT && place & RDMA_EXTRA_DIRECT)) {
        on_direct(ep, place, kind == RDMA_REPORT && place & RDMA_EXTRA_MISSING);
        return;
    }
    if (lap != rdma_bits(ep->head_lap + ahead, lap_bits)) {
        damaged(ep);
        return;
    }
    if (kind == RDMA_RECORD) {
        on_record(rail, number, line);
    } else {
        ep->lines[line].fragments++;
        ep->lines[line].missing |= kind == RDMA_REPORT;
    }
    advance(ep);
    look_at_refusals(ep);
}

/* --- completions ------------------------------------------------------------- */

static void on_received(struct rdma_rail *rail, const struct ibv_wc *wc)
{
    if (wc->status != IBV_WC_SUCCESS) {
        rdma_rail_break(rail, "receiving failed: %s",
                        ibv_wc_status_str(wc->status));
        return;
    }
    if (rail->ep->gone)
        return;
    rail->ep->ctx->events++;
    on_imm(rail, ntohl(wc->imm_data));
}

int rdma_poll_nic(struct rdma_nic *nic)
{
    struct ibv_wc wc[RDMA_BATCH];
    int count = nic->kept_count;

    if (count) {
        wc[0] = nic->kept[0];
        nic->kept_count = 0;
    } else {
        count = ibv_poll_cq(nic->cq, RDMA_BATCH, wc);
    }
    if (count <= 0) {
        if (nic->used >= RDMA_SPARE / 2)
            rdma_post_receives_again(nic);
        return 0;
    }
    for (int i = 0; i < count; i++) {
        /* NULL if the queue pair was destroyed */
        struct rdma_rail *rail = rdma_rail_by_qp(nic, wc[i].qp_num);

        /* Post used receive requests again before this arrival is reported,
         * because the peer may send more after the report. */
        if (!wc[i].wr_id && ++nic->used >= RDMA_SPARE)
            rdma_post_receives_again(nic);
        if (!rail)
            continue;
        if (wc[i].wr_id)
            rdma_on_sent(nic, &wc[i]);
        else
            on_received(rail, &wc[i]);
        if (rail->ep->broken)
            continue;
        if (rail->ep->larges || rail->ep->again_count)
            rdma_post_fragments(rail->ep);
        if (rdma_report_is_due(rail->ep))
            rdma_post_reports(rail->ep);
    }
    return count;
}
