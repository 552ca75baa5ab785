// SPDX-License-Identifier: Apache-2.0
/*
 * Starts rank programs, reads their output, and waits for them with a deadline.
 * All waiting is one poll() on pidfds and pipes; nothing sleeps for a fixed
 * time.
 */

#include "tests/harness/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/ranks_env.h"

#define STORY_OUTPUT \
    6000 /* bytes of each failed rank's output that harness_story() shows */

extern char **environ;

struct process {
    struct harness_rank seen;
    int pid_fd;
    int fds[2]; /* reading ends of stdout and stderr; -1: closed */
};

struct harness {
    struct process *processes;
    int count;
    double started;
    double deadline;
    bool timed_out;
    struct ranks_env ranks_env;
    char failure[512]; /* an error of the harness itself, before or while
                          starting */
    char *story;
};

/* Returns the factor by which all timeouts are multiplied, because sanitizers
 * are slow. */
static double slowness(void)
{
    const char *text = getenv("SHUNT_TEST_SLOWNESS");

    return text && atof(text) > 1 ? atof(text) : 1;
}

bool harness_sanitized(void)
{
    return slowness() > 1;
}

bool harness_brief(void)
{
    return getenv("SHUNT_TEST_BRIEF") != NULL;
}

bool harness_long(void)
{
    return getenv("SHUNT_TEST_LONG") != NULL;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- starting -------------------------------------------------------------- */

/* A copy of `environ` that can be changed. The copy does not own the
 * strings. */
struct variables {
    const char **list;
    size_t count;
};

static void set_variable(struct variables *v, const char *text)
{
    const char *equals = strchr(text, '=');
    size_t name = equals ? (size_t)(equals - text) : strlen(text);
    size_t kept = 0;

    for (size_t i = 0; i < v->count; i++) {
        bool same =
            strncmp(v->list[i], text, name) == 0 && v->list[i][name] == '=';

        if (!same)
            v->list[kept++] = v->list[i];
    }
    v->count = kept;
    if (equals)
        v->list[v->count++] = text;
    v->list[v->count] = NULL;
}

static bool copy_environment(struct variables *v)
{
    size_t n = 0;

    while (environ[n])
        n++;
    v->list = calloc(n + RANK_VARIABLES + 32, sizeof(*v->list));
    if (!v->list)
        return false;
    memcpy(v->list, environ, n * sizeof(*v->list));
    v->count = n;
    return true;
}

static bool find_program(const char *program, char *path, size_t size)
{
    const char *folder = getenv("SHUNT_TEST_BIN");
    int n;

    if (strchr(program, '/'))
        n = snprintf(path, size, "%s", program);
    else
        n = snprintf(path, size, "%s/%s", folder ? folder : ".", program);
    return n > 0 && (size_t)n < size && access(path, X_OK) == 0;
}

/*
 * Become the program `path`. Called in the child of a process that may have
 * threads. So it calls only functions that are safe after fork().
 */
static void become(const char *path, const char **args, const char **env,
                   const int out[2], pid_t parent)
{
    static const char message[] = "harness: exec failed\n";
    static const int ends[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    sigset_t none;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(126);
    dup2(out[0], STDOUT_FILENO);
    dup2(out[1], STDERR_FILENO);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* These signals must end the program even if the tests run under nohup. */
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        signal(ends[i], SIG_DFL);
    execve(path, (char **)args, (char **)env);
    if (write(STDERR_FILENO, message, sizeof(message) - 1) < 0)
        _exit(126);
    _exit(127);
}

static bool start_process(struct harness *h, int rank, const char *path,
                          const char **args, const char **env)
{
    struct process *p = &h->processes[rank];
    int out[2][2] = {{-1, -1}, {-1, -1}};
    int write_ends[2];
    pid_t pid = -1;

    if (pipe2(out[0], O_CLOEXEC) == 0 && pipe2(out[1], O_CLOEXEC) == 0) {
        write_ends[0] = out[0][1];
        write_ends[1] = out[1][1];
        fcntl(out[0][0], F_SETFL, O_NONBLOCK);
        fcntl(out[1][0], F_SETFL, O_NONBLOCK);
        pid_t parent = getpid();
        pid = fork();
        if (pid == 0)
            become(path, args, env, write_ends, parent);
    }
    for (int i = 0; i < 2; i++)
        if (out[i][1] >= 0)
            close(out[i][1]);
    p->fds[0] = out[0][0];
    p->fds[1] = out[1][0];
    if (pid < 0)
        return false;
    setpgid(pid, pid);
    p->seen.pid = pid;
    p->seen.running = true;
    p->seen.exit_code = -1;
    p->pid_fd = pidfd_open(pid, 0);
    return p->pid_fd >= 0;
}

static bool start_all(struct harness *h, const struct harness_job *job)
{
    const char *args[HARNESS_ARGS + 4] = {NULL};
    struct rank_variables own;
    struct variables v = {0};
    char path[4096];
    char threads[16];
    size_t n = 0;
    bool ok = true;

    if (!find_program(job->program, path, sizeof(path))) {
        snprintf(h->failure, sizeof(h->failure),
                 "there is no program %.400s (SHUNT_TEST_BIN says where the "
                 "tests were built)",
                 job->program);
        return false;
    }
    args[n++] = path;
    if (job->threads > 0) {
        snprintf(threads, sizeof(threads), "%d", job->threads);
        args[n++] = "--threads";
        args[n++] = threads;
    }
    for (size_t i = 0; i < HARNESS_ARGS && job->args[i]; i++)
        args[n++] = job->args[i];

    for (int rank = 0; rank < h->count && ok; rank++) {
        ok = copy_environment(&v);
        if (!ok)
            break;
        if (!job->no_launch) {
            ranks_env_of(&h->ranks_env, rank, h->count, &own);
            for (int i = 0; i < RANK_VARIABLES; i++)
                set_variable(&v, own.text[i]);
        }
        for (size_t i = 0; i < 24 && job->env[i]; i++)
            set_variable(&v, job->env[i]);
        ok = start_process(h, rank, path, args, v.list);
        free(v.list);
    }
    if (!ok)
        snprintf(h->failure, sizeof(h->failure), "cannot start %.400s: %s",
                 path, strerror(errno));
    return ok;
}

struct harness *harness_start(const struct harness_job *job)
{
    struct harness *h = calloc(1, sizeof(*h));
    int count = job->ranks > 0 ? job->ranks : 1;

    if (!h)
        abort();
    h->processes = calloc((size_t)count, sizeof(*h->processes));
    if (!h->processes)
        abort();
    h->count = count;
    h->started = now();
    h->deadline =
        h->started +
        slowness() * (job->timeout_s > 0 ? job->timeout_s : HARNESS_TIMEOUT);
    for (int i = 0; i < count; i++) {
        struct process *p = &h->processes[i];

        p->pid_fd = p->fds[0] = p->fds[1] = -1;
        p->seen.exit_code = -1;
        p->seen.out = calloc(1, 1);
        p->seen.err = calloc(1, 1);
        if (!p->seen.out || !p->seen.err)
            abort();
    }
    if (job->threads > 0 && count > 1)
        snprintf(h->failure, sizeof(h->failure),
                 "threads and more than one process");
    else if (!ranks_env_init(&h->ranks_env))
        snprintf(h->failure, sizeof(h->failure), "no port or secret: %s",
                 strerror(errno));
    else
        start_all(h, job);
    return h;
}

/* -- waiting --------------------------------------------------------------- */

/* Append all output in the pipe to `text`. At the end of the output, close the
 * pipe. */
static void take(int *fd, char **text, size_t *bytes)
{
    char part[4096];
    ssize_t n;

    if (*fd < 0)
        return;
    while ((n = read(*fd, part, sizeof(part))) > 0) {
        char *more = realloc(*text, *bytes + (size_t)n + 1);

        if (!more)
            abort();
        memcpy(more + *bytes, part, (size_t)n);
        *text = more;
        *bytes += (size_t)n;
        more[*bytes] = '\0';
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(*fd);
        *fd = -1;
    }
}

static void take_output(struct process *p)
{
    take(&p->fds[0], &p->seen.out, &p->seen.out_bytes);
    take(&p->fds[1], &p->seen.err, &p->seen.err_bytes);
}

static void take_end(struct harness *h, struct process *p)
{
    int status;

    /* Kill the rank's children first. As long as the rank is a zombie, no other
     * process can have its process group. */
    kill(-p->seen.pid, SIGKILL);
    if (waitpid(p->seen.pid, &status, 0) != p->seen.pid)
        return;
    p->seen.running = false;
    p->seen.ended_s = now() - h->started;
    if (WIFEXITED(status))
        p->seen.exit_code = WEXITSTATUS(status);
    else
        p->seen.signal = WTERMSIG(status);
    close(p->pid_fd);
    p->pid_fd = -1;
    take_output(p);
}

static int running(const struct harness *h)
{
    int n = 0;

    for (int i = 0; i < h->count; i++)
        n += h->processes[i].seen.running;
    return n;
}

/* Wait until a rank prints or ends, and record that. Returns false at the
 * deadline. */
static bool advance(struct harness *h)
{
    struct pollfd *polls = calloc(3 * (size_t)h->count, sizeof(*polls));
    double left = h->deadline - now();

    if (!polls)
        abort();
    for (int i = 0; i < h->count; i++) {
        struct process *p = &h->processes[i];

        polls[3 * i] = (struct pollfd){.fd = p->fds[0], .events = POLLIN};
        polls[3 * i + 1] = (struct pollfd){.fd = p->fds[1], .events = POLLIN};
        polls[3 * i + 2] = (struct pollfd){.fd = p->pid_fd, .events = POLLIN};
    }
    poll(polls, 3 * (nfds_t)h->count,
         left <= 0    ? 0
         : left > 1e5 ? 100000000
                      : (int)(left * 1000) + 1);
    for (int i = 0; i < h->count; i++) {
        take_output(&h->processes[i]);
        if (polls[3 * i + 2].fd >= 0 && polls[3 * i + 2].revents)
            take_end(h, &h->processes[i]);
    }
    free(polls);
    /* Ranks that ended in time count, even if this is called after the
     * deadline. */
    if (left <= 0 && running(h) > 0)
        h->timed_out = true;
    return !h->timed_out;
}

static bool has_line(const char *text, const char *line)
{
    size_t length = strlen(line);

    for (const char *at = text; (at = strstr(at, line)); at++)
        if ((at == text || at[-1] == '\n') && at[length] == '\n')
            return true;
    return false;
}

bool harness_await(struct harness *h, int rank, const char *line)
{
    struct process *p = &h->processes[rank];

    while (!has_line(p->seen.out, line)) {
        if (!p->seen.running || !advance(h))
            return has_line(p->seen.out, line);
    }
    return true;
}

void harness_allow(struct harness *h, double seconds)
{
    h->deadline = now() + slowness() * seconds;
}

bool harness_await_end(struct harness *h, int rank)
{
    while (h->processes[rank].seen.running)
        if (!advance(h))
            return false;
    return true;
}

void harness_signal(struct harness *h, int rank, int signo)
{
    if (h->processes[rank].seen.running)
        kill(-h->processes[rank].seen.pid, signo);
}

static void kill_all(struct harness *h)
{
    for (int i = 0; i < h->count; i++) {
        struct process *p = &h->processes[i];

        if (p->seen.running) {
            kill(-p->seen.pid, SIGKILL);
            take_end(h, p);
        }
    }
}

bool harness_wait(struct harness *h)
{
    while (running(h) > 0 && h->failure[0] == '\0' && advance(h))
        continue;
    kill_all(h);
    return harness_ok(h);
}

bool harness_ok(const struct harness *h)
{
    for (int i = 0; i < h->count; i++)
        if (h->processes[i].seen.exit_code != 0)
            return false;
    return h->failure[0] == '\0' && !h->timed_out;
}

bool harness_timed_out(const struct harness *h)
{
    return h->timed_out;
}

double harness_clock(const struct harness *h)
{
    return now() - h->started;
}

const struct harness_rank *harness_rank(const struct harness *h, int rank)
{
    return &h->processes[rank].seen;
}

/* -- telling --------------------------------------------------------------- */

/* Returns the end of a text, starting with a whole line. */
static const char *tail(const char *text, size_t bytes)
{
    const char *at = text;

    if (bytes > STORY_OUTPUT) {
        at = text + bytes - STORY_OUTPUT;
        while (*at && *at != '\n')
            at++;
    }
    return at;
}

static void tell_rank(FILE *to, int rank, const struct harness_rank *r)
{
    if (r->running)
        fprintf(to, "rank %d: still running\n", rank);
    else if (r->signal)
        fprintf(to, "rank %d: killed by signal %d (%s) after %.2f s\n", rank,
                r->signal, strsignal(r->signal), r->ended_s);
    else if (r->exit_code < 0)
        fprintf(to, "rank %d: not started\n", rank);
    else
        fprintf(to, "rank %d: exit status %d after %.2f s\n", rank,
                r->exit_code, r->ended_s);
    if (r->exit_code == 0)
        return;
    if (r->out_bytes > 0)
        fprintf(to, "-- stdout:\n%s\n", tail(r->out, r->out_bytes));
    if (r->err_bytes > 0)
        fprintf(to, "-- stderr:\n%s\n", tail(r->err, r->err_bytes));
}

const char *harness_story(struct harness *h)
{
    size_t bytes;
    FILE *to;

    free(h->story);
    h->story = NULL;
    to = open_memstream(&h->story, &bytes);
    if (!to)
        return "out of memory";
    if (h->failure[0])
        fprintf(to, "harness: %s\n", h->failure);
    if (h->timed_out)
        fprintf(to, "not finished after %.0f s; what still ran was killed\n",
                h->deadline - h->started);
    for (int i = 0; i < h->count; i++)
        tell_rank(to, i, &h->processes[i].seen);
    fclose(to);
    return h->story;
}

void harness_finish(struct harness *h)
{
    if (!h)
        return;
    kill_all(h);
    for (int i = 0; i < h->count; i++) {
        struct process *p = &h->processes[i];

        for (int k = 0; k < 2; k++)
            if (p->fds[k] >= 0)
                close(p->fds[k]);
        free(p->seen.out);
        free(p->seen.err);
    }
    ranks_env_finish(&h->ranks_env);
    free(h->processes);
    free(h->story);
    free(h);
}
