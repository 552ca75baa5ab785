// SPDX-License-Identifier: Apache-2.0
/*
 * Requests inside the library: an operation under way.
 *
 * An operation is a small state machine. Its class's step() does what can be
 * done now and returns SHUNT_IN_PROGRESS, or SHUNT_OK when all is done; it
 * never blocks. The operations of a communicator are numbered by `seq`, which
 * is the same on every rank because all ranks make the same calls in the same
 * order; notes (note.h) carry it. Up to SHUNTI_DEPTH operations have slots at a
 * peer at once; a later one waits inside its step() until a slot is free.
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
 * What a class of operations does.
 *
 * A class with run() is of requests that are made of others
 * (shunti_request_compose()): they have no number, no peer hears of them, and
 * only a test or a wait of the request itself advances them. So their caller's
 * own work, such as a product, is done by the thread that asked for it, and in
 * no other call. They need no step().
 */
struct shunti_class {
    /* The first fields are those that every call reads. */
    /* Advance; SHUNT_IN_PROGRESS, SHUNT_OK, or an error of this operation. */
    enum shunt_status (*step)(struct shunt_request *request);
    /* Does the caller have all results, and every peer all that it needs from
     * this rank? Then a blocking call returns. The rest, which is to check that
     * the peers agree, is done in later calls, so a root need not wait for all
     * ranks. An error in it is returned later: shunti_request_late(). NULL:
     * never before the end. */
    bool (*settled)(const struct shunt_request *request);
    /* Has it sent all that peers need of it, and is what it awaits so little
     * that it lies in the kernel's buffers until the caller is back? Then
     * nobody gains if it is stepped meanwhile. NULL: never. */
    bool (*pauses)(const struct shunt_request *request);
    /* Release what the state owns; called once, also after a failure. NULL:
     * nothing. */
    void (*cleanup)(struct shunt_request *request);
    /* Test the requests that it is made of, or wait for them; the communicator
     * is not held. Returns what step() does, and records errors as it does. */
    enum shunt_status (*run)(struct shunt_request *request, bool wait);
    /* All that it takes from peers is in notes, so in our own control window:
     * it stays valid even if the sender fails afterwards. */
    bool from_notes;
    /* Its notes alone are no reason to connect ranks: shunt_transport_put.rare. */
    bool rare;
    bool reserved;    /* it takes the communicator's reserve: request.c */
    const char *name; /* "alltoallv": for errors and traces */
    /* Does it still need something from `peer`? Decides which ranks a timeout
     * may name, and whether the loss of a peer concerns this operation. */
    bool (*awaits)(const struct shunt_request *request, int peer);
    /* Has `peer` shown that it is in this call? A timeout names first the ranks
     * that have not: the others may be waiting for them. NULL: not known. */
    bool (*heard)(const struct shunt_request *request, int peer);
    /* Another rank waits for the same ranks, and knows which of them have not
     * come: if all answer the probe, that rank names them. */
    bool follows;
    /* Do later calls of peers wait for what this one still has to send? NULL:
     * never. See `in_turn`. */
    bool (*owes)(const struct shunt_request *request);
    /* For traces. sent() and sent_in_all() are also called after cleanup(). */
    const char *algorithm; /* "flat"; NULL: there is but one */
    /* Bytes of payload that go from us to `peer`. NULL: see sent_in_all. */
    size_t (*sent)(const struct shunt_request *request, int peer);
    /* To all peers together, if the share of each is not known. NULL: none. */
    size_t (*sent_in_all)(const struct shunt_request *request);
};

/* What a timeline knows of a request that is under way: trace_request.c. */
struct shunti_traced {
    uint64_t began_ns;
    uint64_t in_ns;     /* its caller is in a call for it since; 0: is not */
    uint64_t inside_ns; /* and was so for that long before */
    /* (nranks) bits 1 << enum shunti_way by which payload of ours went to each
     * rank */
    uint8_t ways[];
};

