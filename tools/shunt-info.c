// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-info: the version and build of Shunt, what it finds on this machine,
 * and every environment variable that it reads.
 *
 * shunt-info links the library statically, because it prints internals.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <shunt/shunt.h>

#include "collectives/select.h"
#include "src/base/env.h"
#include "src/host/launchers.h"
#include "src/host/topology.h"
#include "src/plugin/plugin.h"
#include "src/shunt-build.h"
#include "tools/cli/cli.h"
#include "tools/info_algorithms.h"
#include "tools/info_network.h"
#include "tools/info_pair_costs.h"
#include "tools/info_topology.h"
#include "tools/info_trace.h"

enum part {
    VERSION = 1 << 0,
    MACHINE = 1 << 1,
    TRANSPORTS = 1 << 2,
    ENVIRONMENT = 1 << 3,
};

/* All facts, collected once and printed as text or as JSON. */
struct facts {
    struct shunti_place place;
    int rank, nranks;
    const char *launcher;
    char launcher_error[512];
    struct shunti_transport_entry *transports;
    size_t ntransports;
    struct info_device *devices;
    size_t ndevices;
    struct shunti_candidates chosen;
    char chosen_error[1024]; /* why SHUNT_TRANSPORTS is invalid */
    size_t mistakes;         /* number of mistakes in SHUNT_ variables */
};

/* Remove from f->chosen the transports between hosts that do not work here.
 * Such a transport is loaded only when it is needed, so choosing it did not
 * show whether it works. */
static void check_far(struct facts *f)
{
    size_t kept = 0;

    for (size_t i = 0; i < f->chosen.count; i++) {
        const struct shunti_candidate *c = &f->chosen.item[i];
        size_t t = 0;

        while (t < f->ntransports && strcmp(f->transports[t].name, c->name))
            t++;
        if (!c->far || t == f->ntransports || f->transports[t].usable)
            f->chosen.item[kept++] = *c;
        else if (c->wanted)
            snprintf(f->chosen_error, sizeof(f->chosen_error),
                     "transport %s does not work here: %.900s", c->name,
                     f->transports[t].why);
    }
    f->chosen.count = kept;
}

static void count(void *arg, const struct shunti_env_mistake *m)
{
    (void)m;
    ++*(size_t *)arg;
}

/* The first entry of SHUNT_ALGORITHM that is ignored, its length, and why;
 * NULL: none. */
static const char *bad_algorithm(size_t *len, const char **why)
{
    const char *text = shunti_env_string("SHUNT_ALGORITHM");

    return text ? shunti_select_mistake(text, len, why) : NULL;
}

static void find(struct facts *f)
{
    memset(f, 0, sizeof(*f));
    shunti_place_here(&f->place);
    if (shunti_launch_rank(&f->rank, &f->nranks, &f->launcher))
        snprintf(f->launcher_error, sizeof(f->launcher_error), "%s",
                 shunt_last_error(NULL));
    f->transports = shunti_transport_list(&f->ntransports);
    f->devices = info_devices(&f->ndevices);
    if (shunti_transport_candidates(shunti_env_string("SHUNT_TRANSPORTS"),
                                    &f->chosen))
        snprintf(f->chosen_error, sizeof(f->chosen_error), "%s",
                 shunt_last_error(NULL));
    else
        check_far(f);
    size_t len;
    const char *why;
    shunti_env_mistakes(count, &f->mistakes);
    f->mistakes += bad_algorithm(&len, &why) != NULL;
}

/* List the CPUs of a place, as "0-3,8". */
static void list_cpus(const struct shunti_place *place, char *text, size_t len)
{
    size_t used = 0;

    text[0] = '\0';
    for (int cpu = 0; cpu < SHUNTI_CPUS_MAX && used < len; cpu++) {
        int first = cpu;

        if (!(place->cpus[cpu / 64] >> (cpu % 64) & 1))
            continue;
        while (cpu + 1 < SHUNTI_CPUS_MAX &&
               place->cpus[(cpu + 1) / 64] >> ((cpu + 1) % 64) & 1)
            cpu++;
        used += (size_t)snprintf(text + used, len - used, "%s%d",
                                 used ? "," : "", first);
        if (cpu > first && used < len)
            used += (size_t)snprintf(text + used, len - used, "-%d", cpu);
    }
}

