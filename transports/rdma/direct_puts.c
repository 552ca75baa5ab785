// SPDX-License-Identifier: Apache-2.0
/*
 * Direct puts: one request writes the payload to its destination, and there is
 * no record. The immediate has what a record would contain:
 *
 *     its turn    the lowest bits of the number that its record would have.
 *                 They suffice: at most RDMA_DIRECTS records are under way.
 *     the signal  one of the *words* that both sides know. A record names a
 *                 word and its value in full. From the second record on, both
 *                 sides know by how much the value grows. As long as the value
 *                 grows by that step, the number of the word is enough. Both
 *                 sides learn from the same records in the same order: the
 *                 sender when it posts them, the receiver when they take
 *                 effect. So neither a failed rail nor a late report makes the
 *                 two sides differ.
 *     arrivals    the lowest bits of the number of requests that have arrived
 *                 over this rail. A record is in effect when it and all earlier
 *                 records have arrived.
 *
 * The payload is written before earlier puts have taken effect. So a put that
 * writes to the same bytes as such an earlier put cannot be direct. The payload
 * may have to be sent again, over another rail or over the repaired one, so it
 * must be in registered memory. The payload is one request, so it must not
 * cross from one piece of a registration to the next. A put that cannot be
 * direct uses the ring, or is a large put, and both sides learn its word.
 *
 * The peer's NIC may refuse a direct put because the memory was withdrawn. Then
 * the sender reports the put as missing. The receiver lets the word grow, and
 * raises no signal.
 */
#include <string.h>

#include "transports/rdma/rdma.h"

/* --- words ------------------------------------------------------------------- */

static unsigned number_of(uint64_t region, uint64_t offset)
{
    const uint64_t mixed = (region << 20 ^ offset) * 0x9e3779b97f4a7c15u;

    return (unsigned)(mixed >> 40) % RDMA_WORDS;
}

void rdma_word_learn(struct rdma_known *words, uint64_t region, uint64_t offset,
                     uint64_t value)
{
    struct rdma_known *word = &words[number_of(region, offset)];
    const bool same = word->region == region && word->offset == offset;

    *word = (struct rdma_known){
        .region = region,
        .offset = offset,
        .value = value,
        .step = same ? value - word->value : 1,
    };
}

/* Would the peer raise exactly this signal for a known word? If so, `*number`
 * is that word. */
static bool is_known(const struct shunt_transport_ep *ep,
                     const struct shunt_transport_put *put, unsigned *number)
{
    const struct rdma_known *word;

    *number = RDMA_NO_WORD;
    if (!put->signal)
        return true;
    *number = number_of(put->signal->far.region, put->signal_offset);
    word = &ep->words[*number];
    return word->region == put->signal->far.region &&
           word->offset == put->signal_offset &&
           word->value + word->step == put->signal_value;
}

/* --- what the NIC reads ------------------------------------------------------ */

static struct rdma_direct *place_of(struct shunt_transport_ep *ep,
                                    uint32_t sequence)
{
    return &ep->directs[sequence % RDMA_DIRECTS];
}

/* Returns the state of this direct put, or NULL if it has ended. A completion
 * or report of its request may arrive long after the end. */
static struct rdma_direct *find(struct shunt_transport_ep *ep,
                                uint32_t sequence)
{
    struct rdma_direct *direct = place_of(ep, sequence);

    return direct->remote && direct->sequence == sequence ? direct : NULL;
}

/* Return the memory to the caller. No NIC needs it any more. */
static void give_back(struct shunt_transport_ep *ep, struct rdma_direct *direct)
{
    rdma_reg_drop(direct->reg);
    direct->reg = NULL;
    if (direct->pending) {
        --*direct->pending;
        ep->lent--;
    }
    direct->pending = NULL;
}

static void end(struct shunt_transport_ep *ep, struct rdma_direct *direct)
{
    give_back(ep, direct);
    rdma_remote_drop(direct->remote);
    *direct = (struct rdma_direct){.remote = NULL};
}

static void look(struct shunt_transport_ep *ep, struct rdma_direct *direct)
{
    if (direct->under_way)
        return;
    if (!direct->unconfirmed || ep->broken)
        end(ep, direct);
    else if (direct->remote->refused)
        give_back(ep, direct);
}

