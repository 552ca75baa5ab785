// SPDX-License-Identifier: Apache-2.0
/*
 * Completions.
 *
 * An immediate that has come says that the data of its own request is there, and
 * nothing of any other. So a record is read only after its own immediate, and its
 * signal is raised when it is the first in the ring and the immediates of all its
 * fragments have come, in whatever order.
 */
#include <arpa/inet.h>
#include <string.h>

#include "transports/rdma/rdma.h"

#define BATCH 32

/* --- puts -------------------------------------------------------------------- */

/* The registration of this number, if the bytes are inside. */
static struct shunt_transport_reg *region_of(struct shunt_transport_ctx *ctx,
                                             uint64_t id, uint64_t offset,
                                             uint64_t bytes)
{
    struct transport_region *region = transport_region_find(&ctx->regs, id);

    return region && transport_region_has(region, offset, bytes)
               ? (struct shunt_transport_reg *)(void *)region
               : NULL;
}

static void take_effect(struct shunt_transport_ep *ep,
                        const struct rdma_record *record,
                        const unsigned char *payload)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    struct shunt_transport_reg *reg = NULL, *signal = NULL;

    if (record->region)
        reg = region_of(ctx, record->region, record->offset, record->bytes);
    if (record->signal_region && record->signal_offset % 8 == 0)
        signal =
            region_of(ctx, record->signal_region, record->signal_offset, 8);
    if (!reg != !record->region || !signal != !record->signal_region) {
        ep->refused = true;
        return;
    }
    if (reg && record->bytes)
        memcpy((unsigned char *)reg->region.memory.addr + record->offset,
               payload, record->bytes);
    if (signal)
        transport_region_signal(&signal->region, record->signal_offset,
                                record->signal_value);
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

/* A peer of another version, or damaged memory. */
static void damaged(struct shunt_transport_ep *ep)
{
    rdma_break(ep, "its ring is damaged at record %u", ep->next_record);
}

/* Is what begins at the head the rest of the ring, in which the next record has
 * no room? It is then at the beginning. */
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

/* Let the records that have come, with all their fragments, take effect. */
static void advance(struct shunt_transport_ep *ep)
{
    while (!ep->gone) {
        struct rdma_line *line = &ep->lines[ep->head % RDMA_LINES];
        struct rdma_record record;

        if (ep->head == RDMA_LINES || !line->record) {
            if (!skip_rest(ep))
                return;
            continue;
        }
        record_at(ep, ep->head, &record);
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
        take_effect(ep, &record, line_at(ep, ep->head) + sizeof(record));
        *line = (struct rdma_line){.record = false};
        ep->head += record.lines;
        ep->lines_freed += record.lines;
        ep->next_record++;
        if (record.asks)
            rdma_want_report(ep);
    }
}

/* A record has come; what it reports is true whether its turn has come or not. */
static void on_record(struct rdma_rail *rail, uint32_t line)
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
    rdma_on_told(rail, &record.progress);
    if (record.refused)
        ep->failed = SHUNT_ERR_INVALID;
}

static void on_report(struct rdma_rail *rail, uint32_t number, bool refused)
{
    const struct rdma_progress *words = rail->ep->boxes[1].reports[rail->index];
    struct rdma_progress progress;

    memcpy(&progress, &words[rdma_slot(rail, number)], sizeof(progress));
    rdma_on_told(rail, &progress);
    if (refused)
        rail->ep->failed = SHUNT_ERR_INVALID;
    rail->heard = true;
}

/* The request of this number, in the lowest bits, has come. False: it has before, or
 * there can be none. */
static bool note_number(struct rdma_rail *rail, uint32_t *number)
{
    struct rdma_come *here = &rail->here;
    const uint32_t behind = rdma_bits(*number - here->base, RDMA_NUMBER_BITS);

    if (behind >= rail->credits || (here->beyond >> behind & 1))
        return false;
    *number = here->base + behind;
    here->beyond |= (uint64_t)1 << behind;
    for (; here->beyond & 1; here->beyond >>= 1)
        here->base++;
    return true;
}

static void on_imm(struct rdma_rail *rail, uint32_t imm)
{
    struct shunt_transport_ep *ep = rail->ep;
    const uint32_t line = rdma_bits(imm, RDMA_LINE_BITS);
    const uint32_t lap = rdma_bits(imm >> RDMA_LINE_BITS, RDMA_LAP_BITS);
    const uint32_t kind = imm >> 30;
    const bool ahead = line < ep->head; /* in the next lap */
    uint32_t number = imm >> (RDMA_LINE_BITS + RDMA_LAP_BITS);
    const uint32_t epoch =
        rdma_bits(number >> RDMA_NUMBER_BITS, RDMA_EPOCH_BITS);

    number = rdma_bits(number, RDMA_NUMBER_BITS);
    if (epoch != rdma_bits(rail->ours.epoch, RDMA_EPOCH_BITS) ||
        !note_number(rail, &number)) {
        damaged(ep);
        return;
    }
    if (kind == RDMA_REPORT) {
        on_report(rail, number, line & 1);
        return;
    }
    if (lap != rdma_bits(ep->head_lap + ahead, RDMA_LAP_BITS)) {
        damaged(ep);
        return;
    }
    if (kind == RDMA_RECORD)
        on_record(rail, line);
    else
        ep->lines[line].fragments++;
    advance(ep);
}

/* --- completions ------------------------------------------------------------- */

/* Post as many receive requests as have been used. */
static void post_receives(struct rdma_nic *nic, int count)
{
    struct ibv_recv_wr wrs[BATCH] = {{.wr_id = 0}}, *bad;

    for (int i = 0; i + 1 < count; i++)
        wrs[i].next = &wrs[i + 1];
    /* It has room: these have just been taken out. */
    if (count > 0 && ibv_post_srq_recv(nic->srq, wrs, &bad) &&
        nic->ctx->host->log && !nic->dead)
        nic->ctx->host->log(SHUNT_TRANSPORT_ERROR, "rdma",
                            "%s: a receive request cannot be posted",
                            nic->name);
}

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

bool rdma_poll_nic(struct rdma_nic *nic)
{
    struct ibv_wc wc[BATCH];
    int count = nic->kept_count, received = 0;

    if (count) {
        wc[0] = nic->kept[0];
        nic->kept_count = 0;
    } else {
        count = ibv_poll_cq(nic->cq, BATCH, wc);
    }
    if (count <= 0)
        return false;
    for (int i = 0; i < count; i++)
        received += wc[i].wr_id == 0;
    post_receives(nic, received);
    for (int i = 0; i < count; i++) {
        /* NULL: it has been destroyed. */
        struct rdma_rail *rail = rdma_rail_by_qp(nic, wc[i].qp_num);

        if (!rail)
            continue;
        if (wc[i].wr_id)
            rdma_on_sent(nic, &wc[i]);
        else
            on_received(rail, &wc[i]);
        if (rail->ep->broken)
            continue;
        rdma_post_fragments(rail->ep);
        rdma_post_reports(rail->ep);
    }
    return true;
}

bool rdma_poll(struct shunt_transport_ctx *ctx)
{
    bool any = false;

    for (int n = 0; n < ctx->nic_count; n++)
        any = rdma_poll_nic(&ctx->nics[n]) || any;
    return any;
}
