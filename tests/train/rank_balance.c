// SPDX-License-Identifier: Apache-2.0
/*
 * Training with --balance, compared with training without it on a single rank.
 * The bits must be the same, whatever moved.
 */
#include "tests/train/pair.h"

#include "train/exchange/exchange_shunt.h"
#include "train/step/checkpoint.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ten experts cannot be divided by 4 ranks. Every three steps other experts are
 * hot, so the prediction changes all the time. */
static struct options balanced(enum balance_how how)
{
    struct options o = pair_options();

    o.model.experts = 10;
    o.workload = WORKLOAD_W6;
    o.balance = (struct balance_config){
        .how = how,
        .every = 3,
        .slots = 2,
        .theta = 0.5,
        .gain = 0.08,
        .hot = 0.02,
        .above = 1.05,
    };
    return o;
}

/* One of seven experts has three of four rows, so ranks cannot be balanced
 * without a copy. Every three steps another expert is hot, so each expert is
 * tested. */
static void one_is_hot(struct options *o)
{
    o->balance.every = 1;
    o->model.experts = 7;
    o->model.topk = 1;
}

/* Have all ranks decided alike? */
static int alike(const struct rank *self, const struct balance *b)
{
    int32_t all[8 * 64];
    const size_t n = b->experts;

    CHECK((size_t)self->size * n <= sizeof(all) / sizeof(all[0]), "no room");
    for (size_t l = 0; l < b->layers; l++) {
        CHECK_TRAIN(
            team_gather(b->team, b->now[l].home, all, n * sizeof(*all)));
        for (int r = 0; r < self->size; r++)
            CHECK(memcmp(all, all + (size_t)r * n, n * sizeof(*all)) == 0,
                  "rank %d has other homes in layer %zu", r, l);
    }
    return 0;
}

/* Sums over some steps; `with` and `without` balance: the mean of the
 * imbalance. */
struct sum {
    double moved, moved_bytes, copies, with, without;
};

/* Steps with `o` must have the losses, gradients, weights and moments of steps
 * without balance. The ranks' rows must be more even. */
static int as_off(const struct rank *self, const struct options *o,
                  size_t steps, struct pair *p, struct sum *sum)
{
    *sum = (struct sum){0};
    CHECK_RUN(pair_begin(self, p, o));
    for (size_t step = 1; step <= steps; step++) {
        struct step_metrics m, a;
        char when[32];

        CHECK_TRAIN(trainer_step(&p->many, step, steps, false, &m));
        CHECK_TRAIN(trainer_step(&p->alone, step, steps, false, &a));
        snprintf(when, sizeof(when), "step %zu", step);
        CHECK(m.loss == a.loss && m.grad_norm == a.grad_norm,
              "%s: loss %.17g, off %.17g; norm %.17g, off %.17g", when, m.loss,
              a.loss, m.grad_norm, a.grad_norm);
        CHECK(m.moved == 0 || step % o->balance.every == 0, "%s: %g moved",
              when, m.moved);
        sum->moved += m.moved;
        sum->moved_bytes += m.moved_bytes;
        sum->copies += m.replicas;
        sum->with += m.rank_imbalance / (double)steps;
        sum->without += m.rank_imbalance_off / (double)steps;
        CHECK_RUN(alike(self, &p->many.balance));
        CHECK_TRAIN(balance_settle(&p->many.balance));
        CHECK_RUN(pair_compare(p, when));
    }
    CHECK(self->size == 1 || sum->with < sum->without,
          "max / mean is %g on average, off %g", sum->with, sum->without);
    return 0;
}

/* The expected load must be the moving average of the rows: theta times the
 * load that was expected before, and 1 - theta times the rows of the last
 * step. */
