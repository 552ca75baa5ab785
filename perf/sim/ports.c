// SPDX-License-Identifier: Apache-2.0
/*
 * The network as ports that serve one message at a time. Each port sends
 * messages in the order they are given to it, and receives in the order of
 * arrival. Between rails, all ranks of a rail share one port up and one port
 * down. Nowhere else does a message wait for another one. A message begins to
 * arrive before its last byte has left.
 */
#include "perf/sim/machine.h"

#include <math.h>
#include <stdlib.h>

enum kind { STEP, GOING_UP, GOING_DOWN, AT_DESTINATION, ARRIVED };

struct event {
    double time;
    uint64_t number; /* orders events of equal time: by creation */
    int32_t what;    /* rank or operation */
    uint32_t kind;
};

struct ports {
    struct event *heap;
    size_t count, max;
    uint64_t made;
    double now;
    double *out, *in;  /* (ports) when each port is free */
    double *up, *down; /* (rails) when each rail's shared port is free */
    double *planned;   /* (ranks) time of the next step; INFINITY: none */
};

/* --- events --------------------------------------------------------------- */

static bool before(const struct event *a, const struct event *b)
{
    return a->time < b->time || (a->time == b->time && a->number < b->number);
}

static void add(struct ports *x, double time, enum kind kind, int32_t what)
{
    struct event e = {time, x->made++, what, kind};
    size_t i;

    if (x->count == x->max) {
        x->max = x->max ? 2 * x->max : 1024;
        x->heap = realloc(x->heap, x->max * sizeof(*x->heap));
        if (!x->heap)
            exit(3);
    }
    for (i = x->count++; i && before(&e, &x->heap[(i - 1) / 2]);
         i = (i - 1) / 2)
        x->heap[i] = x->heap[(i - 1) / 2];
    x->heap[i] = e;
}

static struct event take_first(struct ports *x)
{
    struct event first = x->heap[0], last = x->heap[--x->count];
    size_t i = 0, child;

    for (; (child = 2 * i + 1) < x->count; i = child) {
        if (child + 1 < x->count &&
            before(&x->heap[child + 1], &x->heap[child]))
            child++;
        if (!before(&x->heap[child], &last))
            break;
        x->heap[i] = x->heap[child];
    }
    x->heap[i] = last;
    return first;
}

/* --- messages ------------------------------------------------------------- */

static double serve(double *free_at, double now, double seconds)
{
    double begin = fmax(*free_at, now);

    *free_at = begin + seconds;
    return begin;
}

static bool crosses(const struct scaling_world *w, const struct scaling_op *op)
{
    const int *local = w->schedule->topology->local;

    return scaling_has_rails(w->machine) && local[op->rank] != local[op->peer];
}

static void send(struct scaling_world *w, int32_t i)
{
    const struct scaling_op *op = &w->schedule->ops[i];
    const struct scaling_machine *m = w->machine;
    struct ports *x = w->own;
    int port = scaling_port(m, w->schedule->topology, op->rank);
    double begin = serve(&x->out[port], x->now, (double)op->bytes / m->nic);

    if (crosses(w, op) && m->taper > 0)
        add(x, begin + m->latency / 2, GOING_UP, i);
    else
        add(x, begin + (crosses(w, op) ? m->latency_far : m->latency),
            AT_DESTINATION, i);
}

/* Returns the time of a message between rails, whose links together are slower
 * than their ports by the factor `taper`. */
static double between_rails(const struct scaling_world *w,
                            const struct scaling_op *op)
{
    const struct scaling_machine *m = w->machine;

    return (double)op->bytes * m->taper /
           (m->nic * (double)w->schedule->topology->nodes);
}

static void going_up(struct scaling_world *w, int32_t i, double now)
{
    const struct scaling_op *op = &w->schedule->ops[i];
    struct ports *x = w->own;
    double *up = &x->up[w->schedule->topology->local[op->rank]];

    add(x, serve(up, now, between_rails(w, op)), GOING_DOWN, i);
}

static void going_down(struct scaling_world *w, int32_t i, double now)
{
    const struct scaling_op *op = &w->schedule->ops[i];
    const struct scaling_machine *m = w->machine;
    struct ports *x = w->own;
    double *down = &x->down[w->schedule->topology->local[op->peer]];

    add(x,
        serve(down, now, between_rails(w, op)) + m->latency_far -
            m->latency / 2,
        AT_DESTINATION, i);
}

static void at_destination(struct scaling_world *w, int32_t i, double now)
{
    const struct scaling_op *op = &w->schedule->ops[i];
    struct ports *x = w->own;
    int port = scaling_port(w->machine, w->schedule->topology, op->peer);
    double seconds = (double)op->bytes / w->machine->nic;

    add(x, serve(&x->in[port], now, seconds) + seconds, ARRIVED, i);
}

static void plan(struct scaling_world *w, int rank, double time)
{
    struct ports *x = w->own;

    if (time >= x->planned[rank])
        return;
    x->planned[rank] = time;
    add(x, time, STEP, rank);
}

static void wake(struct scaling_world *w, int rank)
{
    plan(w, rank, ((struct ports *)w->own)->now);
}

double scaling_run_ports(const struct scaling_schedule *schedule,
                         const struct scaling_machine *machine, int window)
{
    static const struct scaling_engine engine = {send, wake};
    const struct scaling_topology *t = schedule->topology;
    const size_t ports = (size_t)scaling_ports(machine, t);
    const size_t ranks = (size_t)t->ranks;
    struct scaling_world w;
    struct ports x = {
        .out = scaling_alloc(ports * sizeof(double)),
        .in = scaling_alloc(ports * sizeof(double)),
        .up = scaling_alloc(ranks * sizeof(double)),
        .down = scaling_alloc(ranks * sizeof(double)),
        .planned = scaling_alloc(ranks * sizeof(double)),
    };

    scaling_world_init(&w, schedule, machine, window, &engine);
    w.own = &x;
    for (size_t r = 0; r < ranks; r++) {
        x.planned[r] = INFINITY;
        plan(&w, (int)r, 0);
    }
    while (x.count) {
        struct event e = take_first(&x);

        x.now = e.time;
        if (e.kind == GOING_UP) {
            going_up(&w, e.what, e.time);
        } else if (e.kind == GOING_DOWN) {
            going_down(&w, e.what, e.time);
        } else if (e.kind == AT_DESTINATION) {
            at_destination(&w, e.what, e.time);
        } else if (e.kind == ARRIVED) {
            scaling_arrived(&w, e.what, e.time);
        } else if (x.planned[e.what] == e.time) {
            double next;

            x.planned[e.what] = INFINITY;
            next = scaling_step(&w, e.what, e.time);
            if (next < INFINITY)
                plan(&w, e.what, next);
        }
    }
    free(x.heap);
    free(x.out);
    free(x.in);
    free(x.up);
    free(x.down);
    free(x.planned);
    scaling_world_finish(&w);
    return w.open ? NAN : w.end;
}
