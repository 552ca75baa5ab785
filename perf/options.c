// SPDX-License-Identifier: Apache-2.0
/*
 * The command line.
 */
#include "perf/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/version.h>

/* In two, for C promises no more than 4095 characters of a string. */
static const char help_what[] =
    "Usage: shunt-perf OPERATION [OPTION...]\n"
    "Time an operation of Shunt, check its results, and compare it with the\n"
    "same operation by MPI or with a plain copy, in the same run.\n"
    "\n"
    "Operations:\n"
    "  barrier, broadcast, allgather, allgatherv, reduce_scatter,\n"
    "  reduce_scatterv, allreduce, alltoall, alltoallv\n"
    "  dispatch    plan a routing, send each token's row to its experts\n"
    "  combine     bring the experts' rows home and add them\n"
    "  moe         plan, dispatch and combine, one after the other\n"
    "  backward    the gradients of combine and of dispatch\n"
    "\n"
    "Ranks: started by shunt-run, mpirun, torchrun or another launcher, on "
    "one\n"
    "or several hosts, with the same options; or\n"
    "  --ranks N         start N ranks here, by shunt-run or, for --peer mpi,\n"
    "                    by mpirun\n"
    "  --repeat-births N with --ranks: start the ranks N times, one run after\n"
    "                    the other, and end with the least, the median and "
    "the\n"
    "                    most over the runs\n"
    "  --pin, --no-pin   pin rank i of a host to its core i; by default on "
    "one\n"
    "                    host when there is one for each. The peer runs in "
    "the\n"
    "                    same process.\n"
    "  --interface NAME  by which other hosts are reached: its address is "
    "used\n"
    "                    for the streams, its counters are read (found by the\n"
    "                    hosts' addresses)\n"
    "\n"
    "Sizes (of all that a rank sends or receives, whichever is more, as in\n"
    "nccl-tests; with k, m or g):\n"
    "  -b, --begin SIZE  the smallest (8)\n"
    "  -e, --end SIZE    the largest (64m)\n"
    "  -f, --factor F    from one to the next (2)\n"
    "  --dtype TYPE      i8 u8 i32 u32 i64 u64 f16 bf16 f32 f64 fp8 (f32;\n"
    "                    bf16 for tokens)\n"
    "  --op OP           sum min max avg prod (sum)\n"
    "  --root RANK       of broadcast (0)\n"
    "  --counts KIND     even or skewed, for alltoallv, allgatherv and\n"
    "                    reduce_scatterv (even)\n"
    "  --in-place        the input is in the output's memory already\n"
    "  --mem MEM         malloc, or window: memory of shunt_mem_alloc(), and\n"
    "                    for tokens the plan's buffers (malloc; window for\n"
    "                    tokens). The peer has malloc memory.\n"
    "  --algorithm NAME  of Shunt's collectives between nodes: flat, "
    "two_level,\n"
    "                    or what else SHUNT_ALGORITHM may be (auto)\n"
    "\n"
    "Tokens:\n"
    "  --tokens N[,N...] of a rank (4096); a row for each\n"
    "  --hidden N        elements of a token (2048)\n"
    "  --experts N       (64)\n"
    "  --topk N          experts of a token (8)\n"
    "  --wire WIRE       payload or fp8 (payload)\n"
    "  --mode MODE       how rows travel: auto, direct, flat, two-level or\n"
    "                    allgather (auto)\n"
    "  --partials TYPE   what combine sends between nodes: f32 or dtype (f32)\n"
    "  --routing ROUTING uniform; zipf[:S], popularity falls as 1/i^S (1);\n"
    "                    zipf-by-id[:S], the same with expert 0 the most\n"
    "                    popular, so that popular ones share a node;\n"
    "                    hot[:P], a share P of the tokens goes to one expert\n"
    "                    (0.5); one-hot-expert, all of them do;\n"
    "                    node-limited[:M], a token's experts are on M nodes\n"
    "                    (half; on one node each rank counts as one) "
    "(uniform)\n"
    "  --skew ROUTING    the same\n";

