// SPDX-License-Identifier: Apache-2.0
/*
 * Makes a rank of MPICH yield its core while it waits, as a rank of Open MPI
 * does with mpi_yield_when_idle. MPICH waits in a loop around
 * ucp_worker_progress(), and builds without a yield, such as Debian's, ignore
 * MPIR_CVAR_POLLS_BEFORE_YIELD: with more ranks than cores, a waiting rank
 * spins for a whole time slice before the rank that it waits for can run. `run
 * --yield` loads this by LD_PRELOAD.
 */

#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* After this many polls without an event, a thread sleeps between two polls. If
 * the threads of a rank only yielded, they would keep the cores busy with each
 * other. */
#define YIELDS 100
#define SLEEP_NS 50000

typedef unsigned progress_call(void *worker);

progress_call ucp_worker_progress;

static progress_call *find_real(void)
{
    void *ucp = dlopen("libucp.so.0", RTLD_LAZY);
    progress_call *found = NULL;

    if (ucp)
        *(void **)&found = dlsym(ucp, "ucp_worker_progress");
    if (!found) {
        fprintf(stderr, "yield: no ucp_worker_progress: %s\n", dlerror());
        abort();
    }
    return found;
}

unsigned ucp_worker_progress(void *worker)
{
    static _Atomic(progress_call *) real;
    static _Thread_local unsigned in_vain;
    progress_call *call = atomic_load_explicit(&real, memory_order_relaxed);
    unsigned events;

    if (!call) {
        call = find_real();
        atomic_store_explicit(&real, call, memory_order_relaxed);
    }
    events = call(worker);
    if (events > 0)
        in_vain = 0;
    else if (++in_vain <= YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    return events;
}
