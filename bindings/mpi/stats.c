// SPDX-License-Identifier: Apache-2.0
/*
 * SHUNT_MPI_STATS=1: at MPI_Finalize() rank 0 prints which calls were served
 * and which were passed on, and why. So a drop-in that serves nothing is
 * noticed.
 *
 * The figures are sums over all ranks if all ranks are known to use the
 * drop-in. They are known to use it once they have agreed on the state of a
 * communicator of all ranks. Otherwise the figures are rank 0's own, because a
 * rank without the drop-in would not take part in the reduction.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bindings/mpi/dropin.h"
#include "bindings/mpi/env.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shunti_mpi_tallies total; /* protected by `lock` */
static char why[256];                   /* protected by `lock` */
static atomic_bool agreed, wanted_by_any;

static const char *const call_names[SHUNTI_MPI_CALLS] = {
    [SHUNTI_MPI_ALLTOALL] = "MPI_Alltoall",
    [SHUNTI_MPI_ALLTOALLV] = "MPI_Alltoallv",
    [SHUNTI_MPI_ALLTOALLW] = "MPI_Alltoallw",
    [SHUNTI_MPI_ALLGATHER] = "MPI_Allgather",
    [SHUNTI_MPI_ALLGATHERV] = "MPI_Allgatherv",
    [SHUNTI_MPI_REDUCE_SCATTER] = "MPI_Reduce_scatter",
    [SHUNTI_MPI_REDUCE_SCATTER_BLOCK] = "MPI_Reduce_scatter_block",
    [SHUNTI_MPI_ALLREDUCE] = "MPI_Allreduce",
    [SHUNTI_MPI_BCAST] = "MPI_Bcast",
    [SHUNTI_MPI_BARRIER] = "MPI_Barrier",
};

static const char *const reason_names[SHUNTI_MPI_REASONS] = {
    [SHUNTI_MPI_OFF] = "SHUNT_MPI=off",
    [SHUNTI_MPI_FASTER] = "MPI is faster",
    [SHUNTI_MPI_JOINS] = "alone not worth a communicator",
    [SHUNTI_MPI_ALONE] = "communicator of one rank",
    [SHUNTI_MPI_INTER] = "intercommunicator",
    [SHUNTI_MPI_OPERATOR] = "operator not served",
    [SHUNTI_MPI_TYPE] = "type not served",
    [SHUNTI_MPI_NO_COMM] = "no Shunt communicator",
    [SHUNTI_MPI_ARGUMENTS] = "bad arguments",
    [SHUNTI_MPI_DYING] = "while the communicator is freed",
    [SHUNTI_MPI_TIME] = "before MPI_Init or after MPI_Finalize",
};

bool shunti_mpi_stats_wanted(void)
{
    const char *text = secure_getenv(SHUNTI_MPI_STATS_VARIABLE);

    return text && (!strcmp(text, "1") || !strcasecmp(text, "yes") ||
                    !strcasecmp(text, "on") || !strcasecmp(text, "true"));
}

void shunti_mpi_stats_passed(enum shunti_mpi_call call,
                             enum shunti_mpi_reason reason)
{
    pthread_mutex_lock(&lock);
    total.passed[call][reason].calls++;
    pthread_mutex_unlock(&lock);
}

static void add(struct shunti_mpi_tally *to, const struct shunti_mpi_tally *t)
{
    to->calls += t->calls;
    to->bytes += t->bytes;
}

void shunti_mpi_stats_add(const struct shunti_mpi_tallies *tallies)
{
    pthread_mutex_lock(&lock);
    for (int c = 0; c < SHUNTI_MPI_CALLS; c++) {
        add(&total.served[c], &tallies->served[c]);
        for (int r = 0; r < SHUNTI_MPI_REASONS; r++)
            add(&total.passed[c][r], &tallies->passed[c][r]);
    }
    pthread_mutex_unlock(&lock);
}

void shunti_mpi_stats_agreed(bool wanted)
{
    if (wanted)
        atomic_store_explicit(&wanted_by_any, true, memory_order_relaxed);
    atomic_store_explicit(&agreed, true, memory_order_release);
}

void shunti_mpi_stats_why(const char *text)
{
    pthread_mutex_lock(&lock);
    snprintf(why, sizeof(why), "%.250s", text);
    pthread_mutex_unlock(&lock);
}

/* --- printing ------------------------------------------------------------- */

static void print_line(const char *what, const struct shunti_mpi_tally *t,
                       const char *note)
{
    if (t->calls)
        fprintf(stderr, "  %-26s %12llu calls %16llu B  %s\n", what,
                (unsigned long long)t->calls, (unsigned long long)t->bytes,
                note);
}

static void print(const struct shunti_mpi_tallies *t, int ranks, int of)
{
    struct shunti_mpi_tally served = {0}, passed = {0};

    for (int c = 0; c < SHUNTI_MPI_CALLS; c++) {
        add(&served, &t->served[c]);
        for (int r = 0; r < SHUNTI_MPI_REASONS; r++)
            add(&passed, &t->passed[c][r]);
    }
    fprintf(stderr,
            "shunt-mpi: served %llu calls (%llu B), passed on %llu calls\n",
            (unsigned long long)served.calls, (unsigned long long)served.bytes,
            (unsigned long long)passed.calls);
    if (ranks == of)
        fprintf(stderr, "  all %d ranks together; bytes that ranks gave\n", of);
    else
        fprintf(stderr,
                "  rank 0 alone, of %d ranks: no call was made by all of them "
                "together\n",
                of);
    for (int c = 0; c < SHUNTI_MPI_CALLS; c++) {
        print_line(call_names[c], &t->served[c], "served");
        for (int r = 0; r < SHUNTI_MPI_REASONS; r++)
            print_line(call_names[c], &t->passed[c][r], reason_names[r]);
    }
    if (why[0])
        fprintf(stderr, "  no Shunt communicator: %s\n", why);
}

/* Print the statistics. If a Shunt communicator could not be made, the printed
 * reason is that of rank 0. */
void shunti_mpi_stats_print(void)
{
    const bool all = atomic_load_explicit(&agreed, memory_order_acquire);
    const int count = (int)(sizeof(total) / sizeof(uint64_t));
    struct shunti_mpi_tallies sum;
    int rank = 0, size = 1;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    if (all) {
        if (!atomic_load_explicit(&wanted_by_any, memory_order_relaxed))
            return;
        memset(&sum, 0, sizeof(sum));
        if (PMPI_Reduce(&total, &sum, count, MPI_UINT64_T, MPI_SUM, 0,
                        MPI_COMM_WORLD) != MPI_SUCCESS)
            return;
        if (rank == 0)
            print(&sum, size, size);
    } else if (rank == 0 && shunti_mpi_stats_wanted()) {
        print(&total, 1, size);
    }
}
