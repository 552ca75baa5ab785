// SPDX-License-Identifier: Apache-2.0
/*
 * Making and freeing windows, by all ranks together; see window.h.
 *
 * Making a window takes two rounds. First every rank registers its part with
 * each open transport, and sends the key to each peer, which imports it. Then
 * all ranks agree whether this worked everywhere. If not, all give the window
 * up.
 */
#include "src/wire/window.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/segment.h"
#include "src/comm.h"
#include "src/op/note.h"
#include "src/op/refusal.h"
#include "src/progress/agree.h"
#include "src/progress/call.h"
#include "src/progress/turns.h"
#include "src/wire/contexts.h"
#include "src/wire/failure.h"

/* The message from a rank to a peer about the rank's part of the window. */
struct offer {
    uint64_t bytes;
    uint64_t id;
    uint64_t key_len;
    unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
};

struct exchange {
    struct shunti_window *window;
    int posted;
    int received;
    unsigned char (*keys)[SHUNT_TRANSPORT_KEY_MAX]; /* (ncontexts) */
    size_t *key_len;                                /* (ncontexts) */
};

static struct exchange *state_of(const struct shunt_request *request)
{
    return (struct exchange *)(void *)(uintptr_t)request->state;
}

static void post_key(struct shunt_request *request, int peer)
{
    struct exchange *state = state_of(request);
    struct shunt_comm *comm = request->comm;
    size_t c = (size_t)(comm->peers[peer].context - comm->contexts.all);
    struct shunti_note *note = shunti_note_compose(request, peer);
    struct offer *offer = (struct offer *)(void *)(note + 1);

    note->way = SHUNTI_WAY_INLINE;
    note->bytes = sizeof(*offer);
    offer->bytes = state->window->bytes;
    offer->id = state->window->id;
    offer->key_len = state->key_len[c];
    memcpy(offer->key, state->keys[c], state->key_len[c]);
    shunti_note_send(request, peer, note, sizeof(*offer));
}

/* Is the note an offer for this window? If not, the request gets an error. */
static bool is_sane(struct shunt_request *request, int peer,
                    const struct shunti_note *note)
{
    const struct offer *offer = (const struct offer *)(const void *)(note + 1);
    const uint64_t id = state_of(request)->window->id;

    if (note->way != SHUNTI_WAY_INLINE || note->bytes != sizeof(*offer))
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "mem_alloc: rank %d sent %llu B (way %d) instead "
                             "of an offer; do all ranks run the same version?",
                             peer, (unsigned long long)note->bytes,
                             (int)note->way);
    else if (offer->id != id)
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "mem_alloc: rank %d makes window %llu, this rank "
                             "window %llu",
                             peer, (unsigned long long)offer->id,
                             (unsigned long long)id);
    else if (offer->key_len > sizeof(offer->key) || offer->bytes > PTRDIFF_MAX)
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "mem_alloc: rank %d offers %llu B by a key of "
                             "%llu B, which cannot be",
                             peer, (unsigned long long)offer->bytes,
                             (unsigned long long)offer->key_len);
    else
        return true;
    return false;
}

/* Import the part that a peer offers. SHUNT_IN_PROGRESS: the transport is not
 * ready. */
static enum shunt_status take_key(struct shunt_request *request, int peer,
                                  const struct shunti_note *note)
{
    struct shunti_window *window = state_of(request)->window;
    struct shunt_comm *comm = request->comm;
    struct shunti_peer *p = &comm->peers[peer];
    struct shunti_window_peer *wp = &window->peers[peer];
    const struct offer *offer = (const struct offer *)(const void *)(note + 1);
    enum shunt_status st;

    if (shunti_note_bad(request, peer) || !is_sane(request, peer, note) ||
        !offer->bytes)
        return SHUNT_OK;
    st = p->transport->import(p->ep, offer->key, (size_t)offer->key_len,
                              &wp->remote);
    if (st == SHUNT_IN_PROGRESS) {
        comm->contexts.events +=
            (unsigned)p->transport->progress(p->context->ctx);
        return st;
    }
    if (st) {
        shunti_request_error(request, st, "mem_alloc: rank %d's %llu bytes: %s",
                             peer, (unsigned long long)offer->bytes,
                             p->transport->error(p->context->ctx));
        return SHUNT_OK;
    }
    wp->bytes = (size_t)offer->bytes;
    if (p->caps & SHUNT_TRANSPORT_MAP)
        wp->map = p->transport->map(p->ep, wp->remote);
    return SHUNT_OK;
}

