// SPDX-License-Identifier: Apache-2.0
/*
 * Memory tiers. A trainer that does not keep its activations is compared bit by
 * bit with one that does, on the same ranks. The bytes that it holds are
 * compared with formulas.
 */
#include "tests/train/pair.h"
#include "train/exchange/exchange_shunt.h"
#include "train/memory/memory.h"

#include <shunt/moe_waves.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two trainers on the same ranks. */
struct two {
    struct team team;
    struct data data;
    struct options o[2];
    struct trainer t[2];
};

/* Four layers, so that slots are used more than once. */
static struct options four_layers(void)
{
    struct options o = pair_options();

    o.model.layers = 4;
    o.shares = 12;
    o.overlap = true;
    return o;
}

static int plan_of(struct options *o, const char *tiers)
{
    memset(&o->memory_plan, 0, sizeof(o->memory_plan));
    o->memory_plan.above = o->recompute_above;
    o->memory_plan.budget = o->activation_budget;
    return tiers ? memory_parse(&o->memory_plan, tiers, o->model.layers) : 0;
}

/* Creates trainer number `which`, with these tiers. Collective. */
static int create(const struct rank *self, struct two *two, int which,
                  const struct options *o, const char *tiers)
{
    two->o[which] = *o;
    two->team = (struct team){
        .comm = self->comm, .rank = self->rank, .size = self->size};
    two->o[which].nodes = team_nodes(&two->team);
    CHECK_TRAIN(plan_of(&two->o[which], tiers));
    CHECK_TRAIN(
        trainer_create(&two->t[which], &two->o[which], &two->team, &two->data));
    return 0;
}

static bool same_params(const struct params *a, const struct params *b)
{
    size_t rank, slice;

    if (!a->length || a->length != b->length)
        return a->length == b->length;
    rank = (size_t)a->team->rank;
    slice = (a->begin[rank + 1] - a->begin[rank]) * sizeof(float);
    return !memcmp(a->w, b->w, a->length * sizeof(float)) &&
           !memcmp(a->slice_grad, b->slice_grad, slice) &&
           !memcmp(a->v, b->v, slice);
}

static int compare(const struct two *two, const char *when)
{
    const struct trainer *a = &two->t[0], *b = &two->t[1];

    CHECK(same_params(&a->dense, &b->dense), "%s: dense", when);
    CHECK(same_params(&a->shard, &b->shard), "%s: shards", when);
    CHECK(same_params(&a->expert, &b->expert), "%s: experts", when);
    return 0;
}

/* Compares steps of both trainers. two->t[1] has the tiers. *last: the metrics
 * of its last step. */
static int steps_are_same(struct two *two, const char *when,
                          struct step_metrics *last)
{
    for (size_t step = 1; step <= 2; step++) {
        struct step_metrics keep;
        CHECK_TRAIN(trainer_step(&two->t[0], step, 2, false, &keep));
        CHECK_TRAIN(trainer_step(&two->t[1], step, 2, false, last));
        CHECK(keep.loss == last->loss && keep.grad_norm == last->grad_norm &&
                  keep.balance == last->balance && keep.zloss == last->zloss &&
                  keep.imbalance == last->imbalance &&
                  keep.dropped == last->dropped,
              "%s, step %zu: loss %.17g, kept %.17g", when, step, last->loss,
              keep.loss);
        CHECK_RUN(compare(two, when));
    }
    return 0;
}

static int validations_are_same(struct two *two, const char *when)
{
    double a[HELD], b[HELD], dropped;

    CHECK_TRAIN(trainer_validate(&two->t[0], a, &dropped));
    CHECK_TRAIN(trainer_validate(&two->t[1], b, &dropped));
    CHECK(memcmp(a, b, sizeof(a)) == 0, "%s: validation %.17g", when, b[0]);
    return 0;
}

