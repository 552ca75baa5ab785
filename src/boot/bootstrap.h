// SPDX-License-Identifier: Apache-2.0
/*
 * Bootstrap: the ranks of a new communicator find each other, authenticate, and
 * exchange a few blobs, before there is a transport.
 *
 * The topology is a star. The process that made the id runs the root, a thread
 * with one listening socket. Each rank connects to it, also the ranks of that
 * process. Both sides prove that they know the id's secret (auth.h). The root
 * gathers a blob from each rank and sends all of them to every rank; it does
 * not look into them. The root ends when all ranks have left, or after a
 * failure once all ranks have been told. An id serves one communicator.
 *
 * The ranks of a launcher's job have no id that was handed on. They derive it
 * from the name of the job, which a second job may have. So such a root holds
 * its address for some seconds after all ranks have joined, and turns away who
 * comes then; and its rank 0 is the one of its own process.
 *
 * A process without the secret cannot join. What is exchanged afterwards is not
 * encrypted: it is addresses, not data.
 *
 * Every error is sent to every rank with a text that names the rank at fault.
 * The texts are in shunti_error_last(). All waits sleep, and all are
 * bounded.
 */
#ifndef SHUNTI_BOOTSTRAP_H
#define SHUNTI_BOOTSTRAP_H

#include <stdbool.h>
#include <stddef.h>

#include <stdint.h>

#include <shunt/comm.h>
#include <shunt/status.h>

#include "src/wire/nodes.h"

struct pollfd;
struct shunti_bootstrap;
struct shunti_id_parts;

/* The bootstrap waits by this function. It is poll(), unless init.c has set
 * another one, which also does what the thread owes its other communicators. */
extern int (*shunti_bootstrap_poll)(struct pollfd *fds, unsigned long n,
                                    int ms);

/*
 * What the init of a communicator gets from the parent that it is made from
 * (split, dup, shrink): the parent notices that a rank will not join, and
 * errors name ranks by their numbers in the parent.
 */
struct shunti_parent {
    /* (nranks) Number of each new rank in the parent; NULL: the same.
     * Borrowed. */
    const int *names;
    int root; /* number in the parent of the rank whose process runs the root */
    /* Called now and then during waits. True cancels the init, and `why` says
     * which rank will not join. NULL: none. */
    bool (*cancelled)(void *arg, char *why, size_t size);
    void *arg;
    char why[256]; /* the text of `cancelled` */
    /* Called once by each rank, when the root has admitted it or something
     * before has failed (`mine`): returns the same on all ranks, SHUNT_OK only
     * if the root has admitted all of them. So no rank waits at the root for
     * one that will not come. NULL: the ranks have no such means. */
    enum shunt_status (*agree)(void *arg, enum shunt_status mine);
    bool agreed; /* it has been called */
    bool joined; /* and all ranks have been admitted */
    /* out: parent's numbers of the ranks that did not answer in time: first those that
     * this rank has missed, then those of which the root has told it; the caller frees
     * them. */
    int *blamed;
    size_t nblamed, nmissed;
};

/* The number of `rank` in errors: that in `parent`, if it is not NULL. */
static inline int shunti_rank_name(const struct shunti_parent *parent, int rank)
{
    return parent && parent->names ? parent->names[rank] : rank;
}

/* Is this init cancelled? `parent->why` then says why. NULL: no. */
bool shunti_parent_cancelled(struct shunti_parent *parent);

/* Fail with `parent->why`. */
enum shunt_status shunti_parent_error(const struct shunti_parent *parent);

/* Call `parent->agree`. */
enum shunt_status shunti_parent_agree(struct shunti_parent *parent,
                                      enum shunt_status mine);

/* Add a rank, by its number in the parent, to those that did not answer: this rank has
 * missed it, or the root says so. */
void shunti_parent_blame(struct shunti_parent *parent, int name);
void shunti_parent_told(struct shunti_parent *parent, int name);

/* The largest blob of one rank. */
#define SHUNTI_BLOB_MAX ((size_t)1 << 20)

/* The blob of every rank, in rank order; data[r] is aligned to 8 bytes. */
struct shunti_blobs {
    int count;
    void **data;
    size_t *len;
    void *storage; /* internal */
};

