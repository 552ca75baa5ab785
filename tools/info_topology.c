// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-info --topology. Each rank reports where it runs and by which transport
 * it reaches the others. Pairs of ranks that are alike (same node or not, same
 * transport) form a class. One pair of each class measures the one-way time of
 * a few bytes, and the rate of some megabytes. The pair uses the library, so
 * the figures are what a program gets.
 */
#include "tools/info_topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shunt/shunt.h>

#include "src/comm.h"
#include "src/host/topology.h"
#include "src/wire/nodes.h"
#include "tools/info_comm.h"

enum {
    CLASSES = 8,    /* most classes of pairs; there are two or three */
    PINGS = 12,     /* measurements, of which the best counts */
    PING = 4,       /* round trips of one measurement */
    BULK = 4 << 20, /* bytes of a large transfer */
    PROBE = 64 << 10,
    BULKS = 3, /* measured transfers of each size */
};
#define BULK_SECONDS 0.2 /* seconds for the large transfers of a pair */

struct class
{
    int32_t a, b; /* the ranks that measure; b < 0: unused entry */
    int32_t near; /* both are on one node */
    char how[48];
};

/* The report of each rank. */
struct record {
    struct shunti_place place;
    struct class classes[CLASSES]; /* classes of its pairs with higher ranks */
};

struct measured {
    double latency; /* seconds, one way */
    double rate;    /* bytes a second */
    uint64_t bytes; /* bytes of the measured transfer */
};

struct view {
    bool json;
    struct shunt_comm *comm;
    struct record *records; /* (ranks) */
    struct class classes[CLASSES];
    struct measured measured[CLASSES];
    int count; /* number of classes */
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Add a class, unless it is in the list already. */
static void add_class(struct class *classes, const struct class *found)
{
    for (int i = 0; i < CLASSES; i++) {
        if (classes[i].b < 0) {
            classes[i] = *found;
            return;
        }
        if (classes[i].near == found->near &&
            strcmp(classes[i].how, found->how) == 0)
            return;
    }
}

static void clear_classes(struct class *classes)
{
    memset(classes, 0, CLASSES * sizeof(*classes));
    for (int i = 0; i < CLASSES; i++)
        classes[i].b = -1;
}

/* Order classes: pairs of one node first, then by rank. */
static int by_nearness(const void *left, const void *right)
{
    const struct class *a = left, *b = right;

    if (a->near != b->near)
        return b->near - a->near;
    return a->a != b->a ? a->a - b->a : a->b - b->b;
}

/* Keep the minimum: delays by other processes are not a property of the
 * link. */
static void keep_best(double *best, double seconds)
{
    if (*best == 0 || seconds < *best)
        *best = seconds;
}

static enum shunt_status gather(struct view *v)
{
    const struct shunt_comm *comm = v->comm;
    struct record own;
    enum shunt_status st;

    memset(&own, 0, sizeof(own));
    shunti_place_here(&own.place);
    clear_classes(own.classes);
    for (int r = comm->rank + 1; r < comm->nranks; r++) {
        struct class c = {.a = comm->rank, .b = r};

        c.near = comm->peers[r].node == comm->node;
        snprintf(c.how, sizeof(c.how), "%s", shunt_comm_transport(comm, r));
        add_class(own.classes, &c);
    }
    st = shunt_allgather(v->comm, &own, v->records, sizeof(own), SHUNT_U8);
    clear_classes(v->classes);
    for (int r = 0; r < comm->nranks && !st; r++)
        for (int i = 0; i < CLASSES && v->records[r].classes[i].b >= 0; i++)
            add_class(v->classes, &v->records[r].classes[i]);
    while (v->count < CLASSES && v->classes[v->count].b >= 0)
        v->count++;
    qsort(v->classes, (size_t)v->count, sizeof(*v->classes), by_nearness);
    return st;
}

/* Ping-pong: each of the two ranks broadcasts in turn, and the other rank must
 * receive the broadcast before it continues. *seconds: the best time of a round
 * trip. */
static enum shunt_status ping(struct shunt_comm *pair, double *seconds)
{
    enum shunt_status st = SHUNT_OK;
    uint64_t word = 0;

    *seconds = 0;
    for (int i = 0; i < PINGS && !st; i++) {
        double start = now();

        for (int n = 0; n < 2 * PING && !st; n++)
            st = shunt_broadcast(pair, &word, 1, SHUNT_U64, n % 2);
        keep_best(seconds, (now() - start) / PING);
    }
    return st;
}

/* Send `bytes` to the second rank, and wait for its reply that they have
 * arrived. Takes the best of several times. */
static enum shunt_status send(struct shunt_comm *pair, void *memory,
                              size_t bytes, double *seconds)
{
    enum shunt_status st = SHUNT_OK;
    uint64_t word = 0;

    *seconds = 0;
    for (int i = 0; i < BULKS && !st; i++) {
        double start = now();

        st = shunt_broadcast(pair, memory, bytes, SHUNT_U8, 0);
        if (!st)
            st = shunt_broadcast(pair, &word, 1, SHUNT_U64, 1);
        keep_best(seconds, now() - start);
    }
    return st;
}

/* Measure one pair. Both of its ranks call this; the times are those of the
 * first rank. */
static enum shunt_status measure(struct shunt_comm *pair, struct measured *m)
{
    double round = 0, best = 0;
    uint64_t bytes = BULK;
    void *memory = NULL;
    enum shunt_status st = shunt_mem_alloc(pair, BULK, &memory);