static int predicted_by_definition(const struct rank *self)
{
    const struct options o = balanced(BALANCE_REPLICAS);
    const double theta = o.balance.theta;
    const size_t all = o.batch * o.model.seq * o.model.topk;
    struct pair p;
    double want[2 * 8 * 10];
    bool varied = false;

    CHECK_RUN(pair_begin(self, &p, &o));
    const struct balance *b = &p.many.balance;
    const size_t each = (size_t)self->size * b->experts, n = b->layers * each;
    CHECK(n <= sizeof(want) / sizeof(want[0]), "no room for %zu", n);
    for (size_t step = 1; step <= 7; step++) {
        struct step_metrics m;

        CHECK_TRAIN(trainer_step(&p.many, step, 7, false, &m));
        for (size_t l = 0; l < b->layers; l++) {
            double rows = 0;

            for (size_t i = l * each; i < (l + 1) * each; i++) {
                const double came = b->rows[i];

                varied |= step > 1 && fabs(came - want[i]) > 1;
                want[i] =
                    step == 1 ? came : theta * want[i] + (1 - theta) * came;
                CHECK(fabs(b->predicted[i] - want[i]) <= 1e-9 * want[i],
                      "step %zu: %g rows expected, not %g", step,
                      b->predicted[i], want[i]);
                rows += came;
            }
            CHECK(rows == (double)all, "%g rows of layer %zu, not %zu", rows, l,
                  all);
        }
    }
    CHECK(varied, "the same rows came in each step");
    pair_end(&p);
    return 0;
}

/* Experts move often: a very small gain is enough. */
static int migrated_as_off(const struct rank *self)
{
    struct options o = balanced(BALANCE_MIGRATE);
    struct pair p;
    struct sum sum;

    o.workload = WORKLOAD_W2;
    o.balance.theta = 0;
    o.balance.gain = 0.001;
    CHECK_RUN(as_off(self, &o, 100, &p, &sum));
    const double size = (double)p.many.model.layout.expert_size;
    CHECK(sum.moved_bytes == sum.moved * size * 3 * sizeof(float),
          "%g bytes of %g experts that moved", sum.moved_bytes, sum.moved);
    CHECK(self->size == 1 ? sum.moved == 0 : sum.moved > 20, "%g experts moved",
          sum.moved);
    pair_end(&p);
    return 0;
}

/* Runs with copies, compared with `off`. Leaves are smaller than the share of a
 * copy. */
static int copied_as_off(const struct rank *self, enum balance_how how,
                         enum workload_kind workload, size_t micro_batches,
                         size_t accumulate, size_t leaf_rows, size_t steps,
                         bool moves)
{
    struct options o = balanced(how);
    struct pair p;
    struct sum sum;

    o.workload = workload;
    if (how == BALANCE_BOTH)
        one_is_hot(&o);
    o.micro_batches = micro_batches;
    o.accumulate = accumulate;
    o.balance.leaf_rows = leaf_rows;
    CHECK_RUN(as_off(self, &o, steps, &p, &sum));
    CHECK(self->size == 1 ? sum.copies == 0 : sum.copies > 30, "%g copies",
          sum.copies);
    CHECK(moves == (sum.moved > 0), "%g experts moved", sum.moved);
    pair_end(&p);
    return 0;
}

static int replicated_as_off(const struct rank *self)
{
    return copied_as_off(self, BALANCE_REPLICAS, WORKLOAD_W1, 1, 1, 4, 100,
                         false);
}

static int both_as_off(const struct rank *self)
{
    return copied_as_off(self, BALANCE_BOTH, WORKLOAD_W6, 1, 1, 4, 100,
                         self->size > 1);
}

/* The first case has large leaves, so an expert has only a few. */
static int by_batch_as_off(const struct rank *self)
{
    CHECK_RUN(copied_as_off(self, BALANCE_MICROBATCH, WORKLOAD_W1, 1, 1, 32, 20,
                            false));
    return copied_as_off(self, BALANCE_MICROBATCH, WORKLOAD_W6, 1, 1, 4, 100,
                         false);
}

/* A layer has several routings, whose sums must be added in the order of the
 * routings. */
static int micro_batches_as_off(const struct rank *self)
{
    CHECK_RUN(copied_as_off(self, BALANCE_MICROBATCH, WORKLOAD_W1,
                            self->size == 3 ? 1 : 3, 1, 4, 30, false));
    return copied_as_off(self, BALANCE_REPLICAS, WORKLOAD_W1, 1,
                         self->size == 3 ? 2 : 3, 4, 30, false);
}

/* Copies with waves: each wave divides its own rows over the copies, and each
 * copy has one sum of gradients. The first loss must be equal. Later losses,
 * and gradients, must be equal except for rounding. */
