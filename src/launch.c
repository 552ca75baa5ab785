// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the launcher's environment variables.
 *
 * Each launcher has a row in a table: the variables that hold the rank, the
 * number of ranks, the number of ranks on this host, and the job's identity.
 * The identity must be the same text on all ranks of a job, and another text in
 * every other job.
 */
#include "src/launch.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/auth.h"
#include "src/bootstrap.h"
#include "src/env.h"
#include "src/error.h"
#include "src/id.h"
#include "src/log.h"

struct launcher {
    const char *how;
    const char *rank;
    const char *size[2];    /* the first that is set */
    const char *local_size; /* ranks on this host; NULL: it does not say */
    const char *nodes;      /* number of hosts; NULL: it does not say */
    const char *job[5];     /* the job's identity: those that are set */
    bool parent;            /* without these: the launcher's process */
    bool (*started)(void);  /* did it start this process? NULL: yes, if rank
                               and size are set */
};

static const char *get(const char *name)
{
    const char *text = name ? getenv(name) : NULL;

    return text && *text ? text : NULL;
}

/* Slurm's step numbers from here on are not steps of srun, but the batch script
 * or an interactive shell. */
#define SLURM_SPECIAL_STEPS 0xfffffff0ul

/*
 * The batch script of sbatch also has SLURM_PROCID=0 and SLURM_NTASKS, and so
 * has any process that it starts without srun, which is not one of several
 * tasks. Only srun sets the step.
 */
static bool started_by_srun(void)
{
    const char *step = get("SLURM_STEP_ID");

    if (step)
        return strtoul(step, NULL, 10) < SLURM_SPECIAL_STEPS;
    return get("SLURM_STEP_NUM_TASKS");
}

static const struct launcher launchers[] = {
    {.how = "torchrun",
     .rank = "RANK",
     .size = {"WORLD_SIZE"},
     .local_size = "LOCAL_WORLD_SIZE",
     .job = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
             "TORCHELASTIC_RESTART_COUNT"}},
    {.how = "Open MPI",
     .rank = "OMPI_COMM_WORLD_RANK",
     .size = {"OMPI_COMM_WORLD_SIZE"},
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .job = {"PMIX_NAMESPACE", "OMPI_MCA_orte_precondition_transports"}},
    {.how = "MPICH",
     .rank = "PMI_RANK",
     .size = {"PMI_SIZE"},
     .local_size = "MPI_LOCALNRANKS",
     .job = {"PMI_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID"},
     .parent = true},
    {.how = "Slurm",
     .rank = "SLURM_PROCID",
     .size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     .nodes = "SLURM_STEP_NUM_NODES",
     .job = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"},
     .started = started_by_srun},
};

/* A whole number in [low, high], or an error that names variable and value. */
static enum shunt_status number(const char *name, long low, long high,
                                int *value)
{
    const char *text = get(name);
    char *end;
    long n;

    errno = 0;
    n = text ? strtol(text, &end, 10) : 0;
    if (!text || errno || *end || isspace((unsigned char)*text) || n < low ||
        n > high)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "%s='%s' in the environment: it must be a whole "
                           "number from %ld to %ld",
                           name, text ? text : "", low, high);
    *value = (int)n;
    return SHUNT_OK;
}

static const char *size_variable(const struct launcher *l)
{
    return !get(l->size[0]) && get(l->size[1]) ? l->size[1] : l->size[0];
}

/* The first launcher of which both rank and size are set. */
static const struct launcher *detect(void)
{
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        const struct launcher *l = &launchers[i];

        if (get(l->rank) && get(size_variable(l)) &&
            (!l->started || l->started()))
            return l;
    }
    return NULL;
}

/* RANK without WORLD_SIZE, or the reverse, is a mistake, not a single
 * process. */
static enum shunt_status check_halves(void)
{
    bool rank = get("RANK"), size = get("WORLD_SIZE");

