// SPDX-License-Identifier: Apache-2.0
/*
 * Zero copy to ranks whose memory is not mapped.
 *
 * The receiver's note says where a large block is to be put. The sender lets
 * the transport put the block there, straight from the sender's memory, and
 * raises a word in the receiver's control window. Only the transport copies on
 * the way (UCX over TCP: once, where the block arrives); a stream copies twice
 * more (stream.h). In return the sender must have the receiver's note before it
 * can send. The notes of a pair cross, so that costs half a round trip.
 *
 * Both sides decide from the size alone which blocks are sent by zero copy
 * (shunti_zcopy_suits()). The receiver registers the memory for this one
 * operation, and sends the key in its note. The receiver does so also if the
 * memory is in a window, because nothing may be written there after a failed
 * call.
 *
 * The rule that keeps memory safe: a receiver that has sent a key does not end
 * its operation before the block has arrived, unless the peer has sent a
 * message that it will put nothing there. If the communicator fails, the rule
 * cannot be kept; then the transport ends access to the memory (transport.h).
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

/* The most bytes that the place of a block, with its key, takes in a note. */
#define SHUNTI_ZCOPY_NAME 288

/* Zero copy between this rank and one peer in one operation: a block to
 * receive, a block to send, or both. `which` is the index of the blocks among
 * the operation's payloads. */
struct shunti_zcopy {
    /* next in the communicator's list of open ones, or of spare ones */
    struct shunti_zcopy *next;
    struct shunt_request *request;
    int peer;
    int which; /* 0 .. SHUNTI_ZCOPY_PAYLOADS - 1, the same on both sides */
    /* The block to receive. */
    bool named;                      /* its place is in a note to the peer */
    struct shunt_transport_reg *reg; /* registration of its memory */
    /* The block to send. */
    const unsigned char *data;
    /* the registration of `data`; NULL: none */
    struct shunt_transport_reg *from;
    size_t bytes, done; /* size of the block; bytes put so far */
    /* Each part of so many bytes is signalled to the peer; 0: only the end
     * is. */
    size_t part;
    /* the peer's place for the block; NULL: not known yet */
    struct shunt_transport_remote *remote;
    /* number of puts that still need `data` */
    unsigned pending;
};

#define SHUNTI_ZCOPY_PAYLOADS 2

/* A peer's memory that was imported for operation `seq`. It must not be
 * released before the peer has completed that operation. */
struct shunti_spent_remote {
    struct shunti_spent_remote *next;
    struct shunt_transport_remote *remote;
    int peer;
    uint64_t seq;
};

/* Part of a communicator: its zero-copy blocks. zcopy.c writes it. */
struct shunti_zcopies {
    struct shunti_zcopy *open, *spare;
    struct shunti_spent_remote *spent;
};

/* Is a block of `bytes` sent to, or received from, `peer` by zero copy? The
 * peer gets the same answer about this rank. */
bool shunti_zcopy_suits(const struct shunt_comm *comm, int peer, size_t bytes);

/* Create a zero-copy block, which ends with the request. NULL: no memory; the
 * communicator has failed. */
struct shunti_zcopy *shunti_zcopy_create(struct shunt_request *request,
                                         int peer, int which);

/* Receive the block into `to`. Registers that memory, and writes its place for
 * the peer to `at`. Returns the length of the place, a multiple of 8; 0: the
 * communicator has failed. */
size_t shunti_zcopy_name(struct shunti_zcopy *z, void *to, size_t bytes,
                         unsigned char *at);
/* Has the block arrived? */
bool shunti_zcopy_arrived(const struct shunti_zcopy *z);
/* The number of parts that have arrived, as long as the whole block has not. */
size_t shunti_zcopy_arrived_parts(const struct shunti_zcopy *z);

/* Prepare to send the block. *name points to the place in the peer's note, and
 * is moved behind it. False: the peer expects another size, and nothing may be
 * put there; or the place cannot be used, and the communicator has failed. */
bool shunti_zcopy_aim(struct shunti_zcopy *z, const void *data, size_t bytes,
                      const unsigned char **name);
/* Continue to send; only after shunti_zcopy_aim(). True: everything has been
 * sent, and `data` is not needed any more. */
bool shunti_zcopy_send(struct shunti_zcopy *z);

/* End the zero-copy blocks of a request that ends. over: the communicator has
 * failed or is being destroyed. Then a transfer may still be under way; it is
 * ended, if need be by breaking the connection. */
void shunti_zcopy_end(struct shunt_request *request, bool over);
/* Free all zero-copy blocks, when the communicator is destroyed. */
void shunti_zcopies_finish(struct shunt_comm *comm);

#endif