void rdma_direct_refused(struct shunt_transport_ep *ep, uint32_t sequence)
{
    struct rdma_direct *direct = find(ep, sequence);

    if (direct)
        direct->remote->refused = true;
}

/* With one rail, an acknowledgement of the peer's NIC counts as a report of the
 * peer, as for fragments (post.c). */
void rdma_direct_sent(struct shunt_transport_ep *ep, uint32_t sequence, bool ok)
{
    struct rdma_direct *direct = find(ep, sequence);

    if (!direct)
        return;
    direct->under_way = false;
    if (ok && ep->rails == 1)
        direct->unconfirmed = false;
    look(ep, direct);
}

void rdma_direct_confirmed(struct shunt_transport_ep *ep, uint32_t sequence)
{
    struct rdma_direct *direct = find(ep, sequence);

    if (!direct)
        return;
    direct->unconfirmed = false;
    look(ep, direct);
}

void rdma_end_directs(struct shunt_transport_ep *ep, enum rdma_end how)
{
    for (uint32_t i = 0; ep->directs && i < RDMA_DIRECTS; i++) {
        struct rdma_direct *direct = &ep->directs[i];

        if (!direct->remote)
            continue;
        if (how == RDMA_END_UNPOSTED)
            look(ep, direct);
        else if (how == RDMA_END_ALL || direct->pending)
            end(ep, direct);
    }
}

/* --- putting ----------------------------------------------------------------- */

/* Returns a rail with room, or NULL. For payloads of up to RDMA_SMALL bytes it
 * is the nearest one, for larger payloads the one that has carried the fewest
 * bytes. */
static struct rdma_rail *find_rail(const struct shunt_transport_ep *ep,
                                   const struct shunt_transport_put *put)
{
    struct rdma_rail *best = NULL;

    for (int i = 0; i < ep->rails; i++) {
        struct rdma_rail *rail = &ep->rail[i];

        if (rdma_rail_has_room(rail) &&
            (!put->bytes || put->reg->pieces.mr[rail->nic->index]) &&
            (!best || (put->bytes > RDMA_SMALL && rail->bytes < best->bytes)))
            best = rail;
    }
    return best;
}

/* Returns the offset of the payload in its registration. */
static size_t place_in(const struct shunt_transport_reg *reg, const void *local)
{
    return (size_t)((const unsigned char *)local - reg->pieces.addr);
}

/* May NICs read the payload from the caller's memory? The payload may have to
 * be sent again. So with more than one rail, NICs may read it until the peer
 * has reported its arrival. That is too long for a caller that waits for
 * `pending`. */
static bool may_be_read(const struct shunt_transport_ep *ep,
                        const struct shunt_transport_put *put)
{
    if (!put->bytes)
        return true;
    return put->reg && (ep->rails == 1 || !put->pending) &&
           put->bytes <= rdma_piece_rest(put->reg->pieces.piece,
                                         place_in(put->reg, put->local));
}

/* May the NIC write to the remote memory? Memory registered for one operation
 * may be withdrawn. Then the peer refuses a small put in the ring, but its NIC
 * would end the connection. */
static bool may_be_written(const struct shunt_transport_put *put)
{
    const struct shunt_transport_remote *remote = put->remote;

    if (!put->bytes)
        return true;
    return (put->bytes > RDMA_SMALL || !remote->brief) && !remote->refused &&
           put->bytes <= rdma_piece_rest(remote->piece, put->offset);
}

/* Is there room for one more direct put? Refusals of this rank are reported by
 * a record first, because a direct put has no room for them. */
static bool has_turn(const struct shunt_transport_ep *ep)
{
    return !ep->again_count && ep->refusals == ep->refusals_reported &&
           ep->sequence - ep->records_confirmed < RDMA_DIRECTS &&
           ep->sequence - ep->records_freed < RDMA_RECORDS &&
           !ep->directs[ep->sequence % RDMA_DIRECTS].remote;
}

static enum shunt_status post(struct rdma_rail *rail,
                              const struct rdma_request *request,
                              const void *local, uint32_t local_key,
                              uint64_t target, uint32_t key)
{
    struct ibv_sge sge = {
        .addr = (uint64_t)(uintptr_t)local,
        .length = request->bytes,
        .lkey = local_key,
    };
    enum shunt_status status = rdma_post(rail, request, &sge, target, key);

    if (!status && request->kind == RDMA_DIRECT && !rail->ep->refused)
        rail->reported = rail->here.base;
    return status;
}

