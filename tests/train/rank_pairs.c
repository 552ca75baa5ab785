// SPDX-License-Identifier: Apache-2.0
/*
 * Options that must not change a bit of the result, combined at random. A run
 * has options that decide what is computed. A second run has the same options,
 * and others that decide how it is computed: where memory is, what is
 * recomputed, which ranks compute, when rows are sent.
 *
 *     rank_pairs pairs [FIRST COUNT]
 *
 * runs the COUNT pairs from number FIRST on. It prints how many pairs were
 * equal, how many were refused, and how many differed. Pairs are refused if
 * options do not fit together, or a budget is too small. A pair follows from
 * its number and the number of ranks. Options are those of the command line.
 * `make test-pairs` runs a thousand pairs.
 */
#include "tests/random/chance.h"
#include "tests/train/pair.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, WORDS = 96, TEXT = 1600, FIRST = 48, OF_SUITE = 20 };

/* A command line, and settings that are no options. */
struct line {
    char text[TEXT];
    int ranks;
    size_t save; /* step after which a checkpoint is written; 0: none */
    int then;    /* number of ranks on which the run then continues */
    bool validate;
};

/* The numbers of each step, and those of the validation at the end. */
struct result {
    double number[STEPS][5];
    double val[HELD];
    bool refused;
};

/* --- what a pair is ------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void say(struct line *l,
                                                      const char *format, ...)
{
    const size_t at = strlen(l->text);
    va_list args;

    va_start(args, format);
    const int n = vsnprintf(l->text + at, TEXT - at, format, args);
    va_end(args);
    if (n < 0 || at + (size_t)n >= TEXT - 1)
        abort();
    strcat(l->text, " ");
}

/* Does the run already have this option? */
static bool has(const struct line *l, const char *option)
{
    return strstr(l->text, option);
}

#define ONE_OF(c, ...)                         \
    ((const char *const[]){__VA_ARGS__}[below( \
        (c), (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)))])

/* A shape that runs in milliseconds. */
static void say_shape(struct line *l, struct chance *c)
{
    say(l,
        "shunt-train --dim=16 --heads=2 --seq=8 --batch=16 --shares=4 "
        "--expert-hidden=12 --eval-bytes=300 --sample=0 --warmup=2 --lr=0.01");
    say(l, "--layers=%d", 2 + below(c, 2));
    say(l, "--shared-expert=%d", PICK(c, 0, 8));
    say(l, "--nodes=%d", PICK(c, 1, 1, 2));
    say(l, "--steps=%d", STEPS);
}

static void say_gate(struct line *l, struct chance *c)
{
    if (one_in(c, 4)) {
        say(l, "--preset=%s",
            ONE_OF(c, "auxfree", "switch", "deepseek-v3", "deepseek-v3-twin",
                   "pangu-ultra-twin", "qwen3-235b-twin", "mixtral-twin"));
        say(l, "--experts=16");
        say(l, "--kv-heads=0");
        say(l, "--head-width=0");
        say(l, "--dense-hidden=12");
        return;
    }
    say(l, "--experts=%d", PICK(c, 6, 8));
    say(l, "--gate=%s",
        ONE_OF(c, "softmax", "softmax", "sigmoid", "sigmoid", "switch",
               "gshard", "noisy"));
    const bool free = has(l, "--gate=s") && !has(l, "--gate=sw");
    if (free)
        say(l, "--topk=%d", 2 + below(c, 2));
    if (free && one_in(c, 2))
        say(l, "--bias-rate=%s", ONE_OF(c, "1e-3", "0.05"));
    if (free && one_in(c, 4) && has(l, "--experts=8")) {
        say(l, "--choose=%s", ONE_OF(c, "limited", "grouped"));
        say(l, "--expert-groups=2");
        say(l, "--open-groups=1");
    } else if (free && one_in(c, 4)) {
        say(l, "--workload=%s", ONE_OF(c, "W1", "W2", "W4", "W6", "W7"));
    }
}

/* Options that decide what is computed, and so its bits. */
static void say_computed(struct line *l, struct chance *c)
{
    say_gate(l, c);
    if (one_in(c, 3))
        say(l, "--balance-over=%s",
            ONE_OF(c, "micro-batch", "share", "sequence"));
    if (one_in(c, 6))
        say(l, "--capacity-factor=%s", ONE_OF(c, "0.7", "1", "1.5"));
    if (has(l, "--capacity") && one_in(c, 2))
        say(l, "--drop=weight");
    if (one_in(c, 2))
        say(l, "--leaf-rows=%d", PICK(c, 4, 16, 300));
    if (one_in(c, 5))
        say(l, "--max-rows=%d", PICK(c, 20, 40, 90));
    if (one_in(c, 5))
        say(l, "--dtype=bf16");
    if (one_in(c, 6))
        say(l, "--wire=fp8");
    if (one_in(c, 6))
        say(l, "--compute=bf16");
    if (one_in(c, 4))
        say(l, "--tp-sums=2");
    if (one_in(c, 6))
        say(l, "--expert-copies=2");
    if (one_in(c, 5))
        say(l, "--moe-every=2");
    if (one_in(c, 6) && !has(l, "--preset"))
        say(l, "--kv-heads=1");
}

