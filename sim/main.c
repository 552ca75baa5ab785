// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-scaling: the time that one exchange would take on a machine that is
 * not here. One JSON object on standard output: what was asked, what the
 * schedule says, and how long it took. sim/run makes all of docs/scaling.md
 * with it.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "perf/routing.h"
#include "sim/machine.h"
#include "sim/schedule.h"

static void usage(FILE *to)
{
    const struct scaling_machine *m;

    fputs(
        "usage: shunt-scaling OPERATION [OPTION]...\n"
        "\n"
        "operations: alltoallv allgather plan lists dispatch combine rows\n"
        "\n"
        "  --machine NAME    rails400\n"
        "  --nodes N         8\n"
        "  --node-ranks N    8\n"
        "  --sizes A,B,...   ranks of each node, instead of the last two\n"
        "  --engine NAME     ports, simgrid\n"
        "  --window N        messages of a rank at once: 16\n"
        "  --precision S     SimGrid's, seconds: a 5000th of the bound, "
        "1e-6 at most\n"
        "  --bytes B         alltoallv, allgather: of each block\n"
        "  --spread F        alltoallv: blocks of B/F to B*F bytes\n"
        "  --carry B         alltoallv: as SHUNT_CARRY; 0, flat; all\n"
        "  --two-level       allgather, plan, lists: in two levels\n"
        "  --mode NAME       plain, ranks, 2dh, nodes, allgather\n"
        "  --routing NAME    uniform, zipf:S, limited:M\n"
        "  --tokens T --hidden H --topk K --experts E    a rank's 1024, 7168, "
        "8, 256\n"
        "  --fp8             rows to the experts are e4m3\n"
        "  --narrow          nodes' sums are bf16, not f32\n"
        "  --chunk B         as SHUNT_MOE_CHUNK: 61440\n"
        "  --seed N          1\n"
        "\n"
        "machines:\n",
        to);
    for (int i = 0; (m = scaling_machine_at(i)); i++)
        fprintf(to, "  %-11s %s\n", m->name, m->about);
}

static void wrong(const char *what, const char *value)
{
    fprintf(stderr, "shunt-scaling: %s: '%s'; see --help\n", what, value);
    exit(2);
}

struct options {
    const char *operation;
    const struct scaling_machine *machine;
    int nodes, node_ranks, sizes[256], nsizes;
    const char *engine;
    int window;
    double precision, spread;
    uint64_t bytes, carry, seed;
    bool two_level, fp8, narrow;
    const char *routing_name;
    size_t hidden;
    struct perf_routing_config routing;
    struct scaling_moe moe;
};

static double number(const char *name, const char *text, double least)
{
    char *end;
    double value;

    errno = 0;
    value = strtod(text, &end);
    if (end == text || *end || errno || !(value >= least))
        wrong(name, text);
    return value;
}

static void parse_sizes(struct options *o, const char *text)
{
    for (const char *at = text; *at; o->nsizes++) {
        char *end;
        long n = strtol(at, &end, 10);

        if (end == at || n < 1 || n > 64 || o->nsizes == 256 ||
            (*end && *end != ','))
            wrong("--sizes", text);
        o->sizes[o->nsizes] = (int)n;
        at = *end ? end + 1 : end;
    }
}

static void parse_routing(struct options *o, const char *text)
{
    const char *arg = strchr(text, ':');

    o->routing_name = text;
    if (!strcmp(text, "uniform"))
        o->routing.skew = PERF_SKEW_UNIFORM;
    else if (!strncmp(text, "zipf:", 5))
        o->routing.skew = PERF_SKEW_ZIPF;
    else if (!strncmp(text, "limited:", 8))
        o->routing.skew = PERF_SKEW_NODE_LIMITED;
    else
        wrong("--routing", text);
    if (arg)
        o->routing.arg = number("--routing", arg + 1, 0);
}

static void parse_mode(struct options *o, const char *text)
{
    for (enum scaling_mode m = 0; m < SCALING_MODES; m++)
        if (!strcmp(text, scaling_mode_name(m))) {
            o->moe.mode = m;
            return;
        }
    wrong("--mode", text);
}

