// SPDX-License-Identifier: Apache-2.0
/*
 * Requests inside the library: an operation under way.
 *
 * An operation is a small state machine. The step() of its class does what can
 * be done now, and never blocks. It returns SHUNT_IN_PROGRESS, or SHUNT_OK when
 * everything is done. The operations of a communicator are numbered by `seq`.
 * The number is the same on every rank, because all ranks make the same calls
 * in the same order; notes (note.h) carry it. At most SHUNTI_DEPTH operations
 * have slots at a peer at once. Steps of a later one return SHUNT_IN_PROGRESS
 * until a slot is free.
 *
 * Errors. An error of one operation (a bad count, a peer that called with bad
 * arguments) is recorded by shunti_request_error(), and the operation continues
 * with all other ranks: so no rank reads memory that its owner has taken back.
 * The first recorded error becomes the operation's status. An error of the
 * communicator (a lost rank) ends all operations at once: shunti_comm_fail().
 */
#ifndef SHUNTI_REQUEST_H
#define SHUNTI_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/request.h>
#include <shunt/status.h>

#include "src/base/kind.h"

struct shunt_comm;
struct shunt_request;
struct shunti_copy;
struct shunti_notice;

/*
 * The functions of a class of operations.
 *
 * A class with run() is for requests that are composed of other requests
 * (shunti_request_compose()). Such a request has no number, is unknown to
 * peers, and is advanced only by a test or a wait of the request itself. So the
 * caller's own work, such as a product, is done by the thread that started it,
 * and in no other call. Such a class needs no step().
 */
struct shunti_class {
    /* Every call reads the first fields. */
    /* Advance; SHUNT_IN_PROGRESS, SHUNT_OK, or an error of this operation. */
    enum shunt_status (*step)(struct shunt_request *request);
    /* Does the caller have all results, and does every peer have everything
     * that it needs from this rank? Then a blocking call returns, so a root
     * need not wait for all ranks. Later calls do the rest, which is a check
     * that the peers agree, and return its error: shunti_request_late(). NULL:
     * never before the end. */
    bool (*settled)(const struct shunt_request *request);
    /* Has the request sent everything that peers need? And can the kernel's
     * buffers hold all data that the request still awaits, until the caller is
     * back? Then nobody gains if the request is stepped meanwhile. NULL:
     * never. */
    bool (*pauses)(const struct shunt_request *request);
    /* Release what the state owns; called once, also after a failure. NULL:
     * nothing. */
    void (*cleanup)(struct shunt_request *request);
    /* Test the requests that this request is composed of, or wait for them; the
     * communicator is not held. Returns the same values as step(), and records
     * errors in the same way. */
    enum shunt_status (*run)(struct shunt_request *request, bool wait);
    /* Everything that the request receives is in notes, so in this rank's
     * control window. This data stays valid even if the sender fails
     * afterwards. */
    bool from_notes;
    /* The notes of this class are no reason to connect ranks:
     * shunt_transport_put.rare. */
    bool rare;
    bool reserved; /* requests may use the communicator's reserve: request.c */
    const char *name; /* "alltoallv": for errors and traces */
    /* Does the request still need something from `peer`? Decides which ranks a
     * timeout may name, and whether the loss of a peer concerns this
     * operation. */
    bool (*awaits)(const struct shunt_request *request, int peer);
    /* Has `peer` shown that it is in this call? A timeout first names the ranks
     * that have not, because the others may be waiting for them. NULL: not
     * known. */
    bool (*received)(const struct shunt_request *request, int peer);
    /* In this class another rank waits for the same ranks, and knows which of
     * them are missing. If all awaited ranks answer the probe, that rank
     * reports the missing ones. */
    bool follows;
    /* Do later calls of peers wait for data that this request still has to
     * send? NULL: never. See `in_turn`. */
    bool (*must_send)(const struct shunt_request *request);
    /* For traces. sent() and sent_in_all() are also called after cleanup(). */
    const char *algorithm; /* "flat"; NULL: the class has only one */
    /* Bytes of payload that this rank sends to `peer`. NULL: see
     * sent_in_all. */
    size_t (*sent)(const struct shunt_request *request, int peer);
    /* Bytes of payload that this rank sends to all peers together, if the share
     * of each is not known. NULL: none. */
    size_t (*sent_in_all)(const struct shunt_request *request);
};