static const char *type_name(enum shunti_env_type type)
{
    static const char *const names[] = {
        [SHUNTI_ENV_STRING] = "text",   [SHUNTI_ENV_CHOICE] = "choice",
        [SHUNTI_ENV_BOOL] = "yes/no",   [SHUNTI_ENV_SIZE] = "bytes",
        [SHUNTI_ENV_NUMBER] = "number", [SHUNTI_ENV_SECONDS] = "seconds",
        [SHUNTI_ENV_LEVELS] = "levels", [SHUNTI_ENV_PAIR] = "one or two",
    };

    return names[type];
}

/* The value of a row in the environment, in a printable form; NULL: not set. */
static const char *current(const struct shunti_env_row *row)
{
    if (!shunti_env_is_set(row->name))
        return NULL;
    return row->secret ? "(set)" : shunti_env_raw(row->name);
}

static bool is_wrong(const struct shunti_env_row *row)
{
    return shunti_env_is_set(row->name) &&
           !shunti_env_valid(row, shunti_env_raw(row->name));
}

/* --- for people ----------------------------------------------------------- */

static void print_version(void)
{
    printf("Shunt %s\n", SHUNT_VERSION);
    printf("  built with    %s, %s, sanitizers: %s\n", SHUNT_BUILD_COMPILER,
           SHUNT_BUILD_TYPE, SHUNT_BUILD_SANITIZE);
    printf("  transports    interface %u, installed in %s\n",
           SHUNT_TRANSPORT_ABI, SHUNT_PLUGIN_DIR);
}

static void print_machine(const struct facts *f)
{
    const struct shunti_place *p = &f->place;
    char cpus[128];

    list_cpus(p, cpus, sizeof(cpus));
    printf("\nThis machine\n");
    printf("  host          %s\n", p->host);
    printf(
        "  processors    CPUs %u, cores %u, NUMA nodes %u, last-level caches "
        "%u of %.1f MiB\n",
        p->machine_cpus, p->machine_cores, p->machine_numa, p->machine_caches,
        (double)p->cache_bytes / 1048576.0);
    printf("  memory        %.1f GiB\n",
           (double)p->machine_memory / 1073741824.0);
    printf("  this process  %d CPUs (%s)", shunti_places_cpus(p, 1), cpus);
    if (p->quota_milli)
        printf(", limited by its control group to the time of %.2f CPUs",
               p->quota_milli / 1000.0);
    printf("\n  launcher      ");
    if (f->launcher_error[0])
        cli_wrap(stdout, f->launcher_error, 16);
    else if (strcmp(f->launcher, "none") == 0)
        printf("none: shunt_comm_create_env() makes one rank\n");
    else
        printf("%s, rank %d of %d\n", f->launcher, f->rank, f->nranks);
}

static void print_transport(const struct shunti_transport_entry *e)
{
    printf("  %-13s %s", e->name,
           !e->transport ? "broken"
           : e->usable   ? "usable"
                         : "not usable");
    if (e->transport)
        printf(", score %d", e->transport->score);
    if (e->usable && e->estimate.bandwidth > 0)
        printf(", estimate: latency %.2g us, %.2g GB/s",
               e->estimate.latency * 1e6, e->estimate.bandwidth * 1e-9);
    printf("\n");
    if (e->transport && e->transport->summary) {
        printf("%16s", "");
        cli_wrap(stdout, e->transport->summary, 16);
    }
    if (e->why[0]) {
        printf("%16s", "");
        cli_wrap(stdout, e->why, 16);
    }
    printf("%16s%s\n", "", e->path);
}

