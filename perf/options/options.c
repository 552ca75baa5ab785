// SPDX-License-Identifier: Apache-2.0
/*
 * The command line.
 */
#include "perf/options/options.h"

#include <stdlib.h>
#include <string.h>

#include "perf/options/options_check.h"
#include "perf/options/options_help.h"
#include "src/base/fnv.h"
#include "tools/cli/cli.h"

static const struct cli_name ops[] = {
    {"barrier", PERF_BARRIER},
    {"broadcast", PERF_BROADCAST},
    {"allgather", PERF_ALLGATHER},
    {"allgatherv", PERF_ALLGATHERV},
    {"reduce_scatter", PERF_REDUCE_SCATTER},
    {"reduce_scatterv", PERF_REDUCE_SCATTERV},
    {"allreduce", PERF_ALLREDUCE},
    {"alltoall", PERF_ALLTOALL},
    {"alltoallv", PERF_ALLTOALLV},
    {"dispatch", PERF_DISPATCH},
    {"combine", PERF_COMBINE},
    {"moe", PERF_MOE},
    {"backward", PERF_BACKWARD},
    {"moe-layer", PERF_MOE_LAYER},
    {"moe-parts", PERF_MOE_PARTS},
    {"moe-step", PERF_MOE_STEP},
    {"moe-move", PERF_MOE_MOVE},
    {"moe-refresh", PERF_MOE_REFRESH},
    {"moe-reduce", PERF_MOE_REDUCE},
    {"gemm-rs", PERF_GEMM_RS},
    {"ag-gemm", PERF_AG_GEMM},
    {"copy", PERF_COPY},
    {"put", PERF_PUT},
    {NULL, 0},
};

static const struct cli_name dtypes[] = {
    {"i8", SHUNT_I8},   {"u8", SHUNT_U8},        {"i32", SHUNT_I32},
    {"u32", SHUNT_U32}, {"i64", SHUNT_I64},      {"u64", SHUNT_U64},
    {"f16", SHUNT_F16}, {"bf16", SHUNT_BF16},    {"f32", SHUNT_F32},
    {"f64", SHUNT_F64}, {"fp8", SHUNT_FP8_E4M3}, {NULL, 0},
};

static const struct cli_name reductions[] = {
    {"sum", SHUNT_SUM}, {"min", SHUNT_MIN},   {"max", SHUNT_MAX},
    {"avg", SHUNT_AVG}, {"prod", SHUNT_PROD}, {NULL, 0},
};

static const struct cli_name mems[] = {
    {"malloc", PERF_MEM_MALLOC},
    {"window", PERF_MEM_WINDOW},
    {"device", PERF_MEM_DEVICE},
    {NULL, 0},
};

static const struct cli_name peers[] = {
    {"none", PERF_PEER_NONE},     {"mpi", PERF_PEER_MPI},
    {"memcpy", PERF_PEER_MEMCPY}, {"verbs", PERF_PEER_VERBS},
    {"link", PERF_PEER_LINK},     {NULL, 0},
};

static const struct cli_name partials[] = {
    {"f32", SHUNT_MOE_PARTIALS_F32},
    {"dtype", SHUNT_MOE_PARTIALS_DTYPE},
    {"bf16", SHUNT_MOE_PARTIALS_DTYPE}, /* the type of the rows, mostly bf16 */
    {NULL, 0},
};

static const struct cli_name wires[] = {
    {"payload", SHUNT_MOE_WIRE_PAYLOAD},
    {"fp8", SHUNT_MOE_WIRE_FP8},
    {NULL, 0},
};

static const struct cli_name skews[] = {
    {"uniform", PERF_SKEW_UNIFORM},
    {"zipf", PERF_SKEW_ZIPF},
    {"zipf-by-id", PERF_SKEW_ZIPF_BY_ID},
    {"hot", PERF_SKEW_HOT},
    {"one-hot-expert", PERF_SKEW_HOT},
    {"node-limited", PERF_SKEW_NODE_LIMITED},
    {NULL, 0},
};