    if (rank != size)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "%s is set in the environment, but %s is not: set "
                           "both (and MASTER_ADDR and MASTER_PORT), or none",
                           rank ? "RANK" : "WORLD_SIZE",
                           rank ? "WORLD_SIZE" : "RANK");
    return SHUNT_OK;
}

static enum shunt_status read_rank(const struct launcher *l, int *rank,
                                   int *nranks)
{
    enum shunt_status st =
        number(size_variable(l), 1, SHUNTI_RANKS_MAX, nranks);

    if (!st)
        st = number(l->rank, 0, *nranks - 1, rank);
    return st;
}

enum shunt_status shunti_launch_rank(int *rank, int *nranks, const char **how)
{
    const struct launcher *l = detect();

    *rank = 0;
    *nranks = 1;
    *how = l ? l->how : "none";
    return l ? read_rank(l, rank, nranks) : check_halves();
}

bool shunti_launch_speaks(int rank)
{
    const struct launcher *l = detect();
    const char *launched = l ? get(l->rank) : NULL;

    return rank == 0 && (!launched || strtol(launched, NULL, 10) == 0);
}

/* --- the secret ----------------------------------------------------------- */

/*
 * Hydra sets no variable that identifies the job. But each of its processes is
 * the leader of a session, or a descendant of one, whose parent is the host's
 * Hydra proxy. That process identifies the job on this host.
 */
static long session_parent(void)
{
    char path[64], line[512], *p;
    long parent = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)getsid(0));
    f = fopen(path, "re");
    if (!f)
        return (long)getppid();
    p = fgets(line, sizeof(line), f);
    fclose(f);
    /* "pid (command) state ppid": the command may hold anything. */
    p = p ? strrchr(p, ')') : NULL;
    if (!p || sscanf(p + 1, " %*c %ld", &parent) != 1)
        return (long)getppid();
    return parent;
}

/* The job's identity: the same text on all ranks of the job. It does not
 * contain the number of ranks, so that a rank with a wrong number meets the
 * others and is told. */
static void identify(const struct launcher *l, char *text, size_t len)
{
    bool named = false;
    size_t used = (size_t)snprintf(text, len, "%s|%ld", l->how, (long)getuid());

    for (size_t i = 0; i < sizeof(l->job) / sizeof(l->job[0]); i++) {
        const char *value = get(l->job[i]);

        if (!value || used >= len)
            continue;
        named = true;
        used += (size_t)snprintf(text + used, len - used, "|%s=%s", l->job[i],
                                 value);
    }
    if (l->parent && !named && used < len)
        snprintf(text + used, len - used, "|parent=%ld", session_parent());
}

static void derive_secret(const struct launcher *l, unsigned long call,
                          struct shunti_id_parts *parts)
{
    const char *given = shunti_env_string("SHUNT_SECRET");
    unsigned char key[SHUNTI_KEY_BYTES], tag[SHUNTI_KEY_BYTES];
    char job[1024], salt[1100];

    /* Even with SHUNT_SECRET the job's identity keeps jobs apart. */
    shunti_auth_digest(given ? given : "", given ? strlen(given) : 0, key);
    identify(l, job, sizeof(job));
    snprintf(salt, sizeof(salt), "%s|call=%lu", job, call);
    shunti_auth_derive(key, "shunt launch", salt, strlen(salt), parts->secret);
    explicit_bzero(key, sizeof(key));
    /* The tag does not depend on SHUNT_SECRET, so that ranks with different
     * secrets meet and are told. */
    shunti_auth_derive(key, "shunt launch tag", salt, strlen(salt), tag);
    memcpy(parts->tag, tag, sizeof(parts->tag));
    if (!given)
        parts->flags |= SHUNTI_ID_PUBLIC;
    shunti_debug("launch", "job identity: %s", salt);
}