/* The relation of a request to its caller. */
enum shunti_attachment {
    /* a caller waits for the request, or has its handle, and collects it */
    SHUNTI_ATTACHED = 0,
    /* no caller collects the request: it is freed when it has finished */
    SHUNTI_DETACHED,
    /* as DETACHED; besides, peers rely on the request: destroying the
     * communicator waits for its end */
    SHUNTI_PROMISED,
    /* as DETACHED, because the request was settled, and its blocking call has
     * returned */
    SHUNTI_TRAILING,
};

/* Options of a call that is a part of another call. With these options the part
 * acts for the call that the user made. All zero: the call is the user's
 * own. */
struct shunti_options {
    /* The user's call: kind.h. The creator also puts it into the signature. */
    enum shunti_purpose purpose;
    /* The part does not return the late error of an earlier call (call.h). Nor
     * does any part with a purpose. */
    bool keeps_late;
    bool streams;    /* see struct shunt_request */
    uint64_t digest; /* see struct shunt_request */
};

extern const struct shunti_options shunti_no_options;

static inline bool shunti_keeps_late(const struct shunti_options *options)
{
    return options->keeps_late || options->purpose;
}

/* The data that a timeline keeps for a request that is under way:
 * trace_request.c. */
struct shunti_traced {
    uint64_t began_ns;
    /* when the call on this request began that the caller is in; 0: the caller
     * is in none */
    uint64_t in_ns;
    uint64_t inside_ns; /* total time of earlier calls on this request */
    /* (nranks) Bits 1 << enum shunti_way: the protocols by which this rank's
     * payload was sent to each rank. */
    uint8_t ways[];
};

struct shunt_request {
    const struct shunti_class *class;
    struct shunt_comm *comm;
    uint64_t seq;
    uint32_t signature;       /* SHUNTI_SIGNATURE; must agree across ranks */
    enum shunt_status status; /* SHUNT_IN_PROGRESS until finished */
    enum shunt_status error;  /* first error recorded, else SHUNT_OK */
    /* `error` only says that a peer refuses or has failed; a better error
     * replaces it */
    bool second_hand;
    uint8_t attachment; /* enum shunti_attachment */
    bool stepping; /* a step is running; guards against a step within a step */
    /* The request uses streams in the place of zero copy. A stream begins at
     * once, but sends no more than the receiver's ring has room for. Zero copy
     * begins only when this rank has seen the peer's note, but then no receiver
     * limits it. All ranks have the same value. */
    bool streams;
    bool keeps_late; /* as in struct shunti_options */
    /* A digest of arguments, besides sizes, that must agree across ranks. It is
     * mixed into the `expects` of the notes, so that calls with different
     * digests disagree. 0: none. */
    uint64_t digest;
    /* the notes of this request are sent after those of earlier calls:
     * collectives/exchange.h */
    bool in_turn;
    /* the request is in the list requests.newest, and may outlive its call */
    bool listed;
    struct shunti_traced *traced; /* NULL after the end, and without a trace */
    bool on_trial;                /* engine_worthwhile.h */
    uint8_t engine;               /* enum shunti_use */
    /* The text of the error, for shunt_last_error() when the request is
     * collected. NULL: none, or no memory for it. */
    char *error_text;
    uint64_t begun_ns;
    /* copies under way in the copy engine: engine.h */
    struct shunti_copy *copies;
    struct shunti_read *reads;    /* reads under way: read.h */
    struct shunti_notice *notice; /* notice.h; NULL: none */
    size_t capacity;              /* bytes of `state` */
    /* next in the list of active requests, by seq */
    struct shunt_request *next;
    /* neighbors in the list of `listed` requests, by creation */
    struct shunt_request *newer, *older;
    _Alignas(16) unsigned char state[];
};

