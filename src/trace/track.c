// SPDX-License-Identifier: Apache-2.0
/*
 * The division of a thread's time into tracks; see track.h.
 *
 * Time passes through three stages. A piece ends when the thread changes to
 * another track. Short pieces are added up, by track, in `mixed`, until they
 * are old or a long piece follows. Then they continue the span that is `open`,
 * if it is on the same track. Only spans that cannot grow any more are written.
 * The stages follow each other in time without gaps, so the spans on all tracks
 * add up to the time that has passed.
 */
#include "src/trace/track.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shunt/trace.h>

#include "src/trace/trace.h"
#include "src/trace/trace_summary.h"

/* A piece of at least this length has its own span. */
#define LONG_NS 10000u
/* Shorter pieces are added up until the first of them is this old. */
#define MIXED_NS 100000u

/* Further tracks, which are not part of the thread's time. */
enum { PROGRAM = SHUNTI_TRACKS, ENGINE, ALL };

struct account {
    int rank;
    long thread;
    char name[16];
    bool inside; /* this is a thread of the library */
    uint64_t began_ns;
    enum shunti_track now;
    uint64_t since_ns; /* beginning of the piece on track `now` */
    uint64_t mixed_ns; /* beginning of the first piece in `mixed` */
    uint64_t mixed[SHUNTI_TRACKS];
    enum shunti_track open;
    uint64_t open_ns; /* beginning of the open span, which ends at mixed_ns */
    bool named[ALL];  /* the timeline has the name of this track */
    uint64_t engine_ns;
    struct shunti_summary_thread sum;
};

static const char *const names[ALL] = {
    [SHUNTI_TRACK_COMPUTE] = "compute", [SHUNTI_TRACK_COPIES] = "copies",
    [SHUNTI_TRACK_WIRE] = "wire",       [SHUNTI_TRACK_WAITS] = "waits",
    [SHUNTI_TRACK_LIBRARY] = "library", [PROGRAM] = "program",
    [ENGINE] = "copy engine",
};

/* The order in the timeline, from the top: first the spans of the program, then
 * the tracks of the thread. */
static const int places[ALL] = {
    [PROGRAM] = 0,
    [SHUNTI_TRACK_COMPUTE] = 1,
    [SHUNTI_TRACK_COPIES] = 2,
    [SHUNTI_TRACK_WIRE] = 3,
    [SHUNTI_TRACK_WAITS] = 4,
    [SHUNTI_TRACK_LIBRARY] = 5,
    [ENGINE] = 6,
};

atomic_int shunti_tracks_state;

static _Thread_local struct account *mine;
static pthread_key_t key;
static bool has_key;

/* Runs if a thread ends without a call of shunti_track_end(). */
static void thread_ends(void *account)
{
    mine = account;
    shunti_track_end();
}

static void make_key(void)
{
    has_key = !pthread_key_create(&key, thread_ends);
}

/* The library may be unloaded before its threads end. */
__attribute__((destructor)) static void drop_key(void)
{
    if (has_key)
        pthread_key_delete(key);
    has_key = false;
}

/* --- writing spans to the file -------------------------------------------- */

static void write_span(struct account *a, int track, const char *name,
                       uint64_t from_ns, uint64_t to_ns, const char *args)
{
    if (!shunti_tracked()) /* in a child of fork() */
        return;
    if (!a->named[track]) {
        char text[48];

        a->named[track] = true;
        snprintf(text, sizeof(text), "%s: %s", a->name, names[track]);
        shunti_trace_name_track(a->rank, a->thread, track, text,
                                (a->inside ? ALL : 0) + places[track]);
    }
    shunti_trace_on_track(a->rank, a->thread, track, name, from_ns, to_ns,
                          args);
}

/* Write the open span, which ends where `mixed` begins. */
static void write_open(struct account *a)
{
    /* Waits of a thread of the library are not shown. */
    if (a->mixed_ns > a->open_ns &&
        !(a->inside && a->open == SHUNTI_TRACK_WAITS))
        write_span(a, (int)a->open, names[a->open], a->open_ns, a->mixed_ns,
                   NULL);
    a->open_ns = a->mixed_ns;
}

/* Add `ns` on `track` behind the open span. */
static void append(struct account *a, enum shunti_track track, uint64_t ns)
{
    if (!ns)
        return;
    if (a->open != track) {
        write_open(a);
        a->open = track;
    }
    a->mixed_ns += ns;
}