static uint32_t local_key_of(const struct rdma_rail *rail,
                             const struct shunt_transport_reg *reg,
                             const void *local)
{
    return reg->pieces
        .mr[rail->nic->index]
           [rdma_piece_of(reg->pieces.piece, place_in(reg, local))]
        ->lkey;
}

/* Returns the key of the peer's NIC for this offset in the peer's memory. */
static uint32_t key_of(const struct rdma_rail *rail,
                       const struct shunt_transport_remote *remote,
                       size_t offset)
{
    return remote->key[(size_t)rail->theirs_nic * remote->count +
                       rdma_piece_of(remote->piece, offset)];
}

/* Post the request without data. */
static enum shunt_status post_bare(struct rdma_rail *rail,
                                   const struct rdma_request *request)
{
    return post(rail, request, NULL, 0, rail->theirs.inbox,
                rail->theirs.inbox_key);
}

bool rdma_put_direct(struct shunt_transport_ep *ep,
                     const struct shunt_transport_put *put,
                     enum shunt_status *status)
{
    struct rdma_request request;
    struct rdma_rail *rail;
    uint64_t target = 0;
    uint32_t after;
    unsigned word;

    if (!is_known(ep, put, &word) || put->bytes > ep->ctx->fragment ||
        !has_turn(ep) || !may_be_read(ep, put) || !may_be_written(put))
        return false;
    if (put->bytes)
        target = put->remote->addr + put->offset;
    rail = find_rail(ep, put);
    if (!rail || (put->bytes && ep->sequence != ep->records_confirmed &&
                  rdma_overlaps(ep, target, put->bytes, &after)))
        return false;
    request = (struct rdma_request){.kind = RDMA_DIRECT,
                                    .bytes = (uint32_t)put->bytes,
                                    .record = ep->sequence,
                                    .place = word};
    *status = put->bytes ? post(rail, &request, put->local,
                                local_key_of(rail, put->reg, put->local),
                                target, key_of(rail, put->remote, put->offset))
                         : post_bare(rail, &request);
    if (*status)
        return true;
    if (word != RDMA_NO_WORD)
        ep->words[word].value = put->signal_value;
    ep->targets[ep->sequence % RDMA_RECORDS] =
        (struct rdma_target){.sent = true, .alone = true};
    if (put->bytes) {
        struct rdma_direct *direct = place_of(ep, ep->sequence);

        *direct = (struct rdma_direct){
            .sequence = ep->sequence,
            .remote = put->remote,
            .local = put->local,
            .reg = put->reg,
            .pending = put->pending,
            .under_way = true,
            .unconfirmed = true,
        };
        put->remote->refs++;
        put->reg->region.refs++;
        if (put->pending) {
            ++*put->pending;
            ep->lent++;
        }
    }
    ep->sequence++;
    ep->ctx->directs++;
    return true;
}

bool rdma_direct_is_forgotten(struct shunt_transport_ep *ep,
                              const struct rdma_request *request)
{
    return request->kind == RDMA_DIRECT && request->bytes &&
           !find(ep, request->record);
}

enum shunt_status rdma_repost_direct(struct rdma_rail *rail,
                                     const struct rdma_request *request)
{
    struct shunt_transport_ep *ep = rail->ep;
    struct rdma_direct *direct = find(ep, request->record);
    struct rdma_request missing = *request;
    enum shunt_status status;

    if (request->kind == RDMA_DIRECT && !request->bytes)
        return post_bare(rail, request);
    if (direct && direct->reg && !direct->remote->refused) {
        const uint64_t target =
            ep->targets[request->record % RDMA_RECORDS].address;

        status = post(rail, request, direct->local,
                      local_key_of(rail, direct->reg, direct->local), target,
                      key_of(rail, direct->remote,
                             (size_t)(target - direct->remote->addr)));
    } else {
        missing.kind = RDMA_NO_DIRECT;
        missing.bytes = 0;
        status = post_bare(rail, &missing);
    }
    if (!status && direct)
        direct->under_way = true;
    return status;
}