static int copies_in_waves(const struct rank *self)
{
    struct options o = balanced(BALANCE_REPLICAS);
    double copies = 0;
    struct pair p;

    o.workload = WORKLOAD_W1;
    o.balance.leaf_rows = 0;
    o.max_rows = o.batch * o.model.seq * o.model.topk / (size_t)self->size / 2;
    CHECK_RUN(pair_begin(self, &p, &o));
    for (size_t step = 1; step <= 8; step++) {
        struct step_metrics m, a;

        CHECK_TRAIN(trainer_step(&p.many, step, 8, false, &m));
        CHECK_TRAIN(trainer_step(&p.alone, step, 8, false, &a));
        CHECK(step == 1 ? m.loss == a.loss
                        : fabs(m.loss - a.loss) < 1e-4 * a.loss,
              "step %zu: loss %.17g, off %.17g", step, m.loss, a.loss);
        CHECK(fabs(m.grad_norm - a.grad_norm) < 1e-3 * a.grad_norm,
              "step %zu: norm %g, off %g", step, m.grad_norm, a.grad_norm);
        CHECK(m.waves > 0 && a.waves == 0, "step %zu: %g waves", step, m.waves);
        copies += m.replicas;
    }
    CHECK(copies > 0, "no copies");
    pair_end(&p);
    return 0;
}

/* Weights must be sent to each other node only once, however many copies that
 * node has. */
static int bytes_of_a_refresh(const struct rank *self)
{
    struct options o = balanced(BALANCE_REPLICAS);
    const size_t E = o.model.experts;
    struct shunt_comm_stats before, after;
    struct step_metrics m;
    struct pair p;
    double own, all[8], sum = 0, want = 0;

    o.workload = WORKLOAD_W1;
    o.balance.leaf_rows = 8;
    CHECK_RUN(pair_begin(self, &p, &o));
    struct balance *b = &p.many.balance;
    for (size_t step = 1; step <= 4; step++)
        CHECK_TRAIN(trainer_step(&p.many, step, 9, false, &m));
    CHECK_TRAIN(balance_settle(b));

    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &before, sizeof(before)));
    CHECK_TRAIN(balance_restore(b));
    CHECK_TRAIN(balance_settle(b));
    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &after, sizeof(after)));
    own = (double)(after.bytes_remote - before.bytes_remote);
    CHECK_TRAIN(team_gather(&p.all, &own, all, sizeof(own)));
    for (int r = 0; r < self->size; r++)
        sum += all[r];
    for (size_t l = 0; l < b->layers; l++)
        for (size_t e = 0; e < E; e++) {
            bool node[8] = {false};

            for (int r = 0; r < self->size; r++)
                if (places_has_copy(&b->now[l], e, r))
                    node[shunt_comm_node(self->comm, r)] = true;
            node[shunt_comm_node(self->comm, b->now[l].home[e])] = false;
            for (int n = 0; n < 8; n++)
                want += node[n] ? (double)p.many.model.layout.expert_size *
                                      sizeof(float)
                                : 0;
        }
    CHECK(sum == want && (want > 0) == (shunt_comm_nodes(self->comm) > 1),
          "%g bytes between nodes, not %g", sum, want);
    pair_end(&p);
    return 0;
}

/* A checkpoint after moves, loaded by equally many ranks with the same
 * placement, and by one rank without balance. The next steps must have the bits
 * of the run that continued. */
