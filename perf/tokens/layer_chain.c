// SPDX-License-Identifier: Apache-2.0
/* Chains of layers; see layer_chain.h. */
#include "perf/tokens/layer_chain.h"

#include <stdio.h>
#include <string.h>

enum { NONE = SCHEDULE_NONE };

/* The operations: the operation that each one needs (`after`, `of_last`), and
 * the exchanges that it waits for and sends; see schedule.h. `after` holds
 * values of enum layer_op, `waits` and `sends` of enum layer_exchange. add_op()
 * turns these into numbers of parts. */
static const struct {
    const char *name;
    int after;
    bool of_last;
    int waits, sends;
} ops[LAYER_OPS] = {
    [LAYER_ATTN_F] = {"attn_f", NONE, false, LAYER_COMBINE_F, LAYER_DISPATCH_F},
    [LAYER_SHARED_F] = {"shared_f", LAYER_ATTN_F, false, NONE, NONE},
    [LAYER_MLP_F] = {"mlp_f", LAYER_ATTN_F, false, LAYER_DISPATCH_F,
                     LAYER_COMBINE_F},
    [LAYER_MLP_B] = {"mlp_b", NONE, false, LAYER_COMBINE_B, LAYER_DISPATCH_B},
    [LAYER_MLP_DW] = {"mlp_dw", LAYER_MLP_B, false, NONE, NONE},
    [LAYER_SHARED_B] = {"shared_b", LAYER_ATTN_B, true, NONE, NONE},
    [LAYER_SHARED_DW] = {"shared_dw", LAYER_SHARED_B, false, NONE, NONE},
    [LAYER_ATTN_B] = {"attn_b", LAYER_MLP_B, false, LAYER_DISPATCH_B,
                      LAYER_COMBINE_B},
    [LAYER_ATTN_DW] = {"attn_dw", LAYER_ATTN_B, false, NONE, NONE},
};

/* Forward, then backward. If an operation can run during an exchange, it
 * precedes the operation that waits for the exchange. */
static const enum layer_op serial[] = {
    LAYER_ATTN_F, LAYER_SHARED_F, LAYER_MLP_F,  LAYER_SHARED_B, LAYER_SHARED_DW,
    LAYER_MLP_B,  LAYER_MLP_DW,   LAYER_ATTN_B, LAYER_ATTN_DW,
};

/* The order of DualPipe. combine_b runs during attn_f, dispatch_f and
 * dispatch_b during mlp_b, mlp_dw and mlp_f, and combine_f during attn_b. The
 * shared expert runs as soon as its input is ready. */
static const enum layer_op paper[] = {
    LAYER_ATTN_F, LAYER_SHARED_F, LAYER_SHARED_B, LAYER_SHARED_DW, LAYER_MLP_B,
    LAYER_MLP_DW, LAYER_MLP_F,    LAYER_ATTN_B,   LAYER_ATTN_DW,
};

static bool is_forward(enum layer_op op)
{
    return op <= LAYER_MLP_F;
}

/* --- programs ------------------------------------------------------------- */

static bool has_parts(enum layer_op op)
{
    return op == LAYER_MLP_F || op == LAYER_MLP_B;
}

/* Returns the last part of operation `op` in the cycle, or NONE. */
static int number_of(const struct layer_pass *p, int op)
{
    for (int i = p->cycle.ops - 1; i >= 0; i--)
        if ((int)p->op[i] == op)
            return i;
    return NONE;
}

/* Add operation `op`, or one of its parts. An operation without parts waits for
 * all parts of its exchange. When it ends, it starts all parts of the next
 * exchange at once. */
