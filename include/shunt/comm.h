// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Communicators: a group of ranks that call collectives together.
 *
 * A rank is a process, or a thread of one (each with its own communicator).
 * Threads: one thread at a time per communicator; any number of communicators
 * at once, independent of one another: `_start` calls on different ones, and the
 * waits for their requests, may come in another order on each rank. (A call that
 * blocks returns when its own communicator's ranks have come to it, in whatever
 * order the thread's operations on others end.) shunt_comm_abort() alone may be
 * called from any thread at any time.
 * Collective calls of one communicator are made in the same order on every
 * rank; several may be under way.
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
 * Names a communicator to be. One rank makes it, and hands it on by any means
 * (a file, a socket, MPI_Bcast). It holds where to meet and a random secret:
 * who does not prove to know the secret does not get in. Keep it private.
 */
struct shunt_id {
    unsigned char bytes[SHUNT_ID_BYTES]; /* opaque; copy them all */
};

/** Options of a communicator; zero means the default (environment, then
 * built-in). Fill with SHUNT_COMM_CONFIG_INIT. Fields are only ever appended. */
struct shunt_comm_config {
    size_t size; /* sizeof(struct shunt_comm_config) */
    const char *
        transports; /* "shm", "inproc", "fault+shm", "^rdma"; NULL: SHUNT_TRANSPORTS */
    const char *
        node; /* name of the node this rank is on; NULL: SHUNT_NODE, else found.
                 Ranks with different names share no memory, also on one host */
    double timeout;      /* seconds without arrival of a peer; 0: SHUNT_TIMEOUT;
                       INFINITY: no limit */
    int progress_thread; /* 1: yes, -1: no, 0: SHUNT_PROGRESS */
    const char *name;    /* for logs and traces; NULL: none */
    double call_timeout; /* the timeout of calls, once the communicator is made;
                            0: `timeout`; negative: none, a rank may come as
                            late as it likes (one that is gone is noticed all
                            the same) */
    int (*idle)(void *arg); /* called by a thread that waits in a call, again
                               and again while there is nothing else to do: for
                               a library beside this one (MPI) that others wait
                               for and that needs to be called to get on. Must
                               not use this communicator. Not 0: it got on, and
                               wants to be called again soon; otherwise the wait
                               sleeps, for 2 ms at most. NULL: none */
    void *idle_arg;         /* what idle() gets */
};

/** The defaults: nothing said but the size. */
#define SHUNT_COMM_CONFIG_INIT                                   \
    {                                                            \
        sizeof(struct shunt_comm_config), 0, 0, 0, 0, 0, 0, 0, 0 \
    }

/**
 * Make an id, and wait for its ranks in the background of this process (a
 * thread that ends when they are all connected, or after SHUNT_TIMEOUT).
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
 * Collective: returns when every rank has joined, or with an error on each of
 * them when one cannot (the text names it). Blocks at most SHUNT_TIMEOUT.
 * Errors: SHUNT_ERR_INVALID, malformed id or ranks; SHUNT_ERR_MISMATCH, ranks
 * that disagree or come twice; SHUNT_ERR_TIMEOUT, ranks that did not come;
 * SHUNT_ERR_UNSUPPORTED, no transport reaches a peer.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_create(const struct shunt_id *id, int nranks, int rank,
                  const struct shunt_comm_config *config,
                  struct shunt_comm **comm);

/**
 * Join the communicator that the launcher's environment describes: torchrun
 * and shunt-run (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), Open MPI, MPICH
 * and srun. Without any of them: a communicator of one rank, also for a program
 * that a Slurm batch script starts without srun.
 *
 * Collective over all ranks of the job. Errors as shunt_comm_create().
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_create_env(const struct shunt_comm_config *config,
                      struct shunt_comm **comm);

/**
 * Split into one communicator per colour.
 *
 * colour  >= 0; ranks of equal colour form a communicator; < 0: none, and
 *         `*out` is NULL.
 * key     orders the ranks of a colour; ties by rank in `comm`.
 *
 * Collective over `comm`, which stays as it is.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_split(struct shunt_comm *comm, int colour, int key,
                 struct shunt_comm **out);

/** A communicator of the same ranks, independent of `comm`. Collective. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_dup(struct shunt_comm *comm, struct shunt_comm **out);

/**
 * After a loss: a smaller communicator of the survivors, in their old order.
 *
 * out  the new communicator; NULL after an error.
 *
 * Called by every survivor on its (dead) communicator, which is left for
 * shunt_comm_destroy(); shunt_comm_lost() then names everyone who is not in the
 * new one, the same ranks on each survivor. A rank that does not call within
 * twice SHUNT_TIMEOUT counts as lost. When more ranks are lost meanwhile, the others
 * go on without them; after an error the call may be made again. Blocks a few
 * times SHUNT_TIMEOUT at most.
 *
 * There are never two communicators of survivors. A rank that was given up
 * although it lives (it was stopped, its link was cut) gets an error when the
 * others went on. On one host any survivors go on: nobody else can, as dead
 * ranks are known to be dead, and stopped ones find out before they get
 * anywhere. A rank on another host may be unreachable and alive; so survivors
 * go on only if they are more than half of the ranks that may still be alive,
 * or half with the lowest of those among them. (Known to be dead: a rank that
 * destroyed its communicator, or a killed one of which a rank on the same host
 * survives.)
 *
 * Errors: SHUNT_ERR_INVALID, no rank is lost, or the communicator has been
 * shrunk already; SHUNT_ERR_TIMEOUT, the others went on without this rank, or
 * did not come; SHUNT_ERR_PEER, too few are left to know that the others do not
 * go on, too.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_shrink(struct shunt_comm *comm, struct shunt_comm **out);

/**
 * End every pending and later call on `comm`, on every rank, with
 * SHUNT_ERR_ABORTED. From any thread, at any time. Local; does not wait.
 */
SHUNT_API void shunt_comm_abort(struct shunt_comm *comm);

/**
 * Orderly end: waits until every rank has come here, so that none is cut off
 * by another's exit. Collective. The communicator is then only to be destroyed.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_finish(struct shunt_comm *comm);

/**
 * Free everything of `comm` on this rank; NULL is allowed. Local; never hangs.
 * Memory of shunt_mem_alloc(), exchanges and plans of it are gone after;
 * unfinished requests of it have failed, and can still be tested or waited for.
 *
 * To destroy it again does nothing, and calls on it are SHUNT_ERR_INVALID: as
 * long as this process has not destroyed 64 others since.
 */
SHUNT_API void shunt_comm_destroy(struct shunt_comm *comm);

/** This rank's number, 0 <= rank < size. */
SHUNT_API int shunt_comm_rank(const struct shunt_comm *comm);
/** The number of ranks. */
SHUNT_API int shunt_comm_size(const struct shunt_comm *comm);
/** The node of `rank`: nodes are numbered from 0 by their lowest rank. */
SHUNT_API int shunt_comm_node(const struct shunt_comm *comm, int rank);
/** The number of nodes. */
SHUNT_API int shunt_comm_nodes(const struct shunt_comm *comm);
/** This rank's index among the ranks of its node. */
SHUNT_API int shunt_comm_local_rank(const struct shunt_comm *comm);
/** How many ranks this rank's node has. */
SHUNT_API int shunt_comm_local_size(const struct shunt_comm *comm);

/** SHUNT_OK, or the error that ended the communicator. Any thread. */
SHUNT_API enum shunt_status
shunt_comm_async_status(const struct shunt_comm *comm);

/**
 * The ranks that are known to be lost.
 *
 * ranks   out; array owned by `comm`, valid until it is destroyed.
 * count   out; 0 when none is lost.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_lost(const struct shunt_comm *comm, const int **ranks,
                size_t *count);

/** Counters since the communicator was made. */
struct shunt_comm_stats {
    uint64_t operations;    /* collectives and exchanges finished */
    uint64_t bytes_mapped;  /* payload copied once through a mapped window */
    uint64_t bytes_read;    /* payload copied once out of a peer's own memory */
    uint64_t bytes_staged;  /* payload that went through a staging buffer */
    uint64_t bytes_inline;  /* payload that travelled inside notes */
    uint64_t bytes_remote;  /* payload sent to another node */
    uint64_t sleeps;        /* times this rank went to sleep in a wait */
    double seconds_waiting; /* time spent waiting for peers */
    uint64_t
        sleeps_missed; /* of the sleeps: ended by their time, with something
                               to do that should have woken us; 0 */
    uint64_t messages_sent;   /* to all ranks; see struct shunt_peer_stats */
    uint64_t messages_remote; /* those of them to ranks of other nodes */
    uint64_t bytes_zcopy; /* payload sent straight from this rank's memory into
                             that of a rank whose memory is not mapped */
    uint64_t
        bytes_engine; /* of bytes_mapped: by the copy engine (SHUNT_ENGINE) */
    uint64_t bytes_zcopy_registered; /* of bytes_zcopy: from windows, and memory
                                        of shunt_mem_register() */
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

/** Counters of what went from this rank to another one. */
struct shunt_peer_stats {
    /** What calls sent there, by mapped memory or by put: each announcement,
     * with or without payload in it; each answer to one; each chunk of a
     * stream, and each word that says that chunks were taken; each piece (1 MiB)
     * of a block that goes by zero copy; each put of tokens' rows or
     * sums. The same in every run of the same calls. What depends on timing is not
     * counted: words that say how far this rank is, questions whether a rank is
     * there, wake-ups. */
    uint64_t messages;
    /** What was put there through the transport, headers included; 0 where the
     * rank's memory is mapped. */
    uint64_t bytes_put;
};

/**
 * Read the counters for one rank, since the communicator was made. Local.
 *
 * rank        0 <= rank < size; those for this rank itself are 0.
 * stats       out.
 * stats_size  sizeof(struct shunt_peer_stats); only that much is written.
 *
 * Errors: SHUNT_ERR_INVALID.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_comm_get_peer_stats(const struct shunt_comm *comm, int rank,
                          struct shunt_peer_stats *stats, size_t stats_size);

/** One line on how ranks reach each other, e.g. "shm (map, cma)". Owned by
 * `comm`. */
SHUNT_API const char *shunt_comm_transport(const struct shunt_comm *comm,
                                           int rank);

#ifdef __cplusplus
}
#endif

#endif