static enum shunt_status step(struct shunt_request *request)
{
    struct exchange *state = state_of(request);
    struct shunt_comm *comm = request->comm;
    const int peers = comm->nranks - 1;

    for (; state->posted < peers; state->posted++) {
        if (!shunti_note_room(request, shunti_nth_peer(comm, state->posted)))
            break;
        post_key(request, shunti_nth_peer(comm, state->posted));
    }
    for (; state->received < peers; state->received++) {
        int peer = shunti_nth_peer(comm, state->received);
        const struct shunti_note *note = shunti_note_arrived(request, peer);

        if (!note || take_key(request, peer, note) == SHUNT_IN_PROGRESS)
            break;
    }
    return state->posted < peers || state->received < peers ? SHUNT_IN_PROGRESS
                                                            : SHUNT_OK;
}

static bool awaits(const struct shunt_request *request, int peer)
{
    const struct shunt_comm *comm = request->comm;
    int i = shunti_peer_number(comm, peer);

    return i >= state_of(request)->received || i >= state_of(request)->posted;
}

static const struct shunti_class alloc_class = {
    .name = "mem_alloc",
    .step = step,
    .awaits = awaits,
    .from_notes = true,
    .rare = true,
};

/* --- the local part ------------------------------------------------------- */

static void window_destroy(struct shunt_comm *comm,
                           struct shunti_window *window)
{
    size_t c;
    int r;

    if (!window)
        return;
    if (window->peers) {
        for (r = 0; r < comm->nranks; r++) {
            struct shunti_peer *p = &comm->peers[r];

            if (r != comm->rank && window->peers[r].remote)
                p->transport->release(p->ep, window->peers[r].remote);
        }
    }
    for (c = 0; window->reg && c < comm->contexts.count; c++)
        if (window->reg[c])
            comm->contexts.all[c].transport->dereg(comm->contexts.all[c].ctx,
                                                   window->reg[c]);
    shunti_segment_drop(window->segment);
    free(window->reg);
    free(window->peers);
    free(window);
}

static enum shunt_status take_memory(struct shunt_comm *comm,
                                     struct shunti_window *window)
{
    if (!window->bytes)
        return SHUNT_OK;
    window->segment = shunti_segment_create("shunt-window", window->bytes);
    if (!window->segment)
        return shunti_fail(&comm->error, SHUNT_ERR_MEMORY,
                           "mem_alloc: %zu bytes of shared memory: %s%s",
                           window->bytes, strerror(errno),
                           shunti_remedy(errno));
    window->addr = window->segment->addr;
    return SHUNT_OK;
}

static enum shunt_status register_part(struct shunt_comm *comm,
                                       struct shunti_window *window,
                                       struct exchange *keys)
{
    enum shunt_status st;
    size_t c;

    for (c = 0; window->bytes && c < comm->contexts.count; c++) {
        struct shunti_context *context = &comm->contexts.all[c];

        keys->key_len[c] = SHUNT_TRANSPORT_KEY_MAX;
        st = shunti_context_register(context, window->segment, keys->keys[c],
                                     &keys->key_len[c], &window->reg[c]);
        if (st)
            return shunti_fail(
                &comm->error, st, "mem_alloc: register %zu bytes: %s",
                window->bytes, context->transport->error(context->ctx));
    }
    return SHUNT_OK;
}

/* --- making a window ------------------------------------------------------ */

