// SPDX-License-Identifier: Apache-2.0
/* Machines, and the work of ranks; see machine.h. */
#include "perf/sim/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define US 1e-6
#define GB 1e9

static const struct scaling_machine machines[] = {
    {
        .name = "rails400",
        .about = "nodes of 8 accelerators, each with a 400 Gbit/s port; ports "
                 "with one index on all nodes are a rail, behind one switch; "
                 "full bandwidth between rails",
        .nic = 50 * GB,
        .latency = 3 * US,
        .latency_far = 4 * US,
        .post = 0.3 * US,
        .take = 0.2 * US,
        .inside = 150 * GB,
        .inside_latency = 1 * US,
        .inside_message = 0.2 * US,
        .copy = 1000 * GB,
    },
    {
        .name = "rails200",
        .about = "as rails400, with 200 Gbit/s ports, and a quarter of their "
                 "bandwidth between rails",
        .nic = 25 * GB,
        .latency = 3 * US,
        .latency_far = 4 * US,
        .taper = 4,
        .post = 0.3 * US,
        .take = 0.2 * US,
        .inside = 150 * GB,
        .inside_latency = 1 * US,
        .inside_message = 0.2 * US,
        .copy = 1000 * GB,
    },
    {
        .name = "ethernet25",
        .about = "8 processes of a host share memory and one 25 Gbit/s "
                 "Ethernet port; TCP",
        .nic = 3.125 * GB,
        .nic_of_node = true,
        .latency = 25 * US,
        .latency_far = 25 * US,
        .post = 3 * US,
        .take = 3 * US,
        .inside = 10 * GB,
        .inside_latency = 1 * US,
        .inside_message = 0.3 * US,
        .copy = 10 * GB,
    },
};

const struct scaling_machine *scaling_machine_at(int i)
{
    return i >= 0 && (size_t)i < sizeof(machines) / sizeof(*machines)
               ? &machines[i]
               : NULL;
}

const struct scaling_machine *scaling_machine_named(const char *name)
{
    const struct scaling_machine *m;

    for (int i = 0; (m = scaling_machine_at(i)); i++)
        if (!strcmp(m->name, name))
            return m;
    return NULL;
}

int scaling_port(const struct scaling_machine *m,
                 const struct scaling_topology *t, int rank)
{
    return m->nic_of_node ? t->node[rank] : rank;
}

int scaling_ports(const struct scaling_machine *m,
                  const struct scaling_topology *t)
{
    return m->nic_of_node ? t->nodes : t->ranks;
}

/* --- queues --------------------------------------------------------------- */

static void push(struct scaling_queue *q, int32_t op, bool arrived,
                 double ready)
{
    if (q->first && q->first == q->count)
        q->first = q->count = 0;
    if (q->count == q->max) {
        q->max = q->max ? 2 * q->max : 16;
        q->task = realloc(q->task, q->max * sizeof(*q->task));
        if (!q->task) {
            fprintf(stderr, "scaling: no memory for a queue\n");
            exit(3);
        }
    }
    q->task[q->count++] = (struct scaling_task){op, arrived, ready};
}

static bool is_empty(const struct scaling_queue *q)
{
    return q->first == q->count;
}

/* --- ranks ---------------------------------------------------------------- */

static const struct scaling_op *op_of(const struct scaling_world *w, int32_t op)
{
    return &w->schedule->ops[op];
}

static bool inside(const struct scaling_world *w, const struct scaling_op *op)
{
    const int *node = w->schedule->topology->node;

    return node[op->rank] == node[op->peer];
}

/* Queue an operation that may begin. */
static void start(struct scaling_world *w, int32_t i, double now)
{
    const struct scaling_op *op = op_of(w, i);
    struct scaling_rank *rank = &w->ranks[op->rank];

    push(op->peer >= 0 ? &rank->sends : &rank->local, i, false, now);
    if (rank->waits)
        w->engine->wake(w, op->rank);
}

