// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-scaling: computes the time that one exchange would take on another
 * machine. Prints one JSON object: the options, figures of the schedule, and
 * the time (--help lists its fields). perf/sim/run uses this program to make
 * the data of docs/scaling.md.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "perf/base/routing.h"
#include "perf/sim/machine.h"
#include "perf/sim/schedule.h"
#include "tools/cli/cli.h"

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
    bool two_level, no_counts, fp8, narrow;
    const char *routing_name;
    size_t hidden;
    struct perf_routing_config routing;
    struct scaling_moe moe;
};

/* Read a routing, such as "zipf:0.8". */
static bool take_routing(void *object, const char *text, struct cli_line *line)
{
    static const struct cli_name names[] = {
        {"uniform", PERF_SKEW_UNIFORM},
        {"zipf", PERF_SKEW_ZIPF},
        {"limited", PERF_SKEW_NODE_LIMITED},
        {NULL, 0},
    };
    struct options *o = object;
    const char *arg = strchr(text, ':');
    char name[16];
    int skew;

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, ":"), text);
    if (!cli_choice(line, "--routing", name, names, &skew))
        return false;
    if (!arg != (skew == PERF_SKEW_UNIFORM))
        return cli_wrong(line,
                         "--routing: '%s' is none of uniform, zipf:S and "
                         "limited:M",
                         text);
    o->routing_name = text;
    o->routing.skew = (enum perf_skew)skew;
    return !arg || cli_real(line, "--routing", arg + 1, 0, 0, &o->routing.arg);
}

static bool take_machine(void *object, const char *text, struct cli_line *line)
{
    struct options *o = object;

    o->machine = scaling_machine_named(text);
    return o->machine || cli_wrong(line, "--machine: there is no '%s'", text);
}

static bool take_mode(void *object, const char *text, struct cli_line *line)
{
    struct options *o = object;

    for (enum scaling_mode m = 0; m < SCALING_MODES; m++)
        if (!strcmp(text, scaling_mode_name(m))) {
            o->moe.mode = m;
            return true;
        }
    return cli_wrong(line, "--mode: there is no '%s'", text);
}

static bool take_carry(void *object, const char *text, struct cli_line *line)
{
    struct options *o = object;

    o->carry = SCALING_CARRY_ALL;
    return !strcmp(text, "all") ||
           cli_whole(line, "--carry", text, 0, 0, &o->carry);
}

#define AT(field) CLI_AT(struct options, field)

#define HEADING(text) .kind = CLI_HEADING, .help = text

static const struct cli_row option_rows[] = {
    {HEADING("Machine and ranks:")},
    {"machine", 0, "NAME", CLI_CALL, "the machine, see below (rails400)",
     .take = take_machine},
    {"nodes", 0, "N", CLI_WHOLE, "number of nodes", AT(nodes), .least = 1,
     .most = 256},
    {"node-ranks", 0, "N", CLI_WHOLE, "ranks on each node", AT(node_ranks),
     .least = 1, .most = 64},
    {"sizes", 0, "A,B,...", CLI_LIST,
     "ranks on each node, in place of --nodes and --node-ranks",
     CLI_LIST_AT(struct options, sizes, nsizes), .least = 1, .most = 64},
    {"window", 0, "N", CLI_WHOLE,
     "messages that a rank has under way at once, at most", AT(window),
     .least = 1},

    {HEADING("Simulation:")},
    {"engine", 0, "NAME", CLI_TEXT,
     "model of the network: ports (each port serves one message at a time) or "
     "simgrid (messages share links; if built with SimGrid)",
     AT(engine)},
    {"precision", 0, "S", CLI_REAL,
     "precision of --engine simgrid, in seconds (by default a 5000th of the "
     "lower bound of the time, at most 1e-6)",
     AT(precision), .least = 1e-12},
    {"seed", 0, "N", CLI_WHOLE, "seed of routings and of sizes of blocks",
     AT(seed)},

    {HEADING("Collectives:")},
    {"bytes", 0, "B", CLI_SIZE, "alltoallv, allgather: bytes of each block",
     AT(bytes)},
    {"spread", 0, "F", CLI_REAL,
     "alltoallv: blocks have from B/F to B*F bytes, at random", AT(spread),
     .least = 1},
    {"carry", 0, "B", CLI_CALL,
     "alltoallv: blocks of up to B bytes travel through a relay, together with "
     "those of other ranks of the node (SHUNT_CARRY). 0: none, every pair of "
     "ranks exchanges messages; all: every block (0)",
     .take = take_carry},
    {"two-level", 0, NULL, CLI_FLAG,
     "allgather, plan, columns, starts, lists: in two levels, inside nodes and "
     "between them",
     AT(two_level)},

    {HEADING("Tokens (dispatch, combine, rows, and the exchanges of a plan):")},
    {"mode", 0, "NAME", CLI_CALL,
     "how rows travel. plain: a row for each expert of a token; ranks: once to "
     "each rank; 2dh: as ranks, by an alltoallv in two levels; nodes: once to "
     "each node; allgather: every token to every node (nodes)",
     .take = take_mode},
    {"routing", 0, "NAME", CLI_CALL,
     "how tokens choose experts. uniform; zipf:S, popularity falls as 1/i^S; "
     "limited:M, the experts of a token are on M nodes (uniform)",
     .take = take_routing},
    {"tokens", 0, "T", CLI_WHOLE, "tokens of a rank", AT(routing.tokens)},
    {"hidden", 0, "H", CLI_WHOLE, "elements of a token", AT(hidden),
     .least = 1},
    {"topk", 0, "K", CLI_WHOLE, "experts of a token", AT(routing.topk),
     .least = 1},
    {"experts", 0, "E", CLI_WHOLE, "experts of all ranks together",
     AT(routing.experts), .least = 1},
    {"fp8", 0, NULL, CLI_FLAG,
     "rows travel to the experts as fp8 (e4m3), not bf16", AT(fp8)},
    {"narrow", 0, NULL, CLI_FLAG,
     "combine: the sums that nodes send are bf16, not f32", AT(narrow)},
    {"chunk", 0, "B", CLI_SIZE,
     "bytes of rows that travel between nodes at once (SHUNT_MOE_CHUNK)",
     AT(moe.chunk), .least = 1},
    {"no-counts", 0, NULL, CLI_FLAG,
     "plan: records have no counts of rows, so that columns and starts follow",
     AT(no_counts)},
};

