// SPDX-License-Identifier: Apache-2.0
/* Receiving control messages and payloads of operations in two levels; see
 * two_level_moves.h. */
#include "collectives/two_level_moves.h"

#include "collectives/two_level_alarm.h"
#include "collectives/two_level_peer.h"
#include "src/comm.h"
#include "src/op/blame.h"
#include "src/wire/failure.h"

/* Check that this note agrees with this rank's call. If not, raise an alarm. */
static bool agrees(struct shunt_request *request, struct shunti_two_level *x,
                   int peer, const struct shunti_note *note)
{
    struct shunti_blame blame = {
        .rank = peer,
        .reporter = request->comm->rank,
        .status = SHUNT_ERR_MISMATCH,
        .signature = request->signature,
        .argument = note->expects,
        .expected = x->argument ^ request->digest,
    };

    if (shunti_note_bad(request, peer)) {
        blame = shunti_note_blame(request, peer);
    } else if (x->agreed && note->expects != blame.expected) {
        shunti_blame_argument(request, &blame);
    } else {
        return true;
    }
    shunti_two_level_alarm(request, x, &blame);
    return false;
}

/* Is the package as long as expected? Both ranks know the length. If the length
 * differs, the peer's memory is damaged, or the peer runs another version of
 * the library. */
static bool is_package(struct shunt_request *request,
                       const struct shunti_two_level *x, int peer,
                       uint64_t bytes)
{
    const size_t expected = x->peer_states[peer].in[SHUNTI_PACKAGE].bytes;

    if (x->peer_states[peer].phase == SHUNTI_PHASE_DIRECT
            ? !bytes
            : bytes == expected || (x->varies && bytes < expected))
        return true;
    shunti_comm_fail(request->comm, SHUNT_ERR_MISMATCH, peer,
                     "%s: rank %d sends a package of %llu B, this rank expects "
                     "%s%zu B; do all ranks run the same version?",
                     shunti_request_name(request), peer,
                     (unsigned long long)bytes, x->varies ? "at most " : "",
                     expected);
    return false;
}

/* Open the payloads that the control message offers. */
static void open_payloads(struct shunt_request *request,
                          struct shunti_two_level *x, int peer,
                          const struct shunti_note *note)
{
    struct shunti_peer_state *peer_state = &x->peer_states[peer];
    struct shunti_incoming *package = &peer_state->in[SHUNTI_PACKAGE];
    struct shunti_incoming *block = &peer_state->in[SHUNTI_BLOCK];
    const unsigned char *behind = (const unsigned char *)(note + 1);
    const bool in_place =
        x->in_place && shunti_peer_state_is_late(request, peer, SHUNTI_BLOCK) &&
        shunti_is_pulled(note->second_way);
    size_t block_bytes;
    size_t room = request->comm->control.layout.eager;
    bool well;

    well = is_package(request, x, peer, note->bytes);
    if (well) {
        package->bytes = note->bytes;
        well = shunti_source_open(request, peer, (enum shunti_way)note->way,
                                  &note->word[0], behind, room, package->bytes,
                                  &package->source);
    }
    if (well && note->way == SHUNTI_WAY_INLINE) {
        behind += package->bytes;
        room -= package->bytes;
    }
    if (in_place)
        block->bytes = x->in_place;
    block_bytes = x->agreed ? block->bytes : note->expects;
    if (block_bytes != block->bytes) {
        block->state = SHUNTI_INCOMING_UNWANTED;
    } else if (well) {
        well = shunti_source_open(
            request, peer, (enum shunti_way)note->second_way, &note->word[2],
            behind, room, block->bytes, &block->source);
    }
    if (!well) /* the communicator has failed */
        shunti_peer_state_close(peer_state);
}

static bool receive_message(struct shunt_request *request,
                            struct shunti_two_level *x, int peer)
{
    struct shunti_peer_state *peer_state = &x->peer_states[peer];
    const uint8_t before = peer_state->receiving;
    const struct shunti_note *note;

    /* A peer that has nothing to send to this rank may still send a note to say
     * that it made another call. */
    if (before == SHUNTI_RECEIVING_NONE && !shunti_note_bad(request, peer))
        return false;
    note = shunti_note_arrived(request, peer);
    if (!note)
        return false;
    peer_state->receiving = SHUNTI_RECEIVING_ARRIVED;
    if (!agrees(request, x, peer, note) || before == SHUNTI_RECEIVING_CLOSED) {
        shunti_peer_state_close(peer_state);
        return true;
    }
    if (x->first_round && note->word[2] < x->completed)
        x->completed = note->word[2];
    open_payloads(request, x, peer, note);
    if (peer_state->sending == SHUNTI_SENDING_SENT &&
        !request->comm->failure.status)
        shunti_peer_state_aim(request, x, peer);
    return true;
}

/* Copy what has arrived. A zero-copy payload is put where this rank's control
 * message said. */
static bool pull(struct shunt_request *request, int peer,
                 struct shunti_incoming *in, const struct shunti_zcopy *z)
{
    if (in->source.way == SHUNTI_WAY_ZCOPY)
        return z && z->named && shunti_zcopy_arrived(z);
    return shunti_source_pull(request, peer, &in->source, in->to);
}

/* Copy what has arrived of a package. Returns true when it is complete. */
static bool take_package(struct shunt_request *request,
                         struct shunti_two_level *x, int peer)
{
    struct shunti_incoming *in = &x->peer_states[peer].in[SHUNTI_PACKAGE];
    const struct shunti_zcopy *z = x->peer_states[peer].zcopy[SHUNTI_PACKAGE];

