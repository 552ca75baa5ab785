// SPDX-License-Identifier: Apache-2.0
/* The sums of a timeline; see trace_summary.h. */
#include "src/trace/trace_summary.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/forks.h"
#include "src/trace/track.h"

/* One line, about a kind of call or about a thread. */
struct line {
    struct line *next;
    int rank;
    char kind[32]; /* the kind of call; "": the line is about a thread */
    uint64_t calls, bytes, inside_ns, under_way_ns;
    struct shunti_summary_thread thread;
};

_Static_assert(SHUNTI_TRACKS ==
                   sizeof(((struct shunti_summary_thread *)0)->ns) /
                       sizeof(uint64_t),
               "see trace_summary.h");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct line *lines; /* protected by `lock`; the newest last */

/* Append a line. If memory runs out the line is missing. */
static struct line *append(int rank, const char *kind)
{
    struct line **at = &lines, *line = calloc(1, sizeof(*line));

    while (*at)
        at = &(*at)->next;
    *at = line;
    if (line) {
        line->rank = rank;
        snprintf(line->kind, sizeof(line->kind), "%s", kind);
    }
    return line;
}

static struct line *find(int rank, const char *kind)
{
    for (struct line *line = lines; line; line = line->next)
        if (line->rank == rank && !strcmp(line->kind, kind))
            return line;
    return append(rank, kind);
}

void shunti_summary_add_call(int rank, const char *kind, uint64_t bytes,
                             uint64_t inside_ns, uint64_t under_way_ns)
{
    struct line *line;

    pthread_mutex_lock(&lock);
    line = find(rank, kind);
    if (line) {
        line->calls++;
        line->bytes += bytes;
        line->inside_ns += inside_ns;
        line->under_way_ns += under_way_ns;
    }
    pthread_mutex_unlock(&lock);
}

void shunti_summary_add_thread(int rank, const struct shunti_summary_thread *t)
{
    struct line *line;

    pthread_mutex_lock(&lock);
    line = append(rank, "");
    if (line)
        line->thread = *t;
    pthread_mutex_unlock(&lock);
}

/* Print microseconds, with a point in any locale. */
#define US "%llu.%03u"
#define AS_US(ns) (unsigned long long)((ns) / 1000), (unsigned)((ns) % 1000)

static void describe_thread(const struct shunti_summary_thread *t, char *args)
{
    uint64_t wall = 0;

    for (int i = 0; i < SHUNTI_TRACKS; i++)
        wall += t->ns[i];
    snprintf(args, SHUNTI_SUMMARY_ARGS,
             "{\"thread\":\"%s\",\"wall_us\":" US ",\"compute_us\":" US
             ",\"copies_us\":" US ",\"wire_us\":" US ",\"waits_us\":" US
             ",\"library_us\":" US "}",
             t->name, AS_US(wall), AS_US(t->ns[SHUNTI_TRACK_COMPUTE]),
             AS_US(t->ns[SHUNTI_TRACK_COPIES]), AS_US(t->ns[SHUNTI_TRACK_WIRE]),
             AS_US(t->ns[SHUNTI_TRACK_WAITS]),
             AS_US(t->ns[SHUNTI_TRACK_LIBRARY]));
}

static void describe_call(const struct line *line, char *args)
{
    const uint64_t hidden = line->under_way_ns - line->inside_ns;
    const unsigned thousandths =
        line->under_way_ns
            ? (unsigned)((double)hidden / (double)line->under_way_ns * 1000)
            : 0;

    snprintf(args, SHUNTI_SUMMARY_ARGS,
             "{\"call\":\"%s\",\"calls\":%llu,\"bytes\":%llu,\"inside_us\":" US
             ",\"under_way_us\":" US ",\"hidden\":%u.%03u}",
             line->kind, (unsigned long long)line->calls,
             (unsigned long long)line->bytes, AS_US(line->inside_ns),
             AS_US(line->under_way_ns), thousandths / 1000, thousandths % 1000);
}

int shunti_summary_take(int rank, char *args)
{
    struct line **at = &lines, *line;

    pthread_mutex_lock(&lock);
    while (*at && (*at)->rank != rank)
        at = &(*at)->next;
    line = *at;
    if (line)
        *at = line->next;
    pthread_mutex_unlock(&lock);
    if (!line)
        return 0;
    if (*line->kind)
        describe_call(line, args);
    else
        describe_thread(&line->thread, args);
    free(line);
    return 1;
}

__attribute__((constructor)) static void watch_forks(void)
{
    static struct shunti_fork fork = {.lock = &lock};

    shunti_fork_watch(&fork);
}