static void put_together(struct account *a)
{
    const enum shunti_track first = a->open;

    append(a, first, a->mixed[first]);
    for (int t = 0; t < SHUNTI_TRACKS; t++)
        if (t != (int)first)
            append(a, (enum shunti_track)t, a->mixed[t]);
    memset(a->mixed, 0, sizeof(a->mixed));
}

/* End the current piece, and begin the next one. */
static void end_piece(struct account *a, uint64_t now)
{
    const uint64_t ns = now - a->since_ns;

    a->sum.ns[a->now] += ns;
    a->since_ns = now;
    if (ns >= LONG_NS) {
        put_together(a);
        append(a, a->now, ns);
        return;
    }
    a->mixed[a->now] += ns;
    if (now - a->mixed_ns >= MIXED_NS)
        put_together(a);
}

/* --- calls of the thread -------------------------------------------------- */

static void begin(int rank, const char *name, bool inside)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct account *a;

    if (mine || !shunti_tracked())
        return;
    pthread_once(&once, make_key);
    a = calloc(1, sizeof(*a));
    if (!a || !has_key || pthread_setspecific(key, a)) {
        free(a);
        return;
    }
    a->rank = rank;
    a->thread = shunti_trace_thread_id();
    a->inside = inside;
    a->now = a->open = inside ? SHUNTI_TRACK_WAITS : SHUNTI_TRACK_COMPUTE;
    a->began_ns = a->since_ns = a->mixed_ns = a->open_ns = shunti_now_ns();
    if (name)
        snprintf(a->name, sizeof(a->name), "%s", name);
    else if (a->thread == (long)getpid())
        snprintf(a->name, sizeof(a->name), "main");
    else
        snprintf(a->name, sizeof(a->name), "thread %ld", a->thread);
    snprintf(a->sum.name, sizeof(a->sum.name), "%s", a->name);
    mine = a;
}

void shunti_track_begin(int rank)
{
    begin(rank, NULL, false);
}

void shunti_track_begin_inside(int rank, const char *name)
{
    begin(rank, name, true);
}

enum shunti_track shunti_track_switch(enum shunti_track to)
{
    struct account *a = mine;
    enum shunti_track before;

    if (!a || to == SHUNTI_TRACK_NONE)
        return SHUNTI_TRACK_NONE;
    before = a->now;
    if (to != before) {
        end_piece(a, shunti_now_ns());
        a->now = to;
    }
    return before;
}

void shunti_track_undo(enum shunti_track back)
{
    if (mine && back != SHUNTI_TRACK_NONE)
        mine->now = back;
}

void shunti_track_wait(void)
{
    shunti_track_switch(SHUNTI_TRACK_WAITS);
}

void shunti_track_waited(void)
{
    if (mine && !mine->inside)
        shunti_track_switch(SHUNTI_TRACK_LIBRARY);
}

void shunti_copy_tracked(void *to, const void *from, size_t bytes)
{
    SHUNTI_TRACK(COPIES);
    shunti_copy(to, from, bytes);
}

void shunti_track_engine(uint64_t began_ns, size_t bytes)
{
    struct account *a = mine;
    const uint64_t now = shunti_now_ns();
    char args[48];

    if (!a)
        return;
    /* Copies in a queue overlap in time. Begin this one where the one before
     * ended. */
    if (began_ns < a->engine_ns)
        began_ns = a->engine_ns;
    a->engine_ns = now;
    snprintf(args, sizeof(args), "{\"bytes\":%zu}", bytes);
    write_span(a, ENGINE, "copy", began_ns, now, args);
}

uint64_t shunt_trace_begin(void)
{
    return shunti_tracked() ? shunti_now_ns() : 0;
}

void shunt_trace_end(const char *name, uint64_t began)
{
    if (!mine || !began || !name)
        return;
    if (began < mine->began_ns)
        began = mine->began_ns;
    write_span(mine, PROGRAM, name, began, shunti_now_ns(), NULL);
}

void shunti_track_flush(void)
{
    struct account *a = mine;

    if (!a)
        return;
    end_piece(a, shunti_now_ns());
    put_together(a);
    write_open(a);
}

void shunti_track_end(void)
{
    struct account *a = mine;

    if (!a)
        return;
    shunti_track_flush();
    if (!a->inside)
        shunti_summary_add_thread(shunti_trace_file_rank(a->rank), &a->sum);
    mine = NULL;
    pthread_setspecific(key, NULL);
    free(a);
}
