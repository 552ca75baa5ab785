// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Communicators: a group of ranks that call collectives together.
 *
 * A rank is a process, or a thread of one (each with its own communicator).
 * Threads: one thread at a time may use a communicator. Any number of
 * communicators may be in use at once and are independent: the order of
 * `_start` calls on different communicators, and of the waits for their
 * requests, may differ between ranks. (A blocking call returns when the ranks
 * of its own communicator have come to it, in whatever order the thread's
 * operations on other communicators complete.) Only shunt_comm_abort() may be
 * called from any thread at any time. Collective calls on one communicator are
 * made in the same order on every rank; several may be pending.
 *
 * A program may close its stdin, stdout and stderr at any time, also before it
 * makes a communicator: no descriptor of the library is 0 to 2. While a
 * communicator is being made or destroyed, and as long as one uses UCX, those
 * that are closed are occupied: a write fails as before, and a file that is
 * opened gets another number. (One that is closed while a communicator uses UCX
 * may become a socket that UCX makes later, and what is printed there ends its
 * connection: open /dev/null in its place.) If stderr was
 * closed when the library was loaded, or when it next made a communicator or
 * had a message, messages of the library are lost from then on, unless
 * SHUNT_LOG_FILE is set.
 *
 * Children of fork(): communicators, exchanges, plans, requests and registered
 * memory belong to the process that made them. In a child of that process:
 *
 *   - Calls on them return SHUNT_ERR_INVALID, with a text that says so. No other
 *     rank is told, and what the parent has under way goes on. Queries of rank,
 *     size, node and transport answer as in the parent; functions that return a
 *     pointer return NULL. shunt_comm_abort() does nothing.
 *   - Destroying them, or exit() with whatever destructors call, gives back
 *     memory of the child and concerns nobody else.
 *   - Memory of shunt_mem_alloc() and shunt_moe_buffer() is shared with the
 *     parent, until the child destroys the communicator: what it writes there,
 *     the parent and its peers read.
 *   - The child may make communicators of its own, also with an id of its parent,
 *     while the parent goes on. Only UCX cannot be used anew if the parent had it
 *     in use: SHUNT_ERR_UNSUPPORTED says so at once.
 *
 * Programs that are started (exec(), vfork(), posix_spawn()) inherit nothing.
 */
#ifndef SHUNT_COMM_H
#define SHUNT_COMM_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of a struct shunt_id. */
#define SHUNT_ID_BYTES 128

/**
 * Identifies a communicator that is to be created. One rank makes the id and
 * passes it to the others by any means (a file, a socket, MPI_Bcast). It holds
 * the address of the root and a random secret. A process that cannot prove that
 * it knows the secret is not admitted, so keep the id private.
 */
struct shunt_id {
    unsigned char bytes[SHUNT_ID_BYTES]; /* opaque; copy all of them */
};

/** Options of a communicator; zero means the default (environment, then
 * built-in). Fill with SHUNT_COMM_CONFIG_INIT. New fields are only appended. */
struct shunt_comm_config {
    size_t size; /* sizeof(struct shunt_comm_config) */
    /** "shm", "inproc", "fault+shm", "^rdma"; NULL: SHUNT_TRANSPORTS */
    const char *transports;
    /** Name of this rank's node; NULL: SHUNT_NODE, else detected. Ranks with
     * different names share no memory, also on one host. */
    const char *node;
    /** Seconds to wait for a peer; 0: SHUNT_TIMEOUT; INFINITY: no limit. */
    double timeout;
    /** 1: a thread of this communicator advances what is pending; -1: only
     * calls do; 0: as SHUNT_PROGRESS says. */
    int progress_thread;
    const char *name; /* for logs and traces; NULL: none */
    /** The timeout of calls after the communicator has been made; 0: `timeout`;
     * negative: none, a rank may come arbitrarily late (a lost rank is still
     * noticed). */
    double call_timeout;
    /** Called repeatedly by a thread that waits in a call and has nothing else
     * to do: makes progress in another library (MPI) that other ranks wait for.
     * Must not use this communicator. Returns nonzero if it made progress and
     * should be called again soon; otherwise the wait sleeps for 2 ms at most.
     * NULL: none. */
    int (*idle)(void *arg);
    void *idle_arg; /* the argument of idle() */
};

/** The defaults: all fields but the size are zero. */
#define SHUNT_COMM_CONFIG_INIT                                   \
    {                                                            \
        sizeof(struct shunt_comm_config), 0, 0, 0, 0, 0, 0, 0, 0 \
    }