void scaling_world_init(struct scaling_world *w,
                        const struct scaling_schedule *s,
                        const struct scaling_machine *machine, int window,
                        const struct scaling_engine *engine)
{
    const size_t ranks = (size_t)s->topology->ranks;

    *w = (struct scaling_world){
        .schedule = s,
        .machine = machine,
        .engine = engine,
        .window = window,
        .ranks = scaling_alloc(ranks * sizeof(*w->ranks)),
        .count = scaling_alloc(s->ncounters * sizeof(*w->count)),
    };
    for (size_t r = 0; r < ranks; r++)
        w->ranks[r].doing = -1;
    for (size_t i = 0; i < s->nops; i++) {
        w->ranks[s->ops[i].rank].todo++;
        if (s->ops[i].peer >= 0)
            w->ranks[s->ops[i].peer].todo++;
        if (!s->ops[i].waits)
            start(w, (int32_t)i, 0);
    }
    for (size_t r = 0; r < ranks; r++)
        w->open += w->ranks[r].todo > 0;
}

void scaling_world_finish(struct scaling_world *w)
{
    for (int r = 0; r < w->schedule->topology->ranks; r++) {
        free(w->ranks[r].sends.task);
        free(w->ranks[r].local.task);
    }
    free(w->ranks);
    free(w->count);
}

/* Complete an operation and start those that wait for it. */
static void complete(struct scaling_world *w, const struct scaling_op *op,
                     double now)
{
    const struct scaling_counter *c;

    if (op->then >= 0)
        start(w, op->then, now);
    if (op->counter < 0)
        return;
    c = &w->schedule->counters[op->counter];
    if (++w->count[op->counter] == c->need)
        for (int32_t i = 0; i < c->nops; i++)
            start(w, c->first + i, now);
}

/* Simulate copies between this rank and neighbours. The memory of a neighbour
 * serves all ranks of its node one after the other. Returns the time at which
 * the copies end. */
static double move(struct scaling_world *w, const struct scaling_op *op,
                   double now)
{
    const double rate = w->machine->inside;
    double mine = now, last = now;

    for (uint32_t i = 0; i < op->nparts; i++) {
        const struct scaling_part *p = &w->schedule->parts[op->part + i];
        double *theirs = &w->ranks[p->rank].inside;

        mine += p->bytes / rate;
        *theirs = fmax(*theirs, now) + p->bytes / rate;
        last = fmax(last, *theirs);
    }
    return fmax(mine, last);
}

/* Begin an operation on `rank`: the sender's part of the work. */
static void begin(struct scaling_world *w, int rank, int32_t i)
{
    const struct scaling_machine *m = w->machine;
    const struct scaling_op *op = op_of(w, i);
    struct scaling_rank *me = &w->ranks[rank];

    me->doing = i;
    me->free = move(w, op, me->free + op->local / m->copy);
    if (op->peer >= 0)
        me->free += inside(w, op) ? m->inside_message : m->post;
}

/* End the work that begin() started. */
static void leave(struct scaling_world *w, int rank)
{
    struct scaling_rank *me = &w->ranks[rank];
    const int32_t i = me->doing;
    const struct scaling_op *op = op_of(w, i);

    me->doing = -1;
    if (op->peer < 0) {
        complete(w, op, me->free);
    } else if (inside(w, op)) {
        struct scaling_rank *peer = &w->ranks[op->peer];

        push(&peer->local, i, true, me->free + w->machine->inside_latency);
        if (peer->waits)
            w->engine->wake(w, op->peer);
    } else {
        me->in_flight++;
        w->engine->send(w, i);
    }
}

/* Let `rank` receive the message of operation `i`, which has arrived. */
static void take(struct scaling_world *w, int rank, int32_t i)
{
    const struct scaling_machine *m = w->machine;
    const struct scaling_op *op = op_of(w, i);
    struct scaling_rank *me = &w->ranks[rank];

    if (inside(w, op))
        me->free += m->inside_message + (double)op->bytes / m->inside;
    else
        me->free += m->take;
    me->free += op->unpack / m->copy;
    complete(w, op, me->free);
}

void scaling_arrived(struct scaling_world *w, int32_t i, double now)
{
    const struct scaling_op *op = op_of(w, i);
    struct scaling_rank *from = &w->ranks[op->rank];

    from->in_flight--;
    if (from->waits && !is_empty(&from->sends))
        w->engine->wake(w, op->rank);
    push(&w->ranks[op->peer].local, i, true, now);
    if (w->ranks[op->peer].waits)
        w->engine->wake(w, op->peer);
}

static bool can_send(const struct scaling_world *w,
                     const struct scaling_rank *me)
{
    if (is_empty(&me->sends))
        return false;
    return me->in_flight < w->window ||
           inside(w, op_of(w, me->sends.task[me->sends.first].op));
}

