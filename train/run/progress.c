// SPDX-License-Identifier: Apache-2.0
/* Printing the lines of progress. */
#include "train/run/progress.h"

#include "train/base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Is stdout the terminal of this session? mpirun gives ranks a pseudo terminal
 * of another session. mpirun passes on their output, mixed with that of other
 * ranks and with a tag in front. A line cannot be redrawn there. */
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
    /* Only fflush() writes, so that lines are whole, also on a terminal. */
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

/* The parts of a line. Parts that are equal in two runs come first, then
 * times. */
enum { STEP, LOSS, IMBALANCE, DROPPED, SPEED, GFLOPS, WAIT, LEFT, PARTS };

static void make_parts(const struct progress *p, const struct step_metrics *m,
                       size_t steps, char part[PARTS][40])
{
    /* Align columns only if lines stay, one below the other. */
    int wide = p->live ? 0 : 6, narrow = p->live ? 0 : 5;
    char of[24] = "", left[32] = "";

    memset(part, 0, PARTS * sizeof(part[0]));
    if (steps) {
        snprintf(of, sizeof(of), "/%zu", steps);
        time_left(left, sizeof(left), (double)(steps - m->step) * p->step_s);
    }
    snprintf(part[STEP], 40, "step %4zu%.20s", m->step, of);
    snprintf(part[LOSS], 40, "  loss %.4f", m->loss);
    snprintf(part[IMBALANCE], 40, "  imbalance %.2f", m->imbalance);
    if (m->dropped > 0)
        snprintf(part[DROPPED], 40, "  dropped %.1f%%", 100 * m->dropped_part);
    snprintf(part[SPEED], 40, "  %*.0f tokens/s", wide, m->tokens_per_s);
    snprintf(part[GFLOPS], 40, "  %*.1f GF/s", narrow, m->gflops);
    snprintf(part[WAIT], 40, "  wait %2.0f%%", 100 * m->wait_s / m->step_s);
    snprintf(part[LEFT], 40, "  %.30s", left);
}

/* A line that is redrawn must not wrap: parts that do not fit are left out. */
static void make_fit(char part[PARTS][40])
{
    static const int order[] = {GFLOPS, IMBALANCE, WAIT, DROPPED, SPEED, LEFT};
    struct winsize size;
    size_t length = 0, room = 80;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
        room = size.ws_col;
    for (size_t i = 0; i < PARTS; i++)
        length += strlen(part[i]);
    /* Some terminals wrap when the last column is written. */
    for (size_t i = 0; length >= room && i < sizeof(order) / sizeof(*order);
         i++) {
        length -= strlen(part[order[i]]);
        part[order[i]][0] = '\0';
    }
}

void progress_step(struct progress *p, const struct step_metrics *m,
                   size_t steps)
{
    char part[PARTS][40];
    double now = clock_now();

    p->step_s = p->step_s > 0 ? 0.9 * p->step_s + 0.1 * m->step_s : m->step_s;
    if (p->live ? now - p->last < 0.1 && m->step != steps
                : m->step != 1 && m->step % p->every && m->step != steps)
        return;
    p->last = now;
    make_parts(p, m, steps, part);
    if (p->live) {
        make_fit(part);
        fputs("\r\033[K", stdout);
    }
    for (size_t i = 0; i < PARTS; i++)
        fputs(part[i], stdout);
    if (!p->live)
        putchar('\n');
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
