// SPDX-License-Identifier: Apache-2.0
/*
 * The parts of the root (bootstrap_root.c) and what they share: its state, its
 * connections, and what each part offers to the others. Calls go in this order:
 *
 *     bootstrap_root.c       the thread and its event loop
 *     bootstrap_accept.c     accepts connections, bounds unauthenticated ones
 *     bootstrap_handshake.c  authenticates a peer
 *     bootstrap_members.c    ranks that were admitted: gathers, deadlines
 *     bootstrap_failure.c    the failure of all, and telling it
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

#include "src/auth.h"
#include "src/bootstrap_wire.h"
#include "src/id.h"

#define SHUNTI_ROOT_LINGER_SECONDS 10.0 /* to tell latecomers of a failure */
#define SHUNTI_CONN_OUTBOX 4            /* READY, ALL, ERROR and one to spare */

/* A message on its way to several. */
struct shunti_reply {
    unsigned refs;
    size_t len;
    unsigned char bytes[];
};

enum shunti_conn_stage {
    SHUNTI_CONN_HELLO,  /* a stranger that has said nothing yet */
    SHUNTI_CONN_PROOF,  /* a stranger that was challenged */
    SHUNTI_CONN_MEMBER, /* has proved the secret, and has a rank */
    SHUNTI_CONN_LEAVING, /* nothing more is expected: send what is left, then read on until
                the other side closes, so that it can read the end */
};

struct shunti_conn {
    int fd; /* -1: to be forgotten */
    enum shunti_conn_stage stage;
    bool authenticated; /* it knows the secret: no stranger */
    double deadline;    /* of a stranger, or of SHUNTI_CONN_LEAVING */
    int rank;           /* of a member, else -1 */
    char from[64];      /* its address, for the log */
    struct shunti_auth_transcript transcript;

    unsigned char in[SHUNTI_WIRE_HELLO_BYTES]; /* hello, proof, or header */
    size_t in_used;
    struct shunti_wire_header header;
    bool in_body;
    unsigned char *body;
    size_t body_used;

    struct shunti_reply *out[SHUNTI_CONN_OUTBOX];
    unsigned nout;
    size_t out_sent; /* of out[0] */
    bool shut;       /* our direction is closed */
};

struct shunti_root_blob {
    unsigned char *data;
    size_t len;
    bool here;
};

struct shunti_root {
    int listen_fd; /* -1: all have come */
    struct shunti_id_parts parts;
    char where[64];
    double timeout;             /* of this process's SHUNT_TIMEOUT */
    size_t unauthenticated_max; /* as many are kept */
    double accept_after;        /* do not accept before */
    double
        accept_fails_since; /* since when nobody can be accepted; 0: they can */
    int spare_fd;           /* nothing: given up to tell them of that; or -1 */

    struct shunti_conn **conns;
    size_t nconns, room;
    struct pollfd *polls; /* room + 1 */

    int *names; /* (nnames) what ranks are called in errors */
    int nnames;
    int nranks;                     /* 0: nobody has said yet */
    struct shunti_conn **members;   /* (nranks) by rank */
    int joined;                     /* how many have come */
    int left;                       /* how many have said goodbye */
    struct shunti_root_blob *blobs; /* (nranks) of the gather under way */
    int gathered;
    double member_timeout; /* the shortest timeout of a member */
    double deadline;       /* of what is under way */

    enum shunt_status failure;
    double failed_at;
    char text[512];
    struct shunti_reply *failure_frame; /* the failure, as a frame */
    int told;                           /* how many were sent it */
    int expected;   /* how many may come: the most that anybody said */
    size_t counted; /* connections in the census */
};

/* -- bootstrap_conn.c ---------------------------------------------------------- */

/* A frame with room for `bytes` after its header, with one reference; NULL: no
 * memory. */
struct shunti_reply *shunti_reply_new(uint32_t type, int32_t status,
                                      size_t bytes);

/* Drops a reference; NULL is fine. */
void shunti_reply_release(struct shunti_reply *reply);

/* Send what the socket takes; false: the other side is gone. */
bool shunti_conn_flush(struct shunti_conn *c);

/* Queue a message; takes a reference of its own. False: NULL, or no room. */
bool shunti_conn_send(struct shunti_conn *c, struct shunti_reply *reply);

/* As recv(2) into a part of `buffer`; 0: nothing now, -1: gone. */
ssize_t shunti_conn_receive(struct shunti_conn *c, void *buffer, size_t len);

/* Close the socket and drop what is queued. The entry stays in the table until
 * the event loop removes it. */
void shunti_conn_close(struct shunti_conn *c);

/* Send what is queued, then wait for the other side to close. */
void shunti_conn_leave(struct shunti_conn *c);

/* Has this connection not proved the secret yet? */
static inline bool shunti_conn_is_unauthenticated(const struct shunti_conn *c)
{
    return c->fd >= 0 && !c->authenticated;
}

/* Close the spare descriptor, which makes room for one connection. */
void shunti_root_release_spare(struct shunti_root *root);

/* -- bootstrap_count.c --------------------------------------------------------- */

/* This root has `now` connections that shunti_bootstrap_settle() waits for. */
void shunti_root_count_conns(struct shunti_root *root, size_t now);

/* One more root (1) or one less (-1). */
void shunti_root_count(int by);

/* -- bootstrap_failure.c ------------------------------------------------------- */

/* What `rank` is called in errors. */
int shunti_root_rank_name(const struct shunti_root *root, int rank);

/* Tell one connection of the failure, and end it. */
void shunti_root_tell(struct shunti_root *root, struct shunti_conn *c);

/* The first failure: keep it, and tell it to every member. `is` selects the
 * ranks that did not come, for the message; NULL: that is not the cause. */
void shunti_root_fail_for(struct shunti_root *root, enum shunt_status status,
                          bool (*is)(const struct shunti_root *, int),
                          const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define shunti_root_fail(root, status, ...) \
    shunti_root_fail_for(root, status, NULL, __VA_ARGS__)

/* -- bootstrap_members.c ------------------------------------------------------- */

/* Make a member of a peer that has proved the secret, or tell it the failure. */
void shunti_root_admit(struct shunti_root *root, struct shunti_conn *c);

/* Read and handle what a member has sent. */
void shunti_root_read_member(struct shunti_root *root, struct shunti_conn *c);

/* A member's connection has ended without a goodbye. */
void shunti_root_member_lost(struct shunti_root *root, struct shunti_conn *c);

/* Fail if members wait for a blob of one that has left. */
void shunti_root_check_left(struct shunti_root *root);

/* root->deadline has passed: fail, and say what is missing. */
void shunti_root_on_deadline(struct shunti_root *root);

/* -- bootstrap_handshake.c ----------------------------------------------------- */

/* Read what an unauthenticated peer has sent; admits it if its proof is right. */
void shunti_root_handshake(struct shunti_root *root, struct shunti_conn *c);

/* Drop an unauthenticated peer, and log why. */
void shunti_root_refuse(struct shunti_conn *c, const char *why);

/* -- bootstrap_accept.c -------------------------------------------------------- */

/* How many unauthenticated connections are kept. */
size_t shunti_root_unauthenticated_max(void);

/* Room in the table for one more connection; false: no memory. */
bool shunti_root_make_room(struct shunti_root *root);

/* Accept some of the connections that are pending. */
void shunti_root_accept(struct shunti_root *root);

/* Drop connections whose deadline has passed. */
void shunti_root_expire(struct shunti_root *root, double now);

#endif