static int same_with(const struct rank *self, const struct options *o,
                     const char *tiers)
{
    struct two two = {0};
    struct step_metrics m;

    pair_text(&two.data);
    CHECK_RUN(create(self, &two, 0, o, NULL));
    CHECK_RUN(create(self, &two, 1, o, tiers));
    CHECK_RUN(steps_are_same(&two, tiers, &m));
    CHECK_RUN(validations_are_same(&two, tiers));
    trainer_destroy(&two.t[0]);
    trainer_destroy(&two.t[1]);
    data_free(&two.data);
    return 0;
}

static const char *const all_tiers[] = {
    "norm=recompute",
    "attention=recompute",
    "residual=recompute",
    "router=recompute",
    "expert=recompute",
    "activation=recompute",
    "rows=recompute",
    "layer=recompute",
    "layer=recompute,input=offload",
    "layer=offload",
    "1:layer=recompute,2-3:expert=offload,0:attention=offload,3:rows=recompute",
};
enum { TIERS = sizeof(all_tiers) / sizeof(all_tiers[0]) };

static int each_tier(const struct rank *self)
{
    struct options o = four_layers();

    o.model.bias_rate = 0.05f; /* the bias must not change before backward has
                                  chosen experts again */
    for (int i = 0; i < TIERS; i++)
        CHECK_RUN(same_with(self, &o, all_tiers[i]));
    return 0;
}

/* A gate with random numbers, layers without experts, and several parts of the
 * batch, each in micro-batches. Loads are known only after a first forward pass
 * of all parts. */
static int noise_and_parts(const struct rank *self)
{
    struct options o = four_layers();

    o.model.layers = 5;
    o.model.first_dense = 1;
    o.model.moe_every = 2;
    o.model.dense_hidden = 10;
    o.model.gate.kind = GATE_NOISY;
    o.batch = 48;
    o.accumulate = o.micro_batches = 2;
    for (int i = 5; i < TIERS; i += 2)
        CHECK_RUN(same_with(self, &o, all_tiers[i]));
    o.model.gate.kind = GATE_GSHARD;
    o.model.topk = 2;
    CHECK_RUN(same_with(self, &o, "layer=recompute"));
    return 0;
}

static int bf16_rows(const struct rank *self)
{
    struct options o = four_layers();

    o.bf16 = true;
    CHECK_RUN(same_with(self, &o, "layer=recompute"));
    return same_with(self, &o, "rows=offload:/tmp");
}

/* All ranks of a group gather rows again. */
static int groups(const struct rank *self)
{
    struct options o = four_layers();

    o.tp = o.tp_sums = 2;
    CHECK_RUN(same_with(self, &o, "layer=recompute"));
    CHECK_RUN(same_with(self, &o, "norm=recompute,expert=offload"));
    return same_with(self, &o, "attention=recompute");
}

/* --- bytes ------------------------------------------------------------------- */

/* Floats of a row of a layer, as in rows.h, for softmax without groups; and
 * floats of a row of an expert. */
static void floats_of(const struct model_config *c, double row[MEMORY_MODULES],
                      double expert_row[MEMORY_MODULES])
{
    const double D = (double)c->dim, S = (double)c->shared_hidden;
    const double F = (double)c->expert_hidden;

    memset(row, 0, MEMORY_MODULES * sizeof(*row));
    memset(expert_row, 0, MEMORY_MODULES * sizeof(*row));
    row[MEMORY_INPUT] = row[MEMORY_RESIDUAL] = D;
    row[MEMORY_NORM] = 2 * D + 2;
    row[MEMORY_ATTENTION] = 3 * D + (double)c->heads + D;
    row[MEMORY_ROUTER] = (double)(c->experts + 1 + 2 * c->topk);
    row[MEMORY_EXPERT] = 2 * S;
    row[MEMORY_ACTIVATION] = S;
    expert_row[MEMORY_EXPERT] = 2 * F;
    expert_row[MEMORY_ACTIVATION] = F;
    expert_row[MEMORY_ROWS] = 3 * D;
}

/* The bytes counted for a plan must be the bytes of its pages: three buffers of
 * rows. */