enum {
    MACHINE = 256,
    NODES,
    NODE_RANKS,
    SIZES,
    ENGINE,
    WINDOW,
    PRECISION,
    BYTES,
    SPREAD,
    CARRY,
    TWO_LEVEL,
    MODE,
    ROUTING,
    TOKENS,
    HIDDEN,
    TOPK,
    EXPERTS,
    FP8,
    NARROW,
    CHUNK,
    SEED,
    HELP,
};

static const struct option known[] = {
    {"machine", 1, 0, MACHINE},
    {"nodes", 1, 0, NODES},
    {"node-ranks", 1, 0, NODE_RANKS},
    {"sizes", 1, 0, SIZES},
    {"engine", 1, 0, ENGINE},
    {"window", 1, 0, WINDOW},
    {"precision", 1, 0, PRECISION},
    {"bytes", 1, 0, BYTES},
    {"spread", 1, 0, SPREAD},
    {"carry", 1, 0, CARRY},
    {"two-level", 0, 0, TWO_LEVEL},
    {"mode", 1, 0, MODE},
    {"routing", 1, 0, ROUTING},
    {"tokens", 1, 0, TOKENS},
    {"hidden", 1, 0, HIDDEN},
    {"topk", 1, 0, TOPK},
    {"experts", 1, 0, EXPERTS},
    {"fp8", 0, 0, FP8},
    {"narrow", 0, 0, NARROW},
    {"chunk", 1, 0, CHUNK},
    {"seed", 1, 0, SEED},
    {"help", 0, 0, HELP},
    {0, 0, 0, 0},
};

static void parse_option(struct options *o, int option, const char *arg)
{
    switch (option) {
    case MACHINE:
        o->machine = scaling_machine_named(arg);
        if (!o->machine)
            wrong("--machine", arg);
        break;
    case NODES:
        o->nodes = (int)number("--nodes", arg, 1);
        break;
    case NODE_RANKS:
        o->node_ranks = (int)number("--node-ranks", arg, 1);
        break;
    case SIZES:
        parse_sizes(o, arg);
        break;
    case ENGINE:
        o->engine = arg;
        break;
    case WINDOW:
        o->window = (int)number("--window", arg, 1);
        break;
    case PRECISION:
        o->precision = number("--precision", arg, 1e-12);
        break;
    case BYTES:
        o->bytes = (uint64_t)number("--bytes", arg, 0);
        break;
    case SPREAD:
        o->spread = number("--spread", arg, 1);
        break;
    case CARRY:
        o->carry = strcmp(arg, "all") ? (uint64_t)number("--carry", arg, 0)
                                      : SCALING_CARRY_ALL;
        break;
    case TWO_LEVEL:
        o->two_level = true;
        break;
    case MODE:
        parse_mode(o, arg);
        break;
    case ROUTING:
        parse_routing(o, arg);
        break;
    case TOKENS:
        o->routing.tokens = (size_t)number("--tokens", arg, 0);
        break;
    case HIDDEN:
        o->hidden = (size_t)number("--hidden", arg, 1);
        break;
    case TOPK:
        o->routing.topk = (int)number("--topk", arg, 1);
        break;
    case EXPERTS:
        o->routing.experts = (int)number("--experts", arg, 1);
        break;
    case FP8:
        o->fp8 = true;
        break;
    case NARROW:
        o->narrow = true;
        break;
    case CHUNK:
        o->moe.chunk = (size_t)number("--chunk", arg, 1);
        break;
    case SEED:
        o->seed = (uint64_t)number("--seed", arg, 0);
        break;
    case HELP:
        usage(stdout);
        exit(0);
    default:
        usage(stderr);
        exit(2);
    }
}

static void parse(struct options *o, int argc, char **argv)
{
    int option;

    *o = (struct options){
        .machine = scaling_machine_at(0),
        .nodes = 8,
        .node_ranks = 8,
        .engine = "ports",
        .window = 16,
        .spread = 1,
        .bytes = 1024,
        .seed = 1,
        .routing_name = "uniform",
        .hidden = 7168,
        .routing = {.experts = 256, .topk = 8, .tokens = 1024},
        .moe = {.mode = SCALING_NODES, .chunk = 60 << 10},
    };
    while ((option = getopt_long(argc, argv, "h", known, NULL)) != -1)
        parse_option(o, option == 'h' ? HELP : option, optarg);
    if (optind != argc - 1) {
        usage(stderr);
        exit(2);
    }
    o->operation = argv[optind];
    if (!o->nsizes) {
        if (o->nodes > 256 || o->node_ranks > 64)
            wrong("at most 256 nodes of 64 ranks", "--nodes, --node-ranks");
        o->nsizes = o->nodes;
        for (int n = 0; n < o->nodes; n++)
            o->sizes[n] = o->node_ranks;
    }
    if (o->bytes * o->spread > UINT32_MAX)
        wrong("--bytes", "more than a message may have");
}