static void print_fields(FILE *to, int column)
{
    fputs("\nFields of the output, beside the options:\n", to);
    cli_print_item(to, column, "time_us", "simulated time of the exchange");
    cli_print_item(to, column, "port_us, rails_us, rank_us",
                   "lower bounds of it: of the busiest port, of the links "
                   "between rails, and of the busiest rank");
    cli_print_item(to, column, "messages, messages_of_rank",
                   "messages between nodes: of all ranks, and of the rank that "
                   "sends most");
    cli_print_item(to, column, "payload, wire",
                   "bytes between nodes: of the caller's data, and with "
                   "headers, control messages and acks");
    cli_print_item(to, column, "operations",
                   "steps of all ranks: each copies, sends, or both");
    cli_print_item(to, column, "took_s", "seconds that the simulation took");
}

static void more_help(FILE *to, int column)
{
    const struct scaling_machine *m;

    print_fields(to, column);
    fputs("\nMachines:\n", to);
    for (int i = 0; (m = scaling_machine_at(i)); i++)
        cli_print_item(to, column, m->name, m->about);
}

static const struct options defaults = {
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

static const struct cli_program program = {
    .name = "shunt-scaling",
    .usage =
        "Usage: shunt-scaling OPERATION [OPTION]...\n"
        "Simulate the messages of one exchange on another machine, and print "
        "the time\n"
        "that it takes there, as one JSON object.\n"
        "\n"
        "Operations:\n"
        "  alltoallv   a block for each pair of ranks\n"
        "  allgather   a block of each rank, for all ranks\n"
        "  dispatch    rows of tokens travel to the ranks of their experts\n"
        "  combine     results of experts travel back and are added\n"
        "  plan        all-gather of the records from which ranks make a plan\n"
        "  columns     if records have no counts: all-to-all of the counts of "
        "rows for\n"
        "              each expert\n"
        "  starts      then: all-to-all of the offsets of rows on the "
        "receiving "
        "ranks\n"
        "  lists       all-to-all of the lists by which relays pass rows on\n"
        "  rows        no exchange: count the rows that leave their node, in "
        "each mode\n"
        "  machine     no exchange: print the figures of the machine\n",
    .rows = option_rows,
    .nrows = sizeof(option_rows) / sizeof(option_rows[0]),
    .defaults = &defaults,
    .more = more_help,
};

static void parse(struct options *o, int argc, char **argv)
{
    struct cli_line line;

    *o = defaults;
    o->machine = scaling_machine_at(0);
    cli_parse_or_exit(&program, o, argc, argv, &line);
    if (line.operands != argc - 1) {
        cli_help(&program, true, stderr);
        exit(2);
    }
    o->operation = argv[line.operands];
    if (!o->nsizes) {
        o->nsizes = o->nodes;
        for (int n = 0; n < o->nodes; n++)
            o->sizes[n] = o->node_ranks;
    }
    if ((double)o->bytes * o->spread > UINT32_MAX)
        wrong("--bytes", "more than a message may have");
}

/* --- schedules ------------------------------------------------------------ */

static bool has_routing(const char *operation)
{
    return !strcmp(operation, "dispatch") || !strcmp(operation, "combine") ||
           !strcmp(operation, "plan") || !strcmp(operation, "columns") ||
           !strcmp(operation, "starts") || !strcmp(operation, "lists") ||
           !strcmp(operation, "rows");
}

/* Returns the function that makes the blocks of an operation of a plan, sent as
 * an alltoallv; NULL for other operations. */
static uint32_t *(*blocks_of(const char *operation))(
    const struct scaling_topology *, const struct scaling_moe *)
{
    return !strcmp(operation, "lists")     ? scaling_plan_lists
           : !strcmp(operation, "columns") ? scaling_plan_columns
           : !strcmp(operation, "starts")  ? scaling_plan_starts
                                           : NULL;
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

/* Make blocks of B/F to B*F bytes, evenly on a logarithmic scale. */
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
           "\"dedup\": %llu, \"alone\": %llu, \"allgather\": %llu",
           (unsigned long long)rows.tokens, (unsigned long long)rows.plain,
           (unsigned long long)rows.ranks, (unsigned long long)rows.nodes,
           (unsigned long long)rows.alone, (unsigned long long)rows.allgather);
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
            /* plan_create() waits for the records. Without counts in them it
             * also waits for the columns and the starts. */
            uint32_t record = scaling_plan_record(&t, &o.moe, !o.no_counts);

            printf("\"record\": %u, \"counts\": %s, \"two_level\": %s, ",
                   record, o.no_counts ? "false" : "true",
                   o.two_level ? "true" : "false");
            scaling_allgather(&s, record, o.two_level);
        } else if (blocks_of(o.operation)) {
            uint32_t *blocks = blocks_of(o.operation)(&t, &o.moe);

            printf("\"two_level\": %s, ", o.two_level ? "true" : "false");
            scaling_alltoallv(&s, blocks, o.two_level ? 16 << 10 : SCALING_FLAT,
                              false);
            free(blocks);
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
