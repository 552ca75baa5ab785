// SPDX-License-Identifier: Apache-2.0
/* The main function of rank programs, and running ranks as threads. */

#include "tests/harness/rank_main.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <shunt/status.h>

#define WATCHDOG_S 60.0
#define WATCHDOG_STATUS 99
#define SKIPPED 77

static _Thread_local int this_rank = -1;

int rank_self(void)
{
    return this_rank;
}

/* Printed before lines of ranks: with TAP, other output must be a comment. */
static const char *say_prefix = "";

int rank_rounds(int n)
{
    const int few = n / 3 > 5 ? n / 3 : 5;

    return getenv("SHUNT_TEST_BRIEF") && few < n ? few : n;
}

void rank_say(const char *format, ...)
{
    va_list args;

    flockfile(stdout);
    fputs(say_prefix, stdout);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
    funlockfile(stdout);
}

int rank_fail(const char *file, int line, const char *what, const char *format,
              ...)
{
    va_list args;

    flockfile(stderr);
    fprintf(stderr, "%s:%d: rank %d: %s: ", file, line, this_rank, what);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    funlockfile(stderr);
    return 1;
}

const char *rank_why(const struct shunt_comm *comm, enum shunt_status status)
{
    static _Thread_local char text[1024];

    snprintf(text, sizeof(text), "\"%s\" (%d): %s", shunt_strerror(status),
             (int)status, status < 0 ? shunt_last_error(comm) : "");
    return text;
}

int rank_check_refused(const struct rank *self, enum shunt_status st,
                       enum shunt_status want, const char *mine)
{
    const char *why = shunt_last_error(self->comm);

    if (self->rank == 1) {
        CHECK(st == want, "%s", rank_why(self->comm, st));
        CHECK(strstr(why, mine), "\"%s\" does not say \"%s\"", why, mine);
    } else {
        CHECK(st == SHUNT_ERR_REMOTE, "%s", rank_why(self->comm, st));
        CHECK(strstr(why, "rank 1"), "\"%s\" does not name rank 1", why);
    }
    return 0;
}

/* -- virtual nodes ----------------------------------------------------------- */

enum { NODE_NAME = 32 };

/* The leak sanitizer stops all threads before it checks. It crashes in a child
 * of fork(), which does not have its parent's threads. So children are not
 * checked. */
static bool is_child;

int __lsan_is_turned_off(void); /* the leak sanitizer calls this function, if it
                                 * exists */

int __lsan_is_turned_off(void)
{
    return is_child;
}

static void forked(void)
{
    is_child = true;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forked);
}

/* Set `name` to the node of a rank in SHUNT_TEST_NODES, as "node1". Returns
 * false if the rank has no node there. */
static bool node_of(int rank, char *name)
{
    const char *at = getenv("SHUNT_TEST_NODES");

    for (int r = 0; at && r < rank; r++) {
        at = strchr(at, ',');
        at += at != NULL;
    }
    if (!at || !*at)
        return false;
    snprintf(name, NODE_NAME, "node%.*s", (int)strcspn(at, ","), at);
    return true;
}

/* Do ranks use the transports that SHUNT_TEST_WITHIN, _ACROSS and _LONE name? A
 * test of several nodes must also have several nodes. */
static int check_links(const struct shunt_comm *comm)
{
    const char *want[2] = {getenv("SHUNT_TEST_WITHIN"),
                           getenv("SHUNT_TEST_ACROSS")};
    const char *lone = getenv("SHUNT_TEST_LONE");
    int self = shunt_comm_rank(comm), here = shunt_comm_node(comm, self);
    int other = lone ? atoi(lone) : -1;

    CHECK(!want[1] || shunt_comm_nodes(comm) > 1, "there is only one node");
    for (int r = 0; r < shunt_comm_size(comm); r++) {
        const char *link = shunt_comm_transport(comm, r);
        const bool across = shunt_comm_node(comm, r) != here;
        const char *wanted = want[across];

        if (across && (r == other || self == other))
            wanted = strchr(lone, ',') + 1;
        CHECK(!wanted || r == self || !strncmp(link, wanted, strlen(wanted)),
              "rank %d is reached by %s, not by %s", r, link, wanted);
    }
    return 0;
}

/* -- one case ---------------------------------------------------------------- */

/* Run a case on a communicator, then finish and destroy the communicator. */
static int run_with(const struct rank_case *c, struct rank *self)
{
    int failed;

    this_rank = self->rank;
    self->name = c->name;
    failed = self->comm ? check_links(self->comm) : 0;
    if (!failed)
        failed = c->run(self);
    if (self->comm && failed) {
        /* The other ranks must not wait for this one until their timeout. */
        shunt_comm_abort(self->comm);
    } else if (self->comm && !c->breaks_comm) {
        enum shunt_status st = shunt_comm_finish(self->comm);

        if (st != SHUNT_OK)
            failed = rank_fail(__FILE__, __LINE__, "shunt_comm_finish", "%s",
                               rank_why(self->comm, st));
    }
    shunt_comm_destroy(self->comm);
    self->comm = NULL;
    return failed;
}

