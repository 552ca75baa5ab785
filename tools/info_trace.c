// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-info --trace: print tables of a timeline's sums. These are the events
 * named "summary" in a file of SHUNT_TRACE (src/trace/trace_summary.c). Each
 * event is a line of the file.
 */
#include "tools/info_trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/cli.h"

enum kind { THREAD, CALL, NEITHER };

/* A row of one of the tables. */
struct sum {
    enum kind kind;
    int rank;
    char name[40];
    double us[6]; /* for a thread: total time, then the time of each track */
    double calls, bytes, inside_us, under_way_us, hidden;
};

static enum kind read_sum(const char *line, struct sum *s)
{
    const char *args = strstr(line, "\"args\":");
    const char *pid = strstr(line, "\"pid\":");

    s->kind = NEITHER;
    if (!strstr(line, "\"name\":\"summary\"") || !args || !pid ||
        sscanf(pid, "\"pid\":%d", &s->rank) != 1)
        return NEITHER;
    if (sscanf(args,
               "\"args\":{\"thread\":\"%39[^\"]\",\"wall_us\":%lf,"
               "\"compute_us\":%lf,\"copies_us\":%lf,\"wire_us\":%lf,"
               "\"waits_us\":%lf,\"library_us\":%lf",
               s->name, &s->us[0], &s->us[1], &s->us[2], &s->us[3], &s->us[4],
               &s->us[5]) == 7)
        s->kind = THREAD;
    else if (sscanf(args,
                    "\"args\":{\"call\":\"%39[^\"]\",\"calls\":%lf,"
                    "\"bytes\":%lf,\"inside_us\":%lf,\"under_way_us\":%lf,"
                    "\"hidden\":%lf",
                    s->name, &s->calls, &s->bytes, &s->inside_us,
                    &s->under_way_us, &s->hidden) == 6)
        s->kind = CALL;
    return s->kind;
}

static void print_thread(const struct sum *s)
{
    printf("%4d  %-22s %10.3f", s->rank, s->name, s->us[0] / 1e3);
    for (int i = 1; i < 6; i++)
        printf(" %7.1f%%", s->us[0] > 0 ? 100 * s->us[i] / s->us[0] : 0);
    printf("\n");
}

static void print_call(const struct sum *s)
{
    printf("%4d  %-22s %8.0f %12.3f %12.3f %12.3f %6.1f%%\n", s->rank, s->name,
           s->calls, s->bytes / 1e6, s->under_way_us / 1e3, s->inside_us / 1e3,
           100 * s->hidden);
}

/* Print all sums of a kind. Returns how many there are. */
static size_t print_all(FILE *f, enum kind kind, const char *head)
{
    char *line = NULL;
    size_t room = 0, count = 0;
    struct sum s;

    rewind(f);
    errno = 0;
    while (getline(&line, &room, f) > 0) {
        if (read_sum(line, &s) != kind)
            continue;
        if (!count++)
            printf("%s", head);
        if (kind == THREAD)
            print_thread(&s);
        else
            print_call(&s);
    }
    free(line);
    return count;
}

int info_trace(const char *path)
{
    FILE *f = fopen(path, "r");
    size_t count;

    if (!f) {
        fprintf(stderr, "shunt-info: cannot read '%s': %s\n", path,
                strerror(errno));
        return 1;
    }
    count = print_all(f, THREAD,
                      "rank  thread                    time ms  compute   "
                      "copies     wire    waits  library\n");
    count += print_all(f, CALL,
                       "\nrank  call                      calls      MB sent "
                       "under way ms    inside ms  hidden\n");
    if (ferror(f)) { /* true also if `path` is a folder */
        fprintf(stderr, "shunt-info: cannot read '%s': %s\n", path,
                strerror(errno));
        fclose(f);
        return 1;
    }
    fclose(f);
    if (count) {
        puts(
            "\ncompute, copies, wire (sending), waits, library: shares of the "
            "thread's time\n"
            "under way: from start to end of the calls; inside: the part of it "
            "that the caller\n"
            "spent in Shunt; hidden: the rest, in which the caller computed, "
            "as a share of it\n"
            "agree: a call in which ranks find out whether a call that creates "
            "something\n"
            "succeeded on all of them");
        return !cli_written("shunt-info");
    }
    fprintf(stderr,
            "shunt-info: no sums in '%s': it is no file of SHUNT_TRACE, or its "
            "ranks were killed, or it ended at SHUNT_TRACE_MAX\n",
            path);
    return 1;
}
