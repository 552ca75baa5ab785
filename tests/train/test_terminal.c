// SPDX-License-Identifier: Apache-2.0
/*
 * The output of shunt-train on the terminal of its session, and on a terminal
 * of another session. mpirun starts ranks on such a terminal.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum { STEPS = 4, ROOM = 1 << 16, DEADLINE_MS = 60000 };

/* Opens a pseudo terminal. Returns the test's end, and writes the name of the
 * program's end to `name`. */
static int open_terminal(char *name, size_t room, unsigned short columns)
{
    struct winsize size = {.ws_row = 24, .ws_col = columns};
    int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

    cr_assert(fd >= 0 && grantpt(fd) == 0 && unlockpt(fd) == 0);
    cr_assert_eq(ptsname_r(fd, name, room), 0);
    cr_assert_eq(ioctl(fd, TIOCSWINSZ, &size), 0);
    return fd;
}

/* Runs the program in the child. Never returns. */
static void become(const char *program, const char *texts, const char *terminal,
                   bool of_session)
{
    int fd;

    setsid();
    fd = open(terminal, O_RDWR | O_NOCTTY);
    if (fd < 0 || (of_session && ioctl(fd, TIOCSCTTY, 0) < 0))
        _exit(90);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    setenv("TERM", "xterm", 1);
    if (chdir(texts) < 0)
        _exit(92);
    execl(program, program, "--layers=1", "--dim=16", "--heads=2", "--seq=16",
          "--experts=2", "--expert-hidden=8", "--shared-expert=0", "--steps=4",
          "--eval-bytes=64", "--sample=0", "--print-every=1", "model/model.c",
          "run/report.c", (char *)NULL);
    _exit(91);
}

/* Runs the program, and collects its output until it ends. */
static void run(bool of_session, unsigned short columns, char *out)
{
    char name[64], program[512], texts[512];
    int status = -1, fd = open_terminal(name, sizeof(name), columns);
    size_t length = 0;

    cr_assert(getenv("SHUNT_TEST_BUILD") && getenv("SHUNT_TEST_SOURCE"));
    snprintf(program, sizeof(program), "%s/train/shunt-train",
             getenv("SHUNT_TEST_BUILD"));
    snprintf(texts, sizeof(texts), "%s/train", getenv("SHUNT_TEST_SOURCE"));
    pid_t pid = fork();
    if (pid == 0)
        become(program, texts, name, of_session);
    cr_assert_gt(pid, 0);
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        /* POLLHUP also occurs before the child has opened its end. */
        if (poll(&p, 1, DEADLINE_MS) <= 0) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            break;
        }
        ssize_t n = read(fd, out + length, ROOM - 1 - length);
        if (n > 0)
            length += (size_t)n;
        else if (waitpid(pid, &status, WNOHANG) == pid)
            break;
        else
            poll(NULL, 0, 1);
    }
    out[length] = '\0';
    close(fd);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", out);
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;

    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

Test(terminal, a_line_is_redrawn_on_the_sessions_own, .timeout = 90)
{
    static char out[ROOM];

    run(true, 80, out);
    cr_assert_gt(count(out, "\033[K"), 0, "%s", out);
}

/* A longer line would wrap, and its first part would stay on the screen. */
Test(terminal, the_line_is_no_longer_than_the_terminal, .timeout = 90)
{
    static const unsigned short columns[] = {80, 40, 200,
                                             0}; /* 0: unknown, 80 */
    static char out[ROOM];

    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        size_t most = columns[i] ? columns[i] : 80;
        run(true, columns[i], out);
        cr_assert_gt(count(out, "\033[Kstep "), 0, "%s", out);
        for (const char *at = out; (at = strstr(at, "\033[Kstep "));) {
            at += strlen("\033[K");
            size_t length = strcspn(at, "\r\n");
            cr_assert_lt(length, most, "%s", out);
            cr_assert_eq(strncmp(at + strcspn(at, "l"), "loss ", 5), 0, "%s",
                         out);
            /* If there is room, nothing may be left out. */
            cr_assert(most < 200 || count(out, " GF/s  wait ") > 0, "%s", out);
        }
    }
}

Test(terminal, whole_lines_without_escapes_on_another, .timeout = 90)
{
    static char out[ROOM];

    run(false, 80, out);
    cr_assert_eq(count(out, "\033"), 0, "%s", out);
    /* A terminal turns a line feed into a carriage return and a line feed. */
    cr_assert_eq(count(out, "\r"), count(out, "\r\n"), "%s", out);
    cr_assert_eq(count(out, "\nstep "), STEPS, "%s", out);
}
