// SPDX-License-Identifier: Apache-2.0
/*
 * Inside the fault transport: what its files share.
 *
 *     program.c  the words of SHUNT_FAULT
 *     late.c     puts and gets: made to fail, or queued and passed on later
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

/* A put that is delayed, or that was passed on and whose payload is still in
 * use. */
struct later {
    struct later *next;
    uint64_t due;
    struct shunt_transport_put put;
    /* the caller's counter, if the put reads the caller's memory; NULL: the
     * payload was copied */
    unsigned *pending;
    unsigned char payload[]; /* the copy, if there is one */
};

/* A get that is delayed. */
struct later_get {
    struct later_get *next;
    uint64_t due;
    struct shunt_transport_get get;
};

struct queue {
    struct later *first, **last;
    uint64_t newest; /* due time of the last put; later puts are due later */
};

struct shunt_transport_ep {
    struct shunt_transport_ep *next;
    struct shunt_transport_ctx *ctx;
    struct shunt_transport_ep *inner;
    int peer;
    struct queue queues[FAULT_CHANNELS]; /* without `reorder` only [0] */
    struct later *delivered; /* puts passed on, but not flushed yet */
    struct later_get *gets;  /* delayed gets, sorted by due time */
    /* with `full`: the time when the next get has room; 0: no call has asked
     * for the next get yet */
    uint64_t room_at;
    /* the failure of a put that fault_put() had accepted */
    enum shunt_status failed;
    bool dead; /* `die` has struck; see also fault_is_dead() */
};

struct shunt_transport_ctx {
    const struct shunt_transport *t;
    struct shunt_transport_ctx *inner;
    struct shunt_transport_ep *eps;
    struct fault_program program;
    uint64_t random;
    uint64_t opened;  /* time of opening, in monotonic nanoseconds */
    uint64_t puts;    /* number of puts so far */
    uint64_t gets;    /* number of gets so far */
    size_t waiting;   /* puts in all queues */
    bool silent;      /* `silence` has begun */
    bool armed;       /* the timer is set */
    int epoll, timer; /* -1 without a delay */
    bool own_error;   /* `error` is newer than that of the wrapped transport */
    struct transport_text error;
};

/* --- fault.c -------------------------------------------------------------- */

#define fault_fail(ctx, ...) \
    ((ctx)->own_error = true, transport_fail(&(ctx)->error, __VA_ARGS__))
/* Return what the wrapped transport returned, with its error text. */
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
/* Does the program apply to this peer? */
bool fault_concerns(const struct shunt_transport_ep *ep);
uint64_t fault_now(void);
/* Does the peer look lost, by `die` or `fade`? */
bool fault_is_dead(const struct shunt_transport_ep *ep);
/* Pass on the puts and gets that are due. */
void fault_deliver(struct shunt_transport_ctx *ctx);
/* Is a put or get due? */
bool fault_is_due(const struct shunt_transport_ctx *ctx);
/* Set the timer, so that a sleeper wakes when the first put or get is due. */
void fault_set_timer(struct shunt_transport_ctx *ctx);
/* Drop the queued puts to this memory, which the caller did not flush. With
 * remote = NULL, drop the queued puts that read the caller's memory. */
void fault_forget(struct shunt_transport_ep *ep,
                  const struct shunt_transport_remote *remote);
/* Free all queued puts and gets. */
void fault_late_finish(struct shunt_transport_ep *ep);

#endif