    if (!in->to && in->source.way == SHUNTI_WAY_INLINE) {
        in->at = in->source.at;
        return true;
    }
    if (!shunti_incoming_place(request, in))
        return false;
    in->at = in->to;
    return pull(request, peer, in, z);
}

static bool take_late(struct shunt_request *request, struct shunti_two_level *x,
                      int peer)
{
    struct shunti_incoming *block = &x->peer_states[peer].in[SHUNTI_BLOCK];

    if (!block->bytes)
        return true;
    if (shunti_is_pulled(block->source.way)) {
        const unsigned stages = shunti_acked_stage(request, peer);
        const bool is_ready = stages & SHUNTI_ACK_READY;

        if (x->in_place)
            return x->hooks->take_parts(request, x, peer,
                                        is_ready ? SIZE_MAX
                                                 : SHUNTI_ACKED_PARTS(stages));
        return is_ready &&
               shunti_source_pull(request, peer, &block->source, block->to);
    }
    if (!shunti_incoming_place(request, block) ||
        !shunti_source_pull(request, peer, &block->source, block->to))
        return false;
    if (x->in_place)
        x->hooks->unpack(request, x, peer);
    return true;
}

/* Copy what has arrived of a block. The peer's package is complete, because in
 * a stream the block follows the package. */
static bool take_block(struct shunt_request *request,
                       struct shunti_two_level *x, int peer)
{
    struct shunti_peer_state *peer_state = &x->peer_states[peer];

    if (peer_state->in[SHUNTI_BLOCK].in_pieces)
        return x->hooks->take_pieces(request, x, peer);
    return shunti_peer_state_is_late(request, peer, SHUNTI_BLOCK)
               ? take_late(request, x, peer)
               : pull(request, peer, &peer_state->in[SHUNTI_BLOCK],
                      peer_state->zcopy[SHUNTI_BLOCK]);
}

/* Handle the complete package of `peer`. Returns false if it is malformed, or
 * could not be read. Then nothing more of the peer is copied. */
static bool package_arrived(struct shunt_request *request,
                            struct shunti_two_level *x, int peer)
{
    struct shunti_peer_state *peer_state = &x->peer_states[peer];
    struct shunti_incoming *package = &peer_state->in[SHUNTI_PACKAGE];

    package->state = SHUNTI_INCOMING_DONE;
    if (package->source.failed) {
        shunti_two_level_own_alarm(request, x, request->comm->rank);
        peer_state->in[SHUNTI_BLOCK].state = SHUNTI_INCOMING_DONE;
        /* But the peer still reads this rank's payloads. */
        peer_state->receiving = SHUNTI_RECEIVING_DONE;
        shunti_peer_state_ack(request, peer_state, peer,
                              SHUNTI_ACK_TAKEN | SHUNTI_ACK_UNREAD);
        return false;
    }
    if (peer_state->phase == SHUNTI_PHASE_DIRECT)
        return true;
    x->missing[peer_state->phase]--;
    if (!x->hooks->arrived || x->hooks->arrived(request, x, peer))
        return true;
    shunti_comm_fail(request->comm, SHUNT_ERR_MISMATCH, peer,
                     "%s: rank %d sends a package of %zu B whose parts are not "
                     "as long; do all ranks run the same version?",
                     shunti_request_name(request), peer, package->bytes);
    return false;
}

static bool take(struct shunt_request *request, struct shunti_two_level *x,
                 int peer)
{
    struct shunti_peer_state *peer_state = &x->peer_states[peer];
    struct shunti_incoming *package = &peer_state->in[SHUNTI_PACKAGE];
    struct shunti_incoming *block = &peer_state->in[SHUNTI_BLOCK];
    const size_t before = package->source.done + block->source.done;
    bool moved = false;

    if (package->state == SHUNTI_INCOMING_OPEN) {
        if (!take_package(request, x, peer))
            return package->source.done + block->source.done != before;
        if (!package_arrived(request, x, peer))
            return true;
        moved = true;
    }
    if (block->state == SHUNTI_INCOMING_OPEN) {
        if (take_block(request, x, peer))
            block->state = SHUNTI_INCOMING_DONE;
        /* Late blocks cannot be made without this block. */
        if (block->source.failed && x->late &&
            request->comm->peers[peer].node != request->comm->node)
            shunti_two_level_own_alarm(request, x, request->comm->rank);
    }
    /* After this ack the peer may free its memory, also that of payloads that
     * are no longer wanted. So send it only when no read is under way. */
    if (block->state != SHUNTI_INCOMING_OPEN &&
        shunti_peer_state_stop_reads(request, peer_state)) {
        peer_state->receiving = SHUNTI_RECEIVING_DONE;
        if (shunti_is_pulled(package->source.way) ||
            shunti_is_pulled(block->source.way) ||
            block->state == SHUNTI_INCOMING_UNWANTED)
            shunti_peer_state_ack(request, peer_state, peer,
                                  block->source.failed
                                      ? SHUNTI_ACK_TAKEN | SHUNTI_ACK_UNREAD
                                      : SHUNTI_ACK_TAKEN);
        moved = true;
    }
    return moved || package->source.done + block->source.done != before;
}

bool shunti_two_level_receive(struct shunt_request *request,
                              struct shunti_two_level *x)
{
    bool moved = false;

    for (int i = x->npeers - 1; i >= 0; i--) {
        struct shunti_peer_state *peer_state = &x->peer_states[x->order[i]];

        if (peer_state->receiving < SHUNTI_RECEIVING_ARRIVED)
            moved |= receive_message(request, x, x->order[i]);
        if (peer_state->receiving == SHUNTI_RECEIVING_ARRIVED)
            moved |= take(request, x, x->order[i]);
    }
    return moved;
}