static int check_pages(const struct two *two, double rows)
{
    const double buffer = rows * (double)two->o[1].model.dim * 4;
    struct shunt_moe_memory memory;

    shunt_moe_memory(exchange_shunt_moe(two->t[1].exchange, 0), &memory,
                     sizeof(memory));
    const double most = (double)two->o[1].model.layers * 3 *
                        (buffer + (double)sysconf(_SC_PAGESIZE));
    CHECK(memory.rows_most > 0 && (double)memory.rows_most <= most,
          "%zu bytes of plans, and %.0f are needed", memory.rows_most, most);
    return 0;
}

/* On a single rank each row has K rows of experts. If L layers do not keep a
 * module, memory for one layer is held, or for two layers if the module is
 * offloaded. Rows of experts of these layers are not held. The output of the
 * activation function takes no memory if it is recomputed, since it is in the
 * memory for its gradient. */
static int bytes_of_tiers(const struct rank *self)
{
    const struct options o = four_layers();
    const double R = (double)(o.batch * o.model.seq), L = 4;
    const double K = (double)o.model.topk, D = (double)o.model.dim;
    double row[MEMORY_MODULES], expert_row[MEMORY_MODULES];
    double kept = (2 * D + 2 + 256) * R * 4;

    floats_of(&o.model, row, expert_row);
    for (int m = 0; m < MEMORY_MODULES; m++)
        kept += L * (row[m] + K * expert_row[m]) * R * 4;
    for (int m = MEMORY_INPUT; m <= MEMORY_MODULES; m++)
        for (int tier = MEMORY_KEEP; tier <= MEMORY_OFFLOAD; tier++) {
            struct two two = {0};
            struct step_metrics step;
            char text[64];
            double want = kept;

            if (m == MEMORY_INPUT && tier == MEMORY_RECOMPUTE)
                continue;
            for (int i = 0; i < MEMORY_MODULES; i++) {
                const double dense =
                    tier == MEMORY_RECOMPUTE && i != MEMORY_INPUT ? L - 1
                    : tier == MEMORY_OFFLOAD                      ? L - 2
                                                                  : 0;
                const bool apart =
                    tier == MEMORY_RECOMPUTE && i == MEMORY_ACTIVATION;
                const double experts = dense > 0 ? L - !apart : 0;
                if (i == m || m == MEMORY_MODULES ||
                    (m == MEMORY_EXPERT && i == MEMORY_ACTIVATION))
                    want -=
                        (dense * row[i] + experts * K * expert_row[i]) * R * 4;
            }
            snprintf(text, sizeof(text), "%s=%s",
                     m == MEMORY_MODULES ? "layer" : memory_module_name(m),
                     memory_tier_name(tier));
            pair_text(&two.data);
            CHECK_RUN(create(self, &two, 1, &o, text));
            CHECK_TRAIN(trainer_step(&two.t[1], 1, 2, false, &step));
            CHECK(step.activation_bytes == want, "%s: %.0f bytes, not %.0f",
                  text, step.activation_bytes, want);
            CHECK_RUN(check_pages(&two, R * K));
            trainer_destroy(&two.t[1]);
            data_free(&two.data);
        }
    return 0;
}

/* The bytes held on several ranks must be those of memory_peak() for the actual
 * rows. */
static int bytes_of_routings(const struct rank *self)
{
    struct options o = four_layers();

    for (int i = 0; i < 2 * TIERS; i++) {
        const char *tiers = all_tiers[i / 2];
        struct two two = {0};
        struct step_metrics step;
        size_t rows[4];

        o.micro_batches = 1 + (size_t)i % 2;
        pair_text(&two.data);
        CHECK_RUN(create(self, &two, 1, &o, tiers));
        struct trainer *t = &two.t[1];
        CHECK_TRAIN(trainer_step(t, 1, 2, false, &step));
        for (size_t l = 0; l < 4; l++) {
            rows[l] = 0;
            for (size_t b = 0; b < o.micro_batches; b++)
                if (t->model.micro[b].experts[l].at.total > rows[l])
                    rows[l] = t->model.micro[b].experts[l].at.total;
        }
        const struct memory_shape shape = {
            .c = &o.model,
            .R = t->model.max_rows,
            .P = 1,
            .micro = o.micro_batches,
            .rows = rows,
        };
        const size_t want = memory_peak(&shape, &t->model.memory);
        const size_t is = t->model.activations.peak;
        CHECK(is == want || (o.micro_batches > 1 && is < want),
              "%s: %zu bytes, not %zu", tiers, is, want);
        CHECK(t->model.activations.experts == 0, "hidden rows are left");
        trainer_destroy(t);
        data_free(&two.data);
    }
    return 0;
}