/**
 * Make an id, and accept its ranks in a background thread of this process,
 * which ends when all of them are connected, or after SHUNT_TIMEOUT. The id has
 * the addresses of this host, of which a rank uses one that it reaches; or the
 * one that SHUNT_HOST names, or those of the interface that it names.
 *
 * Local. Errors: SHUNT_ERR_SYSTEM, no address to listen on.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_id_create(struct shunt_id *id);

/**
 * Join the communicator that `id` names, as `rank` of `nranks`.
 *
 * id      the same on every rank; copied.
 * nranks  the same on every rank, >= 1.
 * rank    0 <= rank < nranks, each once.
 * config  NULL: defaults.
 * comm    out; the caller destroys it.
 *
 * Collective: returns when every rank has joined. If one cannot join, every
 * rank gets an error whose text names it. Blocks at most SHUNT_TIMEOUT, also for a
 * rank that has no descriptor left, or no memory, to tell the others that it cannot
 * join.
 * Errors: SHUNT_ERR_INVALID, malformed id or ranks; SHUNT_ERR_MISMATCH, ranks
 * that disagree, or a rank that joins twice; SHUNT_ERR_TIMEOUT, ranks that did
 * not join; SHUNT_ERR_UNSUPPORTED, no transport reaches a peer.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_create(const struct shunt_id *id, int nranks, int rank,
                  const struct shunt_comm_config *config,
                  struct shunt_comm **comm);

/**
 * Join the communicator that the launcher's environment describes: torchrun and
 * shunt-run (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), Open MPI, MPICH and
 * srun. Without a launcher, and in a program that a Slurm batch script starts
 * without srun, it is a communicator of one rank.
 *
 * Collective over all ranks of the job. Errors as shunt_comm_create().
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_create_env(const struct shunt_comm_config *config,
                      struct shunt_comm **comm);

/**
 * Split into one communicator per colour.
 *
 * colour  >= 0: ranks of equal colour form a communicator; < 0: this rank joins
 *         none, and `*out` is NULL.
 * key     orders the ranks of a colour; ties are ordered by rank in `comm`.
 *
 * Collective over `comm`, which is not changed: if it fails on a rank, it fails on
 * all ranks of that colour, with SHUNT_ERR_REMOTE and a text that names the rank
 * and says why, and may be called again. (A rank that is lost, or silent for
 * SHUNT_TIMEOUT, ends `comm` as in any other call.)
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_split(struct shunt_comm *comm, int colour, int key,
                 struct shunt_comm **out);

/** A communicator of the same ranks, independent of `comm`. Collective. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_dup(struct shunt_comm *comm, struct shunt_comm **out);

/**
 * After the loss of a rank: make a smaller communicator of the survivors, in
 * their old order.
 *
 * out  the new communicator; NULL after an error.
 *
 * Every survivor calls it on its (dead) communicator, which the caller still
 * has to destroy. shunt_comm_lost() then names every rank that is not in the
 * new communicator, the same ranks on each survivor. A rank that does not call
 * within twice SHUNT_TIMEOUT counts as lost. If more ranks are lost meanwhile,
 * the others continue without them; after an error the call may be repeated.
 * Blocks a few times SHUNT_TIMEOUT at most.
 *
 * There are never two communicators of survivors. A rank that was given up
 * although it is alive (it was stopped, or its link was cut) gets an error once
 * the others have continued. On one host any survivors may continue: dead ranks
 * are known to be dead, and a stopped rank learns that it was given up before
 * it can form a communicator. A rank on another host may be unreachable and
 * still alive, so survivors continue only if they are more than half of the
 * ranks that may be alive, or exactly half including the lowest of those.
 * (Known to be dead: a rank that destroyed its communicator, or a killed one if
 * a rank on the same host survives.)
 *
 * Errors: SHUNT_ERR_INVALID, no rank is lost, or the communicator has been
 * shrunk already; SHUNT_ERR_TIMEOUT, the others continued without this rank, or
 * did not come; SHUNT_ERR_PEER, too few ranks are left to exclude that the
 * others continue as well.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_shrink(struct shunt_comm *comm, struct shunt_comm **out);

/**
 * End every pending and later call on `comm`, on every rank, with
 * SHUNT_ERR_ABORTED. May be called from any thread at any time. Local; does not
 * wait.
 */
SHUNT_API void shunt_comm_abort(struct shunt_comm *comm);

/**
 * Orderly shutdown: wait until every rank has made this call, so that no rank
 * exits while another still needs it. Collective. Afterwards the communicator
 * may only be destroyed.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_finish(struct shunt_comm *comm);

/**
 * Free `comm` on this rank, with its memory of shunt_mem_alloc(), exchanges and
 * plans; NULL is allowed. Local: no other rank needs to make this call.
 *
 * First this rank completes what calls that have returned still do for other
 * ranks (shunt_moe_plan_create() sends lists to other nodes), for which it
 * waits no longer than the timeout of calls, and sends what is queued, within a
 * second. All other operations under way end unfinished: ranks that need more
 * of them get SHUNT_ERR_PEER. Requests that were not collected can still be
 * tested or waited for; those that had not finished return SHUNT_ERR_INVALID.
 * To leave in order, wait for all requests and call shunt_comm_finish() before.
 *
 * Destroying it again does nothing, and calls on it return SHUNT_ERR_INVALID,
 * as long as this process has not destroyed 64 other communicators since.
 */