static const struct cli_name workloads[] = {
    {"W0", PERF_SKEW_W0}, {"W1", PERF_SKEW_W1}, {"W2", PERF_SKEW_W2},
    {"W3", PERF_SKEW_W3}, {"W4", PERF_SKEW_W4}, {"W5", PERF_SKEW_W5},
    {"W6", PERF_SKEW_W6}, {"W7", PERF_SKEW_W7}, {NULL, 0},
};

static const struct cli_name balances[] = {
    {"off", PERF_BALANCE_OFF},
    {"replicas", PERF_BALANCE_REPLICAS},
    {"microbatch", PERF_BALANCE_MICROBATCH},
    {NULL, 0},
};

static const struct cli_name caches[] = {
    {"cold", PERF_CACHE_COLD},
    {"warm", PERF_CACHE_WARM},
    {NULL, 0},
};

static const struct cli_name orders[] = {
    {"search", PERF_ORDER_SEARCH},
    {"paper", PERF_ORDER_PAPER},
    {"serial", PERF_ORDER_SERIAL},
    {NULL, 0},
};

const char *perf_op_name(enum perf_op op)
{
    return cli_name_of(ops, (int)op);
}

const char *perf_mem_name(enum perf_mem mem)
{
    return cli_name_of(mems, (int)mem);
}

const char *perf_dtype_name(enum shunt_dtype dtype)
{
    return cli_name_of(dtypes, (int)dtype);
}

const char *perf_reduce_name(enum shunt_op op)
{
    return cli_name_of(reductions, (int)op);
}

const char *perf_skew_name(enum perf_skew skew)
{
    return cli_name_of(perf_skew_is_workload(skew) ? workloads : skews,
                       (int)skew);
}

const char *perf_balance_name(enum perf_balance balance)
{
    return cli_name_of(balances, (int)balance);
}

const char *perf_cache_name(enum perf_cache cache)
{
    return cli_name_of(caches, (int)cache);
}

const char *perf_order_name(enum perf_order order)
{
    return cli_name_of(orders, (int)order);
}

/* --- values with several parts -------------------------------------------- */

/* The parameter of a routing: its default and its range. */
struct parameter {
    double fallback, least, most; /* most == 0: the routing has no parameter */
    bool whole;
};

static struct parameter parameter_of(enum perf_skew skew, bool all)
{
    switch (skew) {
    case PERF_SKEW_ZIPF:
    case PERF_SKEW_ZIPF_BY_ID:
        return (struct parameter){.fallback = 1, .most = 16};
    case PERF_SKEW_HOT:
        return all ? (struct parameter){.fallback = 1}
                   : (struct parameter){.fallback = 0.5, .most = 1};
    case PERF_SKEW_NODE_LIMITED: /* parameter 0: half of the groups */
        return (struct parameter){.least = 1, .most = 1 << 20, .whole = true};
    default:
        break;
    }
    return (struct parameter){0};
}

/* Read a routing, such as "zipf:1.2". */
static bool take_routing(void *object, const char *given, struct cli_line *line)
{
    struct perf_options *o = object;
    const char *arg = strchr(given, ':');
    char name[32], what[64];
    struct parameter p;
    uint64_t whole;
    int skew;

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(given, ":"), given);
    if (!cli_choice(line, "--routing", name, skews, &skew))
        return false;
    o->skew = (enum perf_skew)skew;
    p = parameter_of(o->skew, strcmp(name, "one-hot-expert") == 0);
    o->skew_arg = p.fallback;
    if (!arg)
        return true;
    if (p.most <= 0)
        return cli_wrong(line, "--routing: %s has no parameter", name);
    snprintf(what, sizeof(what), "--routing %s", name);
    if (!p.whole)
        return cli_real(line, what, arg + 1, p.least, p.most, &o->skew_arg);
    if (!cli_whole(line, what, arg + 1, p.least, p.most, &whole))
        return false;
    o->skew_arg = (double)whole;
    return true;
}

