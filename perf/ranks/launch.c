// SPDX-License-Identifier: Apache-2.0
/*
 * --ranks: replaces this process by a launcher that starts the ranks.
 */
#include "perf/ranks/launch.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "perf/perf_config.h"

/* Set in the ranks, so that they do not launch again. */
#define MARK "SHUNT_PERF_RANKS"
#define MAX_WORDS 32

static const char *program_path(void)
{
    static char path[PATH_MAX];
    if (!path[0]) {
        ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
        if (n <= 0)
            perf_die(PERF_EXIT_FAILED, "cannot read /proc/self/exe");
        path[n] = '\0';
    }
    return path;
}

const char *perf_program_folder(void)
{
    static char folder[PATH_MAX];
    if (!folder[0]) {
        snprintf(folder, sizeof(folder), "%s", program_path());
        *strrchr(folder, '/') = '\0';
    }
    return folder;
}

/* Find shunt-run: in this program's folder (installed), in the sibling folder
 * `tools` (just built), or on PATH. */
static const char *find_shunt_run(void)
{
    static char path[PATH_MAX + 32];
    snprintf(path, sizeof(path), "%s/shunt-run", perf_program_folder());
    if (access(path, X_OK) == 0)
        return path;
    snprintf(path, sizeof(path), "%s/../tools/shunt-run",
             perf_program_folder());
    if (access(path, X_OK) == 0)
        return path;
    return "shunt-run";
}

static int crowded(int ranks)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 &&
           ranks > CPU_COUNT(&set);
}

struct words {
    char *word[MAX_WORDS];
    int n;
};

static void say(struct words *w, const char *word)
{
    w->word[w->n++] = strdup(word);
}

/* perf_pin() pins the ranks, in the same way for all launchers. */
static void use_mpirun(struct words *w, int ranks, const char *count)
{
    int open_mpi = strcmp(PERF_MPI_FLAVOUR, "openmpi") == 0;

    say(w, PERF_MPIRUN);
    say(w, "-n");
    say(w, count);
    say(w, open_mpi ? "--bind-to" : "-bind-to");
    say(w, "none");
    if (!open_mpi)
        return;
    if (geteuid() == 0)
        say(w, "--allow-run-as-root");
    if (crowded(ranks)) {
        say(w, "--oversubscribe");
        /* Otherwise spinning ranks keep the other ranks from running. */
        say(w, "--mca");
        say(w, "mpi_yield_when_idle");
        say(w, "1");
    }
}

static void use_shunt_run(struct words *w, const char *count)
{
    say(w, find_shunt_run());
    say(w, "-n");
    say(w, count);
    say(w, "--raw"); /* no prefix: only rank 0 prints, in full lines */
}

void perf_launch(const struct perf_options *o, char **argv)
{
    const char *mark = getenv(MARK);
    struct words w = {.n = 0};
    char count[16];
    int argc = 0;

    /* A rank ends when its launcher ends, for whatever reason. */
    if (mark)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!o->ranks || mark)
        return;
    snprintf(count, sizeof(count), "%d", o->ranks);
    if (o->peer == PERF_PEER_MPI)
        use_mpirun(&w, o->ranks, count);
    else
        use_shunt_run(&w, count);

    while (argv[argc])
        argc++;
    char **all = perf_alloc((size_t)(w.n + argc + 1) * sizeof(*all));
    memcpy(all, w.word, (size_t)w.n * sizeof(*all));
    memcpy(all + w.n, argv, (size_t)(argc + 1) * sizeof(*all));
    all[w.n] = strdup(program_path());
    setenv(MARK, count, 1);
    execvp(all[0], all);
    perf_die(PERF_EXIT_FAILED,
             "--ranks: cannot start %s: %s; start the ranks by shunt-run or "
             "mpirun yourself",
             all[0], strerror(errno));
}
