// SPDX-License-Identifier: Apache-2.0
/*
 * Zero copy to ranks whose memory is not mapped.
 *
 * The receiver names, in its own note, where a large block is to go; the sender
 * then has the transport put it there straight from its own memory, and raises
 * a word in the receiver's control window. Nobody copies it on the way but the
 * transport (UCX over TCP: once, where it arrives), where a stream copies twice
 * besides (stream.h). It costs that the sender must have the receiver's note
 * first; both notes of a pair cross, so that is half a trip.
 *
 * Which blocks go this way both sides know from their size alone
 * (shunti_zcopy_suits()). What the receiver names it registers for this one
 * operation, with the key in the note: also what lies in a window, as nothing
 * may come there after a call that failed.
 *
 * The rule that keeps memory safe: who has named memory, and has not heard that
 * the peer will put nothing there, does not end its operation before the block
 * has come. Where the communicator fails, nobody can keep it, and the transport
 * lets go (transport.h).
 */
#ifndef SHUNTI_ZCOPY_H
#define SHUNTI_ZCOPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shunt_comm;
struct shunt_request;
struct shunt_transport_reg;
struct shunt_transport_remote;

/* What the name of a block's memory takes at most, in a note. */
#define SHUNTI_ZCOPY_NAME 288

/* Blocks of one operation that go to, and come from, one peer: at most one each
 * way; `which` of its payloads it is. */
struct shunti_zcopy {
    struct shunti_zcopy *next; /* of the communicator's that are open */
    struct shunt_request *request;
    int peer;
    int which; /* 0 .. SHUNTI_ZCOPY_PAYLOADS - 1, the same on both sides */
    /* What comes. */
    bool named;
    struct shunt_transport_reg *reg;
    /* What goes. */
    const unsigned char *data;
    struct shunt_transport_reg *from; /* of `data`, if it is registered */
    size_t bytes, done;
    struct shunt_transport_remote *remote; /* NULL: not named yet */
    unsigned pending;                      /* puts that still need `data` */
};

#define SHUNTI_ZCOPY_PAYLOADS 2

/* A remote that was imported for one operation, which the peer may not have
 * completed yet. */
struct shunti_spent_remote {
    struct shunti_spent_remote *next;
    struct shunt_transport_remote *remote;
    int peer;
    uint64_t seq;
};

/* Of a communicator. */
struct shunti_zcopies {
    struct shunti_zcopy *open, *spare;
    struct shunti_spent_remote *spent;
};

/* Does a block of so many bytes go to, or come from, this rank by zero copy?
 * The same answer there. */
bool shunti_zcopy_suits(const struct shunt_comm *comm, int peer, size_t bytes);

/* NULL: no memory; the communicator has failed. Ended with the request. */
struct shunti_zcopy *shunti_zcopy_create(struct shunt_request *request,
                                         int peer, int which);

/* What comes is to go to `to`. Writes its name to `at`, and returns how long
 * that is, a multiple of 8; 0: the communicator has failed. */
size_t shunti_zcopy_name(struct shunti_zcopy *z, void *to, size_t bytes,
                         unsigned char *at);
/* Has it come? */
bool shunti_zcopy_arrived(const struct shunti_zcopy *z);

/* What goes. It needs the name that the peer's note has at *name, which is
 * moved behind it. False: the peer expects another size, and nothing is to be
 * put there; or the name cannot be used, and the communicator has failed. */
bool shunti_zcopy_aim(struct shunti_zcopy *z, const void *data, size_t bytes,
                      const unsigned char **name);
/* Go on; true: all of it has gone, and `data` is not needed any more. Never
 * before there is an aim. */
bool shunti_zcopy_send(struct shunti_zcopy *z);

/* The request ends; `over`: because the communicator does. Then something may
 * be under way, and is ended, if it must be, by breaking the connection. */
void shunti_zcopy_end(struct shunt_request *request, bool over);
/* Free what is left, with the communicator. */
void shunti_zcopies_finish(struct shunt_comm *comm);

#endif