static bool take_workload(void *object, const char *given,
                          struct cli_line *line)
{
    struct perf_options *o = object;
    int skew;

    if (!cli_choice(line, "--workload", given, workloads, &skew))
        return false;
    o->skew = (enum perf_skew)skew;
    o->skew_arg = 0;
    return true;
}

static bool take_modes(void *object, const char *given, struct cli_line *line)
{
    struct perf_options *o = object;

    return perf_modes_read(given, &o->modes) ||
           cli_wrong(line, "--mode: '%s' is none of %s, nor two of them", given,
                     PERF_MODES_ALL);
}

/* Read --peer: one peer to compare with, and also "link". */
static bool take_peers(void *object, const char *given, struct cli_line *line)
{
    struct perf_options *o = object;

    o->peer = PERF_PEER_NONE;
    o->link = false;
    while (*given) {
        char part[32];
        int peer;

        snprintf(part, sizeof(part), "%.*s", (int)strcspn(given, ","), given);
        given += strcspn(given, ",");
        given += strspn(given, ",");
        if (!cli_choice(line, "--peer", part, peers, &peer))
            return false;
        if (peer == PERF_PEER_LINK)
            o->link = true;
        else if (o->peer != PERF_PEER_NONE)
            return cli_wrong(line, "--peer: one of mpi, memcpy and verbs");
        else
            o->peer = (enum perf_peer)peer;
    }
    return true;
}

/* Read operations, such as "allgather,alltoallv". */
static bool take_ops(struct perf_options *o, const char *given,
                     struct cli_line *line)
{
    o->nops = 0;
    for (;;) {
        size_t length = strcspn(given, ",");
        char part[32];
        int op;

        snprintf(part, sizeof(part), "%.*s", (int)length, given);
        if (!cli_choice(line, "operation", part, ops, &op))
            return false;
        for (int i = 0; i < o->nops; i++)
            if (o->ops[i] == (enum perf_op)op)
                return cli_wrong(line, "%s is named twice", part);
        o->ops[o->nops++] = (enum perf_op)op;
        if (!given[length])
            return true;
        given += length + 1;
    }
}

/* --- the table ------------------------------------------------------------ */

/* ALIKE: all ranks must have the same value. OWN: they need not. */
enum { ALIKE, OWN };

#define MILLION 1e6
#define PUT_END ((size_t)4 << 20)
#define AT(field) CLI_AT(struct perf_options, field)
#define HEADING(text) .kind = CLI_HEADING, .help = text