/* Free the contents; NULL or a zeroed struct is fine. */
void shunti_blobs_finish(struct shunti_blobs *blobs);

/*
 * Run the root of `id` in this process, in a thread of its own, which ends by
 * itself. Rank 0 calls this once for an id of shunti_launch_find(), and joins
 * by the same id, which now says that it is of this process.
 * shunt_id_create() does it for its own ids.
 *
 * Errors: SHUNT_ERR_MISMATCH, rank 0 of another job with the same name runs a
 * root; it, or its ranks, are told; SHUNT_ERR_SYSTEM.
 */
enum shunt_status shunti_bootstrap_serve(struct shunt_id *id, int nranks);

/*
 * Join. Returns when every rank has joined, or with an error on each rank that
 * tried to.
 *
 * timeout  seconds, > 0; also bounds each later call. The root may detect an
 *          error after the same time; it then arrives up to a second later.
 * bs       out; to be passed to shunti_bootstrap_leave().
 *
 * Errors: SHUNT_ERR_INVALID, malformed id, ranks out of range;
 * SHUNT_ERR_MISMATCH, ranks disagree, or two have the same number, or the
 * secret is wrong; SHUNT_ERR_TIMEOUT, names the missing ranks; SHUNT_ERR_PEER,
 * a rank or the root's process died.
 */
enum shunt_status shunti_bootstrap_join(const struct shunt_id *id, int nranks,
                                        int rank, double timeout,
                                        struct shunti_bootstrap **bs);

/* As shunti_bootstrap_join(), for a communicator made from another. `parent`
 * must stay valid until leave(). */
enum shunt_status shunti_bootstrap_join_from(struct shunti_parent *parent,
                                             const struct shunt_id *id,
                                             int nranks, int rank,
                                             double timeout,
                                             struct shunti_bootstrap **bs);

/* As shunt_id_create(), for `nranks` ranks that errors call `names`. Opens no
 * port unless one is needed to reach them. */
enum shunt_status shunti_id_create_named(const int *names, int nranks,
                                         enum shunti_reach reach,
                                         struct shunt_id *id);

/* Has the root sent something while no call is under way, or does it within
 * `seconds`? Then it is an error, which is returned; later calls fail as well. */
enum shunt_status shunti_bootstrap_check(struct shunti_bootstrap *bs,
                                         double seconds);

/*
 * Send every rank's blob to every rank; also a barrier. Collective.
 *
 * mine  len bytes, of any size up to SHUNTI_BLOB_MAX (0 included), which may
 *       differ between ranks.
 * all   out; freed by shunti_blobs_finish(). Zeroed on an error.
 *
 * After an error only leave() makes sense.
 */
enum shunt_status shunti_bootstrap_allgather(struct shunti_bootstrap *bs,
                                             const void *mine, size_t len,
                                             struct shunti_blobs *all);

/* Has a call failed? Then all later calls fail. */
bool shunti_bootstrap_failed(const struct shunti_bootstrap *bs);

/*
 * This rank cannot go on. The pending or next call of every other rank fails
 * with SHUNT_ERR_REMOTE and "rank R: <text>". Only leave() may follow.
 */
void shunti_bootstrap_abort(struct shunti_bootstrap *bs, const char *text);

/*
 * The root is on another host than `parts` says, which is this one: tell the text
 * of shunti_error_last() to `ranks` ranks that look for it here, for a few seconds.
 * The thread's last error is the same after it.
 */
void shunti_bootstrap_tell(const struct shunti_id_parts *parts, int ranks);

/* Send a goodbye and free; NULL is fine. Local; does not wait. */
void shunti_bootstrap_leave(struct shunti_bootstrap *bs);

/*
 * After a failed init: if this process runs a root, wait until the root has
 * told the connected ranks of the failure, at most for `seconds`, as the
 * process may be about to exit. Meanwhile this thread answers on its other
 * communicators. Returns at once if it runs none, or if the parent (NULL: none)
 * has failed, since then the ranks learn of that.
 */
void shunti_bootstrap_settle(double seconds, struct shunti_parent *parent);

/* A key for the transports that only the ranks of this init know. It is derived
 * from the id's secret and a fresh salt of the root. */
void shunti_bootstrap_secret(const struct shunti_bootstrap *bs,
                             unsigned char out[32]);

#endif