static int checkpoint_goes_on(const struct rank *self)
{
    struct options o = balanced(BALANCE_BOTH);
    struct checkpoint_info info = {7, 20, 77, 0}, found;
    struct checkpoint *c;
    struct pair p, q;
    struct step_metrics m, n;
    char path[64];

    o.balance.leaf_rows = 8;
    if (self->size == 4) /* layers share one shunt_moe, and change its
                            placement */
        CHECK_TRAIN(
            memory_parse(&o.memory_plan, "layer=recompute", o.model.layers));
    CHECK_RUN(pair_begin(self, &p, &o));
    CHECK_RUN(pair_folder(&p.all, path, sizeof(path)));
    p.o.checkpoint = path;
    for (size_t step = 1; step <= 7; step++)
        CHECK_TRAIN(trainer_step(&p.many, step, 20, false, &m));
    CHECK_TRAIN(trainer_save(&p.many, &info));

    CHECK_RUN(pair_begin(self, &q, &o));
    CHECK(checkpoint_open(&q.all, path, &c, &found) == 1, "%s",
          train_error_text());
    CHECK_TRAIN(trainer_load(&q.many, c));
    checkpoint_close(c);
    CHECK(checkpoint_open(&q.one, path, &c, &found) == 1, "%s",
          train_error_text());
    CHECK_TRAIN(trainer_load(&q.alone, c));
    checkpoint_close(c);
    for (size_t l = 0; l < q.many.balance.layers; l++)
        CHECK(places_equal(&p.many.balance.now[l], &q.many.balance.now[l]),
              "layer %zu has other places", l);
    CHECK(memcmp(p.many.balance.predicted, q.many.balance.predicted,
                 sizeof(double) * (size_t)self->size * 2 * 10) == 0,
          "other loads are expected");
    for (size_t step = 8; step <= 20; step++) {
        CHECK_TRAIN(trainer_step(&p.many, step, 20, false, &m));
        CHECK_TRAIN(trainer_step(&q.many, step, 20, false, &n));
        CHECK(m.loss == n.loss && m.grad_norm == n.grad_norm &&
                  m.moved == n.moved && m.replicas == n.replicas &&
                  m.rank_imbalance == n.rank_imbalance,
              "step %zu: %.17g, resumed %.17g; moved %g and %g", step, m.loss,
              n.loss, m.moved, n.moved);
        CHECK_TRAIN(trainer_step(&q.alone, step, 20, false, &n));
        CHECK(m.loss == n.loss, "step %zu: %.17g, resumed alone %.17g", step,
              m.loss, n.loss);
    }
    CHECK_RUN(pair_compare(&q, "resumed"));
    pair_end(&p);
    pair_end(&q);
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    if (self->rank == 0)
        pair_remove_folder(path);
    return 0;
}

/* --- kills ------------------------------------------------------------------------ */

/* The rank with the hot expert has about four times as many rows in a layer as
 * KILL_ROWS. */
enum { KILL_STEPS = 12, KILL_SAVED = 4, KILL_ROWS = 40 };

/* A rank kills itself at the n-th event, counted from 0. An event is that a
 * routing has been planned, or that its rows have arrived, while `what` is
 * under way. */
struct kill {
    const char *what; /* move, refresh, reduce or wave */
    int rank, n;
    const char *folder;
    struct balance *balance; /* its hooks are in `hooks`, and are called after
                                those of this file */
    struct exchange_hooks hooks;
};

static void maybe_die(struct kill *k, size_t routing)
{
    const struct balance *b = k->balance;
    const bool here = strcmp(k->what, "wave") == 0 ? true
                      : strcmp(k->what, "move") == 0
                          ? b->moving[routing % b->layers] != NULL
                      : strcmp(k->what, "reduce") == 0
                          ? b->reducing[routing % b->layers] != NULL
                          : b->refreshing[routing] != NULL;

    if (here && b->team->rank == k->rank && k->n-- == 0)
        raise(SIGKILL);
}

static int kill_planned(void *arg, size_t routing,
                        const struct shunt_moe_plan *plan)
{
    struct kill *k = arg;

    maybe_die(k, routing);
    return k->hooks.planned ? k->hooks.planned(k->hooks.arg, routing, plan) : 0;
}

static int kill_arrived(void *arg, size_t routing, enum exchange_call call)
{
    struct kill *k = arg;

    maybe_die(k, routing);
    return k->hooks.arrived ? k->hooks.arrived(k->hooks.arg, routing, call) : 0;
}

static int read_kill(const struct rank *self, struct kill *k)
{
    CHECK(self->argc == 4, "WHAT RANK N FOLDER are not given");
    *k = (struct kill){.what = self->argv[0],
                       .rank = atoi(self->argv[1]),
                       .n = atoi(self->argv[2]),
                       .folder = self->argv[3]};
    return 0;
}

static struct options to_kill(const struct kill *k)
{
    const bool wave = strcmp(k->what, "wave") == 0;
    const bool move = strcmp(k->what, "move") == 0;
    struct options o = balanced(wave   ? BALANCE_OFF
                                : move ? BALANCE_MIGRATE
                                       : BALANCE_BOTH);