/* --- schedules ---------------------------------------------------------------- */

static bool has_routing(const char *operation)
{
    return !strcmp(operation, "dispatch") || !strcmp(operation, "combine") ||
           !strcmp(operation, "plan") || !strcmp(operation, "lists") ||
           !strcmp(operation, "rows");
}

static void make_routing(struct options *o, struct perf_routing *routing,
                         const struct scaling_topology *t)
{
    const char *trouble;

    o->routing.ranks = t->ranks;
    o->routing.groups = t->nodes;
    o->routing.seed = o->seed;
    trouble = perf_routing_init(routing, &o->routing);
    if (trouble)
        wrong("routing", trouble);
    o->moe.routing = routing;
    o->moe.row_bytes = 2 * o->hidden;
    o->moe.wire_bytes =
        o->fp8 ? o->hidden + 4 * ((o->hidden + 127) / 128) : 2 * o->hidden;
    o->moe.sum_bytes = o->narrow ? 2 * o->hidden : 4 * o->hidden;
}

/* B/F to B*F, evenly on a logarithmic scale. */
static uint32_t *make_blocks(const struct options *o, int ranks)
{
    size_t n = (size_t)ranks * (size_t)ranks;
    uint32_t *blocks = scaling_alloc(n * sizeof(*blocks));
    uint64_t state = o->seed;

    for (size_t i = 0; i < n; i++) {
        uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        z ^= z >> 31;
        blocks[i] =
            (uint32_t)((double)o->bytes *
                       pow(o->spread, 2 * ((double)(z >> 11) * 0x1p-53) - 1));
    }
    return blocks;
}

static double run(const struct options *o, const struct scaling_schedule *s,
                  const struct scaling_bounds *bounds)
{
    double precision = o->precision;

    if (!strcmp(o->engine, "ports"))
        return scaling_run_ports(s, o->machine, o->window);
    if (strcmp(o->engine, "simgrid"))
        wrong("--engine", o->engine);
    if (precision <= 0)
        precision =
            fmax(1e-9, fmin(1e-6, fmax(bounds->port, bounds->rank) / 5000));
#ifdef SCALING_SIMGRID
    return scaling_run_simgrid(s, o->machine, o->window, precision);
#else
    wrong("built without SimGrid", o->engine);
    return NAN;
#endif
}

static bool print_run(const struct options *o, const struct scaling_schedule *s)
{
    const struct scaling_topology *t = s->topology;
    struct scaling_traffic sum = {0}, most = {0};
    struct scaling_bounds bounds;
    struct timespec begin, end;
    double seconds;

    for (int r = 0; r < t->ranks; r++) {
        const struct scaling_traffic *x = &s->traffic[r];

        sum.payload += x->payload;
        sum.wire += x->wire;
        sum.messages += x->messages;
        if (x->messages > most.messages)
            most.messages = x->messages;
    }
    scaling_bound(s, o->machine, &bounds);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    seconds = run(o, s, &bounds);
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("\"operations\": %zu, \"messages\": %llu, "
           "\"messages_of_rank\": %llu, \"payload\": %llu, \"wire\": %llu, "
           "\"port_us\": %.3f, \"rails_us\": %.3f, \"rank_us\": %.3f, "
           "\"time_us\": %.3f, "
           "\"took_s\": %.1f",
           s->nops, (unsigned long long)sum.messages,
           (unsigned long long)most.messages, (unsigned long long)sum.payload,
           (unsigned long long)sum.wire, bounds.port * 1e6, bounds.rails * 1e6,
           bounds.rank * 1e6, seconds * 1e6,
           (double)(end.tv_sec - begin.tv_sec) +
               (double)(end.tv_nsec - begin.tv_nsec) * 1e-9);
    return seconds >= 0;
}