/* Part of a communicator: its requests other than those under way. request.c
 * writes it; operations.c frees what is in it; notify.c and notice.c count
 * `notices`. */
struct shunti_requests {
    struct shunt_request *spare;  /* finished requests, for reuse */
    size_t spare_state;           /* bytes of `state` of each spare request */
    struct shunt_request *newest; /* the newest `listed` request */
    /* number of notices of requests under way; notify.c and notice.c count
     * them */
    unsigned notices;
};

/* The name of the call that the user made: that of the purpose, or else that of
 * the class. */
const char *shunti_request_name(const struct shunt_request *request);

/* A pointer to shunti_request_refuse(). refusal.c sets it, to break the cycle
 * request.c -> refusal.c -> request.c. */
extern enum shunt_status (*shunti_request_refuse_for)(struct shunt_comm *comm,
                                                      uint32_t signature,
                                                      enum shunt_status status,
                                                      const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Allocate the reserve: a request for a refusal when there is no memory
 * left. */
bool shunti_request_reserve(struct shunt_comm *comm);

/*
 * Create an operation. It has a number, and is not active yet; its state is
 * zeroed.
 *
 * signature    includes the purpose in `options`, if there is one.
 * state_bytes  bytes of `state` that the class needs.
 *
 * Errors: the communicator's failure; SHUNT_ERR_MEMORY. If memory runs out, a
 * refusal takes the operation's place, and the other ranks get an error that
 * names this rank. In two cases the communicator fails instead, because the
 * ranks would disagree: the operation is one of several of a call (its
 * signature has a purpose); or the refusal of an earlier call, for the same
 * reason, is still under way.
 */
enum shunt_status
shunti_request_create(struct shunt_comm *comm, const struct shunti_class *class,
                      uint32_t signature, const struct shunti_options *options,
                      size_t state_bytes, struct shunt_request **request);

/* Fail as shunti_request_create() does without memory. Called in its place if
 * memory runs out that the operation needs beside its state. */
enum shunt_status shunti_request_no_memory(struct shunt_comm *comm,
                                           const struct shunti_class *class,
                                           uint32_t signature, size_t bytes);

/*
 * Create a request that is composed of others: its class has run(). The caller
 * may return it at once, or drop it. Its state is zeroed.
 *
 * Errors: SHUNT_ERR_MEMORY, which concerns no other rank yet.
 */
enum shunt_status shunti_request_compose(struct shunt_comm *comm,
                                         const struct shunti_class *class,
                                         size_t state_bytes,
                                         struct shunt_request **request);
/* Free a composed request that was not returned to a caller. */
void shunti_request_drop(struct shunt_request *request);

/* Record for traces that this rank sends payload to `peer` by `way` (enum
 * shunti_way). */
static inline void shunti_request_way(struct shunt_request *request, int peer,
                                      unsigned way)
{
    if (__builtin_expect(request->traced != NULL, 0))
        request->traced->ways[peer] |= (uint8_t)(1u << way);
}

/* Record an error of this operation; printf-like text. The first error recorded
 * stays, unless it was second-hand. Returns the operation's error. */
enum shunt_status shunti_request_error(struct shunt_request *request,
                                       enum shunt_status status,
                                       const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* --- for operations.c and call.c, which end requests ---------------------- */

/* Put a request into the list of `listed` ones. The request may outlive its
 * call, and the communicator. */
void shunti_request_list(struct shunt_request *request);
/* Free a request. Its error has been returned, or there was none. */
void shunti_request_free(struct shunt_request *request);
/* Keep the error text of a failed request until the request is collected. If
 * the request is TRAILING, keep its error for the next call. */
void shunti_request_keep_text(struct shunt_request *request);
void shunti_request_drop_text(struct shunt_request *request);
/* The text of the request's error; valid until the request is freed. */
const char *shunti_request_text(const struct shunt_request *request);
void shunti_request_drop_traced(struct shunt_request *request);

#endif
