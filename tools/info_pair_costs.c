// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-info --ways: the protocol for memory outside windows, between rank 0
 * and the other ranks of its host. As in a program, each pair of ranks learns
 * the protocol by sending blocks to each other.
 */
#include "tools/info_pair_costs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/shunt.h>

#include "src/comm.h"
#include "src/host/launchers.h"
#include "tools/info_comm.h"

/* Only the first ranks are measured, since each one takes a while. */
#define MOST_PEERS 7
/* After BLOCKS blocks of a size, both protocols have been tried. Up to
 * MORE_BLOCKS more are sent to end a trial that has just begun again. */
#define BLOCKS 40
#define MORE_BLOCKS 40

/* A size in the middle of a class. (Not the smallest: 8 KiB may be sent
 * inline.) */
static size_t block_bytes(int class)
{
    return shunti_pair_costs_class_bytes(class) / 2 * 3;
}

/* Is one of the two ranks trying the other protocol? Until the trial ends, that
 * rank has no cost for the protocol. All ranks call this. */
static enum shunt_status in_trial(struct shunt_comm *comm, int peer, int class,
                                  bool *any)
{
    const int rank = shunt_comm_rank(comm);
    const int32_t ours =
        (rank == 0 || rank == peer) &&
        shunti_pair_costs_in_trial(comm, rank ? 0 : peer, class);
    int32_t most = 0;
    const enum shunt_status st =
        shunt_allreduce(comm, &ours, &most, 1, SHUNT_I32, SHUNT_MAX);

    *any = most;
    return st;
}

/* Exchange blocks of each class between rank 0 and `peer`. The other ranks take
 * part in the calls without data. */
static enum shunt_status send_blocks(struct shunt_comm *comm, int peer,
                                     unsigned char *memory, size_t *counts)
{
    const int nranks = shunt_comm_size(comm), rank = shunt_comm_rank(comm);
    const size_t most = block_bytes(SHUNTI_WAYS_CLASSES - 1);
    size_t *displs = counts + nranks;
    enum shunt_status st = SHUNT_OK;
    bool more;

    for (int class = 0; class < SHUNTI_WAYS_CLASSES; class ++) {
        memset(counts, 0, 2 * (size_t)nranks * sizeof(*counts));
        if (rank == 0 || rank == peer)
            counts[rank ? 0 : peer] = block_bytes(class);
        more = true;
        for (int i = 0; more && i < BLOCKS + MORE_BLOCKS && !st; i++) {
            st = shunt_alltoallv(comm, memory, counts, displs, memory + most,
                                 counts, displs, SHUNT_U8);
            if (!st && i >= BLOCKS - 1)
                st = in_trial(comm, peer, class, &more);
        }
    }
    return st;
}

static int peers_of(const struct shunt_comm *comm)
{
    const int peers = shunt_comm_size(comm) - 1;

    return peers < MOST_PEERS ? peers : MOST_PEERS;
}

static enum shunt_status learn(struct shunt_comm *comm, void *data)
{
    (void)data;
    const size_t most = block_bytes(SHUNTI_WAYS_CLASSES - 1);
    const size_t nranks = (size_t)shunt_comm_size(comm);
    unsigned char *memory = malloc(2 * most);
    size_t *counts = calloc(2 * nranks, sizeof(*counts));
    enum shunt_status st = memory && counts ? SHUNT_OK : SHUNT_ERR_MEMORY;

    if (memory)
        memset(memory, 1, 2 * most); /* allocate its pages */
    for (int peer = 1; peer <= peers_of(comm) && !st; peer++)
        st = send_blocks(comm, peer, memory, counts);
    free(counts);
    free(memory);
    return st;
}

static void print_sizes(const struct shunti_pair_costs *costs, bool read)
{
    const char *sign = "";

    for (int class = 0; class < SHUNTI_WAYS_CLASSES; class ++) {
        const size_t kib = shunti_pair_costs_class_bytes(class) >> 10;

        if ((costs->wants >> class & 1) != read)
            continue;
        printf("%s%zu", sign, kib);
        sign = " ";
    }
    printf("%s\n", *sign ? " KiB" : "nothing");
}

static void print_peer(const struct shunt_comm *comm, int peer)
{
    const struct shunti_peer *p = &comm->peers[peer];
    const struct shunti_pair_costs *costs = &p->costs;
    const int largest = SHUNTI_WAYS_CLASSES - 1;

    printf("\nrank %d: ", peer);
    if (shunti_zcopy_suits(comm, peer, SIZE_MAX)) {
        printf("not mapped (another host, or another SHUNT_NODE): sent in "
               "chunks; from\n  %zu B on without staging (SHUNT_ZCOPY_MIN)\n",
               comm->tune.zcopy_min);
    } else if (!p->control) {
        puts(
            "not mapped (another host, or another SHUNT_NODE): sent in chunks");
    } else if (!(p->caps & SHUNT_TRANSPORT_GET)) {
        puts("copied in chunks through shared memory; the kernel does not let "
             "one process read\n  the other's memory");
    } else if (comm->tune.read_min != SIZE_MAX) {
        printf("read by the kernel from %zu B on (SHUNT_READ_MIN)\n",
               comm->tune.read_min);
    } else if (!shunti_pair_costs_learn(comm, peer)) {
        puts("copied in chunks through shared memory; the chunks are too small "
             "to compare with\n  the kernel (SHUNT_CHUNK)");
    } else {
        printf("blocks of at least these sizes are copied\n"
               "  through shared memory   ");
        print_sizes(costs, false);
        printf("  by the kernel           ");
        print_sizes(costs, true);
        printf(
            "  64 KiB cost             %.1f us through shared memory; by the "
            "kernel %.1f us in the\n"
            "                          smallest blocks, %.1f us in the "
            "largest\n",
            (double)shunti_pair_costs_ring_cost(comm, peer) / 1e3,
            (double)costs->read[0] / 1e3, (double)costs->read[largest] / 1e3);
    }
}

static void print(const struct shunt_comm *comm, const char *launcher,
                  void *data)
{
    const int peers = peers_of(comm);

    (void)launcher;
    (void)data;
    printf("How blocks outside windows travel from other ranks to rank 0 of "
           "%d\n",
           shunt_comm_size(comm));
    for (int peer = 1; peer <= peers; peer++)
        print_peer(comm, peer);
    if (peers < shunt_comm_size(comm) - 1)
        printf("\n(and %d more ranks, which were not tried)\n",
               shunt_comm_size(comm) - 1 - peers);
    puts("\nEach pair of ranks learns this in use, and again when the costs "
         "change; or SHUNT_READ_MIN\nsets the limit. Memory in windows "
         "(shunt_mem_alloc()) needs neither: the receiver reads it\n"
         "directly.");
}

int info_pair_costs(void)
{
    const char *launcher;
    int rank, nranks;

    if (!shunti_launch_rank(&rank, &nranks, &launcher) && nranks == 1) {
        fputs("shunt-info: --ways is about pairs of ranks: start two or more "
              "(shunt-run -n 2 -- shunt-info --ways)\n",
              stderr);
        return 2;
    }
    return info_comm_run(learn, print, NULL);
}
