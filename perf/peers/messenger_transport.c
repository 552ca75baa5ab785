// SPDX-License-Identifier: Apache-2.0
/*
 * Messages by puts of a transport. The library does not export its puts. So the
 * library's code is linked in here. It finds and loads the plugin, and opens it
 * a second time, for two ranks, beside the communicator.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/base/perf.h"
#include "perf/peers/messenger.h"
#include "src/plugin/plugin.h"

struct key {
    unsigned char bytes[SHUNT_TRANSPORT_KEY_MAX];
    size_t length;
};

struct address {
    unsigned char bytes[SHUNT_TRANSPORT_ADDRESS_MAX];
    size_t length;
};

enum { FROM, TO, PLACES };

struct own {
    const struct shunt_transport *t;
    struct shunt_transport_ctx *ctx;
    struct shunt_transport_ep *ep;
    struct shunt_transport_reg *reg[PLACES];
    struct shunt_transport_remote *to;
    const unsigned char *from;
    const uint64_t *word; /* the last signal from the other rank */
    size_t word_at;
    uint64_t sent;
    unsigned spins;
    char text[512];
};

static const char *failed(struct own *own, const char *what)
{
    snprintf(own->text, sizeof(own->text), "%s: %s: %s", own->t->name, what,
             own->ctx ? own->t->error(own->ctx) : "");
    return own->text;
}

/* --- opening -------------------------------------------------------------- */

static const char *open_context(struct own *own,
                                const struct perf_messenger_params *p)
{
    struct shunt_transport_params params = {
        .host = shunti_transport_host(),
        .options = "",
        .rank = p->rank,
        .nranks = 2,
        .unreached = 1,
        .one_host = p->one_host,
        .asked_for = true,
    };
    char why[400] = "";

    memcpy(params.secret, p->secret, sizeof(params.secret));
    if (own->t->open(&params, &own->ctx, why, sizeof(why)) == SHUNT_OK)
        return NULL;
    own->ctx = NULL;
    snprintf(own->text, sizeof(own->text), "%s: %s", own->t->name, why);
    return own->text;
}

static const char *connect_other(struct own *own,
                                 const struct perf_messenger_params *p)
{
    struct address mine = {.length = sizeof(mine.bytes)}, theirs;
    enum shunt_status status;
    struct perf_wait wait = {.spins = own->spins};

    if (own->t->address(own->ctx, mine.bytes, &mine.length))
        return failed(own, "address");
    p->swap(p->arg, &mine, &theirs, sizeof(mine));
    do {
        status = own->t->connect(own->ctx, 1 - p->rank, theirs.bytes,
                                 theirs.length, &own->ep);
        own->t->progress(own->ctx);
    } while (status == SHUNT_IN_PROGRESS && perf_wait_more(&wait));
    return status ? failed(own, "cannot connect") : NULL;
}

static const char *register_one(struct own *own, int which, void *addr, int fd,
                                size_t bytes, struct key *key)
{
    const struct shunt_transport_memory memory = {
        .addr = addr, .bytes = bytes, .fd = fd};

    key->length = sizeof(key->bytes);
    return own->t->reg(own->ctx, &memory, key->bytes, &key->length,
                       &own->reg[which])
               ? failed(own, "cannot register memory")
               : NULL;
}

static const char *import_one(struct own *own, const struct key *key,
                              struct shunt_transport_remote **remote)
{
    struct perf_wait wait = {.spins = own->spins};
    enum shunt_status status;

    do {
        status = own->t->import(own->ep, key->bytes, key->length, remote);
        own->t->progress(own->ctx);
    } while (status == SHUNT_IN_PROGRESS && perf_wait_more(&wait));
    return status ? failed(own, "cannot use the other's memory") : NULL;
}

static const char *share_memory(struct own *own,
                                const struct perf_messenger_params *p)
{
    struct key mine[PLACES], theirs[PLACES];
    const char *wrong;

    memset(mine, 0, sizeof(mine));
    wrong = register_one(own, FROM, p->from, p->from_fd, p->bytes, &mine[FROM]);
    if (!wrong)
        wrong = register_one(own, TO, p->to, p->to_fd,
                             p->bytes + PERF_SIGNAL_PAGE, &mine[TO]);
    if (wrong)
        return wrong;
    own->from = p->from;
    own->word_at = p->bytes;
    own->word = (const uint64_t *)(const void *)(p->to + p->bytes);
    p->swap(p->arg, mine, theirs, sizeof(mine));
    return import_one(own, &theirs[TO], &own->to);
}

static const char *own_open(const struct perf_messenger_params *p, void **state)
{
    struct own *own = perf_alloc(sizeof(*own));
    char why[800] = "";
    const char *wrong;

    *own = (struct own){.spins = p->spins};
    *state = own;
    own->t = shunti_transport_find(p->transport, why, sizeof(why));
    if (!own->t) {
        snprintf(own->text, sizeof(own->text), "%.500s", why);
        return own->text;
    }
    wrong = open_context(own, p);
    if (!wrong)
        wrong = connect_other(own, p);
    return wrong ? wrong : share_memory(own, p);
}

static void own_close(void *state)
{
    struct own *own = state;

    if (own->t)
        own->t->close(own->ctx);
    free(own);
}

/* --- messages ------------------------------------------------------------- */

static const char *own_send(void *state, size_t offset, size_t bytes,
                            bool signal)
{
    struct own *own = state;
    struct perf_wait wait = {.spins = own->spins};
    const struct shunt_transport_put put = {
        .local = own->from + offset,
        .reg = own->reg[FROM],
        .remote = own->to,
        .offset = offset,
        .bytes = bytes,
        .signal = signal ? own->to : NULL,
        .signal_offset = own->word_at,
        .signal_value = own->sent + 1,
    };
    enum shunt_status status;

    while ((status = own->t->put(own->ep, &put)) == SHUNT_IN_PROGRESS) {
        if (!perf_wait_more(&wait))
            return failed(own, "a put finds no room");
        own->t->progress(own->ctx);
    }
    if (status)
        return failed(own, "put");
    own->sent += signal;
    return NULL;
}

static const char *own_await(void *state, uint64_t signals)
{
    struct own *own = state;
    struct perf_wait wait = {.spins = own->spins};

    while (__atomic_load_n(own->word, __ATOMIC_ACQUIRE) < signals) {
        own->t->progress(own->ctx);
        if (!perf_wait_more(&wait) || !own->t->alive(own->ep))
            return failed(own, "a signal does not come");
    }
    return NULL;
}

static double own_requests(void *state)
{
    struct own *own = state;
    struct shunt_transport_counter all[32];
    const size_t count = own->t->counters(own->ctx, all, 32);

    for (size_t i = 0; i < count && i < 32; i++)
        if (!strcmp(all[i].name, "work requests"))
            return (double)all[i].value;
    return -1;
}

static const char *own_route(void *state)
{
    return ((struct own *)state)->t->name;
}

const struct perf_messenger perf_messenger_transport = {
    .abi = PERF_MESSENGER_ABI,
    .name = "the transport",
    .open = own_open,
    .close = own_close,
    .route = own_route,
    .send = own_send,
    .await = own_await,
    .requests = own_requests,
};
