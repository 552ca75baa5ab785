// SPDX-License-Identifier: Apache-2.0
//
// Lines of progress.
#include "progress.h"

#include "clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Is stdout the terminal of this session? mpirun gives ranks a pseudo terminal
// that is not, and passes on what they write there, mixed with what others write
// and with a tag in front: a line cannot be drawn anew in that.
static bool has_terminal(void)
{
    const char *term = getenv("TERM");

    return tcgetpgrp(STDOUT_FILENO) >= 0 && term && strcmp(term, "dumb") != 0;
}

void progress_start(struct progress *p, size_t print_every)
{
    memset(p, 0, sizeof(*p));
    p->live = has_terminal();
    p->every = print_every;
    // Written where fflush() says so: whole lines, on a terminal as well.
    setvbuf(stdout, NULL, _IOFBF, 65536);
}

static void time_left(char *to, size_t room, double seconds)
{
    int s = (int)(seconds + 0.5);

    if (s >= 3600)
        snprintf(to, room, "%d:%02d:%02d left", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(to, room, "%d:%02d left", s / 60, s % 60);
}

void progress_step(struct progress *p, const struct step_metrics *m,
                   size_t steps)
{
    char left[32] = "", of[24] = "", dropped[24] = "";
    double now = clock_now();

    p->step_s = p->step_s > 0 ? 0.9 * p->step_s + 0.1 * m->step_s : m->step_s;
    if (p->live ? now - p->last < 0.1 && m->step != steps
                : m->step != 1 && m->step % p->every && m->step != steps)
        return;
    p->last = now;
    if (steps) {
        snprintf(of, sizeof(of), "/%zu", steps);
        time_left(left, sizeof(left), (double)(steps - m->step) * p->step_s);
    }
    if (m->dropped > 0)
        snprintf(dropped, sizeof(dropped), "  dropped %.1f%%",
                 100 * m->dropped_part);
    // What two runs have in common comes first, and then times.
    printf("%sstep %4zu%s  loss %.4f  imbalance %.2f%s  %6.0f tokens/s  %5.1f "
           "GF/s  wait %2.0f%%  %s%s",
           p->live ? "\r\033[K" : "", m->step, of, m->loss, m->imbalance,
           dropped, m->tokens_per_s, m->gflops, 100 * m->wait_s / m->step_s,
           left, p->live ? "" : "\n");
    p->drawn = p->live;
    fflush(stdout);
}

void progress_say(struct progress *p, const char *format, ...)
{
    va_list args;

    if (p->drawn)
        fputs("\r\033[K", stdout);
    p->drawn = false;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}