/* Sets the default options. Ranks may be threads, but getopt() has one state
 * for all. */
static int parse_defaults(struct options *o)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static char name[] = "shunt-train";
    char *argv[] = {name, NULL};
    int st;

    pthread_mutex_lock(&mutex);
    st = options_parse(1, argv, o);
    pthread_mutex_unlock(&mutex);
    return st;
}

/* The deepest tiers must save at least 70 % of the bytes held by the model of
 * `make train`. On several ranks the rank with most bytes counts. */
static int deepest_saves_most(const struct rank *self)
{
    double bytes[2];

    for (int i = 0; i < 2; i++) {
        struct two two = {0};
        struct options o;
        struct step_metrics step;

        CHECK(parse_defaults(&o) == OPTIONS_RUN, "%s", train_error_text());
        CHECK_TRAIN(options_check(&o, (size_t)self->size, 1));
        uint64_t end = 60000;
        struct text text = {calloc(1, end), end, &end, 1};
        for (size_t j = 0; j < text.length; j++)
            text.bytes[j] = (uint8_t)(j * j / 7);
        CHECK_TRAIN(data_split(&text, o.model.seq, &two.data));
        free(text.bytes);
        CHECK_RUN(create(self, &two, 1, &o,
                         i ? "layer=recompute,input=offload" : NULL));
        CHECK_TRAIN(trainer_step(&two.t[1], 1, 2, false, &step));
        bytes[i] = step.activation_bytes;
        trainer_destroy(&two.t[1]);
        data_free(&two.data);
        options_free(&o);
    }
    CHECK(bytes[1] <= 0.3 * bytes[0], "%.0f bytes of %.0f: %.1f %% saved",
          bytes[1], bytes[0], 100 - 100 * bytes[1] / bytes[0]);
    return 0;
}

/* --- what follows the routing ------------------------------------------------- */

/* One rank is hot. Its hidden rows of a layer and a micro-batch must never be
 * more than S times the mean of the ranks. That must hold while they are
 * computed, and while they are kept. */
static int above_is_recomputed(const struct rank *self)
{
    struct options o = four_layers();
    const double S = 1.2;
    double sum = 0, most = 0;

    o.batch = 48;
    o.workload = WORKLOAD_W2;
    for (o.micro_batches = 1; o.micro_batches <= 2; o.micro_batches++) {
        const char *tiers[] = {NULL, "rows=recompute"};
        for (int i = 0; i < 2; i++) {
            struct two two = {0};
            struct step_metrics m;

            pair_text(&two.data);
            o.recompute_above = 0;
            CHECK_RUN(create(self, &two, 0, &o, NULL));
            o.recompute_above = S;
            CHECK_RUN(create(self, &two, 1, &o, tiers[i]));
            CHECK_RUN(steps_are_same(&two, "above", &m));
            const double mean =
                (double)(o.batch / (size_t)self->size / o.micro_batches *
                         o.model.seq * o.model.topk);
            const double row = 3 * (double)o.model.expert_hidden * 4;
            const double of_all = 4 * (double)o.micro_batches * floor(S * mean);
            CHECK(S * mean >= MEMORY_PIECE, "pieces would be larger");
            CHECK(m.expert_bytes <= of_all * row, "%.0f bytes, above %.0f",
                  m.expert_bytes, of_all * row);
            for (size_t b = 0; b < o.micro_batches; b++)
                for (size_t l = 0; l < 4; l++) {
                    const struct expert_rows *r =
                        &two.t[1].model.micro[b].experts[l];
                    CHECK(r->dropped == ((double)r->at.total > S * mean),
                          "%zu rows, mean %g", r->at.total, mean);
                    most = fmax(most, (double)r->at.total / mean);
                }
            CHECK_RUN(validations_are_same(&two, "above"));
            sum += m.recomputed;
            trainer_destroy(&two.t[0]);
            trainer_destroy(&two.t[1]);
            data_free(&two.data);
        }
    }
    struct team team = {
        .comm = self->comm, .rank = self->rank, .size = self->size};
    double all[64];
    CHECK_TRAIN(team_gather(&team, &most, all, sizeof(most)));
    for (int r = 0; r < self->size; r++)
        most = fmax(most, all[r]);
    CHECK(sum > 0 && most > S, "%g dropped, the most is %g times the mean", sum,
          most);
    return 0;
}