/* Choose and begin the next operation. Returns false if none can begin before
 * *ready. */
static bool choose(struct scaling_world *w, int rank, double *ready)
{
    struct scaling_rank *me = &w->ranks[rank];
    bool send = can_send(w, me), local = false;
    struct scaling_task task;

    *ready = INFINITY;
    if (!is_empty(&me->local)) {
        *ready = me->local.task[me->local.first].ready;
        local = *ready <= me->free;
    }
    if (!send && !local)
        return false;
    if (send && !(local && me->local_turn)) {
        me->local_turn = true;
        begin(w, rank, me->sends.task[me->sends.first++].op);
        return true;
    }
    me->local_turn = false;
    task = me->local.task[me->local.first++];
    if (task.arrived)
        take(w, rank, task.op);
    else
        begin(w, rank, task.op);
    return true;
}

double scaling_step(struct scaling_world *w, int rank, double now)
{
    struct scaling_rank *me = &w->ranks[rank];

    me->waits = false;
    while (me->todo) {
        double ready;

        if (me->free > now + w->tick)
            return me->free;
        if (me->doing >= 0) {
            leave(w, rank);
        } else {
            if (me->free < now)
                me->free = now;
            if (!choose(w, rank, &ready)) {
                if (me->free > now)
                    return me->free;
                me->waits = true;
                return ready;
            }
            if (me->doing >= 0)
                continue;
        }
        if (!--me->todo) {
            w->open--;
            w->end = fmax(w->end, me->free);
        }
    }
    return INFINITY;
}

/* --- bounds --------------------------------------------------------------- */

/* Add an operation's time to the work of both ranks. */
static void add_work(const struct scaling_schedule *s,
                     const struct scaling_machine *m,
                     const struct scaling_op *op, double *work)
{
    const int *node = s->topology->node;

    work[op->rank] += op->local / m->copy;
    for (uint32_t p = 0; p < op->nparts; p++)
        work[op->rank] += s->parts[op->part + p].bytes / m->inside;
    if (op->peer < 0)
        return;
    if (node[op->peer] == node[op->rank]) {
        work[op->rank] += m->inside_message;
        work[op->peer] += m->inside_message + (double)op->bytes / m->inside;
    } else {
        work[op->rank] += m->post;
        work[op->peer] += m->take;
    }
    work[op->peer] += op->unpack / m->copy;
}

static void add_bytes(const struct scaling_schedule *s,
                      const struct scaling_machine *m,
                      const struct scaling_op *op, double *out, double *in)
{
    const struct scaling_topology *t = s->topology;
    double seconds = (double)op->bytes * m->taper / (m->nic * t->nodes);

    if (op->peer < 0 || t->node[op->peer] == t->node[op->rank] ||
        t->local[op->peer] == t->local[op->rank])
        return;
    out[t->local[op->rank]] += seconds;
    in[t->local[op->peer]] += seconds;
}

static double most(double before, const double *seconds, int n)
{
    for (int i = 0; i < n; i++)
        before = fmax(before, seconds[i]);
    return before;
}

void scaling_bound(const struct scaling_schedule *s,
                   const struct scaling_machine *m,
                   struct scaling_bounds *bounds)
{
    const struct scaling_topology *t = s->topology;
    const size_t ranks = (size_t)t->ranks;
    double *out = scaling_alloc(ranks * sizeof(*out));
    double *in = scaling_alloc(ranks * sizeof(*in));
    double *work = scaling_alloc(ranks * sizeof(*work));

    *bounds = (struct scaling_bounds){0};
    for (int r = 0; r < t->ranks; r++) {
        out[scaling_port(m, t, r)] += (double)s->traffic[r].wire / m->nic;
        in[scaling_port(m, t, r)] += (double)s->traffic[r].received / m->nic;
    }
    bounds->port = most(most(0, out, t->ranks), in, t->ranks);
    memset(out, 0, ranks * sizeof(*out));
    memset(in, 0, ranks * sizeof(*in));
    for (size_t i = 0; i < s->nops; i++) {
        add_work(s, m, &s->ops[i], work);
        if (scaling_has_rails(m))
            add_bytes(s, m, &s->ops[i], out, in);
    }
    bounds->rails = most(most(0, out, t->ranks), in, t->ranks);
    bounds->rank = most(0, work, t->ranks);
    free(out);
    free(in);
    free(work);
}