/* Does this transport wrap another one, for tests? Then it is used only when
 * named. */
static bool is_wrapper(const struct shunti_transport_entry *e)
{
    return e->transport && e->transport->score < 0;
}

/* The position of an engine in SHUNT_ENGINE, from 1 on; 0: it is not named
 * there. */
static int engine_number(const char *name)
{
    const char *at = shunti_env_string("SHUNT_ENGINE");
    const size_t len = strlen(name);

    for (int n = 1; at && *at; n++) {
        const size_t part = strcspn(at, ",");

        if (part == len && !strncasecmp(at, name, len))
            return n;
        at += part + (at[part] == ',');
    }
    return 0;
}

static void print_engine(const struct shunti_transport_entry *e, int number,
                         bool *used)
{
    const bool use = number && e->usable && !*used;

    printf("  %-13s %s\n%16s", e->name,
           use          ? "used for calls that are started and waited for later"
           : !e->usable ? "not used: it does not work here"
           : !number    ? "not used: SHUNT_ENGINE does not name it"
                        : "not used: an engine named before it is used",
           "");
    cli_wrap(stdout, e->engine->summary, 16);
    if (e->why[0]) {
        printf("%16s", "");
        cli_wrap(stdout, e->why, 16);
    }
    printf("%16s%s\n", "", e->path);
    *used = *used || use;
}

/* Print the engines in the order in which they are probed, and then those that
 * are not probed. */
static void print_engines(const struct facts *f)
{
    const char *names = shunti_env_string("SHUNT_ENGINE");
    const int most = (int)f->ntransports;
    bool used = false;

    printf("\nCopy engines, in the order of SHUNT_ENGINE (%s)\n",
           names ? names : "unset");
    for (int n = 1; n <= most + 1; n++)
        for (size_t i = 0; i < f->ntransports; i++)
            if (f->transports[i].engine &&
                engine_number(f->transports[i].name) == n % (most + 1))
                print_engine(&f->transports[i], n % (most + 1), &used);
    if (used && shunti_env_size("SHUNT_ENGINE_MIN") == SHUNTI_ENV_AUTO)
        printf("%16sShunt learns in use which calls are faster with it;\n"
               "%16sSHUNT_LOG=info logs the result.\n",
               "", "");
}

/* `brief`: print only a summary of each wrapper. */
static void print_transports(const struct facts *f, bool brief)
{
    printf("\nTransports\n");
    if (!f->ntransports)
        printf(
            "  none was found; SHUNT_PLUGIN_PATH names folders to look in\n");
    for (size_t i = 0; i < f->ntransports; i++)
        if (!is_wrapper(&f->transports[i]) && !f->transports[i].engine)
            print_transport(&f->transports[i]);
    for (size_t i = 0; i < f->ntransports; i++) {
        const struct shunti_transport_entry *e = &f->transports[i];

        if (is_wrapper(e) && brief)
            printf("  %-13s %s (see -t)\n", e->name,
                   e->transport->summary ? e->transport->summary : "");
        else if (is_wrapper(e))
            print_transport(e);
    }
    printf("  chosen        ");
    if (f->chosen_error[0]) {
        cli_wrap(stdout, f->chosen_error, 16);
        return;
    }
    for (size_t i = 0; i < f->chosen.count; i++)
        printf("%s%s%s%s", i ? ", " : "", f->chosen.item[i].name,
               f->chosen.item[i].options[0] ? "+" : "",
               f->chosen.item[i].options);
    printf(" (SHUNT_TRANSPORTS=%s)\n",
           shunti_env_string("SHUNT_TRANSPORTS")
               ? shunti_env_string("SHUNT_TRANSPORTS")
               : "");
}