SHUNT_API void shunt_comm_destroy(struct shunt_comm *comm);

/** This rank's number, 0 <= rank < size. */
SHUNT_API int shunt_comm_rank(const struct shunt_comm *comm);
/** The number of ranks. */
SHUNT_API int shunt_comm_size(const struct shunt_comm *comm);
/** The node of `rank`; nodes are numbered from 0, in the order of their lowest
 * ranks. */
SHUNT_API int shunt_comm_node(const struct shunt_comm *comm, int rank);
/** The number of nodes. */
SHUNT_API int shunt_comm_nodes(const struct shunt_comm *comm);
/** This rank's index among the ranks of its node. */
SHUNT_API int shunt_comm_local_rank(const struct shunt_comm *comm);
/** The number of ranks on this rank's node. */
SHUNT_API int shunt_comm_local_size(const struct shunt_comm *comm);

/** SHUNT_OK, or the error that ended the communicator. Any thread. */
SHUNT_API enum shunt_status
shunt_comm_async_status(const struct shunt_comm *comm);

/**
 * The ranks that are known to be lost.
 *
 * ranks   out; array owned by `comm`, valid until it is destroyed.
 * count   out; 0 if none is lost.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_lost(const struct shunt_comm *comm, const int **ranks,
                size_t *count);

/** Counters since the communicator was made. */
struct shunt_comm_stats {
    /** Operations completed. A collective is one; calls that are made of
     * several count each: memory, exchanges and plans, and, where either mode
     * of an exchange is SHUNT_MOE_FLAT, dispatch, combine and their gradients,
     * two for each. */
    uint64_t operations;
    uint64_t bytes_mapped;  /* payload copied once through a mapped window */
    uint64_t bytes_read;    /* payload copied once out of a peer's own memory */
    uint64_t bytes_staged;  /* payload copied through a staging buffer */
    uint64_t bytes_inline;  /* payload sent inside control messages */
    uint64_t bytes_remote;  /* payload sent to another node */
    uint64_t sleeps;        /* times this rank went to sleep in a wait */
    double seconds_waiting; /* time spent waiting for peers */
    /** Sleeps that ended by their time limit although there was work that
     * should have woken the rank; should be 0. */
    uint64_t sleeps_missed;
    uint64_t messages_sent;   /* to all ranks; see struct shunt_peer_stats */
    uint64_t messages_remote; /* of those, to ranks of other nodes */
    /** Payload sent straight from this rank's memory into that of a rank whose
     * memory is not mapped. */
    uint64_t bytes_zcopy;
    /** Payload that the copy engine copied (SHUNT_ENGINE): a part of
     * bytes_mapped, and what a rank sent to itself; of memory of a GPU each copy
     * from it, to it and within it. */
    uint64_t bytes_engine;
    /** The part of bytes_zcopy that was sent from windows, and from memory of
     * shunt_mem_register(). */
    uint64_t bytes_zcopy_registered;
    /** Times that the helper thread took over while the caller was away
     * (SHUNT_PROGRESS=auto). */
    uint64_t helped;
    /** The part of bytes_engine that went from memory of a GPU to memory of a GPU:
     * rows to their ranks, and from where they land to the caller's rows. What
     * else a GPU's engine copied went through the host. */
    uint64_t bytes_device;
    /** How many kinds of calls (a call and a size class) are left to the caller
     * since the copy engine's thread took too much CPU time for them. */
    uint64_t engine_dear;
};

/**
 * Read the counters.
 *
 * stats       out.
 * stats_size  sizeof(struct shunt_comm_stats); only that much is written.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_get_stats(const struct shunt_comm *comm,
                     struct shunt_comm_stats *stats, size_t stats_size);

/** Counters of what this rank sent to another one. */
struct shunt_peer_stats {
    /** Messages that calls sent to the rank, by mapped memory or by put: each
     * control message, with or without inline payload; each ack; each chunk of
     * a stream, and each word that reports taken chunks; each piece (1 MiB) of
     * a zero-copy block; each put of tokens' rows or sums. The same in
     * every run of the same calls. What depends on timing is not counted:
     * progress words, liveness probes, wake-ups. */
    uint64_t messages;
    /** Bytes put there through the transport, with headers; 0 if the rank's
     * memory is mapped. */
    uint64_t bytes_put;
};

/**
 * Read the counters for one rank, since the communicator was made. Local.
 *
 * rank        0 <= rank < size; the counters for this rank itself are 0.
 * stats       out.
 * stats_size  sizeof(struct shunt_peer_stats); only that much is written.
 *
 * Errors: SHUNT_ERR_INVALID, a bad argument.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_get_peer_stats(const struct shunt_comm *comm, int rank,
                          struct shunt_peer_stats *stats, size_t stats_size);

/** One line that says how this rank reaches `rank`, e.g. "shm (map, cma)".
 * Owned by `comm`. */
SHUNT_API const char *shunt_comm_transport(const struct shunt_comm *comm,
                                           int rank);

#ifdef __cplusplus
}
#endif

#endif