struct shunt_request {
    const struct shunti_class *class;
    struct shunt_comm *comm;
    uint64_t seq;
    uint32_t signature;       /* must agree across ranks; SHUNTI_SIGNATURE */
    enum shunt_status status; /* SHUNT_IN_PROGRESS until finished */
    enum shunt_status error;  /* first error recorded, else SHUNT_OK */
    bool second_hand;         /* `error` is second-hand: it only says that a
                                 peer refuses or has failed, and a better one
                                 replaces it */
    bool detached;            /* no caller waits for it: freed when finished */
    bool trailing;            /* detached because it was settled */
    bool promised;            /* detached, and peers rely on it: destroying the
                                 communicator waits for its end */
    bool stepping;            /* guards against steps within steps */
    bool streams;             /* it sends nothing by zero copy, whose transfer
                                 begins when this rank has looked for the
                                 peer's note, and which no receiver holds up;
                                 the same on all ranks */
    uint64_t digest;          /* mixed into what its notes say is expected, so
                                 that calls with another one disagree: a digest
                                 of what must agree beside sizes; 0: none */
    bool in_turn;             /* its notes go out after those of the calls
                                 before it: collectives/exchange.h */
    bool listed;              /* in requests.newest: it may outlive its call */
    struct shunti_traced *traced; /* until it has ended; NULL: no trace */
    bool on_trial;                /* engine_worthwhile.h */
    uint8_t engine;               /* enum shunti_use */
    /* the text of its error, for shunt_last_error() when it is collected; NULL:
     * none, or no memory for it */
    char *error_text;
    uint64_t begun_ns;
    struct shunti_copy *copies; /* under way in the copy engine: engine.h */
    struct shunti_read *reads;  /* under way: read.h */
    struct shunti_notice
        *notice;                /* notice.h; NULL: nobody is told of its end */
    size_t capacity;            /* bytes of `state` */
    struct shunt_request *next; /* in the list of active ones, by seq */
    struct shunt_request *newer, *older; /* in that of `listed`, by creation */
    _Alignas(16) unsigned char state[];
};

/* Part of a communicator: its requests beyond those under way. request.c writes it;
 * operations.c frees what is in it; notify.c and notice.c count `notices`. */
struct shunti_requests {
    struct shunt_request *spare;  /* finished ones, to be used again */
    size_t spare_state;           /* bytes of their `state` */
    struct shunt_request *newest; /* of those that are `listed` */
    unsigned notices;             /* of those under way; notice.c counts them */
};

/* What the caller called: the purpose's name, or that of the class. */
const char *shunti_request_name(const struct shunt_request *request);

/* shunti_request_refuse(), which refusal.c sets, to break the cycle request.c ->
 * refusal.c -> request.c. */
extern enum shunt_status (*shunti_request_refuse_for)(struct shunt_comm *comm,
                                                      uint32_t signature,
                                                      enum shunt_status status,
                                                      const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Get the memory for a refusal, which is there when there is none left. */
bool shunti_request_reserve(struct shunt_comm *comm);

/*
 * A new operation, numbered and not yet active; its state is zeroed.
 *
 * state_bytes  of `state`; what a class needs.
 *
 * Errors: the communicator's failure; SHUNT_ERR_MEMORY. Then a refusal has taken
 * the operation's place, and the other ranks get an error that names this one. If
 * the operation is one of several of a call (above.purpose), or a refusal for the
 * same reason is still under way, the communicator has failed: the ranks would
 * disagree.
 */
enum shunt_status shunti_request_create(struct shunt_comm *comm,
                                        const struct shunti_class *class,
                                        uint32_t signature, size_t state_bytes,
                                        struct shunt_request **request);

/* The same error for memory that the operation needs beside its state: in the place
 * of shunti_request_create(). */
enum shunt_status shunti_request_no_memory(struct shunt_comm *comm,
                                           const struct shunti_class *class,
                                           uint32_t signature, size_t bytes);

/*
 * A new request that is made of others: its class has run(). The caller may
 * return it at once, or drop it. Its state is zeroed.
 *
 * Errors: SHUNT_ERR_MEMORY, which concerns no other rank yet.
 */
enum shunt_status shunti_request_compose(struct shunt_comm *comm,
                                         const struct shunti_class *class,
                                         size_t state_bytes,
                                         struct shunt_request **request);
/* It is over without having been returned to a caller. */
void shunti_request_drop(struct shunt_request *request);

/* Payload of ours goes to `peer` by `way` (enum shunti_way): for traces. */
static inline void shunti_request_way(struct shunt_request *request, int peer,
                                      unsigned way)
{
    if (__builtin_expect(request->traced != NULL, 0))
        request->traced->ways[peer] |= (uint8_t)(1u << way);
}

/* Record an error of this operation; printf-like text. The first one recorded
 * stays, unless it was second-hand. Returns the operation's error. */
enum shunt_status shunti_request_error(struct shunt_request *request,
                                       enum shunt_status status,
                                       const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* --- for operations.c and call.c, which end requests ---------------------- */

/* The request may outlive its call, and the communicator: keep it in a list. */
void shunti_request_list(struct shunt_request *request);
/* Its error has been returned, or there was none. */
void shunti_request_free(struct shunt_request *request);
/* It failed: keep the error text until the request is collected; of a trailing
 * one, until the next call. */
void shunti_request_keep_text(struct shunt_request *request);
void shunti_request_drop_text(struct shunt_request *request);
/* The text of its error, until it is freed. */
const char *shunti_request_text(const struct shunt_request *request);
void shunti_request_drop_traced(struct shunt_request *request);

#endif