/* Warn if the secret can be guessed, and other hosts can connect. */
static void warn_of_public_secret(const struct shunti_launch *launch,
                                  const struct shunti_id_parts *parts)
{
    static atomic_bool warned;
    char where[64];

    if (launch->rank != 0 || !(parts->flags & SHUNTI_ID_PUBLIC) ||
        parts->kind == SHUNTI_ID_LOCAL ||
        atomic_exchange_explicit(&warned, true, memory_order_relaxed))
        return;
    shunti_id_describe(parts, where, sizeof(where));
    shunti_warn("launch",
                "SHUNT_SECRET is not set: any process that can connect to %s "
                "and guess %s's name for this job can join it; set "
                "SHUNT_SECRET to a text that only its ranks know "
                "(docs/security.md)",
                where, launch->how);
}

/* --- the root's address --------------------------------------------------- */

/* The first host of a Slurm list: "node[003-005,9],x" -> "node003". */
static bool first_host(const char *list, char *host, size_t len)
{
    size_t n = strcspn(list, ",[");

    if (n >= len)
        return false;
    memcpy(host, list, n);
    host[n] = '\0';
    if (list[n] == '[') {
        size_t digits = strspn(list + n + 1, "0123456789");

        if (!digits || n + digits >= len)
            return false;
        memcpy(host + n, list + n + 1, digits);
        host[n + digits] = '\0';
    }
    return host[0] != '\0';
}

/* Does the launcher say that all ranks are on this host? */
static bool on_one_host(const struct launcher *l, int nranks)
{
    int n;

    if (get(l->local_size))
        return !number(l->local_size, 1, INT_MAX, &n) && n >= nranks;
    if (get(l->nodes))
        return !number(l->nodes, 1, INT_MAX, &n) && n == 1;
    return false;
}

/* A port derived from the job's tag, below the kernel's ephemeral range. */
static uint16_t derived_port(const unsigned char *tag)
{
    return (uint16_t)(10000 + (tag[0] | tag[1] << 8) % 20000);
}

/* SHUNT_HOST, MASTER_ADDR, or Slurm's first node; NULL: none of them is set. */
static const char *meeting_host(const struct launcher *l, char *buffer,
                                size_t len)
{
    const char *host = shunti_env_string("SHUNT_HOST");
    const char *list = get("SLURM_STEP_NODELIST");

    if (!host && l == &launchers[0])
        host = get("MASTER_ADDR");
    if (!host && list && first_host(list, buffer, len))
        host = buffer;
    return host;
}

static enum shunt_status meeting_port(const struct launcher *l, bool master,
                                      const unsigned char *tag, int *port)
{
    double wish = shunti_env_number("SHUNT_PORT");
    enum shunt_status st;

    if (wish > 65535)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "SHUNT_PORT=%.0f is not a TCP port (1 to 65535)",
                           wish);
    if (wish >= 1) {
        *port = (int)wish;
        return SHUNT_OK;
    }
    *port = derived_port(tag);
    if (l == &launchers[0] && master) {
        st = number("MASTER_PORT", 1, 65534, port);
        if (st)
            return st;
        (*port)++; /* torchrun's own store listens on MASTER_PORT */
    }
    return SHUNT_OK;
}

/*
 * Ranks that were started with another number of ranks, by mistake, believe
 * that the job spans several hosts, and look for rank 0 at MASTER_ADDR instead
 * of at the unix socket, or the reverse. So a rank that finds no root also
 * tries the other address. Then both meet, and are told what is wrong.
 */
static void add_second_place(const struct launcher *l,
                             struct shunti_id_parts *parts)
{
    const char *host = get("MASTER_ADDR");
    struct shunti_id_parts there;
    int port;

    if (parts->kind != SHUNTI_ID_LOCAL) {
        parts->other = SHUNTI_ID_LOCAL;
        return;
    }
    /* Only an address that needs no name service. */
    if (l != &launchers[0] || !host ||
        (strcmp(host, "localhost") &&
         strspn(host, "0123456789.") != strlen(host)) ||
        number("MASTER_PORT", 1, 65534, &port) ||
        shunti_id_resolve(host, (uint16_t)(port + 1), &there))
        return;
    parts->other = there.kind;
    parts->port = there.port;
    memcpy(parts->address, there.address, sizeof(parts->address));
}

