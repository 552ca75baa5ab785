// SPDX-License-Identifier: Apache-2.0
/*
 * --repeat-births.
 *
 * The runs are children of this process, one after another. Rank 0 of each run
 * appends its rows to a file, which this process reads. The launcher in between
 * may pass on neither descriptors nor pipes. The file has no name, only this
 * process's descriptor. So it vanishes when this process ends, for whatever
 * reason.
 */
#include "perf/tables/repeat_births.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "perf/base/statistics.h"
#include "perf/tables/machine_rows.h"

#define NUMBER "SHUNT_PERF_BIRTH"
#define FILE_NAME "SHUNT_PERF_BIRTHS_FILE"

/* A row of one run. */
struct kept {
    int birth;
    enum perf_op part_of; /* the operation: parts of dispatch and of moe have
                           * the same name */
    char op[32];
    size_t bytes, count;
    double pair;        /* < 0: unknown */
    double ours, peers; /* medians, us; 0: not measured */
    double ratio;       /* 0: none */
};

int perf_birth(void)
{
    const char *number = getenv(NUMBER);
    return number ? atoi(number) : 0;
}

void perf_births_row(enum perf_op op, const struct perf_row *row, double ratio)
{
    const char *path = getenv(FILE_NAME);
    struct kept k = {
        .birth = perf_birth(),
        .part_of = op,
        .bytes = row->bytes,
        .count = row->count,
        .pair = row->pair,
        .ours = row->has[PERF_OURS] ? row->times[PERF_OURS].median : 0,
        .peers = row->has[PERF_PEER] ? row->times[PERF_PEER].median : 0,
        .ratio = ratio,
    };

    if (!path)
        return;
    snprintf(k.op, sizeof(k.op), "%s", row->op);
    FILE *f = fopen(path, "ae");
    if (!f || fwrite(&k, sizeof(k), 1, f) != 1 || fclose(f) != 0)
        perf_die(PERF_EXIT_FAILED, "--repeat-births: cannot write %s: %s", path,
                 strerror(errno));
}

/* --- the rows of all runs --------------------------------------------- */

struct range {
    double least, middle, most;
    size_t n;
};

/* Returns the range of the positive values. Sorts `values`. */
static struct range range_of(double *values, size_t n)
{
    struct range r = {.n = 0};
    size_t known = 0;

    for (size_t i = 0; i < n; i++)
        if (values[i] > 0)
            values[known++] = values[i];
    if (!known)
        return r;
    r.middle = perf_median(values, known);
    r.least = values[0];
    r.most = values[known - 1];
    r.n = known;
    return r;
}

static void print_range(FILE *to, const struct range *r)
{
    const double values[] = {r->least, r->middle, r->most};

    for (int i = 0; i < 3; i++) {
        if (r->n)
            fprintf(to, " %9.4g", values[i]);
        else
            fprintf(to, " %9s", "-");
    }
}

static bool same_row(const struct kept *a, const struct kept *b)
{
    return a->part_of == b->part_of && a->bytes == b->bytes &&
           a->count == b->count && strcmp(a->op, b->op) == 0;
}

/* Print the line for all rows of the same kind as `first`. */
static void print_row(FILE *to, const struct kept *all, size_t n,
                      const struct kept *first, double *values)
{
    struct range ours, peers, ratio;
    size_t found = 0;

    for (size_t i = 0; i < n; i++)
        if (same_row(&all[i], first))
            values[found++] = all[i].ours;
    ours = range_of(values, found);
    found = 0;
    for (size_t i = 0; i < n; i++)
        if (same_row(&all[i], first))
            values[found++] = all[i].peers;
    peers = range_of(values, found);
    found = 0;
    for (size_t i = 0; i < n; i++)
        if (same_row(&all[i], first))
            values[found++] = all[i].ratio;
    ratio = range_of(values, found);
    fprintf(to, "  %-21s %12zu %12zu", first->op, first->bytes, first->count);
    print_range(to, &ours);
    if (peers.n) {
        print_range(to, &peers);
        print_range(to, &ratio);
    }
    fputc('\n', to);
}