/* -- processes ------------------------------------------------------------- */

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text ? atoi(text) : otherwise;
}

/* Create the communicator of all processes, and get this rank's number. */
static int join_world(struct rank *self)
{
    enum shunt_status st = shunt_comm_create_env(NULL, &self->comm);

    if (st != SHUNT_OK)
        return rank_fail(__FILE__, __LINE__, "shunt_comm_create_env", "%s",
                         rank_why(NULL, st));
    self->rank = shunt_comm_rank(self->comm);
    self->size = shunt_comm_size(self->comm);
    return 0;
}

static void begin_process(struct rank *self)
{
    char node[NODE_NAME];

    self->rank = number("RANK", 0);
    self->size = number("WORLD_SIZE", 1);
    this_rank = self->rank;
    if (node_of(self->rank, node))
        setenv("SHUNT_NODE", node, 1);
}

static int run_process(const struct rank_case *c, int argc, char **argv)
{
    struct rank self = {.argc = argc, .argv = argv};

    begin_process(&self);
    if (!c->no_comm)
        CHECK_RUN(join_world(&self));
    return run_with(c, &self);
}

/* -- cases together ---------------------------------------------------------- */

static const struct rank_case *find(const struct rank_case *cases,
                                    const char *name)
{
    for (; cases->name; cases++)
        if (strcmp(cases->name, name) == 0)
            return cases;
    return NULL;
}

/* Returns the index behind the last argument of the case that begins at
 * argv[at]. */
static int end_of_case(int argc, char **argv, int at)
{
    while (at < argc && strcmp(argv[at], "+") != 0)
        at++;
    return at;
}

/* Run a case on a duplicate of `world`. If it fails, abort `world`, too, so
 * that the other ranks do not wait in the next case. */
static int run_on_duplicate(const struct rank_case *c, const struct rank *world,
                            int argc, char **argv)
{
    struct rank self = *world;
    int failed;

    self.argc = argc;
    self.argv = argv;
    CHECK_OK(world->comm, shunt_comm_dup(world->comm, &self.comm));
    failed = run_with(c, &self);
    if (failed)
        shunt_comm_abort(world->comm);
    return failed;
}

static int run_together(const struct rank_case *cases, int argc, char **argv)
{
    struct rank world = {0};
    int failed = 0;

    for (int at = 0; at < argc; at = end_of_case(argc, argv, at) + 1) {
        const struct rank_case *c = find(cases, argv[at]);

        if (!c || c->no_comm || c->breaks_comm) {
            fprintf(stderr, "\"%s\" is no case to run with others\n", argv[at]);
            return 2;
        }
    }
    begin_process(&world);
    CHECK_RUN(join_world(&world));
    for (int at = 0, n = 0; at < argc && !failed; n++) {
        int end = end_of_case(argc, argv, at);

        failed = run_on_duplicate(find(cases, argv[at]), &world, end - at - 1,
                                  argv + at + 1);
        if (!failed)
            rank_say("passed %d", n);
        at = end + 1;
    }
    if (!failed)
        CHECK_OK(world.comm, shunt_comm_finish(world.comm));
    shunt_comm_destroy(world.comm);
    return failed;
}

/* -- threads --------------------------------------------------------------- */

struct rank_group {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int running;
    const struct rank_case *what;
    struct shunt_id id;
};

struct member {
    pthread_t thread;
    struct rank self;
    struct shunt_comm_config config;
    char node[NODE_NAME];
    int failed;
};

static void *run_member(void *arg)
{
    struct member *m = arg;
    struct rank_group *g = m->self.group;
    enum shunt_status st = SHUNT_OK;

    this_rank = m->self.rank;
    m->failed = 1;
    if (!g->what->no_comm)
        st = shunt_comm_create(&g->id, m->self.size, m->self.rank, &m->config,
                               &m->self.comm);
    if (st == SHUNT_OK)
        m->failed = run_with(g->what, &m->self);
    else
        rank_fail(__FILE__, __LINE__, "shunt_comm_create", "%s",
                  rank_why(NULL, st));

    pthread_mutex_lock(&g->lock);
    g->running--;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* Returns the factor by which all timeouts are multiplied, because sanitizers
 * are slow. */
static double slowness(void)
{
    const char *text = getenv("SHUNT_TEST_SLOWNESS");

    return text && atof(text) > 1 ? atof(text) : 1;
}

/* Wait until no rank runs any more. At the deadline end the process. */
static void watch(struct rank_group *g, double timeout_s)
{
    struct timespec until;
    int error = 0;

    timeout_s *= slowness();
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)timeout_s + 1;
    pthread_mutex_lock(&g->lock);
    while (g->running > 0 && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&g->changed, &g->lock, &until);
    if (g->running > 0) {
        fprintf(stderr, "%s: %d ranks not back after %g s\n",
                g->what->name ? g->what->name : "ranks", g->running, timeout_s);
        fflush(NULL);
        _exit(WATCHDOG_STATUS);
    }
    pthread_mutex_unlock(&g->lock);
}