    if (!st) {
        memset(memory, 1, BULK); /* allocate pages, other than the zero page */
        st = ping(pair, &round);
    }
    if (!st)
        st = send(pair, memory, PROBE, &best);
    /* Send less over a slow link; the first rank decides. */
    while (bytes > PROBE && best * (double)bytes / PROBE > BULK_SECONDS / BULKS)
        bytes /= 2;
    if (!st)
        st = shunt_broadcast(pair, &bytes, 1, SHUNT_U64, 0);
    if (!st)
        st = send(pair, memory, bytes, &best);
    *m = (struct measured){round / 2, best > 0 ? (double)bytes / best : 0,
                           bytes};
    return st;
}

/* Measure class after class, while the other ranks wait. */
static enum shunt_status measure_all(struct view *v)
{
    enum shunt_status st = SHUNT_OK;

    for (int i = 0; i < v->count && !st; i++) {
        const struct class *c = &v->classes[i];
        bool mine = v->comm->rank == c->a || v->comm->rank == c->b;
        struct shunt_comm *pair = NULL;

        st = shunt_comm_split(v->comm, mine ? 0 : -1, v->comm->rank, &pair);
        if (!st && pair)
            st = measure(pair, &v->measured[i]);
        shunt_comm_destroy(pair);
        if (!st)
            st = shunt_broadcast(v->comm, &v->measured[i],
                                 sizeof(v->measured[i]), SHUNT_U8, c->a);
    }
    return st;
}

/* --- for people ----------------------------------------------------------- */

static void print_ranks(int first, int last)
{
    char text[32];

    if (first == last)
        snprintf(text, sizeof(text), "rank %d", first);
    else
        snprintf(text, sizeof(text), "ranks %d-%d", first, last);
    printf("    %-14s", text);
}

static bool same_place(const struct shunti_place *a,
                       const struct shunti_place *b)
{
    return shunti_place_same_host(a, b) && a->numa == b->numa &&
           a->cache == b->cache &&
           memcmp(a->cpus, b->cpus, sizeof(a->cpus)) == 0;
}

/* The number of CPUs, and where they are. */
static void print_place(const struct shunti_place *p)
{
    int cpus = shunti_places_cpus(p, 1);

    if (p->numa >= 0)
        printf("NUMA node %d of %u, ", p->numa, p->machine_numa);
    else if (p->machine_numa > 1)
        printf("any of %u NUMA nodes, ", p->machine_numa);
    if (p->cache >= 0 && p->machine_caches > 1)
        printf("cache %d of %u, ", p->cache, p->machine_caches);
    printf("%d CPU%s from %d on\n", cpus, cpus == 1 ? "" : "s", p->first_cpu);
}

static void print_nodes(const struct view *v)
{
    for (int n = 0; n < v->comm->nodes; n++) {
        const int *rank = shunti_node_ranks(v->comm, n);
        int size = shunti_node_size(v->comm, n);

        printf("\n  node %d, %s: %d rank%s\n", n,
               v->records[rank[0]].place.host, size, size == 1 ? "" : "s");
        for (int l = 0, end; l < size; l = end) {
            /* Print consecutive ranks at the same place together. */
            for (end = l + 1; end < size && rank[end] == rank[end - 1] + 1 &&
                              same_place(&v->records[rank[end]].place,
                                         &v->records[rank[l]].place);
                 end++)
                ;
            print_ranks(rank[l], rank[end - 1]);
            print_place(&v->records[rank[l]].place);
        }
    }
}

/* Print the rail peers: a column for each node, as many as fit. */
static void print_rails(const struct view *v)
{
    int nodes = v->comm->nodes, rails = 0, shown = nodes < 8 ? nodes : 8;
    bool others = false;

    if (nodes == 1)
        return;
    for (int n = 0; n < nodes; n++)
        if (shunti_node_size(v->comm, n) > rails)
            rails = shunti_node_size(v->comm, n);
    printf("\n  rails: the ranks in a row send to each other between nodes\n"
           "    rail ");
    for (int n = 0; n < shown; n++)
        printf("  node %-3d", n);
    printf("%s\n", shown < nodes ? "  ..." : "");
    for (int l = 0; l < rails; l++) {
        printf("    %4d ", l);
        for (int n = 0; n < shown; n++) {
            int size = shunti_node_size(v->comm, n);

            others |= l >= size;
            printf("  %6d%s ", shunti_node_ranks(v->comm, n)[l % size],
                   l < size ? "  " : "* ");
        }
        printf("\n");
    }
    if (others)
        printf("    * a node with fewer ranks: this rank has more than one "
               "rail\n");
}

static void latency_text(double seconds, char *text, size_t size)
{
    snprintf(text, size, seconds < 1e-4 ? "%.2f us" : "%.0f us", seconds * 1e6);
}

static void rate_text(double rate, char *text, size_t size)
{
    if (rate < 1e9)
        snprintf(text, size, "%.1f MB/s", rate * 1e-6);
    else
        snprintf(text, size, "%.2f GB/s", rate * 1e-9);
}

static void print_classes(const struct view *v)
{
    printf("\n  %-28s %-20s %10s %13s\n", "pairs of ranks", "by", "latency",
           "rate");
    for (int i = 0; i < v->count; i++) {
        const struct class *c = &v->classes[i];
        const struct measured *m = &v->measured[i];
        char who[64], latency[32], rate[32];

        snprintf(who, sizeof(who), "%s (%d - %d)",
                 c->near ? "of one node" : "across nodes", c->a, c->b);
        latency_text(m->latency, latency, sizeof(latency));
        rate_text(m->rate, rate, sizeof(rate));
        printf("    %-26s %-20s %10s %13s\n", who, c->how, latency, rate);
        if (m->bytes != BULK)
            printf("%31s(at %llu KiB: more takes long)\n", "",
                   (unsigned long long)m->bytes >> 10);
    }
    printf("    latency: a few bytes, one way; rate: %d MiB, one way, while "
           "other ranks are silent\n",
           BULK >> 20);
    if (v->comm->nodes > 1)
        printf("    (shunt-info --algorithms: the figures that Shunt uses)\n");
}

static void print(const struct view *v, const char *launcher)
{
    const struct shunt_comm *comm = v->comm;

    printf("%d rank%s on %d node%s, started by %s\n", comm->nranks,
           comm->nranks == 1 ? "" : "s", comm->nodes,
           comm->nodes == 1 ? "" : "s",
           strcmp(launcher, "none") == 0       ? "no launcher"
           : strcmp(launcher, "torchrun") == 0 ? "torchrun or the like"
                                               : launcher);
    print_nodes(v);
    print_rails(v);
    if (comm->nranks > 1)
        print_classes(v);
    else
        printf("\n  There is one rank. Ranks that a launcher starts find each "
               "other:\n"
               "    shunt-run -n 4 -- shunt-info --topology\n");
    if (comm->oversubscribed)
        printf("\n  There are more ranks than CPUs on node %d: times include "
               "waking ranks that\n  sleep.\n",
               comm->node);
}

/* --- for machines --------------------------------------------------------- */

static void print_json(const struct view *v, const char *launcher)
{
    const struct shunt_comm *comm = v->comm;

    /* Names of hosts, launchers and transports need no escapes. */
    printf("{\"ranks\":%d,\"launcher\":\"%s\",\"nodes\":[", comm->nranks,
           launcher);
    for (int n = 0; n < comm->nodes; n++) {
        const int *rank = shunti_node_ranks(comm, n);

        printf("%s\n {\"host\":\"%s\",\"ranks\":[", n ? "," : "",
               v->records[rank[0]].place.host);
        for (int l = 0; l < shunti_node_size(comm, n); l++) {
            const struct shunti_place *p = &v->records[rank[l]].place;

            printf("%s{\"rank\":%d,\"numa\":%d,\"cpus\":%d}", l ? "," : "",
                   rank[l], p->numa, shunti_places_cpus(p, 1));
        }
        printf("]}");
    }
    printf("],\n\"classes\":[");
    for (int i = 0; i < v->count; i++) {
        const struct class *c = &v->classes[i];
        const struct measured *m = &v->measured[i];

        printf("%s\n {\"one_node\":%s,\"a\":%d,\"b\":%d,\"transport\":\"%s\","
               "\"latency_ns\":%.0f,\"bandwidth\":%.0f,\"bytes\":%llu}",
               i ? "," : "", c->near ? "true" : "false", c->a, c->b, c->how,
               m->latency * 1e9, m->rate, (unsigned long long)m->bytes);
    }
    printf("]}\n");
}

static enum shunt_status collect(struct shunt_comm *comm, void *data)
{
    struct view *v = data;
    enum shunt_status st;

    v->comm = comm;
    v->records = calloc((size_t)comm->nranks, sizeof(*v->records));
    if (!v->records) {
        fputs("shunt-info: no memory for the places of all ranks\n", stderr);
        exit(1); /* the other ranks are notified */
    }
    st = gather(v);
    return st ? st : measure_all(v);
}

static void print_view(const struct shunt_comm *comm, const char *launcher,
                       void *data)
{
    const struct view *v = data;

    (void)comm;
    (v->json ? print_json : print)(v, launcher);
}

int info_topology(bool json)
{
    struct view v = {.json = json};
    int status = info_comm_run(collect, print_view, &v);

    free(v.records);
    return status;
}