static const char help_how[] =
    "\n"
    "Measuring:\n"
    "  --peer PEER       mpi, memcpy or none (none); and link: plain TCP "
    "streams\n"
    "                    of the bytes that must travel between the hosts; "
    "mpi,link\n"
    "                    for both\n"
    "  --only-peer       the peer alone, without Shunt\n"
    "  --overlap[=TESTS] the _start call, a computation as long as the call, "
    "and\n"
    "                    the wait: how much of the call the computation hides, "
    "in\n"
    "                    which the request is tested TESTS times (0)\n"
    "  -n, --samples N   samples of each side (as many as --time allows)\n"
    "  -w, --warmup N    calls before (5)\n"
    "  --batch N         calls back to back in one sample (by their length; "
    "of\n"
    "                    dispatch and moe without --overlap always one)\n"
    "  --time SECONDS    for a row, both sides together (1)\n"
    "  --seed N          of inputs and routings (1)\n"
    "  --json[=FILE]     one object a line; the settings go to stderr. With a\n"
    "                    file, objects are appended to it, and the table is\n"
    "                    printed as well. shunt-perf-report makes a page\n"
    "                    of them\n"
    "  --csv[=FILE]      the same fields as a line of commas, with a line of "
    "their\n"
    "                    names first\n"
    "  --label TEXT      goes into the objects, to tell runs apart\n"
    "  -h, --help, --version\n"
    "\n"
    "Times are those of the slowest rank in each sample: median and 99th\n"
    "percentile over the samples. Before each sample all ranks meet at a "
    "counter\n"
    "in shared memory. With a peer, samples of the two sides alternate, and\n"
    "  ratio = the peer's median time / our median time, above 1: we are "
    "faster.\n"
    "The closing line has the worst ratio of all rows that were printed, and "
    "the\n"
    "geometric mean of those that move data: the row 'plan' is not in it.\n"
    "dispatch prints the exchange alone (the peer: pack, alltoallv, unpack) "
    "and,\n"
    "as plan+dispatch, with all that a new routing needs (the peer: counts "
    "too).\n"
    "Results are checked before and after each row, outside of the timing, on\n"
    "fresh inputs and poisoned outputs.\n"
    "With --overlap 'time' is that of start and wait alone, 'compute' of the\n"
    "computation alone, 'both' of the computation between start and wait, and\n"
    "  overlap = 1 - (both - compute) / time, from 0 to 100 %.\n"
    "\n"
    "Ranks 0 and 1 pass a cache line to and fro before each row: how long it "
    "takes\n"
    "depends on where their processors are, and so does every small call. The "
    "head\n"
    "of the table has it, JSON as pair_us in each row; it is drawn when ranks "
    "are\n"
    "started, so that a figure to be compared wants --repeat-births.\n"
    "\n"
    "Between hosts, kernel counters of the link are read around further "
    "calls:\n"
    "what crossed it beside what had to.\n"
    "\n"
    "Exit status: 0; 1 a result was wrong; 2 usage; 3 a call failed.\n"
    "\n"
    "Examples:\n"
    "  shunt-perf alltoallv --ranks 2 --peer mpi\n"
    "  shunt-perf alltoallv --ranks 2 --peer mpi --mem window --json\n"
    "  shunt-perf dispatch --ranks 2 --peer memcpy\n"
    "  shunt-perf moe --ranks 2 --peer mpi --tokens 128,1024,4096 --skew zipf\n"
    "  shunt-perf alltoallv --ranks 2 --peer mpi --overlap=8 -b 64k\n"
    "  shunt-perf alltoallv --ranks 2 -e 4k --time 0.1 --repeat-births 9\n"
    "  shunt-run -n 4 shunt-perf allreduce -b 1k -e 16m --dtype bf16\n"
    "  mpirun -n 4 shunt-perf allgather --peer mpi\n"
    "  mpirun -n 8 --host a:2,b:2,c:2,d:2 shunt-perf moe --peer mpi,link \\\n"
    "      --tokens 2048 --json=moe.json\n";

