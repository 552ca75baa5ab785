// SPDX-License-Identifier: Apache-2.0
/*
 * The helper: one thread of the process that steps started calls while their
 * callers compute (SHUNT_PROGRESS=auto), or wait for a notice (notice.h).
 *
 * A call that leaves operations under way parks its communicator
 * (parked.h). Whoever holds it may step it, so the helper is one more holder,
 * and the next call takes the communicator back from it as from any other. A
 * communicator that is never parked with a started operation never hears of
 * the helper, and the thread exists only between the first such call and the
 * end of the last such communicator.
 *
 * A handover costs two context switches. A caller that waits at once after
 * `_start` must not pay for them, so the helper holds a communicator only if
 * its caller has been away for the communicator's patience. Patience doubles
 * when the caller came back sooner than that, or soon after the helper took
 * over, and is short again after an absence that was worth it: so a loop of
 * starts and waits wakes the helper every 20 ms.
 *
 * The helper never spins: with nothing to do it sleeps in poll(), without a
 * limit if no communicator has anything under way.
 */
#ifndef SHUNTI_HELPER_H
#define SHUNTI_HELPER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <shunt/status.h>

struct pollfd;
struct shunt_comm;

/* Part of a communicator: what the helper may do for it. helper.c writes it;
 * init.c writes `may`, call.c `started`, and parked.c `stamp` and `recalled`. */
struct shunti_help {
    bool may;      /* the settings allow it, and it may be of use */
    bool started;  /* `may`, and there was a call with a request of its own */
    bool attached; /* the helper knows it; of the callers */
    bool was_long; /* their last absence */
    uint64_t left_ns; /* when it began */
    /* Callers change it when they leave something under way, and while they
     * step it in a wait elsewhere: as long as it changes they are not away. */
    _Atomic unsigned stamp;
    atomic_bool urgent; /* the last absence was long: be there soon */
    /* its owner waits elsewhere, and will step it along */
    atomic_bool recalled;
    atomic_int cpu; /* on which its caller left, or < 0 */
    /* Of the helper. */
    bool mine;               /* held by it */
    bool watched;            /* its stamp has been `seen` since seen_ns */
    unsigned seen, done;     /* stamps; `done`: nothing to do since that one */
    uint64_t seen_ns;        /* when `seen` was new */
    uint64_t held_ns;        /* since when it is held */
    uint64_t patience_ns;    /* 0: the shortest */
    struct shunt_comm *next; /* in the helper's list */
};

/* After it was parked: the helper steps it if its caller stays away. If
 * there is no thread and none can be made, its callers do without. */
void shunti_help_ask(struct shunt_comm *comm);

/* A request on it has a notice, which the caller may wait for outside of the
 * library. Errors: SHUNT_ERR_SYSTEM, no thread can be made. */
enum shunt_status shunti_help_notices(struct shunt_comm *comm);

/* Its caller is back, if help.attached. */
void shunti_help_back(struct shunt_comm *comm);

/* Before the communicator is destroyed. The thread ends with the last one. */
void shunti_help_forget(struct shunt_comm *comm);

/* How the helper sleeps and steps: poll() on `fds` for at most `ns`, and on
 * those held. wait.c sets it; it is not called directly since wait.c calls what
 * calls the helper. */
extern int (*shunti_help_poll)(struct shunt_comm *held, struct pollfd *fds,
                               unsigned long n, uint64_t ns);

#endif