static void say_tiers(struct line *l, struct chance *c)
{
    static const char *const modules[] = {
        "norm",       "attention", "residual", "router",  "expert",
        "activation", "rows",      "layer",    "layer",   "0:layer",
        "1:layer",    "input",     "0-1:rows", "1:expert"};
    enum { MODULES = sizeof(modules) / sizeof(modules[0]) };
    char tiers[160] = "";

    for (int i = 1 + below(c, 3); i > 0; i--) {
        const char *module = modules[below(c, MODULES)];

        snprintf(tiers + strlen(tiers), sizeof(tiers) - strlen(tiers),
                 "%s%s=%s", tiers[0] ? "," : "", module,
                 strcmp(module, "input") == 0 || one_in(c, 4) ? "offload"
                                                              : "recompute");
    }
    say(l, "--memory=%s", tiers);
}

/* Experts that move, and copies of them. Copies do not change bits if gradients
 * are summed leaf by leaf. Under the same condition waves do not change bits if
 * experts move. */
static void say_balance(struct line *l, struct chance *c)
{
    if (has(l, "--max-rows") && !has(l, "--leaf-rows"))
        return;
    say(l, "--balance=%s",
        has(l, "--leaf-rows")
            ? ONE_OF(c, "replicas", "migrate", "both", "microbatch")
            : "migrate");
    say(l, "--balance-every=%d", 1 + below(c, 2));
    say(l, "--balance-gain=0.001");
    say(l, "--balance-hot=0.001");
    say(l, "--balance-above=1.01");
    say(l, "--balance-slots=%d", 1 + below(c, 2));
    say(l, "--balance-theta=%s", ONE_OF(c, "0", "0.5", "0.9"));
}

/* Options that only decide how the result is computed. */
static void say_how(struct line *l, struct chance *c)
{
    for (int i = 1 + below(c, 3); i > 0; i--)
        switch (below(c, 8)) {
        case 0:
        case 1:
            say_tiers(l, c);
            break;
        case 2:
            if (!has(l, "--save-memory"))
                say(l, "--save-memory");
            break;
        case 3:
            if (!has(l, "--recompute-above"))
                say(l, "--recompute-above=%s", ONE_OF(c, "0.3", "0.8", "1.5"));
            break;
        case 4:
            if (!has(l, "--activation-budget"))
                say(l, "--activation-budget=%s",
                    ONE_OF(c, "60k", "90k", "120k", "200k"));
            break;
        case 5:
            if (!has(l, "--overlap"))
                say(l, "--overlap=%s", ONE_OF(c, "no", "yes"));
            break;
        case 6:
            if (!has(l, "--balance="))
                say_balance(l, c);
            break;
        default:
            l->save = (size_t)(1 + below(c, STEPS - 1));
            break;
        }
    l->validate = one_in(c, 4);
}

/* Choose the number of ranks, and how `pieces` micro-batches are divided into
 * parts. Dropped rows, and waves without leaves, depend on the number of ranks.
 * With such options the number is fixed. */
static void say_ranks(struct line *l, struct chance *c, int pieces, int world)
{
    const bool fixed = has(l, "--capacity-factor") || has(l, "--preset=sw") ||
                       (has(l, "--max-rows") && !has(l, "--leaf-rows"));
    /* A validation has as many sequences as a part of the batch. So the number
     * of parts would change the capacity of validations. */
    const bool parts = !has(l, "--capacity-factor") && !has(l, "--preset=sw");
    const int accumulate = pieces > 1 && parts && one_in(c, 2) ? 2 : 1;

    l->ranks = fixed ? world : 1 << below(c, world > 2 ? 3 : world);
    l->then = fixed ? world : 1 << below(c, world > 2 ? 3 : world);
    if (has(l, "--expert-copies") && world > 1) {
        l->ranks = l->ranks == 1 ? 2 : l->ranks;
        l->then = l->then == 1 ? 2 : l->then;
    }
    say(l, "--accumulate=%d", accumulate);
    say(l, "--micro-batches=%d", pieces / accumulate);
    if (has(l, "--tp-sums") && l->ranks > 1 && l->then > 1 && one_in(c, 2))
        say(l, "--tp=2");
}