    if (!move)
        one_is_hot(&o);
    o.balance.every = 1;
    o.balance.theta = 0;
    o.balance.gain = 0.001;
    o.balance.leaf_rows = 4;
    o.max_rows = wave ? KILL_ROWS : 0;
    o.checkpoint = k->folder;
    return o;
}

/* Writes a checkpoint. Some steps later a rank is killed, and every other rank
 * must report that. */
static int killed(const struct rank *self)
{
    struct checkpoint_info info = {KILL_SAVED, KILL_STEPS, 77, 0};
    struct step_metrics m;
    struct kill k;
    struct pair p;
    char name[32];
    int st = 0;

    CHECK_RUN(read_kill(self, &k));
    const struct options o = to_kill(&k);
    CHECK_RUN(pair_begin(self, &p, &o));
    for (size_t step = 1; step <= KILL_SAVED; step++)
        CHECK_TRAIN(trainer_step(&p.many, step, KILL_STEPS, false, &m));
    CHECK_TRAIN(trainer_save(&p.many, &info));
    k.balance = &p.many.balance;
    k.hooks = exchange_shunt_hook(
        p.many.exchange,
        &(struct exchange_hooks){NULL, kill_planned, kill_arrived, &k});
    for (size_t step = KILL_SAVED + 1; !st && step <= KILL_STEPS; step++)
        st = trainer_step(&p.many, step, KILL_STEPS, false, &m);
    snprintf(name, sizeof(name), "rank %d is lost", k.rank);
    CHECK(st == -1, "no %s was under way so often", k.what);
    CHECK(strstr(train_error_text(), name), "%s", train_error_text());
    pair_end(&p);
    return 0;
}

/* Continues from the checkpoint that killed() wrote. The bits must be those of
 * a run that was never interrupted. */
static int goes_on_after(const struct rank *self)
{
    struct checkpoint_info found;
    struct checkpoint *c;
    struct step_metrics m, a;
    struct kill k;
    struct pair p;

    CHECK_RUN(read_kill(self, &k));
    const struct options o = to_kill(&k);
    CHECK_RUN(pair_begin(self, &p, &o));
    CHECK(checkpoint_open(&p.all, k.folder, &c, &found) == 1, "%s",
          train_error_text());
    CHECK(found.step == KILL_SAVED, "of step %zu", found.step);
    CHECK_TRAIN(trainer_load(&p.many, c));
    checkpoint_close(c);
    for (size_t step = 1; step <= KILL_STEPS; step++) {
        CHECK_TRAIN(trainer_step(&p.alone, step, KILL_STEPS, false, &a));
        if (step <= KILL_SAVED)
            continue;
        CHECK_TRAIN(trainer_step(&p.many, step, KILL_STEPS, false, &m));
        CHECK((m.waves > 0) == (o.max_rows > 0), "%g waves", m.waves);
        CHECK(m.loss == a.loss && m.grad_norm == a.grad_norm,
              "step %zu: %.17g, uninterrupted %.17g", step, m.loss, a.loss);
        CHECK_TRAIN(balance_settle(&p.many.balance));
        CHECK_RUN(pair_compare(&p, "after a kill"));
    }
    pair_end(&p);
    return 0;
}

static const struct rank_case cases[] = {
    {.name = "predicted_by_definition", .run = predicted_by_definition},
    {.name = "migrated_as_off", .run = migrated_as_off},
    {.name = "replicated_as_off", .run = replicated_as_off},
    {.name = "both_as_off", .run = both_as_off},
    {.name = "by_batch_as_off", .run = by_batch_as_off},
    {.name = "micro_batches_as_off", .run = micro_batches_as_off},
    {.name = "copies_in_waves", .run = copies_in_waves},
    {.name = "bytes_of_a_refresh", .run = bytes_of_a_refresh},
    {.name = "checkpoint_goes_on", .run = checkpoint_goes_on},
    {.name = "killed",
     .run = killed,
     .breaks_comm = true,
     .no_threads = true,
     .min_ranks = 2},
    {.name = "goes_on_after", .run = goes_on_after, .no_threads = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
