// SPDX-License-Identifier: Apache-2.0
/*
 * The parts of the root (bootstrap_root.c) and what they share: its state, its
 * connections, and the functions of each part. A part calls only parts below
 * it:
 *
 *     bootstrap_root.c       the thread and its event loop
 *     bootstrap_accept.c     accepts connections, bounds unauthenticated ones
 *     bootstrap_handshake.c  authenticates a peer
 *     bootstrap_members.c    ranks that were admitted: gathers, deadlines
 *     bootstrap_failure.c    the failure of the init, and its ERROR frames
 *     bootstrap_conn.c       buffers and sockets of one connection
 *     bootstrap_count.c      counts the connections of all roots of the process
 *
 * Only the root's own thread uses any of this, except bootstrap_count.c.
 */
#ifndef SHUNTI_BOOTSTRAP_ROOT_H
#define SHUNTI_BOOTSTRAP_ROOT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <shunt/status.h>

#include "src/boot/auth.h"
#include "src/boot/bootstrap_wire.h"
#include "src/boot/id.h"

#define SHUNTI_ROOT_LINGER_SECONDS 10.0 /* to notify late ranks of a failure */
#define SHUNTI_ROOT_HOLD_SECONDS 10.0   /* see shunti_root_hold() */
#define SHUNTI_CONN_OUTBOX 4            /* queue: READY, ALL, ERROR, a spare */

/* A message that may be queued on several connections. */
struct shunti_reply {
    unsigned refs;
    size_t len;
    unsigned char bytes[];
};

enum shunti_conn_stage {
    SHUNTI_CONN_HELLO,  /* unauthenticated, has not sent its hello yet */
    SHUNTI_CONN_PROOF,  /* unauthenticated, has been sent a challenge */
    SHUNTI_CONN_MEMBER, /* authenticated, and has a rank */
    /* No further message is expected. Send the queued messages, then read until
     * the other side closes, so that it can read the last one. */
    SHUNTI_CONN_LEAVING,
};

struct shunti_conn {
    int fd; /* -1: closed, to be removed */
    enum shunti_conn_stage stage;
    bool authenticated; /* it has proved that it knows the secret */
    double accepted_at;
    double deadline; /* while unauthenticated or SHUNTI_CONN_LEAVING */
    int rank;        /* of a member; otherwise -1 */
    char from[64];   /* the peer's address, for the log */
    struct shunti_auth_transcript transcript;

    unsigned char in[SHUNTI_WIRE_HELLO_BYTES]; /* hello, proof, or header */
    size_t in_used;
    struct shunti_wire_header header;
    bool in_body;
    unsigned char *body;
    size_t body_used;

    struct shunti_reply *out[SHUNTI_CONN_OUTBOX];
    unsigned nout;
    size_t out_sent; /* bytes of out[0] that were sent */
    bool shut;       /* shutdown() for sending was called */
};

struct shunti_root_blob {
    unsigned char *data;
    size_t len;
    bool here;
};

struct shunti_root {
    int listen_fd; /* -1: no further rank can join */
    struct shunti_id_parts parts;
    char where[64];
    double timeout;             /* SHUNT_TIMEOUT of this process */
    size_t unauthenticated_max; /* most unauthenticated connections at a time */
    double accept_after;        /* do not accept before this time */
    double accept_fails_since;  /* accept() fails since then, for lack of
                                   descriptors; 0: it works */
    /* A spare, unused descriptor, or -1. Closed when descriptors run out, so
     * that ranks can be accepted one at a time and notified of the failure. */
    int spare_fd;

    struct shunti_conn **conns;
    size_t nconns, room;
    struct pollfd *polls; /* (room + 1) the listening socket, then the
                             connections */

    int *names; /* (nnames) numbers of the ranks in errors */
    int nnames;
    int nranks;                     /* 0: no rank has joined yet */
    struct shunti_conn **members;   /* (nranks) by rank */
    int joined;                     /* number of ranks that have joined */
    int left;                       /* number of ranks that have sent BYE */
    struct shunti_root_blob *blobs; /* (nranks) blobs of the current gather */
    int gathered;
    double member_timeout; /* the shortest timeout of a member */
    double deadline;       /* for the next step of the init */

    enum shunt_status failure;
    double failed_at;
    char text[512];
    struct shunti_reply *failure_frame; /* ERROR, for every rank */
    bool failure_kept;                  /* shunti_root_keep_failure() has been
                                           called */
    int failures_sent;                  /* number of ranks that failure_frame
                                           was sent to */
    int expected; /* ranks that may connect: the largest nranks in any hello */
    bool held;    /* all ranks have joined, and the address is held */
    bool warned;  /* the log has a warning of a second job */
    struct shunti_root *next; /* list of listening roots: bootstrap_count.c */
    size_t counted; /* the number last passed to shunti_root_count_conns() */
};

/* --- bootstrap_conn.c ----------------------------------------------------- */

/* A frame with room for `bytes` after its header, with one reference. NULL:
 * memory ran out. */
struct shunti_reply *shunti_reply_new(uint32_t type, int32_t status,
                                      size_t bytes);

/* Drop a reference. `reply` may be NULL. */
void shunti_reply_release(struct shunti_reply *reply);

