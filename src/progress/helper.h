// SPDX-License-Identifier: Apache-2.0
/*
 * The helper: one thread of the process that steps started calls while their
 * callers compute (SHUNT_PROGRESS=auto), or wait for a notice (notice.h).
 *
 * A call that leaves operations under way parks its communicator (parked.h).
 * The holder of a parked communicator may step it. The helper is one more
 * possible holder, and the next call takes the communicator back from it as
 * from any other. A communicator that is never parked with a started operation
 * does not use the helper. The thread exists only between the first call that
 * needs it and the end of the last communicator that uses it.
 *
 * A handover costs two context switches. A caller that waits at once after
 * `_start` must not pay for them. So each communicator has a *patience*: the
 * helper holds the communicator only after its caller has been away for that
 * long. The patience doubles if the caller came back sooner, or soon after the
 * helper began to hold the communicator. It is short again after an absence
 * that was worth a handover. So a loop of starts and waits wakes the helper
 * only every 20 ms.
 *
 * The helper never spins. With nothing to do it sleeps in poll(), without a
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

/* Part of a communicator: its use of the helper. helper.c writes it; init.c
 * writes `may`, call.c `started`, and parked.c `stamp` and `recalled`. */
struct shunti_help {
    bool may; /* the settings allow the helper, and the helper may be of use */
    /* `may` is set, and a call has returned a request to its caller */
    bool started;
    /* the communicator is in the helper's list; only callers read this field */
    bool attached;
    bool was_long;    /* the last absence of the caller was long */
    uint64_t left_ns; /* when the caller's last absence began */
    /* A caller changes the stamp when it leaves something under way, and while
     * it steps the communicator in a wait elsewhere. A caller is not away as
     * long as the stamp changes. */
    _Atomic unsigned stamp;
    /* the last absence was long: look at this communicator soon */
    atomic_bool urgent;
    /* the helper must release the communicator, because its owner waits
     * elsewhere and will step it */
    atomic_bool recalled;
    atomic_int cpu; /* CPU on which the caller left, or < 0 */
    /* Used only by the helper. */
    bool mine;    /* the helper holds the communicator */
    bool watched; /* the stamp has had the value `seen` since `seen_ns` */
    /* values of `stamp`: the one seen last, and the last one at which there was
     * nothing to do */
    unsigned seen, done;
    uint64_t seen_ns; /* when the stamp was first seen with the value `seen` */
    /* when the helper began to hold the communicator */
    uint64_t held_ns;
    uint64_t patience_ns;    /* 0: not set yet; counts as the shortest */
    struct shunt_comm *next; /* next one in the helper's list */
};

/* Ask the helper to step `comm`, which was parked, if its caller stays away. If
 * there is no helper thread and none can be made, only calls step `comm`. */
void shunti_help_ask(struct shunt_comm *comm);

/* Make sure that a thread steps `comm` while its caller is away: the progress
 * thread, or the helper. A request has a notice, for which the caller may wait
 * outside of the library. Errors: SHUNT_ERR_SYSTEM, no thread can be made. */
enum shunt_status shunti_help_notices(struct shunt_comm *comm);

/* Record that the caller is back. Called if help.attached. */
void shunti_help_back(struct shunt_comm *comm);

/* Remove `comm` from the helper, before `comm` is destroyed. The thread ends
 * with the last communicator. */
void shunti_help_forget(struct shunt_comm *comm);

/* Step the communicators of `held`. Then poll() for at most `ns` on `fds` and
 * on the transports of these communicators. wait.c sets this pointer, to break
 * the cycle wait.c -> helper.c -> wait.c. */
extern int (*shunti_help_poll)(struct shunt_comm *held, struct pollfd *fds,
                               unsigned long n, uint64_t ns);

#endif