static const char *const op_names[PERF_OPS] = {
    [PERF_BARRIER] = "barrier",
    [PERF_BROADCAST] = "broadcast",
    [PERF_ALLGATHER] = "allgather",
    [PERF_ALLGATHERV] = "allgatherv",
    [PERF_REDUCE_SCATTER] = "reduce_scatter",
    [PERF_REDUCE_SCATTERV] = "reduce_scatterv",
    [PERF_ALLREDUCE] = "allreduce",
    [PERF_ALLTOALL] = "alltoall",
    [PERF_ALLTOALLV] = "alltoallv",
    [PERF_DISPATCH] = "dispatch",
    [PERF_COMBINE] = "combine",
    [PERF_MOE] = "moe",
    [PERF_BACKWARD] = "backward",
};

struct name {
    const char *name;
    int value;
};

static const struct name dtypes[] = {
    {"i8", SHUNT_I8},   {"u8", SHUNT_U8},        {"i32", SHUNT_I32},
    {"u32", SHUNT_U32}, {"i64", SHUNT_I64},      {"u64", SHUNT_U64},
    {"f16", SHUNT_F16}, {"bf16", SHUNT_BF16},    {"f32", SHUNT_F32},
    {"f64", SHUNT_F64}, {"fp8", SHUNT_FP8_E4M3}, {NULL, 0},
};

static const struct name reductions[] = {
    {"sum", SHUNT_SUM}, {"min", SHUNT_MIN},   {"max", SHUNT_MAX},
    {"avg", SHUNT_AVG}, {"prod", SHUNT_PROD}, {NULL, 0},
};

static const struct name mems[] = {
    {"malloc", PERF_MEM_MALLOC},
    {"window", PERF_MEM_WINDOW},
    {NULL, 0},
};

static const struct name peers[] = {
    {"none", PERF_PEER_NONE},
    {"mpi", PERF_PEER_MPI},
    {"memcpy", PERF_PEER_MEMCPY},
    {"link", PERF_PEER_LINK},
    {NULL, 0},
};

static const struct name counts[] = {{"even", 0}, {"skewed", 1}, {NULL, 0}};

static const struct name modes[] = {
    {"auto", SHUNT_MOE_AUTO},           {"direct", SHUNT_MOE_DIRECT},
    {"flat", SHUNT_MOE_FLAT},           {"two-level", SHUNT_MOE_TWO_LEVEL},
    {"allgather", SHUNT_MOE_ALLGATHER}, {NULL, 0},
};

static const struct name partials[] = {
    {"f32", SHUNT_MOE_PARTIALS_F32},
    {"dtype", SHUNT_MOE_PARTIALS_DTYPE},
    {"bf16", SHUNT_MOE_PARTIALS_DTYPE}, /* what it mostly is */
    {NULL, 0},
};

static const struct name wires[] = {
    {"payload", SHUNT_MOE_WIRE_PAYLOAD},
    {"fp8", SHUNT_MOE_WIRE_FP8},
    {NULL, 0},
};

static const struct name skews[] = {
    {"uniform", PERF_SKEW_UNIFORM},
    {"zipf", PERF_SKEW_ZIPF},
    {"zipf-by-id", PERF_SKEW_ZIPF_BY_ID},
    {"hot", PERF_SKEW_HOT},
    {"one-hot-expert", PERF_SKEW_HOT},
    {"node-limited", PERF_SKEW_NODE_LIMITED},
    {NULL, 0},
};

static const char *name_of(const struct name *names, int value)
{
    for (; names->name; names++)
        if (names->value == value)
            return names->name;
    return "?";
}

const char *perf_op_name(enum perf_op op)
{
    return op_names[op];
}

const char *perf_dtype_name(enum shunt_dtype dtype)
{
    return name_of(dtypes, (int)dtype);
}

const char *perf_reduce_name(enum shunt_op op)
{
    return name_of(reductions, (int)op);
}

const char *perf_skew_name(enum perf_skew skew)
{
    return name_of(skews, (int)skew);
}

const char *perf_mode_name(enum shunt_moe_mode mode)
{
    return name_of(modes, (int)mode);
}

/* -- values ---------------------------------------------------------------- */