static void make_pair(int number, int world, struct line *a, struct line *b)
{
    struct chance c = {hash(30, (uint64_t)number, (uint64_t)world)};
    struct line base = {0};
    const int pieces = PICK(&c, 1, 1, 2, 4);

    say_shape(&base, &c);
    say_computed(&base, &c);
    *a = *b = base;
    say_ranks(a, &c, pieces, world);
    say_ranks(b, &c, pieces, world);
    say_how(b, &c);
}

static void describe(const struct line *l)
{
    rank_say("  %s", l->text);
    rank_say("  on %d ranks%s", l->ranks, l->validate ? ", validating" : "");
    if (l->save)
        rank_say("  on %d ranks after step %zu", l->then, l->save);
}

/* --- running a pair ------------------------------------------------------- */

struct job {
    const struct rank *self;
    struct data data;
    struct options o;
    struct team team;
    struct trainer t;
    char folder[64];
    char words[TEXT]; /* the words of the command line */
};

static int refuse(struct result *r)
{
    r->refused = true;
    return 0;
}

/* Divides the world into teams of `ranks` ranks, which all do the same. */
static int begin(struct job *j, const struct line *l, int ranks,
                 struct result *r)
{
    char *argv[WORDS], *rest = NULL;
    const struct rank *self = j->self;
    int argc = 0;

    memset(&j->team, 0, sizeof(j->team));
    memset(&j->t, 0, sizeof(j->t));
    memcpy(j->words, l->text, sizeof(j->words));
    for (char *w = strtok_r(j->words, " ", &rest); w && argc < WORDS - 1;
         w = strtok_r(NULL, " ", &rest))
        argv[argc++] = w;
    argv[argc] = NULL;
    CHECK_OK(self->comm, shunt_comm_split(self->comm, self->rank / ranks,
                                          self->rank, &j->team.comm));
    j->team.rank = shunt_comm_rank(j->team.comm);
    j->team.size = shunt_comm_size(j->team.comm);
    CHECK(options_parse(argc, argv, &j->o) == OPTIONS_RUN, "%s",
          train_error_text());
    if (options_check(&j->o, (size_t)ranks, team_nodes(&j->team)))
        return refuse(r);
    if (trainer_create(&j->t, &j->o, &j->team, &j->data))
        return refuse(r);
    return 0;
}

/* Ends a job. If it did not end well, its peers notice that when the
 * communicator is destroyed. */
static int end(struct job *j, bool well)
{
    if (well)
        CHECK_OK(j->team.comm, shunt_comm_finish(j->team.comm));
    shunt_comm_destroy(j->team.comm);
    trainer_destroy(&j->t);
    options_free(&j->o);
    return 0;
}

/* Continues on another number of ranks. All new teams read the checkpoint that
 * the first old team wrote. */
static int change_ranks(struct job *j, const struct line *l, struct result *r)
{
    struct checkpoint_info info = {.step = l->save, .steps = STEPS};
    struct checkpoint *saved = NULL;
    char folder[80];

    snprintf(folder, sizeof(folder), "%s/%d", j->folder,
             j->self->rank / l->ranks);
    j->o.checkpoint = folder;
    CHECK_TRAIN(trainer_save(&j->t, &info));
    CHECK_OK(j->self->comm, shunt_barrier(j->self->comm));
    CHECK_RUN(end(j, true));
    CHECK_RUN(begin(j, l, l->then, r));
    if (r->refused)
        return 0;
    snprintf(folder, sizeof(folder), "%s/0", j->folder);
    CHECK(checkpoint_open(&j->team, folder, &saved, &info) == 1, "%s",
          train_error_text());
    const int st = trainer_load(&j->t, saved);
    checkpoint_close(saved);
    CHECK_TRAIN(st);
    return 0;
}

/* In a step a budget may be too small on one rank. Its peers notice that when
 * its communicator ends. */
static int step_failed(const struct job *j, struct result *r)
{
    CHECK(j->o.activation_budget > 0, "%s", train_error_text());
    return refuse(r);
}