static void add_op(struct layer_pass *p, enum layer_op op, int part, int parts)
{
    const int i = p->cycle.ops++;
    const bool one = has_parts(op);
    struct schedule_op *at = &p->cycle.op[i];

    p->op[i] = op;
    p->part[i] = parts > 1 && one ? part : LAYER_WHOLE;
    *at = (struct schedule_op){
        .name = ops[op].name,
        .after = ops[op].after,
        .of_last = ops[op].of_last,
        .behind = part ? i - 1 : NONE,
        .waits = ops[op].waits == NONE
                     ? NONE
                     : ops[op].waits * parts + (one ? part : parts - 1),
        .sends = ops[op].sends * parts + (one ? part : 0),
        .nsends = ops[op].sends == NONE ? 0
                  : one                 ? 1
                                        : parts,
    };
}

static void finish_pass(struct layer_pass *p, int parts)
{
    const int experts = number_of(p, LAYER_MLP_B);
    struct schedule_cycle *c = &p->cycle;

    for (int i = 0; i < c->ops; i++)
        if (c->op[i].after != NONE)
            c->op[i].after = number_of(p, c->op[i].after);
    c->exchanges = LAYER_EXCHANGES * parts;
    for (int i = 0; i < parts && experts != NONE; i++)
        c->exchange[LAYER_COMBINE_B * parts + i].first = true;
    /* mlp_dw and attn_b come after the last part of mlp_b: they read what mlp_b
     * wrote, and the next layer's first part of mlp_b overwrites that. */
    for (int i = 0; i < c->ops && parts > 1 && experts != NONE; i++)
        if (p->op[i] == LAYER_MLP_DW || p->op[i] == LAYER_ATTN_B)
            c->op[i].behind = experts;
}

struct layer_program layer_program(int micro_batches, int parts)
{
    struct layer_program program = {.passes = micro_batches == 1 ? 2 : 1,
                                    .parts = parts};

    for (int op = 0; op < LAYER_OPS; op++)
        for (int i = 0; i < (has_parts((enum layer_op)op) ? parts : 1); i++)
            add_op(&program.pass[is_forward((enum layer_op)op)
                                     ? 0
                                     : program.passes - 1],
                   (enum layer_op)op, i, parts);
    for (int i = 0; i < program.passes; i++)
        finish_pass(&program.pass[i], parts);
    layer_program_order(&program, PERF_ORDER_SERIAL);
    return program;
}

void layer_program_times(struct layer_program *program,
                         const struct layer_times *times, double compute,
                         double communicate)
{
    double ops_sum = 0, exchanges_sum = 0;

    for (int i = 0; i < LAYER_OPS; i++)
        ops_sum += times->op[i];
    for (int i = 0; i < LAYER_EXCHANGES; i++)
        exchanges_sum += times->exchange[i];
    for (int i = 0; i < program->passes; i++) {
        struct layer_pass *p = &program->pass[i];

        for (int op = 0; op < p->cycle.ops; op++)
            p->cycle.op[op].time = times->op[p->op[op]] * compute / ops_sum /
                                   (has_parts(p->op[op]) ? program->parts : 1);
        for (int x = 0; x < p->cycle.exchanges; x++)
            p->cycle.exchange[x].time = times->exchange[x / program->parts] *
                                        communicate / exchanges_sum /
                                        program->parts;
    }
}

/* Returns the order of the operations in this pass as `order` lists them. */
static struct schedule_order fixed(const struct layer_pass *p,
                                   const enum layer_op *order)
{
    int op[SCHEDULE_OPS], n = 0;

    for (int i = 0; i < LAYER_OPS; i++)
        for (int j = 0; j < p->cycle.ops; j++)
            if (p->op[j] == order[i])
                op[n++] = j;
    return schedule_order_of(&p->cycle, op);
}

void layer_program_order(struct layer_program *program, enum perf_order order)
{
    for (int i = 0; i < program->passes; i++) {
        struct layer_pass *p = &program->pass[i];

        p->order = order == PERF_ORDER_SEARCH  ? schedule_search(&p->cycle)
                   : order == PERF_ORDER_PAPER ? fixed(p, paper)
                                               : fixed(p, serial);
    }
}

double layer_program_time(const struct layer_program *program, int layers)
{
    double sum = 0;

    for (int i = 0; i < program->passes; i++)
        sum += schedule_time(&program->pass[i].cycle, &program->pass[i].order,
                             layers);
    return sum / layers;
}