static int read_name(const char *option, const struct name *names,
                     const char *text)
{
    char all[160] = "";

    for (const struct name *n = names; n->name; n++) {
        if (strcmp(n->name, text) == 0)
            return n->value;
        snprintf(all + strlen(all), sizeof(all) - strlen(all), " %s", n->name);
    }
    perf_die(PERF_EXIT_USAGE, "%s: '%s' is none of%s", option, text, all);
}

static double read_number(const char *option, const char *text, double min,
                          double max)
{
    char *end;

    errno = 0;
    double value = strtod(text, &end);
    if (errno || end == text || *end || !(value >= min && value <= max))
        perf_die(PERF_EXIT_USAGE, "%s: '%s' is no number from %g to %g", option,
                 text, min, max);
    return value;
}

static long read_whole(const char *option, const char *text, long min, long max)
{
    char *end;

    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < min || value > max)
        perf_die(PERF_EXIT_USAGE, "%s: '%s' is no whole number from %ld to %ld",
                 option, text, min, max);
    return value;
}

static size_t read_size(const char *option, const char *text)
{
    static const char units[] = "kmgt";
    char *end;

    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    int shift = 0;
    if (end != text && *end) {
        const char *unit = strchr(units, *end | 0x20);
        if (unit) {
            shift = 10 * (int)(unit - units + 1);
            end++;
        }
    }
    if (*text == '-' || errno || end == text || *end ||
        value > (SIZE_MAX >> 2) >> shift)
        perf_die(PERF_EXIT_USAGE, "%s: '%s' is no size such as 8, 4k or 64m",
                 option, text);
    return (size_t)value << shift;
}

/* What a function may cut up: --ranks passes the line itself on. */
static char *copy_of(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(perf_alloc(bytes), text, bytes);
}

static void read_tokens(struct perf_options *o, const char *arg)
{
    char *save = NULL, *text = copy_of(arg);

    o->ntokens = 0;
    for (char *part = strtok_r(text, ",", &save); part;
         part = strtok_r(NULL, ",", &save)) {
        if (o->ntokens == PERF_MAX_TOKENS_LIST)
            perf_die(PERF_EXIT_USAGE, "--tokens: at most %d numbers",
                     PERF_MAX_TOKENS_LIST);
        o->tokens[o->ntokens++] =
            (size_t)read_whole("--tokens", part, 0, 1 << 30);
    }
    if (!o->ntokens)
        perf_die(PERF_EXIT_USAGE, "--tokens: no number");
    free(text);
}

static void read_skew(struct perf_options *o, const char *given)
{
    char *text = copy_of(given), *arg = strchr(text, ':');

    if (arg)
        *arg++ = '\0';
    bool all = strcmp(text, "one-hot-expert") == 0;
    o->skew = (enum perf_skew)read_name("--routing", skews, text);
    if (arg && (all || o->skew == PERF_SKEW_UNIFORM))
        perf_die(PERF_EXIT_USAGE, "--routing: %s has no parameter", text);
    switch (o->skew) {
    case PERF_SKEW_ZIPF:
    case PERF_SKEW_ZIPF_BY_ID:
        o->skew_arg = arg ? read_number("--routing zipf", arg, 0, 16) : 1;
        break;
    case PERF_SKEW_HOT:
        o->skew_arg = arg   ? read_number("--routing hot", arg, 0, 1)
                      : all ? 1
                            : 0.5;
        break;
    case PERF_SKEW_NODE_LIMITED: /* 0: half of them */
        o->skew_arg =
            arg ? (double)read_whole("--routing node-limited", arg, 1, 1 << 20)
                : 0;
        break;
    case PERF_SKEW_UNIFORM:
        o->skew_arg = 0;
        break;
    }
    free(text);
}

/* One to compare with, and the links beside it. */
static void read_peers(struct perf_options *o, const char *given)
{
    char *save = NULL, *text = copy_of(given);

    o->peer = PERF_PEER_NONE;
    o->link = false;
    for (char *part = strtok_r(text, ",", &save); part;
         part = strtok_r(NULL, ",", &save)) {
        int peer = read_name("--peer", peers, part);
        if (peer == PERF_PEER_LINK)
            o->link = true;
        else if (o->peer != PERF_PEER_NONE)
            perf_die(PERF_EXIT_USAGE, "--peer: one of mpi and memcpy");
        else
            o->peer = (enum perf_peer)peer;
    }
    free(text);
}