static int make_steps(struct job *j, const struct line *l, struct result *r)
{
    double dropped, val[HELD];

    for (size_t step = 1; step <= STEPS; step++) {
        struct step_metrics m;

        if (trainer_step(&j->t, step, STEPS, false, &m))
            return step_failed(j, r);
        const double numbers[] = {m.loss, m.grad_norm, m.balance, m.zloss,
                                  m.imbalance};
        memcpy(r->number[step - 1], numbers, sizeof(numbers));
        if (l->validate && trainer_validate(&j->t, val, &dropped))
            return step_failed(j, r);
        if (l->save == step)
            CHECK_RUN(change_ranks(j, l, r));
        if (r->refused)
            return 0;
    }
    return trainer_validate(&j->t, r->val, &dropped) ? step_failed(j, r) : 0;
}

/* A pair is refused if it is refused on any rank. */
static int agree(const struct rank *self, struct result *r)
{
    int32_t refused = r->refused;

    CHECK_OK(self->comm, shunt_allreduce(self->comm, SHUNT_IN_PLACE, &refused,
                                         1, SHUNT_I32, SHUNT_MAX));
    r->refused = refused != 0;
    return 0;
}

static int run(const struct rank *self, const struct data *data,
               const struct line *l, struct result *r)
{
    struct job j = {.self = self, .data = *data};
    struct team all = {
        .comm = self->comm, .rank = self->rank, .size = self->size};

    memset(r, 0, sizeof(*r));
    if (l->save)
        CHECK_RUN(pair_folder(&all, j.folder, sizeof(j.folder)));
    CHECK_RUN(begin(&j, l, l->ranks, r));
    if (!r->refused)
        CHECK_RUN(make_steps(&j, l, r));
    CHECK_RUN(end(&j, !r->refused));
    CHECK_RUN(agree(self, r));
    if (l->save && self->rank == 0)
        pair_remove_folder(j.folder);
    return 0;
}

struct counts {
    int same, refused, differ;
};

/* The first step whose numbers differ on this rank; STEPS: only the validation
 * differs; STEPS + 1: nothing differs. */
static int difference(const struct result *a, const struct result *b)
{
    for (int s = 0; s < STEPS; s++)
        if (memcmp(a->number[s], b->number[s], sizeof(a->number[s])) != 0)
            return s;
    return memcmp(a->val, b->val, sizeof(a->val)) != 0 ? STEPS : STEPS + 1;
}

static void tell(int number, const struct line *l, const struct result *r)
{
    const int at = difference(&r[0], &r[1]);

    for (int i = 0; i < 2; i++) {
        const double *n = r[i].number[at < STEPS ? at : STEPS - 1];

        rank_say("%d: %s %d: loss %.17g, norm %.17g, imbalance %.17g, "
                 "validation %.17g",
                 number, at < STEPS ? "step" : "after step",
                 at < STEPS ? at + 1 : STEPS, n[0], n[1], n[4], r[i].val[0]);
        describe(&l[i]);
    }
}

static int compare(const struct rank *self, const struct data *data, int number,
                   struct counts *counts)
{
    struct line l[2];
    struct result r[2] = {{.refused = false}, {.refused = false}};

    make_pair(number, self->size, &l[0], &l[1]);
    for (int i = 0; i < 2 && !r[0].refused; i++)
        CHECK_RUN(run(self, data, &l[i], &r[i]));
    const bool refused = r[0].refused || r[1].refused;
    int32_t first =
        !refused && difference(&r[0], &r[1]) <= STEPS ? self->rank : self->size;
    CHECK_OK(self->comm, shunt_allreduce(self->comm, SHUNT_IN_PLACE, &first, 1,
                                         SHUNT_I32, SHUNT_MIN));
    if (first == self->rank)
        tell(number, l, r);
    counts->refused += refused;
    counts->differ += first < self->size;
    counts->same += !refused && first == self->size;
    return 0;
}

/* Without arguments only a few pairs are run. */
static int pairs(const struct rank *self)
{
    const bool asked = self->argc == 2;
    const int first = asked ? atoi(self->argv[0]) : FIRST;
    const int count = asked ? atoi(self->argv[1]) : OF_SUITE;
    struct counts n = {0};
    struct data data;

    CHECK(self->argc == 0 || asked, "give FIRST and COUNT, or nothing");
    CHECK(self->size == 1 || self->size == 2 || self->size == 4,
          "a pair is for 1, 2 or 4 ranks");
    pair_text(&data);
    for (int i = first; i < first + count; i++)
        CHECK_RUN(compare(self, &data, i, &n));
    data_free(&data);
    if (self->rank == 0)
        rank_say("%d same, %d refused, %d differ of %d", n.same, n.refused,
                 n.differ, count);
    CHECK(n.differ == 0, "%d pairs differ", n.differ);
    CHECK(n.same > n.refused, "most pairs must be made, but %d were refused",
          n.refused);
    return 0;
}

static const struct rank_case cases[] = {
    {.name = "pairs", .run = pairs},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