static const struct cli_row rows[] = {
    {HEADING("Ranks: started by shunt-run, mpirun, torchrun or another "
             "launcher, on one or several hosts, with the same options; or")},
    {"ranks", 0, "N", CLI_WHOLE,
     "start N ranks here, by shunt-run or, for --peer mpi, by mpirun",
     AT(ranks), .least = 1, .most = 4096, .first = true},
    {"repeat-births", 0, "N", CLI_WHOLE,
     "with --ranks: start the ranks N times, one run after the other, and end "
     "with the least, the median and the most over the runs",
     AT(births), .least = 1, .most = 10000, .mark = OWN},
    {"pin", 0, NULL, CLI_FLAG,
     "pin rank i of a host to its core i; by default on one host when there "
     "is one for each. The peer runs in the same process.",
     AT(pin), .value = PERF_PIN_YES, .mark = OWN},
    {"no-pin", 0, NULL, CLI_FLAG, "pin no rank", AT(pin), .value = PERF_PIN_NO,
     .mark = OWN},
    {"interface", 0, "NAME", CLI_TEXT,
     "network interface to other hosts: its address is used for the streams of "
     "--peer link, and its counters are read (default: the one that the hosts' "
     "addresses belong to)",
     AT(interface)},

    {HEADING("Sizes (of all that a rank sends or receives, whichever is more, "
             "as in nccl-tests; with k, m or g):")},
    {"begin", 'b', "SIZE", CLI_SIZE, "the smallest size", AT(begin),
     .first = true},
    {"end", 'e', "SIZE", CLI_SIZE, "the largest size", AT(end), .first = true},
    {"factor", 'f', "F", CLI_REAL, "each size is F times the one before",
     AT(factor), .least = 1.01, .most = 1e9},
    {"dtype", 0, "TYPE", CLI_CHOICE,
     "element type; unless given f32, or bf16 for tokens", AT(dtype),
     .names = dtypes},
    {"op", 0, "OP", CLI_CHOICE, "reduction", AT(reduce), .names = reductions},
    {"root", 0, "RANK", CLI_WHOLE, "root rank of broadcast", AT(root),
     .most = 1 << 20},
    {"counts", 0, "KIND", CLI_CHOICE,
     "are the blocks of alltoallv, allgatherv and reduce_scatterv equally "
     "large",
     AT(skewed), CLI_NAMES({"even", false}, {"skewed", true})},
    {"in-place", 0, NULL, CLI_FLAG,
     "the input is in the output's memory already", AT(in_place)},
    {"mem", 0, "MEM", CLI_CHOICE,
     "malloc, or window: memory of shunt_mem_alloc(), and for tokens the "
     "plan's buffers (malloc; window for tokens); the peer has malloc memory "
     "then. Or device, for dispatch, combine, moe and backward: memory of a "
     "GPU, "
     "with SHUNT_ENGINE=cuda; --peer memcpy is then a cuMemcpyAsync() of each "
     "row, and one of all bytes",
     AT(mem), .names = mems, .quiet = true, .first = true},
    {"algorithm", 0, "NAME", CLI_TEXT,
     "algorithm of Shunt's collectives between nodes: flat, two_level, or "
     "another value of SHUNT_ALGORITHM (auto)",
     AT(algorithm)},

    {HEADING("Tokens:")},
    {"tokens", 0, "N[,N...]", CLI_LIST,
     "tokens of a rank; a row for each number",
     CLI_LIST_AT(struct perf_options, tokens, ntokens), .most = 1 << 30,
     .first = true},
    {"hidden", 0, "N", CLI_WHOLE, "elements of a token", AT(hidden), .least = 1,
     .most = 1 << 24, .first = true},
    {"inner", 0, "N", CLI_WHOLE,
     "a rank's share of the width between the two products: gemm-rs is "
     "(tokens, inner) by (inner, hidden), ag-gemm (tokens, hidden) by (hidden, "
     "inner); for moe-layer and moe-parts the inner width of an expert",
     AT(inner), .least = 1, .most = 1 << 24},
    {"experts", 0, "N", CLI_WHOLE, "experts of all ranks together", AT(experts),
     .least = 1, .most = 1 << 20, .first = true},
    {"topk", 0, "N", CLI_WHOLE, "experts of a token", AT(topk), .least = 1,
     .most = 1 << 16, .first = true},
    {"wire", 0, "WIRE", CLI_CHOICE, "format of dispatched rows", AT(wire),
     .names = wires},
    {"mode", 0, "MODE", CLI_CALL,
     "how rows travel: " PERF_MODES_ALL
     " (auto); two of them, as in two-level,flat, for dispatch and for combine",
     .take = take_modes},
    {"partials", 0, "TYPE", CLI_CHOICE,
     "type of the sums that combine sends between nodes: f32 or dtype (f32)",
     AT(partials), .names = partials, .quiet = true},
    {"parts", 0, "N", CLI_WHOLE,
     "cut plans into N parts: every exchange starts all its parts and then "
     "waits for them. The peer has one. moe-layer, which needs "
     "--micro-batches 1 for it, computes one part while others travel (the "
     "best "
     "of 1, 2, 4 and 8, by trial)",
     AT(parts), .least = 1, .most = SHUNT_MOE_PARTS_MAX},
    {"routing", 0, "ROUTING", CLI_CALL,
     "uniform; zipf[:S], popularity falls as 1/i^S (1); zipf-by-id[:S], the "
     "same with expert 0 the most popular, so that popular ones share a node; "
     "hot[:P], a share P of the tokens goes to one expert (0.5); "
     "one-hot-expert, all of them do; node-limited[:M], a token's experts are "
     "on M nodes (half; on one node each rank counts as one) (uniform)",
     .take = take_routing},
    {"skew", 0, "ROUTING", CLI_CALL, "the same", .take = take_routing},
    {"workload", 0, "NAME", CLI_CALL,
     "instead of --routing: a synthetic router. W0: even; W1, W2: three of "
     "four "
     "tokens go to the first quarter of the experts; W3: they go to every "
     "second expert; W4: the later a token, the likelier it has no experts; "
     "W5: the first half of the experts has no rows; W6: as W2, with another "
     "quarter every third step; W7: even, but every fourth step every second "
     "token goes to the first quarter. All operations but moe-step measure "
     "step 0 (W7: the first step that is not even)",
     .take = take_workload},

    {HEADING("Layers (moe-layer):")},
    {"micro-batches", 0, "N", CLI_WHOLE,
     "2: one goes forward while the other goes backward; 1: forward, then "
     "backward",
     AT(micro_batches), .least = 1, .most = 2},
    {"order", 0, "ORDER", CLI_CHOICE,
     "in which order a layer computes. search: the best by a simulation with "
     "the measured times; paper: attn_f, mlp_b, mlp_dw, mlp_f, attn_b; serial: "
     "forward, then backward",
     AT(order), .names = orders, .quiet = true},
    {"layers", 0, "N", CLI_WHOLE,
     "layers that run one after another; times are for one layer, with its "
     "share of the beginning and end of all",
     AT(layers), .least = 1, .most = 1000},
    {"attention", 0, "SHARE", CLI_REAL,
     "share of the products' work that attention has", AT(attention),
     .most = 0.9},
    {"ratio", 0, "R/C", CLI_REAL,
     "also for moe-parts: choose --inner so that the exchanges (R) take R/C "
     "times as long as the computation (C); 0: --inner as given",
     AT(ratio), .most = 100},

    {HEADING("Steps (moe-step):")},
    {"balance", 0, "HOW", CLI_CHOICE,
     "copies of experts that have many rows. off: none; replicas: chosen by a "
     "prediction from the steps before; microbatch: chosen by the rows of the "
     "step itself",
     AT(balance), .names = balances, .quiet = true},
    {"slots", 0, "N", CLI_WHOLE,
     "slots for copies of experts on each rank; moe-move, moe-refresh and "
     "moe-reduce: experts of each rank that are sent",
     AT(slots), .most = 4096},
    {"within", 0, "FACTOR", CLI_REAL,
     "make as few copies as keep each rank's rows below FACTOR times the mean, "
     "if the slots permit",
     AT(within), .least = 1, .most = MILLION},
    {"copy-us", 0, "US", CLI_REAL,
     "time that a copy of an expert costs a rank in a step; no copies are made "
     "that cost more than they save (0: they cost nothing)",
     AT(copy_us), .most = MILLION},
    {"expert-us", 0, "US", CLI_REAL,
     "time that an expert sleeps for a row instead of computing, twice that in "
     "backward",
     AT(expert_us), .most = MILLION},
    {"expert-bytes", 0, "SIZE", CLI_SIZE,
     "size of an expert's parameters. In each step they are sent to its "
     "copies, which return gradients of the same size. Also the size of an "
     "expert in moe-move, moe-refresh and moe-reduce",
     AT(expert_bytes)},
    {"leaf-rows", 0, "N", CLI_WHOLE,
     "an expert's rows are divided among its copies in blocks of N rows",
     AT(leaf_rows), .least = 1, .most = 1 << 30},

    {HEADING(
        "Copies (copy; sizes from 4 KiB by a factor of 4, unless given):")},
    {"engine", 0, "NAME", CLI_TEXT,
     "name of the copy engine, a plugin (that of SHUNT_ENGINE, else dma)",
     AT(engine)},
    {"cache", 0, "STATE", CLI_CHOICE,
     "cold: copies rotate through buffers that are together larger than the "
     "last-level cache; warm: each side always copies between the same two "
     "buffers",
     AT(cache), .names = caches},
    {"row-bytes", 0, "N[,N...]", CLI_LIST,
     "bytes of a row in copy-strided and copy-index (2048,14336)",
     CLI_LIST_AT(struct perf_options, row_bytes, nrow_bytes), .least = 1,
     .most = 1 << 30},

    {HEADING("Measuring:")},
    {"peer", 0, "PEER", CLI_CALL,
     "mpi|memcpy|none|link|verbs (none). link: plain TCP streams of the bytes "
     "that must travel between the hosts; mpi,link for both; verbs, for put: "
     "libibverbs with nothing around it",
     .take = take_peers, .first = true},
    {"only-peer", 0, NULL, CLI_FLAG, "the peer alone, without Shunt",
     AT(only_peer)},
    {"overlap", 0, "TESTS", CLI_WHOLE,
     "measure how much of a call a computation of the same length hides; it "
     "tests the request TESTS times (0). 'time' is the _start call and the "
     "wait alone, 'compute' the computation alone, 'both' the computation "
     "between start and wait, and overlap = 1 - (both - compute) / time, from "
     "0 to 100 %",
     AT(tests), .most = MILLION, .optional = true,
     .with = offsetof(struct perf_options, overlap)},
    {"samples", 'n', "N", CLI_WHOLE,
     "samples of each side (default: as many as --time allows)", AT(samples),
     .least = 1, .most = MILLION},
    {"warmup", 'w', "N", CLI_WHOLE, "calls before the first sample", AT(warmup),
     .most = MILLION},
    {"batch", 0, "N", CLI_WHOLE,
     "calls back to back in one sample (default: more for shorter calls; "
     "dispatch and moe without --overlap: always one)",
     AT(batch), .least = 1, .most = MILLION},
    {"time", 0, "SECONDS", CLI_REAL,
     "time to measure a row, both sides together", AT(seconds), .least = 1e-3,
     .most = 1e6},
    {"seed", 0, "N", CLI_WHOLE, "seed of the random inputs and routings",
     AT(seed), .least = -0x1p63},
    {"json", 0, "FILE", CLI_TEXT,
     "one object a line; the settings go to stderr. With a file, objects are "
     "appended to it, and the table is printed as well. shunt-perf-report "
     "makes a page of them",
     AT(json_file), .optional = true,
     .with = offsetof(struct perf_options, json), .first = true},
    {"csv", 0, "FILE", CLI_TEXT,
     "the same fields as lines of comma-separated values, with their names in "
     "the first line",
     AT(csv_file), .optional = true,
     .with = offsetof(struct perf_options, csv)},
    {"label", 0, "TEXT", CLI_TEXT,
     "text for the field 'label' of all objects, to tell runs apart",
     AT(label)},
};