/* -- the whole line -------------------------------------------------------- */

enum {
    OPT_DTYPE = 256,
    OPT_OP,
    OPT_ROOT,
    OPT_COUNTS,
    OPT_IN_PLACE,
    OPT_ALGORITHM,
    OPT_MEM,
    OPT_TOKENS,
    OPT_HIDDEN,
    OPT_EXPERTS,
    OPT_TOPK,
    OPT_WIRE,
    OPT_MODE,
    OPT_PARTIALS,
    OPT_SKEW,
    OPT_PEER,
    OPT_ONLY_PEER,
    OPT_OVERLAP,
    OPT_BATCH,
    OPT_TIME,
    OPT_SEED,
    OPT_RANKS,
    OPT_BIRTHS,
    OPT_PIN,
    OPT_NO_PIN,
    OPT_INTERFACE,
    OPT_JSON,
    OPT_CSV,
    OPT_LABEL,
    OPT_VERSION,
};

static const struct option table[] = {
    {"begin", required_argument, NULL, 'b'},
    {"end", required_argument, NULL, 'e'},
    {"factor", required_argument, NULL, 'f'},
    {"samples", required_argument, NULL, 'n'},
    {"warmup", required_argument, NULL, 'w'},
    {"dtype", required_argument, NULL, OPT_DTYPE},
    {"op", required_argument, NULL, OPT_OP},
    {"root", required_argument, NULL, OPT_ROOT},
    {"algorithm", required_argument, NULL, OPT_ALGORITHM},
    {"counts", required_argument, NULL, OPT_COUNTS},
    {"in-place", no_argument, NULL, OPT_IN_PLACE},
    {"mem", required_argument, NULL, OPT_MEM},
    {"tokens", required_argument, NULL, OPT_TOKENS},
    {"hidden", required_argument, NULL, OPT_HIDDEN},
    {"experts", required_argument, NULL, OPT_EXPERTS},
    {"topk", required_argument, NULL, OPT_TOPK},
    {"wire", required_argument, NULL, OPT_WIRE},
    {"mode", required_argument, NULL, OPT_MODE},
    {"partials", required_argument, NULL, OPT_PARTIALS},
    {"routing", required_argument, NULL, OPT_SKEW},
    {"skew", required_argument, NULL, OPT_SKEW},
    {"peer", required_argument, NULL, OPT_PEER},
    {"only-peer", no_argument, NULL, OPT_ONLY_PEER},
    {"overlap", optional_argument, NULL, OPT_OVERLAP},
    {"batch", required_argument, NULL, OPT_BATCH},
    {"time", required_argument, NULL, OPT_TIME},
    {"seed", required_argument, NULL, OPT_SEED},
    {"ranks", required_argument, NULL, OPT_RANKS},
    {"repeat-births", required_argument, NULL, OPT_BIRTHS},
    {"pin", no_argument, NULL, OPT_PIN},
    {"no-pin", no_argument, NULL, OPT_NO_PIN},
    {"interface", required_argument, NULL, OPT_INTERFACE},
    {"json", optional_argument, NULL, OPT_JSON},
    {"csv", optional_argument, NULL, OPT_CSV},
    {"label", required_argument, NULL, OPT_LABEL},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

static void read_option(struct perf_options *o, int option, const char *arg)
{
    switch (option) {
    case 'b':
        o->begin = read_size("-b", arg);
        break;
    case 'e':
        o->end = read_size("-e", arg);
        break;
    case 'f':
        o->factor = read_number("-f", arg, 1.01, 1e9);
        break;
    case 'n':
        o->samples = (int)read_whole("-n", arg, 1, 1000000);
        break;
    case 'w':
        o->warmup = (int)read_whole("-w", arg, 0, 1000000);
        break;
    case OPT_DTYPE:
        o->dtype = (enum shunt_dtype)read_name("--dtype", dtypes, arg);
        break;
    case OPT_OP:
        o->reduce = (enum shunt_op)read_name("--op", reductions, arg);
        break;
    case OPT_ROOT:
        o->root = (int)read_whole("--root", arg, 0, 1 << 20);
        break;
    case OPT_COUNTS:
        o->skewed = read_name("--counts", counts, arg);
        break;
    case OPT_IN_PLACE:
        o->in_place = true;
        break;
    case OPT_ALGORITHM:
        o->algorithm = arg;
        break;
    case OPT_MEM:
        o->mem = (enum perf_mem)read_name("--mem", mems, arg);
        break;
    case OPT_TOKENS:
        read_tokens(o, arg);
        break;
    case OPT_HIDDEN:
        o->hidden = (size_t)read_whole("--hidden", arg, 1, 1 << 24);
        break;
    case OPT_EXPERTS:
        o->experts = (int)read_whole("--experts", arg, 1, 1 << 20);
        break;
    case OPT_TOPK:
        o->topk = (int)read_whole("--topk", arg, 1, 1 << 16);
        break;
    case OPT_WIRE:
        o->wire = (enum shunt_moe_wire)read_name("--wire", wires, arg);
        break;
    case OPT_MODE:
        o->mode = (enum shunt_moe_mode)read_name("--mode", modes, arg);
        break;
    case OPT_PARTIALS:
        o->partials =
            (enum shunt_moe_partials)read_name("--partials", partials, arg);
        break;
    case OPT_SKEW:
        read_skew(o, arg);
        break;
    case OPT_PEER:
        read_peers(o, arg);
        break;
    case OPT_ONLY_PEER:
        o->only_peer = true;
        break;
    case OPT_OVERLAP:
        o->overlap = true;
        o->tests = arg ? (int)read_whole("--overlap", arg, 0, 1000000) : 0;
        break;
    case OPT_BATCH:
        o->batch = (int)read_whole("--batch", arg, 1, 1000000);
        break;
    case OPT_TIME:
        o->seconds = read_number("--time", arg, 1e-3, 1e6);
        break;
    case OPT_SEED:
        o->seed = strtoull(arg, NULL, 0);
        break;
    case OPT_RANKS:
        o->ranks = (int)read_whole("--ranks", arg, 1, 4096);
        break;
    case OPT_BIRTHS:
        o->births = (int)read_whole("--repeat-births", arg, 1, 10000);
        break;
    case OPT_PIN:
        o->pin = PERF_PIN_YES;
        break;
    case OPT_NO_PIN:
        o->pin = PERF_PIN_NO;
        break;
    case OPT_INTERFACE:
        o->interface = arg;
        break;
    case OPT_JSON:
        o->json = true;
        o->json_file = arg;
        break;
    case OPT_CSV:
        o->csv = true;
        o->csv_file = arg;
        break;
    case OPT_LABEL:
        o->label = arg;
        break;
    case 'h':
        fputs(help_what, stdout);
        fputs(help_how, stdout);
        exit(PERF_EXIT_OK);
    case OPT_VERSION:
        puts("shunt-perf " SHUNT_VERSION);
        exit(PERF_EXIT_OK);
    default: /* getopt has said what is wrong */
        exit(PERF_EXIT_USAGE);
    }
}

static enum perf_op read_op(const char *text)
{
    for (int op = 0; op < PERF_OPS; op++)
        if (strcmp(op_names[op], text) == 0)
            return (enum perf_op)op;
    perf_die(PERF_EXIT_USAGE, "no operation '%s'; see shunt-perf --help", text);
}

static void check(const struct perf_options *o)
{
    if (o->json && o->csv && !o->json_file && !o->csv_file)
        perf_die(PERF_EXIT_USAGE, "--json and --csv cannot both go to stdout; "
                                  "name a file for one, as in --csv=FILE");
    if (o->births && !o->ranks)
        perf_die(PERF_EXIT_USAGE,
                 "--repeat-births: only what --ranks starts can be started "
                 "again");
    if (o->begin > o->end)
        perf_die(PERF_EXIT_USAGE, "-b is above -e");
    if (perf_op_reduces(o->op) && o->dtype == SHUNT_FP8_E4M3)
        perf_die(PERF_EXIT_USAGE, "--dtype: fp8 is only moved, not reduced");
    if (perf_op_is_moe(o->op) && o->dtype != SHUNT_BF16 &&
        o->dtype != SHUNT_F32)
        perf_die(PERF_EXIT_USAGE, "--dtype: %s takes bf16 or f32",
                 perf_op_name(o->op));
    if (o->in_place && (o->op == PERF_BARRIER || o->op == PERF_BROADCAST ||
                        perf_op_is_moe(o->op)))
        perf_die(PERF_EXIT_USAGE,
                 "--in-place: %s has no input apart from its output",
                 perf_op_name(o->op));
    if (o->only_peer && o->peer == PERF_PEER_NONE && !o->link)
        perf_die(PERF_EXIT_USAGE, "--only-peer: no --peer is given");
    if ((o->op == PERF_DISPATCH || o->op == PERF_MOE) && !o->overlap &&
        o->batch > 1)
        perf_die(PERF_EXIT_USAGE,
                 "--batch: a sample of %s is one step, from its plan to its "
                 "release",
                 perf_op_name(o->op));
    if (perf_op_is_moe(o->op) && o->topk > o->experts)
        perf_die(PERF_EXIT_USAGE, "--topk is larger than --experts");
}

void perf_options_parse(struct perf_options *o, int argc, char **argv)
{
    int option;

    *o = (struct perf_options){
        .begin = 8,
        .end = (size_t)64 << 20,
        .factor = 2,
        .reduce = SHUNT_SUM,
        .tokens = {4096},
        .ntokens = 1,
        .hidden = 2048,
        .topk = 8,
        .experts = 64,
        .warmup = 5,
        .seconds = 1,
        .seed = 1,
    };
    bool mem_given = false;
    while ((option = getopt_long(argc, argv, "b:e:f:n:w:h", table, NULL)) >=
           0) {
        mem_given = mem_given || option == OPT_MEM;
        read_option(o, option, optarg);
    }

    if (optind == argc)
        perf_die(PERF_EXIT_USAGE,
                 "name an operation, such as alltoallv; see --help");
    if (optind + 1 < argc)
        perf_die(PERF_EXIT_USAGE, "'%s': one operation at a time",
                 argv[optind + 1]);
    o->op = read_op(argv[optind]);
    if (!o->dtype)
        o->dtype = perf_op_is_moe(o->op) ? SHUNT_BF16 : SHUNT_F32;
    if (!mem_given && perf_op_is_moe(o->op))
        o->mem = PERF_MEM_WINDOW;
    check(o);
}

static uint64_t mix(uint64_t digest, const void *from, size_t bytes)
{
    const unsigned char *p = from;
    for (size_t i = 0; i < bytes; i++)
        digest = (digest ^ p[i]) * UINT64_C(0x100000001b3);
    return digest;
}

/* Whatever decides how often ranks call each other; not what only rank 0 does
 * with the results. FNV-1a. */
uint64_t perf_options_digest(const struct perf_options *o)
{
    uint64_t d = UINT64_C(0xcbf29ce484222325);
    const int64_t whole[] = {
        o->op,
        (int64_t)o->begin,
        (int64_t)o->end,
        o->dtype,
        o->reduce,
        o->root,
        o->skewed,
        o->in_place,
        o->overlap,
        o->tests,
        o->mem,
        o->ntokens,
        (int64_t)o->hidden,
        o->topk,
        o->experts,
        o->wire,
        o->mode,
        o->partials,
        o->skew,
        o->warmup,
        o->samples,
        o->batch,
        o->peer,
        o->link,
        o->only_peer,
        (int64_t)o->seed,
        o->ranks,
    };
    const double real[] = {o->factor, o->skew_arg, o->seconds};

    d = mix(d, whole, sizeof(whole));
    d = mix(d, real, sizeof(real));
    return mix(d, o->tokens, (size_t)o->ntokens * sizeof(*o->tokens));
}