static enum shunt_status prepare(struct shunt_comm *comm, size_t bytes,
                                 struct shunti_window **out,
                                 struct exchange *keys)
{
    struct shunti_window *window = calloc(1, sizeof(*window));
    enum shunt_status st = SHUNT_ERR_MEMORY;
    size_t contexts = comm->contexts.count ? comm->contexts.count : 1;

    *out = window;
    if (!window)
        return shunti_fail(&comm->error, st, "mem_alloc: no memory");
    window->bytes = bytes;
    window->reg = calloc(contexts, sizeof(*window->reg));
    window->peers = calloc((size_t)comm->nranks, sizeof(*window->peers));
    keys->keys = calloc(contexts, sizeof(*keys->keys));
    keys->key_len = calloc(contexts, sizeof(*keys->key_len));
    if (!window->reg || !window->peers || !keys->keys || !keys->key_len)
        return shunti_fail(&comm->error, st, "mem_alloc: no memory");
    st = shunti_windows_reserve(comm);
    if (!st)
        st = take_memory(comm, window);
    if (!st)
        st = register_part(comm, window, keys);
    if (!st) {
        window->peers[comm->rank].bytes = bytes;
        window->peers[comm->rank].map = window->addr;
    }
    return st;
}

static enum shunt_status exchange_keys(struct shunt_comm *comm,
                                       uint32_t signature,
                                       const struct exchange *keys)
{
    struct shunt_request *request;
    enum shunt_status st;

    st = shunti_request_create(comm, &alloc_class, signature,
                               &shunti_no_options, sizeof(*keys), &request);
    if (st)
        return st;
    keys->window->id = request->seq;
    *state_of(request) = *keys;
    return shunti_request_launch(request, NULL);
}

/* Is the window empty on all ranks? */
static bool is_nothing(const struct shunt_comm *comm,
                       const struct shunti_window *window)
{
    for (int r = 0; r < comm->nranks; r++)
        if (window->peers[r].bytes)
            return false;
    return true;
}

enum shunt_status shunti_window_create(struct shunt_comm *comm,
                                       enum shunti_purpose purpose,
                                       size_t bytes, struct shunti_window **out)
{
    const uint32_t signature =
        SHUNTI_SIGNATURE(SHUNTI_KIND_MEM_ALLOC, 0, 0, purpose);
    struct shunti_window *window = NULL;
    struct exchange keys = {0};
    enum shunt_status st, mine;

    *out = NULL;
    mine = prepare(comm, bytes, &window, &keys);
    keys.window = window;
    if (mine)
        st = shunti_request_refuse(comm, signature, mine, "%s",
                                   comm->error.text);
    else
        st = exchange_keys(comm, signature, &keys);
    /* If any rank failed, no rank keeps the window. */
    if (!shunti_comm_failed(comm))
        st = shunti_agree(comm, signature, st);
    if (st || is_nothing(comm, window)) {
        window_destroy(comm, window);
    } else {
        shunti_window_list(comm, window);
        *out = window;
    }
    free(keys.keys);
    free(keys.key_len);
    return st;
}

/* --- freeing a window ----------------------------------------------------- */

/*
 * Do all ranks free the same window, and does every rank that passed NULL have
 * no part of it? The answer is the same on all ranks, because said[] is.
 *
 * said     (nranks) id of the window that each rank passed; 0: NULL
 * *window  the window that all ranks free, or NULL
 */
static enum shunt_status judge(struct shunt_comm *comm, const uint64_t *said,
                               struct shunti_window **window)
{
    int named = 0;

    *window = NULL;
    while (named < comm->nranks && !said[named])
        named++;
    if (named == comm->nranks)
        return SHUNT_OK;
    for (int r = named + 1; r < comm->nranks; r++)
        if (said[r] && said[r] != said[named])
            return shunti_fail(
                &comm->error, SHUNT_ERR_MISMATCH,
                "mem_free: rank %d frees the memory of operation "
                "%llu, rank %d that of operation %llu; nothing "
                "is freed",
                named, (unsigned long long)said[named], r,
                (unsigned long long)said[r]);
    *window = shunti_window_by_id(comm, said[named]);
    if (!*window)
        return shunti_fail(&comm->error, SHUNT_ERR_MISMATCH,
                           "mem_free: rank %d frees the memory of operation "
                           "%llu, which this rank does not know",
                           named, (unsigned long long)said[named]);
    for (int r = 0; r < comm->nranks; r++)
        if (!said[r] && (*window)->peers[r].bytes)
            return shunti_fail(
                &comm->error, SHUNT_ERR_MISMATCH,
                "mem_free: rank %d passed NULL, but has %zu B of "
                "the memory that rank %d frees; nothing is freed",
                r, (*window)->peers[r].bytes, named);
    return SHUNT_OK;
}

