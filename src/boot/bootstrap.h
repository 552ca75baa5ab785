// SPDX-License-Identifier: Apache-2.0
/*
 * Bootstrap: the ranks of a new communicator find each other, authenticate, and
 * exchange a few blobs, before there is a transport.
 *
 * The topology is a star. The process that made the id runs the root, a thread
 * with one listening socket. Each rank connects to the root, also the ranks of
 * that process. Both sides prove that they know the id's secret (auth.h). The
 * root gathers a blob from each rank and sends all blobs to every rank, without
 * reading them. The root ends when all ranks have left. After a failure it ends
 * when all ranks have been notified. An id serves one communicator.
 *
 * The ranks of a launcher's job receive no id. They derive it from the name of
 * the job, and a second job may have the same name. So the root of a launcher's
 * job holds its address for some seconds after all ranks have joined, and
 * refuses later ranks. Its rank 0 is always the rank of its own process.
 *
 * A process without the secret cannot join. The blobs are not encrypted: they
 * hold addresses, not data.
 *
 * Every error is sent to every rank with a text that names the rank at fault.
 * The texts are in shunti_error_last(). All waits sleep, and all are bounded.
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

/* All waits of the bootstrap call this function. It is poll(), unless init.c
 * has set another one, which also makes progress on the thread's other
 * communicators. */
extern int (*shunti_bootstrap_poll)(struct pollfd *fds, unsigned long n,
                                    int ms);

/*
 * The parent: the communicator from which a new one is made (split, dup,
 * shrink). The init of the new one uses the parent for two purposes. The parent
 * notices if a rank will not join, and errors name ranks by their numbers in
 * the parent.
 */
struct shunti_parent {
    /* (nranks) Number of each new rank in the parent; NULL: the same numbers.
     * Borrowed. */
    const int *names;
    int root; /* number in the parent of the rank whose process runs the root */
    /* Called now and then during waits. Returns true to cancel the init, and
     * writes to `why` which rank will not join. NULL: never cancelled. */
    bool (*cancelled)(void *arg, char *why, size_t size);
    void *arg;
    char why[256]; /* the text that `cancelled` wrote */
    /* Called once by each rank, when the root has admitted this rank, or when
     * something failed before (`mine`). Returns the same status on all ranks:
     * SHUNT_OK only if the root has admitted all of them. So no rank waits at
     * the root for a rank that will not join. NULL: the ranks cannot agree. */
    enum shunt_status (*agree)(void *arg, enum shunt_status mine);
    bool agreed; /* `agree` has been called */
    bool joined; /* `agree` has returned SHUNT_OK */
    /* out: the ranks that did not answer in time, by their numbers in the
     * parent. This rank waited for the first `nmissed` of them. The root
     * reported the others. The caller frees the array. */
    int *blamed;
    size_t nblamed, nmissed;
};

/* The number of `rank` in errors: its number in `parent`, or `rank` if that is
 * NULL. */
static inline int shunti_rank_name(const struct shunti_parent *parent, int rank)
{
    return parent && parent->names ? parent->names[rank] : rank;
}

/* Is this init cancelled? If so, `parent->why` holds the reason. `parent` may
 * be NULL: false. */
bool shunti_parent_cancelled(struct shunti_parent *parent);

/* Return the error whose text is `parent->why`. */
enum shunt_status shunti_parent_error(const struct shunti_parent *parent);

/* Call `parent->agree`. */
enum shunt_status shunti_parent_agree(struct shunti_parent *parent,
                                      enum shunt_status mine);

/* Add a rank, by its number in the parent, to `blamed`. The first function is
 * for a rank that did not answer this one, the second for a rank that the root
 * reported. */
void shunti_parent_blame(struct shunti_parent *parent, int name);
void shunti_parent_add_reported(struct shunti_parent *parent, int name);

/* The largest blob of one rank. */
#define SHUNTI_BLOB_MAX ((size_t)1 << 20)

/* The blob of every rank, in rank order; data[r] is aligned to 8 bytes. */
struct shunti_blobs {
    int count;
    void **data;
    size_t *len;
    void *storage; /* internal */
};

/* Free the contents. `blobs` may be NULL or zeroed. */
void shunti_blobs_finish(struct shunti_blobs *blobs);

/*
 * Run the root of `id` in this process, in a thread of its own, which ends by
 * itself. Rank 0 calls this once for an id of shunti_launch_find(). It then
 * joins by the same id, which now has the flag SHUNTI_ID_START.
 * shunt_id_create() calls this for its own ids.
 *
 * Errors: SHUNT_ERR_MISMATCH, rank 0 of another job with the same name runs a
 * root; that rank 0, or its ranks, are notified. SHUNT_ERR_SYSTEM.
 */
enum shunt_status shunti_bootstrap_serve(struct shunt_id *id, int nranks);

/*
 * Join. Returns when every rank has joined. If any rank fails, it returns an
 * error on each rank that tried to join.
 *
 * timeout  seconds, > 0; also bounds each later call. If the root detects an
 *          error after the same time, it arrives here up to a second later.
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

/* As shunt_id_create(), for `nranks` ranks, whose numbers in errors are
 * `names`. Opens a port only if a rank needs one to connect. */
enum shunt_status shunti_id_create_named(const int *names, int nranks,
                                         enum shunti_reach reach,
                                         struct shunt_id *id);

/* Has the root sent a message although no call is under way, or does one arrive
 * within `seconds`? Such a message is an error, which this returns. Later calls
 * fail as well. */
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
 * Report that this rank cannot continue. The pending or next call of every
 * other rank fails with SHUNT_ERR_REMOTE and "rank R: <text>". Only leave() may
 * follow.
 */
void shunti_bootstrap_abort(struct shunti_bootstrap *bs, const char *text);

/*
 * Listen at the address of `parts` for a few seconds, and send the text of
 * shunti_error_last() to `ranks` ranks that connect. Used if `parts` names this
 * host, but the root is on another host. The thread's last error is the same
 * afterwards.
 */
void shunti_bootstrap_send_failure(const struct shunti_id_parts *parts,
                                   int ranks);

/* Send BYE and free `bs`, which may be NULL. Local; does not wait. */
void shunti_bootstrap_leave(struct shunti_bootstrap *bs);

/*
 * Called after a failed init, because the process may be about to exit. If this
 * process runs a root, wait at most `seconds` until the root has notified the
 * connected ranks of the failure. Meanwhile this thread makes progress on its
 * other communicators. Returns at once if this process runs no root. Also
 * returns at once if the parent (NULL: none) has failed, because the ranks then
 * learn of that.
 */
void shunti_bootstrap_settle(double seconds, struct shunti_parent *parent);

/* A key for the transports that only the ranks of this init know. It is derived
 * from the id's secret and a fresh salt of the root. */
void shunti_bootstrap_secret(const struct shunti_bootstrap *bs,
                             unsigned char out[32]);

#endif
