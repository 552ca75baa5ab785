// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Communicators: a group of ranks that call collectives together.
 *
 *     struct shunt_comm *comm;
 *
 *     status = shunt_comm_create_env(NULL, &comm);
 *     ... shunt_comm_rank(comm), shunt_comm_size(comm), collectives ...
 *     status = shunt_comm_finish(comm);
 *     shunt_comm_destroy(comm);
 *
 * The launcher (shunt-run, torchrun, mpirun, srun) sets rank and size. Programs
 * without a launcher use shunt_id_create() and shunt_comm_create().
 *
 * A rank is a process, or a thread of one (each with its own communicator).
 *
 * Threads. One thread at a time may use a communicator. Only
 * shunt_comm_abort() may be called from any thread at any time.
 *
 * Order. Collective calls on one communicator are made in the same order on
 * every rank; several may be pending. Communicators are independent, and any
 * number may be in use at once: the order of `_start` calls on different
 * communicators, and of the waits for their requests, may differ between ranks.
 * (A blocking call returns when the ranks of its own communicator have made it,
 * in whatever order the thread's operations on other communicators complete.)
 *
 * Two more rules, for descriptors 0 to 2 and for children of fork(), are at the
 * end of this file.
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
 * sends it to the others by any means (a file, a socket, MPI_Bcast). The id
 * holds the address of the root and a random secret. A process that cannot
 * prove that it knows the secret is not admitted, so keep the id private.
 */
struct shunt_id {
    unsigned char bytes[SHUNT_ID_BYTES]; /* opaque; copy all bytes */
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
    /** 1: a thread of this communicator advances pending operations; -1: only
     * calls advance them; 0: as SHUNT_PROGRESS says. */
    int progress_thread;
    const char *name; /* for logs and traces; NULL: none */
    /** The timeout of calls after the communicator has been made. 0: `timeout`.
     * Negative: no timeout, so a rank may call arbitrarily late (a lost rank is
     * still noticed). */
    double call_timeout;
    /** A function that a thread calls repeatedly while it waits in a call and
     * has nothing else to do. It makes progress in another library (MPI) that
     * other ranks wait for. It must not use this communicator. It returns
     * nonzero if it made progress and should be called again soon; otherwise
     * the wait sleeps for 2 ms at most. NULL: none. */
    int (*idle)(void *arg);
    void *idle_arg; /* the argument of idle() */
};

/** The defaults: all fields but the size are zero. */
#define SHUNT_COMM_CONFIG_INIT                                   \
    {                                                            \
        sizeof(struct shunt_comm_config), 0, 0, 0, 0, 0, 0, 0, 0 \
    }

/**
 * Make an id, and accept its ranks in a background thread of this process.
 *
 * The thread ends when all ranks are connected, or after SHUNT_TIMEOUT. The id
 * has the addresses of this host, of which each rank uses one that it reaches.
 * If SHUNT_HOST names an address or an interface, the id has only that address,
 * or those of that interface.
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
 * Collective: returns when every rank has joined. If a rank cannot join, every
 * rank gets an error whose text names that rank. Blocks at most SHUNT_TIMEOUT.
 * The other ranks block as long if a rank has no descriptor or memory left even
 * to report that it cannot join.
 *
 * Errors: SHUNT_ERR_INVALID, malformed id or ranks; SHUNT_ERR_MISMATCH, ranks
 * that disagree, or a rank that joins twice; SHUNT_ERR_TIMEOUT, ranks that did
 * not join; SHUNT_ERR_UNSUPPORTED, no transport reaches a peer.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_create(const struct shunt_id *id, int nranks, int rank,
                  const struct shunt_comm_config *config,
                  struct shunt_comm **comm);

/**
 * Join the communicator that the launcher's environment describes.
 *
 * Launchers: torchrun and shunt-run (RANK, WORLD_SIZE, MASTER_ADDR,
 * MASTER_PORT), Open MPI, MPICH and srun. Without a launcher, and in a program
 * that a Slurm batch script starts without srun, it is a communicator of one
 * rank.
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
 * Collective over `comm`, which is not changed. If the call fails on a rank,
 * the other ranks of that colour get SHUNT_ERR_REMOTE. The text names the rank
 * and the reason. The call may then be made again. (A rank that is lost, or
 * silent for SHUNT_TIMEOUT, ends `comm` as in any other call.)
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_split(struct shunt_comm *comm, int colour, int key,
                 struct shunt_comm **out);

/** Make a communicator of the same ranks, independent of `comm`. Collective. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_dup(struct shunt_comm *comm, struct shunt_comm **out);

/**
 * After the loss of a rank: make a smaller communicator of the survivors, in
 * their old order.
 *
 * out  the new communicator; NULL after an error.
 *
 * Every survivor calls it on its (dead) communicator, which the caller must
 * still destroy. shunt_comm_lost() then names every rank that is not in the
 * new communicator, the same ranks on each survivor. A rank that does not call
 * within twice SHUNT_TIMEOUT counts as lost. If more ranks are lost meanwhile,
 * the others continue without them; after an error the call may be repeated.
 * Blocks a few times SHUNT_TIMEOUT at most.
 *
 * There are never two communicators of survivors. A rank may count as lost
 * although it is alive (it was stopped, or its link was cut). Such a rank gets
 * an error once the others have continued. On one host any survivors may
 * continue: dead ranks are known to be dead, and a stopped rank finds out that
 * it counts as lost before it can form a communicator. A rank on another host
 * may be unreachable and still alive. So survivors continue only if they are
 * more than half of the ranks that may be alive, or exactly half including the
 * lowest of those. (Known to be dead: a rank that destroyed its communicator,
 * or a killed one if a rank on the same host survives.)
 *
 * Errors: SHUNT_ERR_INVALID, no rank is lost, or the communicator has been
 * shrunk already; SHUNT_ERR_TIMEOUT, the others continued without this rank, or
 * did not call in time; SHUNT_ERR_PEER, so few ranks are left that the others
 * might continue as well.
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
 * Shut down in order: wait until every rank has made this call, so that no rank
 * exits while another still needs it. Collective. Afterwards the communicator
 * may only be destroyed.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_finish(struct shunt_comm *comm);

/**
 * Free `comm` on this rank, with its memory of shunt_mem_alloc(), exchanges and
 * plans; NULL is allowed. Local: no other rank needs to make this call.
 *
 * Calls that have returned may still have work to do for other ranks
 * (shunt_moe_plan_create() sends lists to other nodes). This rank completes
 * that work first, and waits for it no longer than the timeout of calls. It
 * also sends queued data, within a second. All other operations under way
 * end unfinished: ranks that need more of them get SHUNT_ERR_PEER. Requests
 * that were not collected can still be tested or waited for; those that had not
 * finished return SHUNT_ERR_INVALID. To leave in order, wait for all requests
 * and call shunt_comm_finish() before.
 *
 * Destroying `comm` again does nothing, and calls on it return
 * SHUNT_ERR_INVALID. Both hold until this process has destroyed 64 other
 * communicators.
 */
SHUNT_API void shunt_comm_destroy(struct shunt_comm *comm);

/** Return this rank's number, 0 <= rank < size. */
SHUNT_API int shunt_comm_rank(const struct shunt_comm *comm);
/** Return the number of ranks. */
SHUNT_API int shunt_comm_size(const struct shunt_comm *comm);
/** Return the node of `rank`; nodes are numbered from 0, in the order of their
 * lowest ranks. */
SHUNT_API int shunt_comm_node(const struct shunt_comm *comm, int rank);
/** Return the number of nodes. */
SHUNT_API int shunt_comm_nodes(const struct shunt_comm *comm);
/** Return this rank's index among the ranks of its node. */
SHUNT_API int shunt_comm_local_rank(const struct shunt_comm *comm);
/** Return the number of ranks on this rank's node. */
SHUNT_API int shunt_comm_local_size(const struct shunt_comm *comm);

/** Return SHUNT_OK, or the error that ended the communicator. Any thread. */
SHUNT_API enum shunt_status
shunt_comm_async_status(const struct shunt_comm *comm);

/**
 * List the ranks that are known to be lost.
 *
 * ranks   out; array owned by `comm`, valid until it is destroyed.
 * count   out; 0 if none is lost.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_lost(const struct shunt_comm *comm, const int **ranks,
                size_t *count);

/** Counters since the communicator was made. */
struct shunt_comm_stats {
    /** Operations completed. A collective is one operation. Calls on memory,
     * exchanges and plans are made of several, and each counts. Dispatch,
     * combine and their gradients count two if either mode of the exchange is
     * SHUNT_MOE_FLAT. */
    uint64_t operations;
    uint64_t bytes_mapped;  /* payload copied once through a mapped window */
    uint64_t bytes_read;    /* payload copied once out of a peer's own memory */
    uint64_t bytes_staged;  /* payload copied through a staging buffer */
    uint64_t bytes_inline;  /* payload sent inside control messages */
    uint64_t bytes_remote;  /* payload sent to another node */
    uint64_t sleeps;        /* times this rank went to sleep in a wait */
    double seconds_waiting; /* time spent waiting for peers */
    /** Sleeps that ended by their time limit, although there was work for which
     * the rank should have been woken; should be 0. */
    uint64_t sleeps_missed;
    uint64_t messages_sent;   /* to all ranks; see struct shunt_peer_stats */
    uint64_t messages_remote; /* the part that was sent to other nodes */
    /** Payload sent directly from this rank's memory into that of a rank whose
     * memory is not mapped. */
    uint64_t bytes_zcopy;
    /** Payload that the copy engine copied (SHUNT_ENGINE): a part of
     * bytes_mapped, and data that a rank sent to itself. For memory of a GPU
     * each copy from it, to it and within it counts. */
    uint64_t bytes_engine;
    /** The part of bytes_zcopy that was sent from windows, and from memory of
     * shunt_mem_register(). */
    uint64_t bytes_zcopy_registered;
    /** Times that the helper thread took over while the caller was outside of
     * the library (SHUNT_PROGRESS=auto). */
    uint64_t helped;
    /** The part of bytes_engine that was copied between memory of GPUs: rows to
     * the ranks that receive them, and there from the library's memory to the
     * caller's rows. All other copies of a GPU's engine are between the GPU and
     * the host. */
    uint64_t bytes_device;
    /** Kinds of calls (a call and a size class) for which the copy engine is
     * turned off, because its thread took too much CPU time: the caller
     * copies. */
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
     * every run of the same calls. Not counted, because they depend on timing:
     * progress words, liveness probes, wake-ups. */
    uint64_t messages;
    /** Bytes put to the rank through the transport, with headers; 0 if the
     * rank's memory is mapped. */
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

/** Return one line that says how this rank reaches `rank`, such
 * as "shm (map, cma)". Owned by `comm`. */
SHUNT_API const char *shunt_comm_transport(const struct shunt_comm *comm,
                                           int rank);

/**
 * @file
 * @details
 * Two more rules hold for all calls of the library.
 *
 * Descriptors. No descriptor of the library is 0 to 2, so a program may close
 * its stdin, stdout and stderr at any time, also before it makes a
 * communicator. While a communicator is being made or destroyed, and as long as
 * a communicator uses UCX, the library occupies the closed ones of these
 * descriptors. A write to such a descriptor fails as before, and a file that is
 * opened gets another number. While a communicator uses UCX, do not close 0 to
 * 2, but open /dev/null in their place. A later socket of UCX might get the
 * closed number, and text that is printed there would end the socket's
 * connection. If stderr was closed when the library was loaded, made a
 * communicator or had a message, later messages are lost, unless SHUNT_LOG_FILE
 * is set.
 *
 * Children of fork(). Communicators, exchanges, plans, requests and registered
 * memory belong to the process that made them. In a child of that process:
 *
 *   - Calls on them return SHUNT_ERR_INVALID, with a text that says so. No
 *     other rank is informed, and the operations of the parent continue.
 *     Queries of rank, size, node and transport answer as in the parent;
 *     functions that return a pointer return NULL. shunt_comm_abort() does
 *     nothing.
 *   - Destroying them, or exit() with the destructors that it calls, frees
 *     memory of the child and has no effect on other processes.
 *   - Memory of shunt_mem_alloc() and shunt_moe_buffer() is shared with the
 *     parent, until the child destroys the communicator: the parent and its
 *     peers read what the child writes there.
 *   - The child may make communicators of its own, also with an id of its
 *     parent, while the parent continues. Only UCX cannot be used anew if the
 *     parent was using it: SHUNT_ERR_UNSUPPORTED says so at once.
 *
 * Programs that are started (exec(), vfork(), posix_spawn()) inherit nothing.
 */

#ifdef __cplusplus
}
#endif

#endif