/* Experts have more rows than a piece, so pieces end within an expert. */
static int pieces_of_an_expert(const struct rank *self)
{
    struct options o = four_layers();
    struct two two = {0};
    struct step_metrics m;

    o.batch = 96;
    o.model.layers = 2;
    o.model.experts = o.model.topk = 3; /* 768 rows of each expert */
    pair_text(&two.data);
    CHECK_RUN(create(self, &two, 0, &o, NULL));
    o.recompute_above = 0.2; /* pieces of 460 of 2304 rows */
    CHECK_RUN(create(self, &two, 1, &o, NULL));
    CHECK_RUN(steps_are_same(&two, "pieces", &m));
    const double piece = 460 * 3 * (double)o.model.expert_hidden * 4;
    CHECK(m.recomputed == 2 && m.expert_bytes == piece,
          "%g layers, %.0f bytes, not %.0f", m.recomputed, m.expert_bytes,
          piece);
    trainer_destroy(&two.t[0]);
    trainer_destroy(&two.t[1]);
    data_free(&two.data);
    return 0;
}

/* --- memory of the process -------------------------------------------------------- */

/* The most memory of this process that was resident, in bytes. */
static size_t most_resident(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    size_t kib = 0;

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmHWM: %zu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib << 10;
}

static int counted(const struct rank *self, const char *tiers, size_t *bytes,
                   size_t *resident)
{
    struct options o = four_layers();
    struct step_metrics m;
    struct two two = {0};

    o.model.dim = o.model.expert_hidden = 64;
    o.model.seq = 64;
    o.batch = 48;
    pair_text(&two.data);
    CHECK_RUN(create(self, &two, 0, &o, tiers));
    CHECK_TRAIN(trainer_step(&two.t[0], 1, 2, false, &m));
    trainer_destroy(&two.t[0]);
    data_free(&two.data);
    *bytes = (size_t)m.activation_bytes;
    *resident = most_resident();
    return 0;
}

/* The memory that is not counted is the same whatever is kept. So with a
 * trainer that keeps everything, the process must grow by the additional bytes
 * counted. The tolerance is a tenth of these bytes, and 4 MiB that malloc() may
 * hold. */
static int bytes_are_resident(const struct rank *self)
{
    size_t bytes[2], resident[2];

    CHECK_RUN(counted(self, "layer=recompute", &bytes[0], &resident[0]));
    CHECK_RUN(counted(self, NULL, &bytes[1], &resident[1]));
    const double more = (double)(bytes[1] - bytes[0]);
    const double grown = (double)(resident[1] - resident[0]);
    CHECK(more > 32 << 20, "only %g bytes more are kept", more);
    CHECK(fabs(grown - more) <= 0.1 * more + (4 << 20),
          "%g bytes more are counted, and the process has %g more", more,
          grown);
    return 0;
}

/* --- budgets -------------------------------------------------------------------- */

static size_t number_in(const char *text, const char *before)
{
    const char *at = strstr(text, before);

    return at ? strtoul(at + strlen(before), NULL, 10) : 0;
}

/* Trains with activation budgets from the least possible one to 1.3 times the
 * bytes of all activations. The bytes held must never exceed the budget. With
 * the smallest budget some activations must be recomputed, with the largest
 * none. */
