// SPDX-License-Identifier: Apache-2.0
/*
 * Bootstrap: how the ranks of a communicator to be find each other, prove that
 * they belong together, and exchange a few blobs, before there is a transport.
 *
 * A star. Whoever made the id runs the root, a thread with one listening
 * socket; each rank (that process's own, too) connects to it. Both sides prove
 * to know the id's secret (auth.h). The root gathers a blob of each rank and
 * hands all of them to everyone; it judges nothing but who belongs. When the
 * ranks have left, or anything went wrong and all have been told, it ends: an
 * id serves one communicator.
 *
 * The proofs keep strangers out. What is exchanged afterwards is not
 * encrypted: it is addresses, not data.
 *
 * Every error is told to every rank with a text that names the rank at fault.
 * The texts are in shunti_error_last(). All waits sleep, and all end.
 */
#ifndef SHUNTI_BOOTSTRAP_H
#define SHUNTI_BOOTSTRAP_H

#include <stdbool.h>
#include <stddef.h>

#include <stdint.h>

#include <shunt/comm.h>
#include <shunt/status.h>

struct pollfd;
struct shunti_bootstrap;

/* How the bootstrap waits: poll(), unless birth.c, which knows what else the
 * thread has to do meanwhile, has set another. */
extern int (*shunti_bootstrap_poll)(struct pollfd *fds, unsigned long n,
                                    int ms);

/*
 * What the birth of a communicator has from the one that it is made from
 * (split, dup, shrink): through which it is noticed that a rank will not come,
 * and by whose numbers ranks are named in errors.
 */
struct shunti_parent {
    /* (nranks) What the new ranks are called; NULL: as they are. Borrowed. */
    const int *names;
    int root; /* likewise, the one whose process runs the root */
    /* Called now and then by whoever waits: true ends the birth, `why` says
     * who will not come. NULL: none. */
    bool (*cancelled)(void *arg, char *why, size_t size);
    void *arg;
    char why[256]; /* what it said */
    /* out: the root has let this rank in, and will tell the others of its
     * failure. */
    bool known;
    /* out: ranks that did not come in time, as they are called; to be freed. */
    int *blamed;
    size_t nblamed;
};

/* Names of ranks; what `parent` (or NULL) calls `rank`. */
static inline int shunti_rank_name(const struct shunti_parent *parent, int rank)
{
    return parent && parent->names ? parent->names[rank] : rank;
}

/* Is this birth doomed? `parent->why` then says why. */
bool shunti_parent_cancelled(struct shunti_parent *parent);

/* Fails with that text. */
enum shunt_status shunti_parent_error(const struct shunti_parent *parent);

/* One more that did not come. */
void shunti_parent_blame(struct shunti_parent *parent, int name);

/* The largest blob of one rank, and the largest communicator: roots have 15 bits
 * of a signature (request.h). */
#define SHUNTI_BLOB_MAX ((size_t)1 << 20)
#define SHUNTI_RANKS_MAX 32768

/* What every rank gave, in rank order; data[r] is aligned to 8 bytes. */
struct shunti_blobs {
    int count;
    void **data;
    size_t *len;
    void *storage; /* internal */
};

/* Frees; NULL or a zeroed one is fine. */
void shunti_blobs_finish(struct shunti_blobs *blobs);

/*
 * Run the root of `id` in this process (in a thread of its own, which ends by
 * itself). Called once, by one process, for ids of shunti_launch_find();
 * shunt_id_create() has done so.
 */
enum shunt_status shunti_bootstrap_serve(const struct shunt_id *id);

/*
 * Join; returns when every rank has, or with an error on each that came.
 *
 * timeout  seconds, > 0; also bounds each later call. An error that the root
 *          finds after the same time may take a second longer to arrive.
 * bs       out; given back to shunti_bootstrap_leave().
 *
 * Errors: SHUNT_ERR_INVALID, malformed id, ranks out of range;
 * SHUNT_ERR_MISMATCH, ranks disagree, or one came twice, or the secret is
 * wrong; SHUNT_ERR_TIMEOUT, names who is missing; SHUNT_ERR_PEER, a rank or
 * the root's process died.
 */
enum shunt_status shunti_bootstrap_join(const struct shunt_id *id, int nranks,
                                        int rank, double timeout,
                                        struct shunti_bootstrap **bs);

/* As shunti_bootstrap_join(), for a communicator made from another; `parent`
 * stays until leave(). */
enum shunt_status shunti_bootstrap_join_from(struct shunti_parent *parent,
                                             const struct shunt_id *id,
                                             int nranks, int rank,
                                             double timeout,
                                             struct shunti_bootstrap **bs);

/* Where ranks that are to meet are, as seen from the one that makes the id. */
enum shunti_reach {
    SHUNTI_REACH_HOSTS,    /* anywhere */
    SHUNTI_REACH_LOOPBACK, /* behind the same loopback device */
    SHUNTI_REACH_USER,     /* likewise, and of the same user */
};

/* As shunt_id_create(), for an id of `nranks` ranks that are called `names`. No
 * port is opened that is not needed to reach them. */
enum shunt_status shunti_id_create_named(const int *names, int nranks,
                                         enum shunti_reach reach,
                                         struct shunt_id *id);

/* Has the root anything to say while no call is under way? That is never good:
 * then its error, and later calls fail, too. */
enum shunt_status shunti_bootstrap_check(struct shunti_bootstrap *bs);

/*
 * Everyone's blob to everyone; a barrier, too. Collective.
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

/* Has a call failed already, so that all that follow will? */
bool shunti_bootstrap_failed(const struct shunti_bootstrap *bs);

/*
 * This rank cannot go on: every other rank's pending or next call fails with
 * SHUNT_ERR_REMOTE and "rank R: <text>". leave() follows.
 */
void shunti_bootstrap_abort(struct shunti_bootstrap *bs, const char *text);

/* Say goodbye and free; NULL is fine. Local, does not wait. */
void shunti_bootstrap_leave(struct shunti_bootstrap *bs);

/*
 * After a failed birth: if this process runs a root, wait until it has told
 * the ranks that are connected, at most so long; the process may be about to
 * exit. Returns at once if it runs none.
 */
void shunti_bootstrap_settle(double seconds);

/* A key that only the ranks of this birth know (derived from the id's secret
 * and of a fresh salt of the root), for the transports. */
void shunti_bootstrap_secret(const struct shunti_bootstrap *bs,
                             unsigned char out[32]);

#endif