enum shunt_status shunti_window_free(struct shunt_comm *comm,
                                     enum shunti_purpose purpose,
                                     struct shunti_window *window)
{
    const uint32_t signature =
        SHUNTI_SIGNATURE(SHUNTI_KIND_MEM_FREE, 0, 0, purpose);
    uint64_t *said = calloc((size_t)comm->nranks, sizeof(*said));
    enum shunt_status st;

    if (!said)
        return shunti_request_refuse(comm, signature, SHUNT_ERR_MEMORY,
                                     "mem_free: no memory; nothing is freed");
    said[comm->rank] = window ? window->id : 0;
    /* After this agreement no rank uses the memory any more, because all ranks
     * have made this call. */
    st = shunti_agree_numbers(comm, signature, SHUNT_OK, said);
    if (!st)
        st = judge(comm, said, &window);
    if (!st && window) {
        shunti_window_unlist(comm, window);
        window_destroy(comm, window);
    }
    free(said);
    return st;
}

void shunti_windows_destroy(struct shunt_comm *comm)
{
    for (size_t i = 0; i < comm->windows.count; i++)
        window_destroy(comm, comm->windows.all[i]);
    free(comm->windows.all);
    comm->windows.all = NULL;
    comm->windows.count = comm->windows.room = 0;
}

/* --- public --------------------------------------------------------------- */

enum shunt_status shunt_mem_alloc(struct shunt_comm *comm, size_t bytes,
                                  void **ptr)
{
    struct shunti_window *window = NULL;
    enum shunt_status st;

    if (!comm)
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "mem_alloc: comm is NULL");
    shunti_comm_enter(comm);
    if (!ptr) {
        /* Make two operations, because the call of a rank that passes a pointer
         * has two. */
        const uint32_t signature =
            SHUNTI_SIGNATURE(SHUNTI_KIND_MEM_ALLOC, 0, 0, 0);

        st = shunti_request_refuse(comm, signature, SHUNT_ERR_INVALID,
                                   "mem_alloc: ptr is NULL");
        if (!shunti_comm_failed(comm))
            st = shunti_agree(comm, signature, st);
    } else {
        st = shunti_window_create(comm, SHUNTI_PURPOSE_ITSELF, bytes, &window);
        *ptr = window ? window->addr : NULL;
        if (window)
            window->lent = true;
    }
    shunti_comm_leave(comm);
    return st;
}

enum shunt_status shunt_mem_free(struct shunt_comm *comm, void *ptr)
{
    struct shunti_window *window = NULL;
    enum shunt_status st = SHUNT_OK;

    if (!comm)
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "mem_free: comm is NULL");
    shunti_comm_enter(comm);
    /* Operations under way may use the memory. */
    shunti_comm_drain(comm);
    if (ptr) {
        window = shunti_window_find(comm, ptr, 1);
        if (!window || window->addr != ptr || !window->lent) {
            st = shunti_request_refuse(
                comm, SHUNTI_SIGNATURE(SHUNTI_KIND_MEM_FREE, 0, 0, 0),
                SHUNT_ERR_INVALID,
                "mem_free: %p is not memory of shunt_mem_alloc(), or has been "
                "freed; nothing is freed",
                ptr);
            shunti_comm_leave(comm);
            return st;
        }
    }
    st = shunti_window_free(comm, SHUNTI_PURPOSE_ITSELF, window);
    shunti_comm_leave(comm);
    return st;
}