static const struct perf_options defaults = {
    .begin = 8,
    .end = (size_t)64 << 20,
    .factor = 2,
    .reduce = SHUNT_SUM,
    .tokens = {4096},
    .ntokens = 1,
    .hidden = 2048,
    .inner = 1024,
    .topk = 8,
    .parts = 1,
    .experts = 64,
    .micro_batches = 2,
    .layers = 32,
    .attention = 0.3,
    .balance = PERF_BALANCE_MICROBATCH,
    .slots = 16,
    .within = 1.02,
    .expert_us = 5,
    .expert_bytes = 1 << 20,
    .leaf_rows = 64,
    .row_bytes = {2048, 14336},
    .nrow_bytes = 2,
    .warmup = 5,
    .seconds = 1,
    .seed = 1,
};

static const struct cli_program program = {
    .name = "shunt-perf",
    .usage = perf_usage,
    .brief_usage = perf_brief_usage,
    .brief_end = perf_brief_end,
    .rows = rows,
    .nrows = sizeof(rows) / sizeof(rows[0]),
    .defaults = &defaults,
    .end = perf_about,
};

/* --- the whole line ------------------------------------------------------- */

struct perf_options perf_options_of(const struct perf_options *all, int i)
{
    struct perf_options o = *all;
    bool tokens = perf_op_is_moe(o.ops[i]);