static int budgets_are_kept(const struct rank *self)
{
    struct options o = four_layers();
    struct two two = {0};
    struct step_metrics m;
    double most = 0;

    pair_text(&two.data);
    CHECK_RUN(create(self, &two, 0, &o, NULL));
    CHECK_TRAIN(trainer_step(&two.t[0], 1, 2, false, &m));
    most = m.activation_bytes;
    o.activation_budget = 1000;
    two.o[1] = o;
    CHECK_TRAIN(plan_of(&two.o[1], NULL));
    CHECK(trainer_create(&two.t[1], &two.o[1], &two.team, &two.data) == -1,
          "a budget of 1000 bytes");
    const size_t least = number_in(train_error_text(), "holds ");
    CHECK(least > 1000 && (double)least < most, "%s", train_error_text());
    trainer_destroy(&two.t[0]);
    for (int i = 0; i <= 4; i++) {
        o.activation_budget =
            least + (size_t)((1.3 * most - (double)least) * i / 4);
        CHECK_RUN(create(self, &two, 1, &o, NULL));
        CHECK_TRAIN(trainer_step(&two.t[1], 1, 2, false, &m));
        CHECK(m.activation_bytes <= (double)o.activation_budget,
              "%.0f bytes, the budget is %zu", m.activation_bytes,
              o.activation_budget);
        const bool all =
            !memory_has(&two.t[1].model.memory, 4, MEMORY_RECOMPUTE);
        CHECK(i == 0 ? !all : i < 4 || all, "budget %d: %s", i,
              all ? "all is kept" : "not all is kept");
        trainer_destroy(&two.t[1]);
    }
    data_free(&two.data);
    return 0;
}

/* A batch that is computed in two parts (`accumulate`) must hold only the bytes
 * of one part. First all activations are kept, then a budget decides. */
static int two_parts_in_the_bytes_of_one(const struct rank *self)
{
    struct options o = four_layers();
    struct two two = {0};
    struct step_metrics one, parts;

    o.balance_over = BALANCE_OVER_MICRO_BATCH;
    pair_text(&two.data);
    for (int i = 0; i < 2; i++) {
        o.batch = 24;
        o.accumulate = 1;
        CHECK_RUN(create(self, &two, 0, &o, NULL));
        o.batch = 48;
        o.accumulate = 2;
        CHECK_RUN(create(self, &two, 1, &o, NULL));
        CHECK_TRAIN(trainer_step(&two.t[0], 1, 2, false, &one));
        CHECK_TRAIN(trainer_step(&two.t[1], 1, 2, false, &parts));
        CHECK(one.activation_bytes == parts.activation_bytes &&
                  (!o.activation_budget ||
                   one.activation_bytes <= (double)o.activation_budget),
              "%.0f bytes, of two parts %.0f", one.activation_bytes,
              parts.activation_bytes);
        trainer_destroy(&two.t[0]);
        trainer_destroy(&two.t[1]);
        o.activation_budget = (size_t)(0.6 * one.activation_bytes);
    }
    data_free(&two.data);
    return 0;
}

static const struct rank_case cases[] = {
    {.name = "each_tier", .run = each_tier},
    {.name = "noise_and_parts", .run = noise_and_parts},
    {.name = "bf16_rows", .run = bf16_rows},
    {.name = "groups", .run = groups, .min_ranks = 2},
    {.name = "bytes_of_tiers", .run = bytes_of_tiers, .max_ranks = 1},
    {.name = "bytes_of_routings", .run = bytes_of_routings},
    {.name = "bytes_are_resident",
     .run = bytes_are_resident,
     .max_ranks = 1,
     .no_threads = true},
    {.name = "deepest_saves_most", .run = deepest_saves_most, .max_ranks = 2},
    {.name = "above_is_recomputed",
     .run = above_is_recomputed,
     .min_ranks = 2,
     .max_ranks = 2},
    {.name = "pieces_of_an_expert", .run = pieces_of_an_expert, .max_ranks = 1},
    {.name = "budgets_are_kept", .run = budgets_are_kept},
    {.name = "two_parts_in_the_bytes_of_one",
     .run = two_parts_in_the_bytes_of_one,
     .max_ranks = 1},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