static enum shunt_status choose_place(const struct launcher *l, int nranks,
                                      struct shunti_id_parts *parts)
{
    bool asked =
        shunti_env_is_set("SHUNT_HOST") || shunti_env_is_set("SHUNT_PORT");
    char buffer[256];
    const char *host;
    enum shunt_status st;
    int port;

    parts->flags |= SHUNTI_ID_RETRY;
    if (!asked && on_one_host(l, nranks)) {
        parts->kind = SHUNTI_ID_LOCAL;
        return SHUNT_OK;
    }

    host = meeting_host(l, buffer, sizeof(buffer));
    if (!host && on_one_host(l, nranks))
        host = "127.0.0.1";
    if (!host && l == &launchers[0])
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "RANK and WORLD_SIZE=%d are set, but MASTER_ADDR is "
                           "not: set it to rank 0's host",
                           nranks);
    if (!host)
        return shunti_fail(NULL, SHUNT_ERR_UNSUPPORTED,
                           "%s started %d ranks on several hosts: set "
                           "SHUNT_HOST and SHUNT_PORT to an address of rank "
                           "0's host and a free port, on all ranks",
                           l->how, nranks);
    st = meeting_port(l, get("MASTER_PORT") || get("MASTER_ADDR"), parts->tag,
                      &port);
    if (st)
        return st;
    st = shunti_id_resolve(host, (uint16_t)port, parts);
    if (st)
        return shunti_fail(NULL, st, "%s (from %s)", shunti_error_last(),
                           shunti_env_is_set("SHUNT_HOST") ? "SHUNT_HOST"
                                                           : l->how);
    /* A name may resolve to 127.0.1.1 on its own host, and to another address
     * on others: listen on all addresses, unless it is a name of loopback. */
    if (strcmp(host, "localhost") && strcmp(host, "127.0.0.1") &&
        strcmp(host, "::1"))
        parts->flags |= SHUNTI_ID_ANY;
    return SHUNT_OK;
}

/* A single rank: an address that no other process looks for. */
static enum shunt_status choose_private_place(struct shunti_id_parts *parts)
{
    parts->kind = SHUNTI_ID_LOCAL;
    if (!shunti_auth_random(parts->secret, sizeof(parts->secret)) ||
        !shunti_auth_random(parts->tag, sizeof(parts->tag)))
        return shunti_fail(NULL, SHUNT_ERR_SYSTEM,
                           "the kernel gives no random numbers");
    return SHUNT_OK;
}

enum shunt_status shunti_launch_find(struct shunti_launch *launch)
{
    static atomic_ulong calls;
    unsigned long call =
        atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    const struct launcher *l = detect();
    struct shunti_id_parts parts = {0};
    enum shunt_status st;
    char where[64];

    memset(launch, 0, sizeof(*launch));
    st = shunti_launch_rank(&launch->rank, &launch->nranks, &launch->how);
    if (st)
        return st;
    shunti_log_set_rank(launch->rank);
    if (l && launch->nranks > 1) {
        derive_secret(l, call, &parts);
        st = choose_place(l, launch->nranks, &parts);
        if (!st) {
            add_second_place(l, &parts);
            warn_of_public_secret(launch, &parts);
        }
    } else {
        st = choose_private_place(&parts);
    }
    if (!st) {
        shunti_id_pack(&parts, &launch->id);
        shunti_id_describe(&parts, where, sizeof(where));
        shunti_debug("launch", "%s: rank %d of %d, meeting at %s", launch->how,
                     launch->rank, launch->nranks, where);
    }
    explicit_bzero(&parts, sizeof(parts));
    return st;
}