    o.op = o.ops[i];
    if (o.op == PERF_COPY) {
        o.dtype = SHUNT_U8;
        if (!o.given.begin)
            o.begin = o.end < 4096 ? o.end : 4096;
        if (!o.given.factor)
            o.factor = 4;
    }
    if (o.op == PERF_PUT) {
        o.dtype = SHUNT_U8;
        if (!o.given.end)
            o.end = o.begin > PUT_END ? o.begin : PUT_END;
        if (!o.given.factor)
            o.factor = 8;
    }
    if (perf_op_has_experts(o.op)) {
        if (!o.dtype)
            o.dtype = SHUNT_F32;
        if (!o.given.warmup)
            o.warmup = 1;
        if (!o.given.parts)
            o.parts = 0;
        if (!o.samples)
            o.samples = o.op == PERF_MOE_LAYER   ? 5
                        : o.op == PERF_MOE_PARTS ? 9
                                                 : 16;
    }
    if (!o.dtype)
        o.dtype = tokens ? SHUNT_BF16 : SHUNT_F32;
    if (o.mem == PERF_MEM_UNSAID)
        o.mem = tokens ? PERF_MEM_WINDOW : PERF_MEM_MALLOC;
    return o;
}

void perf_options_parse(struct perf_options *o, int argc, char **argv)
{
    struct cli_line line;

    *o = defaults;
    cli_parse_or_exit(&program, o, argc, argv, &line);
    if (line.operands == argc)
        cli_usage_error(&program, "name an operation, such as alltoallv");
    if (line.operands + 1 < argc)
        perf_die(PERF_EXIT_USAGE,
                 "'%s': write several operations as one word, with commas",
                 argv[line.operands + 1]);
    if (!take_ops(o, argv[line.operands], &line))
        cli_usage_error(&program, line.why);
    o->given.begin = line.given & cli_bit(&program, "begin");
    o->given.end = line.given & cli_bit(&program, "end");
    o->given.factor = line.given & cli_bit(&program, "factor");
    o->given.warmup = line.given & cli_bit(&program, "warmup");
    o->given.parts = line.given & cli_bit(&program, "parts");
    perf_options_check_run(o);
    for (int i = 0; i < o->nops; i++) {
        const struct perf_options one = perf_options_of(o, i);
        perf_options_check_op(&one);
    }
}

/* Returns a digest of the options that decide which calls the ranks make.
 * Options for the results, which only rank 0 uses, are left out. */
uint64_t perf_options_digest(const struct perf_options *o)
{
    /* Values that cli_digest() leaves out, because functions read these
     * options. */
    const double rest[] = {o->skew, o->skew_arg,    o->peer,
                           o->link, o->modes.there, o->modes.back};
    uint64_t digest = cli_digest(&program, o, OWN);

    digest = shunti_fnv(digest, rest, sizeof(rest));
    return shunti_fnv(digest, o->ops, (size_t)o->nops * sizeof(o->ops[0]));
}
