// SPDX-License-Identifier: Apache-2.0
/*
 * Requests inside the library: an operation under way.
 *
 * An operation is a small state machine. Its class's step() does what can be
 * done now and says SHUNT_IN_PROGRESS, or SHUNT_OK when all is done; it never
 * blocks. Operations of a communicator are numbered by `seq`, which is the
 * same on every rank because calls are made in the same order; notes (note.h)
 * carry it. Up to SHUNTI_DEPTH operations have slots at a peer at once; a
 * later one waits inside its step() until note slots are free.
 *
 * Errors. What concerns one operation only (a bad count, a peer that called
 * with bad arguments) is recorded by shunti_request_error(), and the operation
 * still goes on with everybody else, so that nobody is left reading memory
 * that its owner already has back. The first recorded error becomes its
 * status. What concerns the communicator (a lost rank) ends all operations at
 * once: shunti_comm_fail().
 */
#ifndef SHUNTI_REQUEST_H
#define SHUNTI_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/request.h>
#include <shunt/status.h>

#include "src/kind.h"

struct shunt_comm;
struct shunt_request;
struct shunti_copy;

/* What a class of operations does. */
struct shunti_class {
    /* First what every call looks at. */
    /* Advance; SHUNT_IN_PROGRESS, SHUNT_OK, or an error of this operation. */
    enum shunt_status (*step)(struct shunt_request *request);
    /* Has the caller all that the call gives, and has every peer all that it
     * needs of us? Then a blocking call returns, and what is left, to hear from
     * peers that they agree, is done in later calls: a root need not wait for
     * everybody. What goes wrong in that is told later: shunti_request_late().
     * NULL: never before the end. */
    bool (*settled)(const struct shunt_request *request);
    /* Release what the state owns; called once, also after a failure. NULL:
     * nothing. */
    void (*cleanup)(struct shunt_request *request);
    /* All that it takes from others is in notes, so in our own window: what has
     * come stays true even if its sender has given up since. */
    bool from_notes;
    const char *name; /* "alltoallv": for errors and traces */
    /* Is something still needed from `peer`? Names the missing in a timeout,
     * and decides whether the loss of a peer concerns this operation. */
    bool (*awaits)(const struct shunt_request *request, int peer);
    /* Has `peer` shown that it is in this call? Who has not is the first to be
     * named in a timeout: the others may be waiting for it, too. NULL: not
     * known. */
    bool (*heard)(const struct shunt_request *request, int peer);
    /* Another rank waits for the same ranks, and knows which of them have not
     * come: where all answer the probe, it is left to name them. */
    bool follows;
    /* Do later calls of others wait for what this one still has to send? NULL:
     * never. See `in_turn`. */
    bool (*owes)(const struct shunt_request *request);
    /* For traces, of the state alone: it may be cleaned up. */
    const char *algorithm; /* "flat"; NULL: there is but one */
    /* Bytes of payload that go from us to `peer`. NULL: see sent_in_all. */
    size_t (*sent)(const struct shunt_request *request, int peer);
    /* To all of them, where it is not known to whom how much. NULL: nothing. */
    size_t (*sent_in_all)(const struct shunt_request *request);
};

struct shunt_request {
    const struct shunti_class *class;
    struct shunt_comm *comm;
    uint64_t seq;
    uint32_t signature;       /* must agree across ranks; SHUNTI_SIGNATURE */
    enum shunt_status status; /* SHUNT_IN_PROGRESS until finished */
    enum shunt_status error;  /* first error recorded, else SHUNT_OK */
    bool hearsay;             /* `error` is no more than that a peer refuses or
                                 has failed: what it came from is told in its
                                 place */
    bool detached;            /* nobody waits for it: freed when finished */
    bool trailing;            /* detached because it was settled */
    bool promised;            /* detached, and peers rely on it: a communicator
                                 is not destroyed before it is over */
    bool stepping;            /* guards against steps within steps */
    bool in_turn;             /* its notes go out after those of the calls
                                 before it: collectives/exchange.h */
    bool listed;              /* among those that outlive their call */
    /* (nranks) bits 1 << enum shunti_way by which payload of ours went to each
     * rank; for traces, else NULL. */
    uint8_t *ways;
    char *story; /* of its failure: shunt_last_error() when it is collected;
                        NULL: none, or no memory for it */
    uint64_t begun_ns;
    struct shunti_copy *copies; /* that the copy engine has: engine.h */
    size_t capacity;            /* bytes of `state` */
    struct shunt_request *next; /* in the list of active ones, by seq */
    struct shunt_request *newer, *older; /* in that of `listed`, by creation */
    _Alignas(16) unsigned char state[];
};

/* Of a communicator: its requests beyond those under way. request.c writes it;
 * operations.c frees what is in it. */
struct shunti_requests {
    struct shunt_request *spare;  /* finished ones, to be used again */
    size_t spare_state;           /* bytes of their `state` */
    struct shunt_request *newest; /* of those that are `listed` */
};

/* What the caller called: the purpose's name, or that of the class. */
const char *shunti_request_name(const struct shunt_request *request);

/*
 * A new operation, numbered and not yet active; its state is zeroed.
 *
 * state_bytes  of `state`; what a class needs.
 *
 * Errors: the communicator's failure; SHUNT_ERR_MEMORY (then no number was
 * used up, and the communicator is failed: the ranks would disagree).
 */
enum shunt_status shunti_request_create(struct shunt_comm *comm,
                                        const struct shunti_class *class,
                                        uint32_t signature, size_t state_bytes,
                                        struct shunt_request **request);

/* Payload of ours goes to `peer` by `way` (enum shunti_way): for traces. */
static inline void shunti_request_way(struct shunt_request *request, int peer,
                                      unsigned way)
{
    if (__builtin_expect(request->ways != NULL, 0))
        request->ways[peer] |= (uint8_t)(1u << way);
}

/* Record an error of this operation; printf-like text. The first one recorded
 * stays, unless it was hearsay. Returns the one that the operation has now. */
enum shunt_status shunti_request_error(struct shunt_request *request,
                                       enum shunt_status status,
                                       const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* --- for operations.c and call.c, which end requests --- */

/* The request may outlive its call, and the communicator: keep it in a list. */
void shunti_request_list(struct shunt_request *request);
/* Its error has been told, or it had none. */
void shunti_request_free(struct shunt_request *request);
/* It failed: keep the sentence until somebody asks for it, unless nobody
 * will. */
void shunti_request_keep_story(struct shunt_request *request);
void shunti_request_drop_story(struct shunt_request *request);
void shunti_request_drop_ways(struct shunt_request *request);

#endif