/* Send as much as the socket accepts. False: the other side is gone. */
bool shunti_conn_flush(struct shunti_conn *c);

/* Queue a message, and take a reference. False: `reply` is NULL, or the queue
 * is full. */
bool shunti_conn_send(struct shunti_conn *c, struct shunti_reply *reply);

/* As recv(2) into a part of `buffer`. 0: nothing has arrived; -1: the other
 * side is gone. */
ssize_t shunti_conn_receive(struct shunti_conn *c, void *buffer, size_t len);

/* Close the socket and drop queued messages. The entry stays in the table until
 * the event loop removes it. */
void shunti_conn_close(struct shunti_conn *c);

/* Send the queued messages, then wait for the other side to close. */
void shunti_conn_leave(struct shunti_conn *c);

/* Has this connection not proved the secret yet? */
static inline bool shunti_conn_is_unauthenticated(const struct shunti_conn *c)
{
    return c->fd >= 0 && !c->authenticated;
}

/* Close the spare descriptor, which makes room for one connection. */
void shunti_root_release_spare(struct shunti_root *root);

/* --- bootstrap_count.c ---------------------------------------------------- */

/* Keep this root's failure. Only that of the root that called last is kept. */
void shunti_root_keep_failure(const struct shunti_root *root);

/* The status and text of the root of this process that was at `where`, if it
 * was the last one to call shunti_root_keep_failure(). SHUNT_OK: that root did
 * not fail, or was not the last one. */
enum shunt_status shunti_root_failed_here(const char *where, char *text,
                                          size_t size);

/* Count `now` connections of this root; shunti_bootstrap_settle() waits for
 * them. */
void shunti_root_count_conns(struct shunti_root *root, size_t now);

/* Count one more root (1) or one less (-1). */
void shunti_root_count(int by);

/* Add `root` to the listening roots. A child of fork() closes their sockets. */
void shunti_root_listens(struct shunti_root *root);

/* Stop listening. May be called again. */
void shunti_root_close_listener(struct shunti_root *root);

/*
 * Called when all ranks have joined. The root of a launcher's job keeps
 * listening for SHUNTI_ROOT_HOLD_SECONDS. So ranks of a second job with the
 * same name are refused with an error, instead of waiting for a root.
 */
void shunti_root_hold(struct shunti_root *root);

/* Stop all roots of this process from holding an address, because another root
 * may need it. */
void shunti_root_release_held(void);

/* --- bootstrap_failure.c -------------------------------------------------- */

/* The number of `rank` in errors. */
int shunti_root_rank_name(const struct shunti_root *root, int rank);

/* Allocate the memory for notifying all ranks of a failure in advance, as
 * memory may run out. False: there is none. */
bool shunti_root_reserve_failure(struct shunti_root *root);

/* Send the failure to one connection, and end the connection. */
void shunti_root_send_failure(struct shunti_root *root, struct shunti_conn *c);

/* Record a failure and notify every member. Does nothing if the root has failed
 * before. `is` selects the ranks that did not join or send in time, which the
 * ERROR frame lists; NULL: the frame lists no ranks. */
void shunti_root_fail_for(struct shunti_root *root, enum shunt_status status,
                          bool (*is)(const struct shunti_root *, int),
                          const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define shunti_root_fail(root, status, ...) \
    shunti_root_fail_for(root, status, NULL, __VA_ARGS__)

/* Refuse a peer of another job. The init of this root is not affected. */
void shunti_root_turn_away(struct shunti_root *root, struct shunti_conn *c,
                           const char *text);

/* --- bootstrap_members.c -------------------------------------------------- */

/* Admit an authenticated peer as a member, or send it the failure. */
void shunti_root_admit(struct shunti_root *root, struct shunti_conn *c);

/* Read and handle what a member has sent. */
void shunti_root_read_member(struct shunti_root *root, struct shunti_conn *c);

/* A member's connection has ended without a BYE. */
void shunti_root_member_lost(struct shunti_root *root, struct shunti_conn *c);

/* Fail if members wait for a blob of a member that has left. */
void shunti_root_check_left(struct shunti_root *root);

/* Have all members sent BYE? Then the init is over for all of them. */
bool shunti_root_is_complete(const struct shunti_root *root);

/* root->deadline has passed: fail, and name the ranks that are missing. */
void shunti_root_on_deadline(struct shunti_root *root);

/* --- bootstrap_handshake.c ------------------------------------------------ */

/* Read the next message of an unauthenticated peer. Admits the peer if its
 * proof is right. */
void shunti_root_handshake(struct shunti_root *root, struct shunti_conn *c);

/* Drop an unauthenticated peer, and log why. */
void shunti_root_refuse(struct shunti_conn *c, const char *why);

/* --- bootstrap_accept.c --------------------------------------------------- */

/* Limit of unauthenticated connections for this process. */
size_t shunti_root_unauthenticated_max(void);

/* Make room in the table for one more connection. False: memory ran out. */
bool shunti_root_make_room(struct shunti_root *root);

/* Accept some of the pending connections. */
void shunti_root_accept(struct shunti_root *root);

/* Drop connections whose deadline has passed. */
void shunti_root_expire(struct shunti_root *root, double now);

#endif
