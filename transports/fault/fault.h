// SPDX-License-Identifier: Apache-2.0
/*
 * Inside the fault transport: what its files share.
 *
 *     program.c  the words of SHUNT_FAULT
 *     late.c     puts and gets: struck, or queued and handed over later
 *     fault.c    the plugin: contexts, endpoints, sleeping
 */
#ifndef SHUNT_FAULT_H
#define SHUNT_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/transport.h>

#include "transports/common/fail.h"
#include "transports/fault/program.h"

#define FAULT_CHANNELS 8

/* A put that is to come, or of which the payload is still in use. */
struct later {
    struct later *next;
    uint64_t due;
    struct shunt_transport_put put;
    unsigned *pending;       /* of the caller's memory; NULL: it is copied */
    unsigned char payload[]; /* then */
};

/* A get that is to come. */
struct later_get {
    struct later_get *next;
    uint64_t due;
    struct shunt_transport_get get;
};

struct queue {
    struct later *first, **last;
    uint64_t newest; /* due time of the last one: order is kept */
};

struct shunt_transport_ep {
    struct shunt_transport_ep *next;
    struct shunt_transport_ctx *ctx;
    struct shunt_transport_ep *inner;
    int peer;
    struct queue queues[FAULT_CHANNELS]; /* [0] alone without `reorder` */
    struct later *delivered;             /* not flushed yet */
    struct later_get *gets;              /* by due time */
    enum shunt_status failed;            /* of a put that was accepted */
    bool dead;                           /* by `die` */
};

struct shunt_transport_ctx {
    const struct shunt_transport *t;
    struct shunt_transport_ctx *inner;
    struct shunt_transport_ep *eps;
    struct fault_program program;
    uint64_t random;
    uint64_t puts;    /* so far */
    uint64_t gets;    /* the same */
    size_t waiting;   /* puts in all queues */
    bool silent;      /* by `silence` */
    bool armed;       /* the timer is set */
    int epoll, timer; /* -1 without a delay */
    bool own_error;   /* `error` is newer than the other's */
    struct transport_text error;
};

/* --- fault.c -------------------------------------------------------------- */

#define fault_fail(ctx, ...) \
    ((ctx)->own_error = true, transport_fail(&(ctx)->error, __VA_ARGS__))
/* The other transport's answer, with its text. */
enum shunt_status fault_passed(struct shunt_transport_ctx *ctx,
                               enum shunt_status status);
unsigned fault_caps(const struct shunt_transport_ep *ep);

/* --- late.c --------------------------------------------------------------- */

enum shunt_status fault_put(struct shunt_transport_ep *ep,
                            const struct shunt_transport_put *put);
enum shunt_status fault_get(struct shunt_transport_ep *ep,
                            const struct shunt_transport_get *get);
enum shunt_status fault_flush(struct shunt_transport_ep *ep);
enum shunt_status fault_let_go(struct shunt_transport_ep *ep, bool by_force);
/* Is the program about puts to this peer? */
bool fault_concerns(const struct shunt_transport_ep *ep);
/* Hand over what is due. */
void fault_deliver(struct shunt_transport_ctx *ctx);
/* Is something due already? */
bool fault_is_due(const struct shunt_transport_ctx *ctx);
/* A sleeper wakes for the first put or get that is due. */
void fault_set_timer(struct shunt_transport_ctx *ctx);
/* Lose what is queued for this memory, as the caller did not flush; NULL: what
 * reads the caller's memory. */
void fault_forget(struct shunt_transport_ep *ep,
                  const struct shunt_transport_remote *remote);
/* Free all that is queued. */
void fault_late_finish(struct shunt_transport_ep *ep);

#endif