static void print_pairs(FILE *to, const struct kept *all, size_t n)
{
    fprintf(to, "# a cache line from rank 0 to 1, before the first row of each "
                "run (us):");
    for (size_t i = 0; i < n; i++)
        if (i == 0 || all[i].birth != all[i - 1].birth) {
            if (all[i].pair > 0)
                fprintf(to, " %.3f", all[i].pair);
            else
                fprintf(to, " -");
        }
    fputc('\n', to);
}

static void print_all(FILE *to, const struct kept *all, size_t n, int births)
{
    double *values = perf_alloc((n + 1) * sizeof(*values));
    bool peer = n && all[0].peers > 0 && all[0].ours > 0;

    fprintf(to,
            "#\n# %d runs, each with ranks started for it; of each row the "
            "least, the median and the most of the runs' medians\n",
            births);
    print_pairs(to, all, n);
    fprintf(to, "# %-21s %12s %12s %29s", "", "size (B)", "count", "time (us)");
    if (peer)
        fprintf(to, " %29s %29s", "peer time (us)", "ratio");
    fputc('\n', to);
    for (size_t i = 0; i < n && all[i].birth == all[0].birth; i++)
        print_row(to, all, n, &all[i], values);
    free(values);
}

static void summarize(int fd, const struct perf_options *o)
{
    bool rows = (o->json && !o->json_file) || (o->csv && !o->csv_file);
    struct kept *all = NULL, one;
    size_t n = 0;
    FILE *f = fdopen(fd, "r");

    while (f && fread(&one, sizeof(one), 1, f) == 1) {
        struct kept *more = realloc(all, (n + 1) * sizeof(*all));
        if (!more)
            perf_die(PERF_EXIT_FAILED, "no memory");
        all = more;
        all[n++] = one;
    }
    if (f)
        fclose(f);
    if (all)
        print_all(rows ? stderr : stdout, all, n, o->births);
    perf_check_written(stdout, NULL);
    free(all);
}

/* --- births --------------------------------------------------------------- */

/* Start a run. Returns 0 in the child; otherwise its pid. */
static pid_t fork_run(int number, const char *path)
{
    char text[16];
    pid_t parent = getpid();

    fflush(NULL);
    pid_t child = fork();
    if (child < 0)
        perf_die(PERF_EXIT_FAILED, "--repeat-births: cannot start a process");
    if (child > 0)
        return child;
    /* The child becomes the launcher, which must end with its parent. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        exit(PERF_EXIT_FAILED);
    snprintf(text, sizeof(text), "%d", number);
    setenv(NUMBER, text, 1);
    setenv(FILE_NAME, path, 1);
    return 0;
}

static int end_of(pid_t child)
{
    int status;

    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return PERF_EXIT_FAILED;
    return WIFEXITED(status) ? WEXITSTATUS(status) : PERF_EXIT_FAILED;
}

void perf_births(const struct perf_options *o)
{
    char path[64] = "/tmp/shunt-perf-births-XXXXXX";

    if (!o->births || perf_birth())
        return;
    int fd = mkostemp(path, O_CLOEXEC), status = PERF_EXIT_OK;
    if (fd < 0)
        perf_die(PERF_EXIT_FAILED, "--repeat-births: cannot write %s: %s", path,
                 strerror(errno));
    unlink(path);
    snprintf(path, sizeof(path), "/proc/%ld/fd/%d", (long)getpid(), fd);
    for (int i = 1; i <= o->births && status == PERF_EXIT_OK; i++) {
        pid_t child = fork_run(i, path);
        if (!child)
            return;
        status = end_of(child);
    }
    if (status == PERF_EXIT_OK)
        summarize(fd, o);
    exit(status);
}