/* Print all variables with their meaning, or those that are set. */
static void print_environment(bool all)
{
    size_t count = 0, set = 0;
    const struct shunti_env_row *row;

    printf("\nVariables\n");
    for (; (row = shunti_env_row_at(count)); count++) {
        const char *value = current(row);

        set += value != NULL;
        if (!value && !all)
            continue;
        printf("  %s", row->name);
        if (value)
            printf("=%s%s", value,
                   is_wrong(row) ? "   <- not valid; the default is used" : "");
        printf("\n");
        if (!all)
            continue;
        printf("      ");
        cli_wrap(stdout, row->help, 6);
        printf("      %s%s%s; default: %s%s\n", type_name(row->type),
               row->choices ? " of " : "", row->choices ? row->choices : "",
               row->fallback ? row->fallback : "unset",
               row->from_rank_0 ? "; taken from rank 0" : "");
    }
    if (!all)
        printf("%s  (shunt-info --env explains all %zu)\n",
               set ? "" : "  none is set\n", count);
}

static void print_mistake(void *arg, const struct shunti_env_mistake *m)
{
    (void)arg;
    if (m->row)
        printf("  %s='%s' is not valid: it takes %s\n", m->name, m->value,
               shunti_env_takes(m->row));
    else
        printf("  %s: there is no such variable; the nearest name is %s\n",
               m->name, m->nearest);
}

static void print_mistakes(const struct facts *f)
{
    size_t len;
    const char *why, *algorithm = bad_algorithm(&len, &why);

    if (!f->mistakes)
        return;
    printf("\nMistakes in variables\n");
    shunti_env_mistakes(print_mistake, NULL);
    if (algorithm)
        printf("  SHUNT_ALGORITHM: '%.*s' %s\n", (int)len, algorithm, why);
}

static void print(const struct facts *f, unsigned parts)
{
    if (parts & VERSION)
        print_version();
    if (parts & MACHINE)
        print_machine(f);
    if (parts & MACHINE)
        info_network_print(f->devices, f->ndevices);
    if (parts & TRANSPORTS) {
        print_transports(f, parts & VERSION);
        print_engines(f);
    }
    if (parts & ENVIRONMENT || parts & VERSION)
        print_environment(parts & ENVIRONMENT);
    print_mistakes(f);
}

/* --- for machines --------------------------------------------------------- */