const char *layer_program_text(const struct layer_program *program)
{
    static char text[256];
    size_t n = 0;

    text[0] = '\0';
    for (int i = 0; i < program->passes; i++) {
        const struct layer_pass *p = &program->pass[i];

        for (int op = 0; op < p->order.ops; op++)
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s",
                                  op  ? " "
                                  : i ? " | "
                                      : "",
                                  p->cycle.op[p->order.op[op]].name);
    }
    return text;
}

/* --- chains --------------------------------------------------------------- */

struct chain {
    struct layer *layer;
    int parts;
    enum layer_mode mode;
    struct layer_times *times;
};

/* Returns the exchange whose part has this number in the cycle. */
static enum layer_exchange kind(const struct chain *c, int exchange)
{
    return (enum layer_exchange)(exchange / c->parts);
}

static int part(const struct chain *c, int exchange)
{
    return c->parts > 1 ? exchange % c->parts : LAYER_WHOLE;
}

static void wait_for(struct chain *c, int exchange)
{
    const double start = perf_now_us();

    layer_wait(c->layer, kind(c, exchange), part(c, exchange));
    c->times->waited[kind(c, exchange)] += perf_now_us() - start;
}

static void send(struct chain *c, int exchange, int layer)
{
    const double start = perf_now_us();

    if (c->mode == LAYER_COMPUTE)
        return;
    layer_start(c->layer, kind(c, exchange), part(c, exchange), layer);
    if (c->mode == LAYER_OVERLAP) {
        c->times->started += perf_now_us() - start;
        return;
    }
    layer_wait(c->layer, kind(c, exchange), part(c, exchange));
    c->times->exchange[kind(c, exchange)] += perf_now_us() - start;
}

static void compute(struct chain *c, enum layer_op op, int of_it, int layer)
{
    const double start = perf_now_us();

    if (c->mode == LAYER_EXCHANGE)
        return;
    layer_compute(c->layer, op, of_it, layer);
    c->times->op[op] += perf_now_us() - start;
}

/* Wait for the exchange that an operation needs: one part, or all. */
static void wait_before(struct chain *c, const struct layer_pass *p, int op)
{
    const int last = p->cycle.op[op].waits;

    if (last == NONE || c->mode != LAYER_OVERLAP)
        return;
    for (int x = has_parts(p->op[op]) ? last : last - c->parts + 1; x <= last;
         x++)
        wait_for(c, x);
}

static void run_round(struct chain *c, const struct layer_pass *p, int round,
                      int layers)
{
    for (int i = 0; i < p->order.ops; i++) {
        const struct schedule_op *op = &p->cycle.op[p->order.op[i]];
        const int layer = round - p->order.lag[i];

        if (layer < 0 || layer >= layers)
            continue;
        wait_before(c, p, p->order.op[i]);
        compute(c, p->op[p->order.op[i]], p->part[p->order.op[i]], layer);
        for (int x = op->sends; x < op->sends + op->nsends; x++) {
            const bool next = p->cycle.exchange[x].first;

            if (!next || layer + 1 < layers)
                send(c, x, layer + next);
        }
    }
}

static void run_pass(struct chain *c, const struct layer_pass *p, int layers)
{
    int least, greatest;

    schedule_lags(&p->order, &least, &greatest);
    for (int x = 0; x < p->cycle.exchanges; x++)
        if (p->cycle.exchange[x].first)
            send(c, x, 0);
    for (int r = least; r < layers + greatest; r++)
        run_round(c, p, r, layers);
    for (int x = 0; x < p->cycle.exchanges && c->mode == LAYER_OVERLAP; x++)
        wait_for(c, x);
}

void layer_chain(struct layer *layer, const struct layer_program *program,
                 int layers, enum layer_mode mode, struct layer_times *times)
{
    struct chain c = {layer, program->parts, mode, times};

    for (int i = 0; i < program->passes; i++)
        run_pass(&c, &program->pass[i], layers);
}