static void print_rows(const struct options *o,
                       const struct scaling_topology *t)
{
    struct scaling_rows rows;

    scaling_count_rows(t, &o->moe, &rows);
    printf("\"all_tokens\": %llu, \"plain\": %llu, \"ranks\": %llu, "
           "\"dedup\": %llu, \"allgather\": %llu",
           (unsigned long long)rows.tokens, (unsigned long long)rows.plain,
           (unsigned long long)rows.ranks, (unsigned long long)rows.nodes,
           (unsigned long long)rows.allgather);
}

static void print_machine(const struct scaling_machine *m)
{
    printf("\"about\": \"%s\", \"nic\": %g, \"nic_of_node\": %s, "
           "\"latency\": %g, \"latency_far\": %g, \"taper\": %g, "
           "\"post\": %g, \"take\": %g, \"inside\": %g, "
           "\"inside_latency\": %g, \"inside_message\": %g, \"copy\": %g",
           m->about, m->nic, m->nic_of_node ? "true" : "false", m->latency,
           m->latency_far, m->taper, m->post, m->take, m->inside,
           m->inside_latency, m->inside_message, m->copy);
}

int main(int argc, char **argv)
{
    struct options o;
    struct scaling_topology t;
    struct scaling_schedule s;
    struct perf_routing routing = {0};
    bool done = true;

    parse(&o, argc, argv);
    scaling_topology_init(&t, o.nsizes, o.sizes);
    scaling_schedule_init(&s, &t);
    printf("{\"operation\": \"%s\", \"machine\": \"%s\", \"engine\": \"%s\", "
           "\"ranks\": %d, \"nodes\": %d, \"window\": %d, ",
           o.operation, o.machine->name, o.engine, t.ranks, t.nodes, o.window);
    if (has_routing(o.operation)) {
        make_routing(&o, &routing, &t);
        printf("\"routing\": \"%s\", \"tokens\": %zu, \"hidden\": %zu, "
               "\"topk\": %d, \"experts\": %d, \"mode\": \"%s\", "
               "\"wire_bytes\": %zu, \"sum_bytes\": %zu, \"seed\": %llu, ",
               o.routing_name, routing.tokens, o.hidden, routing.topk,
               routing.experts, scaling_mode_name(o.moe.mode), o.moe.wire_bytes,
               o.moe.sum_bytes, (unsigned long long)o.seed);
    }
    if (!strcmp(o.operation, "machine")) {
        print_machine(o.machine);
    } else if (!strcmp(o.operation, "rows")) {
        print_rows(&o, &t);
    } else {
        if (!strcmp(o.operation, "dispatch")) {
            scaling_dispatch(&s, &o.moe);
        } else if (!strcmp(o.operation, "combine")) {
            scaling_combine(&s, &o.moe);
        } else if (!strcmp(o.operation, "plan")) {
            /* What plan_create() waits for: the records. */
            uint32_t record = scaling_plan_record(&t, &o.moe);

            printf("\"record\": %u, \"two_level\": %s, ", record,
                   o.two_level ? "true" : "false");
            scaling_allgather(&s, record, o.two_level);
        } else if (!strcmp(o.operation, "lists")) {
            uint32_t *lists = scaling_plan_lists(&t, &o.moe);

            printf("\"two_level\": %s, ", o.two_level ? "true" : "false");
            scaling_alltoallv(&s, lists, o.two_level ? 16 << 10 : SCALING_FLAT,
                              false);
            free(lists);
        } else if (!strcmp(o.operation, "allgather")) {
            printf("\"bytes\": %llu, \"two_level\": %s, ",
                   (unsigned long long)o.bytes, o.two_level ? "true" : "false");
            scaling_allgather(&s, (uint32_t)o.bytes, o.two_level);
        } else if (!strcmp(o.operation, "alltoallv")) {
            uint32_t *blocks = make_blocks(&o, t.ranks);

            printf("\"bytes\": %llu, \"spread\": %g, \"carry\": %lld, ",
                   (unsigned long long)o.bytes, o.spread,
                   o.carry == SCALING_CARRY_ALL ? -1LL : (long long)o.carry);
            scaling_alltoallv(&s, blocks, o.carry, false);
            free(blocks);
        } else {
            wrong("operation", o.operation);
        }
        done = print_run(&o, &s);
    }
    puts("}");
    scaling_schedule_finish(&s);
    scaling_topology_finish(&t);
    perf_routing_finish(&routing);
    if (!done)
        fputs("shunt-scaling: the schedule did not come to its end\n", stderr);
    return done ? 0 : 1;
}