static void json_text(const char *text)
{
    if (!text) {
        fputs("null", stdout);
        return;
    }
    putchar('"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < ' ')
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void json_field(const char *before, const char *name, const char *text)
{
    printf("%s\"%s\":", before, name);
    json_text(text);
}

static void json_machine(const struct facts *f)
{
    const struct shunti_place *p = &f->place;
    char cpus[128];

    list_cpus(p, cpus, sizeof(cpus));
    json_field(",\n\"machine\":{", "host", p->host);
    printf(",\"cpus\":%u,\"cores\":%u,\"numa_nodes\":%u,\"caches\":%u,"
           "\"cache_bytes\":%llu,\"memory_bytes\":%llu,\"usable_cpus\":%d,"
           "\"quota_milli\":%u",
           p->machine_cpus, p->machine_cores, p->machine_numa,
           p->machine_caches, (unsigned long long)p->cache_bytes,
           (unsigned long long)p->machine_memory, shunti_places_cpus(p, 1),
           p->quota_milli);
    json_field(",", "affinity", cpus);
    json_field("},\n\"launch\":{", "launcher", f->launcher);
    printf(",\"rank\":%d,\"ranks\":%d", f->rank, f->nranks);
    json_field(",", "error", f->launcher_error[0] ? f->launcher_error : NULL);
    printf("}");
}

static void json_transports(const struct facts *f)
{
    printf(",\n\"transports\":[");
    for (size_t i = 0; i < f->ntransports; i++) {
        const struct shunti_transport_entry *e = &f->transports[i];
        const struct shunt_transport *t = e->transport;

        json_field(i ? ",\n {" : "\n {", "name", e->name);
        json_field(",", "path", e->path);
        json_field(",", "kind", e->engine ? "engine" : "transport");
        json_field(",", "summary",
                   t           ? t->summary
                   : e->engine ? e->engine->summary
                               : NULL);
        printf(",\"loaded\":%s,\"usable\":%s,\"score\":%d,"
               "\"latency_ns\":%.0f,\"bandwidth\":%.0f",
               t || e->engine ? "true" : "false", e->usable ? "true" : "false",
               t ? t->score : 0, e->estimate.latency * 1e9,
               e->estimate.bandwidth);
        json_field(",", "why", e->why);
        printf("}");
    }
    printf("],\n\"chosen\":[");
    for (size_t i = 0; i < f->chosen.count; i++) {
        json_field(i ? ",{" : "{", "name", f->chosen.item[i].name);
        json_field(",", "options", f->chosen.item[i].options);
        printf("}");
    }
    json_field("],\n", "chosen_error",
               f->chosen_error[0] ? f->chosen_error : NULL);
}

static void json_mistake(void *arg, const struct shunti_env_mistake *m)
{
    bool *first = arg;

    json_field(*first ? "\n {" : ",\n {", "name", m->name);
    json_field(",", "value", m->row ? m->value : NULL);
    json_field(",", "takes", m->row ? shunti_env_takes(m->row) : NULL);
    json_field(",", "nearest", m->nearest);
    printf("}");
    *first = false;
}

static void json_mistakes(void)
{
    bool first = true;
    size_t len;
    const char *why, *algorithm = bad_algorithm(&len, &why);

    printf(",\n\"mistakes\":[");
    shunti_env_mistakes(json_mistake, &first);
    if (algorithm)
        json_mistake(&first,
                     &(struct shunti_env_mistake){.name = "SHUNT_ALGORITHM"});
    printf("]");
}

static void json_environment(void)
{
    const struct shunti_env_row *row;

    printf(",\n\"variables\":[");
    for (size_t i = 0; (row = shunti_env_row_at(i)); i++) {
        json_field(i ? ",\n {" : "\n {", "name", row->name);
        json_field(",", "type", type_name(row->type));
        json_field(",", "choices", row->choices);
        json_field(",", "default", row->fallback);
        json_field(",", "value", current(row));
        printf(",\"valid\":%s", is_wrong(row) ? "false" : "true");
        printf(",\"from_rank_0\":%s", row->from_rank_0 ? "true" : "false");
        json_field(",", "help", row->help);
        printf("}");
    }
    printf("]");
}

static void print_json(const struct facts *f)
{
    json_field("{", "version", SHUNT_VERSION);
    json_field(",", "compiler", SHUNT_BUILD_COMPILER);
    json_field(",", "buildtype", SHUNT_BUILD_TYPE);
    json_field(",", "sanitize", SHUNT_BUILD_SANITIZE);
    json_field(",", "plugin_folder", SHUNT_PLUGIN_DIR);
    printf(",\"transport_abi\":%u", SHUNT_TRANSPORT_ABI);
    json_machine(f);
    printf(",\n\"network\":");
    info_network_json(f->devices, f->ndevices, json_text);
    json_transports(f);
    json_environment();
    json_mistakes();
    printf("}\n");
}

/* --- command line --------------------------------------------------------- */

struct options {
    bool env, transports, machine, topology, algorithms, ways, json;
    const char *trace;
};

#define AT(field) CLI_AT(struct options, field)

static const struct cli_row rows[] = {
    {"env", 'e', NULL, CLI_FLAG,
     "every variable: meaning, default, current value", AT(env)},
    {"transports", 't', NULL, CLI_FLAG, "only the transports", AT(transports)},
    {"machine", 'm', NULL, CLI_FLAG,
     "only the machine, its network devices and the launcher", AT(machine)},
    {"topology", 'T', NULL, CLI_FLAG,
     "make a communicator of the ranks that a launcher started, and show its "
     "nodes, CPUs, rails (ranks that send to each other between nodes), and "
     "the transport and speed of each kind of pair",
     AT(topology)},
    {"algorithms", 'a', NULL, CLI_FLAG,
     "for the same ranks: which algorithm each collective uses for which "
     "sizes, "
     "and the measured links that decide it",
     AT(algorithms)},
    {"ways", 'w', NULL, CLI_FLAG,
     "for the same ranks, measured now: which blocks outside windows "
     "(shunt_mem_alloc()) are copied through shared memory, and which by the "
     "kernel",
     AT(ways)},
    {"trace", 0, "FILE", CLI_TEXT,
     "summary of a timeline that SHUNT_TRACE wrote: how each thread spent its "
     "time, and what share of each kind of call ran while its caller did "
     "something else",
     AT(trace)},
    {"json", 'j', NULL, CLI_FLAG,
     "everything, or the topology, as one JSON object", AT(json)},
};

static const struct cli_program program = {
    .name = "shunt-info",
    .usage =
        "Usage: shunt-info [OPTION...]\n"
        "\n"
        "Says what this Shunt is, what this machine has, which transports work "
        "on it\n"
        "and why others do not, and which variables change what it does.\n",
    .rows = rows,
    .nrows = sizeof(rows) / sizeof(rows[0]),
    .end =
        "The exit status is 0 when a communicator could be made with these\n"
        "settings and all of them are understood, 1 when not (no transport; "
        "a\n"
        "launcher's variable or one of Shunt's is not valid; Shunt has no\n"
        "variable of that name) or its output cannot be written, 2 for a "
        "wrong\n"
        "option.\n"
        "\n"
        "Examples:\n"
        "  shunt-info                              an overview\n"
        "  SHUNT_TRANSPORTS=^inproc shunt-info -t  would this setting work?\n"
        "  shunt-run -n 2 shunt-info -m            what do ranks find?\n"
        "  shunt-run -n 4 -- shunt-info --topology how do they reach each "
        "other?\n"
        "  shunt-run -n 2 -- shunt-info --ways     do they share a cache?\n"
        "  SHUNT_TRACE=t shunt-run -n 2 ./my-program; shunt-info --trace t\n"
        "  shunt-info --json | jq -r '.transports[] | select(.usable) | "
        ".name'\n",
};

/* Why these options cannot be used together; NULL: they can. */
static const char *contradiction(const struct options *o)
{
    const int of_all_ranks = o->topology + o->algorithms + o->ways;
    const bool parts = o->env || o->transports || o->machine;

    if (o->json && (parts || o->algorithms || o->ways))
        return "--json prints everything, or with --topology the topology; "
               "leave the other options out";
    if (o->trace && (parts || of_all_ranks || o->json))
        return "--trace goes alone";
    if (of_all_ranks > 1 || (of_all_ranks && parts))
        return "--topology, --algorithms and --ways each go alone";
    return NULL;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct cli_line line;
    struct facts facts;
    unsigned parts;
    bool bad;

    cli_parse_or_exit(&program, &o, argc, argv, &line);
    if (line.operands < argc) {
        cli_wrong(&line, "'%s' is too much", argv[line.operands]);
        cli_usage_error(&program, line.why);
    }
    if (contradiction(&o))
        cli_usage_error(&program, contradiction(&o));
    if (o.trace)
        return info_trace(o.trace);
    if (o.algorithms)
        return info_algorithms();
    if (o.ways)
        return info_pair_costs();
    if (o.topology)
        return info_topology(o.json);
    parts = (o.env ? ENVIRONMENT : 0) | (o.transports ? TRANSPORTS : 0) |
            (o.machine ? MACHINE : 0);
    find(&facts);
    if (o.json)
        print_json(&facts);
    else
        print(&facts, parts ? parts : VERSION | MACHINE | TRANSPORTS);
    bad = facts.chosen_error[0] || facts.launcher_error[0] || facts.mistakes;
    free(facts.devices);
    shunti_transport_list_destroy(facts.transports, facts.ntransports);
    return !cli_written(program.name) || bad;
}