static int run_threads(const struct rank_case *c, int n, int argc, char **argv)
{
    struct rank_group g = {.what = c};
    struct member *members = calloc((size_t)n, sizeof(*members));
    pthread_condattr_t attributes;
    enum shunt_status st = SHUNT_OK;
    bool id = !c->no_comm || c->wants_id;
    int started = 0;
    int failed = 0;

    if (!members)
        abort();
    if (id)
        st = shunt_id_create(&g.id);
    if (st != SHUNT_OK) {
        free(members);
        return rank_fail(__FILE__, __LINE__, "shunt_id_create", "%s",
                         rank_why(NULL, st));
    }
    pthread_mutex_init(&g.lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&g.changed, &attributes);
    pthread_condattr_destroy(&attributes);

    g.running = n;
    for (int i = 0; i < n; i++) {
        struct member *m = &members[i];

        m->config = (struct shunt_comm_config)SHUNT_COMM_CONFIG_INIT;
        m->config.transports =
            getenv("SHUNT_TRANSPORTS") ? getenv("SHUNT_TRANSPORTS") : "inproc";
        if (node_of(i, m->node))
            m->config.node = m->node;
        m->self = (struct rank){
            .rank = i,
            .size = n,
            .threads = true,
            .argc = argc,
            .argv = argv,
            .id = id ? &g.id : NULL,
            .config = &m->config,
            .group = &g,
        };
        if (pthread_create(&m->thread, NULL, run_member, m) != 0)
            abort();
        started++;
    }
    watch(&g, c->timeout_s > 0 ? c->timeout_s : WATCHDOG_S);
    for (int i = 0; i < started; i++) {
        pthread_join(members[i].thread, NULL);
        failed += members[i].failed != 0;
    }
    pthread_cond_destroy(&g.changed);
    pthread_mutex_destroy(&g.lock);
    free(members);
    return failed;
}

int rank_threads_run(int n, int (*run)(const struct rank *self),
                     double timeout_s)
{
    const struct rank_case c = {
        .name = "ranks", .run = run, .timeout_s = timeout_s};

    return run_threads(&c, n, 0, NULL);
}

/* -- command line ---------------------------------------------------------- */

static bool fits(const struct rank_case *c, int n)
{
    return !c->no_threads && n >= c->min_ranks &&
           (c->max_ranks == 0 || n <= c->max_ranks);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Run every case in turn, and print TAP. */
static int run_all(const struct rank_case *cases, int n)
{
    int count = 0;
    int failures = 0;

    while (cases[count].name)
        count++;
    printf("1..%d\n", count);
    say_prefix = "# ";
    for (int i = 0; i < count; i++) {
        if (!fits(&cases[i], n)) {
            printf("ok %d - %s # SKIP not for %d threads\n", i + 1,
                   cases[i].name, n);
        } else {
            const double start = now();
            int failed = run_threads(&cases[i], n, 0, NULL);

            printf("%s %d - %s # %.2f s\n", failed ? "not ok" : "ok", i + 1,
                   cases[i].name, now() - start);
            failures += failed != 0;
        }
        fflush(stdout);
    }
    return failures ? 1 : 0;
}

static int usage(const char *program)
{
    fprintf(stderr,
            "usage: %s CASE [ARG...]\n"
            "       %s --together CASE [ARG...] [+ CASE [ARG...]]...\n"
            "       %s --threads N [CASE [ARG...]]\n"
            "       %s --list\n",
            program, program, program, program);
    return 2;
}

int rank_main(int argc, char **argv, const struct rank_case *cases)
{
    const struct rank_case *c;
    int threads = 0;
    int at = 1;

    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (c = cases; c->name; c++)
            puts(c->name);
        return 0;
    }
    if (argc >= 3 && strcmp(argv[1], "--together") == 0)
        return run_together(cases, argc - 2, argv + 2);
    if (argc >= 3 && strcmp(argv[1], "--threads") == 0) {
        threads = atoi(argv[2]);
        if (threads < 1)
            return usage(argv[0]);
        at = 3;
        if (at == argc)
            return run_all(cases, threads);
    }
    if (at >= argc)
        return usage(argv[0]);
    c = find(cases, argv[at]);
    if (!c) {
        fprintf(stderr, "%s: no case \"%s\"; see --list\n", argv[0], argv[at]);
        return 2;
    }
    at++;
    if (threads == 0)
        return run_process(c, argc - at, argv + at) ? 1 : 0;
    if (!fits(c, threads)) {
        fprintf(stderr, "%s: not for %d threads\n", c->name, threads);
        return SKIPPED;
    }
    return run_threads(c, threads, argc - at, argv + at) ? 1 : 0;
}

int rank_main_tables(int argc, char **argv,
                     const struct rank_case *const *tables)
{
    struct rank_case *all = calloc(1, sizeof(*all));
    size_t count = 0;
    int status;

    for (; *tables; tables++)
        for (const struct rank_case *c = *tables; c->name; c++) {
            all = realloc(all, (count + 2) * sizeof(*all));
            if (!all)
                abort();
            all[count++] = *c;
            all[count] = (struct rank_case){0};
        }
    status = rank_main(argc, argv, all);
    free(all);
    return status;
}
