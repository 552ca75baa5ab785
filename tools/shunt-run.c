// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-run: start a program as N ranks on this host.
 *
 * Each rank is a process in its own process group, with the environment
 * variables of torchrun, which shunt_comm_create_env() reads. The design
 * follows from two guarantees.
 *
 * No process is left behind. If a rank fails, the others get some seconds to
 * notice by themselves and print what they saw, then SIGTERM, then SIGKILL. If
 * the launcher dies, the kernel kills the ranks (PR_SET_PDEATHSIG). Processes
 * that a rank left running are adopted by the launcher (child subreaper) and
 * killed at the end.
 *
 * Lines are not mixed. Output goes through one pipe for each rank and stream,
 * and is written line by line with the rank in front. With --live, rank 0 has
 * the terminal itself, so that it can draw a progress line there.
 *
 * There is one thread and one poll(): signals arrive through a signalfd,
 * deadlines through poll's timeout. Nothing else blocks: output that nobody
 * reads is queued (run_sink.h), and meanwhile no more output is read from the
 * ranks.
 */

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/ranks_env.h"
#include "tools/run_lines.h"
#include "tools/run_options.h"
#include "tools/run_sink.h"
#include "tools/run_traces.h"

#define KILL_AFTER 2.0 /* seconds from SIGTERM to SIGKILL */

struct rank {
    pid_t pid;
    bool running;
};

/* The state of the job's end. */
enum phase {
    RUNNING,
    FAILING, /* a rank failed: the others may still print errors */
    ASKED,   /* SIGTERM, or the user's own signal, was sent */
    KILLED,  /* SIGKILL was sent */
};

static struct run_options options;
static struct rank *ranks;
static struct run_stream *streams; /* two for each rank */
static int running;
static int status; /* exit status of the first rank that failed */
static enum phase phase;
static double phase_ends; /* when to enter the next phase */
static double job_ends;
static int signal_fd = -1;
static bool output_lost;
static bool leaving; /* shunt-run ends the ranks: report nothing */
static struct ranks_env ranks_env;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- ending the ranks ----------------------------------------------------- */

static void signal_ranks(int signo)
{
    /* Ranks that have ended are skipped, because their pid may have been
     * reused. Processes that they left running are children of shunt-run: see
     * kill_leftovers(). */
    for (int i = 0; i < options.ranks; i++)
        if (ranks[i].running)
            kill(-ranks[i].pid, signo);
}

static void enter(enum phase next, double seconds)
{
    phase = next;
    phase_ends = now() + seconds;
}

static const char *still_running(void)
{
    static char text[64];

    if (running == 1)
        return "the rank that still runs";
    snprintf(text, sizeof(text), "the %d ranks that still run", running);
    return text;
}

static void check_deadlines(void)
{
    double t = now();

    if (options.timeout > 0 && phase < ASKED && t >= job_ends) {
        if (running > 0)
            run_say("not finished after %g s; stopping %s", options.timeout,
                    still_running());
        else
            run_say("not finished after %g s: nobody reads the output",
                    options.timeout);
        if (status == 0)
            status = EXIT_TIMEOUT;
        signal_ranks(SIGTERM);
        enter(ASKED, options.grace < KILL_AFTER ? options.grace : KILL_AFTER);
    } else if (phase == FAILING && t >= phase_ends) {
        if (running > 0)
            run_say("stopping %s", still_running());
        signal_ranks(SIGTERM);
        enter(ASKED, KILL_AFTER);
    } else if (phase == ASKED && t >= phase_ends) {
        if (running > 0)
            run_say("killing %s", still_running());
        signal_ranks(SIGKILL);
        enter(KILLED, KILL_AFTER);
    }
}

/* Milliseconds until check_deadlines() has something to do; -1: never. */
static int next_deadline(void)
{
    double at = 0;
    double left;

    if (phase == FAILING || phase == ASKED)
        at = phase_ends;
    if (options.timeout > 0 && phase < ASKED && (at == 0 || job_ends < at))
        at = job_ends;
    if (at == 0)
        return -1;
    left = at - now();
    if (left <= 0)
        return 0;
    return left > 1e6 ? 1000000000 : (int)(left * 1000) + 1;
}

static int rank_of(pid_t pid)
{
    for (int i = 0; i < options.ranks; i++)
        if (ranks[i].running && ranks[i].pid == pid)
            return i;
    return -1;
}

static void report(int rank, int wstatus)
{
    if (WIFSIGNALED(wstatus))
        run_say("rank %d was killed by signal %d (%s)", rank, WTERMSIG(wstatus),
                strsignal(WTERMSIG(wstatus)));
    else
        run_say("rank %d failed with exit status %d", rank,
                WEXITSTATUS(wstatus));
}

/*
 * Reap the ranks that have ended. If several have failed, the likely cause is
 * one that was killed by a signal. The others only report its loss. Returns
 * whether there are still children.
 */
static bool reap(void)
{
    int cause = -1;
    int cause_status = 0;
    int wstatus;
    pid_t pid;

    while ((pid = waitpid(-1, &wstatus, WNOHANG)) > 0) {
        int rank = rank_of(pid);

        if (rank < 0)
            continue;
        ranks[rank].running = false;
        running--;
        if (leaving)
            continue;
        if (WIFEXITED(wstatus) && WEXITSTATUS(wstatus) == 0)
            continue;
        if (phase < ASKED)
            report(rank, wstatus);
        if (cause < 0 || (WIFSIGNALED(wstatus) && !WIFSIGNALED(cause_status))) {
            cause = rank;
            cause_status = wstatus;
        }
    }
    if (cause < 0)
        return pid == 0;
    if (status == 0)
        status = WIFSIGNALED(cause_status) ? 128 + WTERMSIG(cause_status)
                                           : WEXITSTATUS(cause_status);
    if (phase == RUNNING && !options.keep_going && running > 0)
        enter(FAILING, options.grace);
    return pid == 0;
}

static void handle_signals(void)
{
    struct signalfd_siginfo info;

    while (read(signal_fd, &info, sizeof(info)) == sizeof(info)) {
        int signo = (int)info.ssi_signo;

        switch (signo) {
        case SIGCHLD:
            reap();
            break;
        case SIGTSTP:
            signal_ranks(SIGSTOP);
            raise(SIGSTOP);
            signal_ranks(SIGCONT);
            break;
        default:
            if (status == 0)
                status = 128 + signo;
            if (phase >= ASKED) {
                signal_ranks(SIGKILL); /* this is the second signal */
                enter(KILLED, KILL_AFTER);
            } else {
                signal_ranks(signo);
                enter(ASKED, options.grace);
            }
        }
    }
}

/* Kill all direct children, ranks or adopted. Returns whether there were
 * any. */
static bool kill_children(void)
{
    bool found = false;
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    while (proc && (entry = readdir(proc))) {
        char path[64];
        char text[512];
        char *after;
        size_t length;
        int parent;
        FILE *stat;

        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof(path), "/proc/%.20s/stat", entry->d_name);
        stat = fopen(path, "re");
        if (!stat)
            continue;
        length = fread(text, 1, sizeof(text) - 1, stat);
        fclose(stat);
        text[length] = '\0';
        /* pid (name) state parent; the name may contain anything. */
        after = strrchr(text, ')');
        if (!after || sscanf(after + 1, " %*c %d", &parent) != 1)
            continue;
        if (parent == getpid()) {
            kill((pid_t)atoi(entry->d_name), SIGKILL);
            found = true;
        }
    }
    if (proc)
        closedir(proc);
    return found;
}

/*
 * Kill all processes that the ranks left behind. When a child is killed, its
 * own children are adopted, hence the loop. It is bounded: a process that
 * cannot be killed (stuck in the kernel) is left.
 */
static void kill_leftovers(void)
{
    double give_up = now() + KILL_AFTER;

    leaving = true;
    signal_ranks(SIGKILL);
    while (reap() && kill_children() && now() < give_up) {
        struct pollfd p = {.fd = signal_fd, .events = POLLIN};

        poll(&p, 1, 100);
        handle_signals();
    }
}

/* --- output --------------------------------------------------------------- */

/* If the reader of the output has closed it, end the job with the status of
 * SIGPIPE. (The signal is ignored, so that the job ends in order.) If the
 * output cannot be written, as on a full disk, the job has failed. */
static void check_readers(void)
{
    const struct run_sink *lost = run_out.lost ? &run_out : &run_err;

    if (output_lost || !lost->lost)
        return;
    output_lost = true;
    if (status == 0)
        status = lost->error ? 1 : 128 + SIGPIPE;
    if (lost->error)
        run_say("cannot write to %s: %s",
                lost == &run_out ? "stdout" : "stderr", strerror(lost->error));
    if (phase >= ASKED)
        return;
    signal_ranks(SIGTERM);
    enter(ASKED, KILL_AFTER);
}

/* Descriptors to poll() besides the ranks' streams: the signals, and
 * shunt-run's own output. */
enum { OWN_FDS = 3 };

static void own_fds(struct pollfd polls[OWN_FDS])
{
    const struct run_sink *sinks[] = {&run_out, &run_err};

    polls[0] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
    for (int i = 0; i < 2; i++)
        polls[1 + i] =
            (struct pollfd){.fd = run_sink_waits(sinks[i]) ? sinks[i]->fd : -1,
                            .events = POLLOUT};
}

/* Handle these descriptors after poll(). Returns whether output was written. */
static bool serve_own_fds(const struct pollfd polls[OWN_FDS])
{
    bool moved = run_sink_flush(&run_out);

    moved |= run_sink_flush(&run_err);
    if (polls[0].revents)
        handle_signals();
    check_deadlines();
    check_readers();
    return moved;
}

/* --- starting the ranks --------------------------------------------------- */

/* Called in the new process: set the rank's environment variables. */
static void set_environment(int rank)
{
    struct rank_variables variables;

    ranks_env_of(&ranks_env, rank, options.ranks, &variables);
    for (int i = 0; i < RANK_VARIABLES; i++) {
        char *equals = strchr(variables.text[i], '=');

        *equals = '\0';
        setenv(variables.text[i], equals + 1, 1);
    }
}

/* Bind this process to the rank-th of the cores that it may use. */
static void bind_core(int rank)
{
    cpu_set_t all;
    cpu_set_t one;
    int skip;

    if (sched_getaffinity(0, sizeof(all), &all) < 0 || CPU_COUNT(&all) == 0)
        return;
    skip = rank % CPU_COUNT(&all);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all) && skip-- == 0) {
            CPU_SET(cpu, &one);
            break;
        }
    }
    sched_setaffinity(0, sizeof(one), &one);
}

/* Called in the new process. Never returns. */
static void become_rank(int rank, const int out[2], int error_fd,
                        pid_t launcher)
{
    sigset_t none;
    int failure;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher)
        _exit(EXIT_LAUNCH); /* the launcher died before prctl() */

    /* The rank's process group is in the background of the terminal. Reading
     * from the terminal would stop the process, and so would writing, under
     * `stty tostop`. */
    if (rank > 0 || isatty(STDIN_FILENO)) {
        int null = open("/dev/null", O_RDONLY);

        if (null >= 0)
            dup2(null, STDIN_FILENO);
        if (null > STDIN_FILENO)
            close(null);
    }
    signal(SIGTTOU, SIG_IGN);
    if (out[0] >= 0) {
        dup2(out[0], STDOUT_FILENO);
        dup2(out[1], STDERR_FILENO);
    }
    set_environment(rank);
    if (options.bind)
        bind_core(rank);
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);

    execvp(options.command[0], options.command);
    failure = errno;
    if (write(error_fd, &failure, sizeof(failure)) < 0)
        _exit(EXIT_LAUNCH);
    _exit(failure == ENOENT ? EXIT_NOT_FOUND : EXIT_LAUNCH);
}

/* Create the rank's pipes. The read ends are stored in its streams, the write
 * ends in `out`. */
static bool open_streams(int rank, int out[2])
{
    bool live = options.output == OUTPUT_LIVE;
    char prefix[256];

    out[0] = out[1] = -1;
    if (options.output == OUTPUT_RAW || (live && rank == 0))
        return true;
    if (options.tag)
        snprintf(prefix, sizeof(prefix), "[%.200s %d] ", options.tag, rank);
    else
        snprintf(prefix, sizeof(prefix), "[%d] ", rank);
    for (int i = 0; i < 2; i++) {
        struct run_sink *to = i == 0 ? &run_out : &run_err;
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
            return false;
        out[i] = fds[1];
        if (!run_stream_init(&streams[2 * rank + i], fds[0], to, prefix,
                             live && isatty(to->fd)))
            return false;
    }
    return true;
}

/* Start a rank. If the command cannot be run, prints why and returns false. */
static bool start_rank(int rank)
{
    pid_t launcher = getpid();
    int error_fds[2];
    int out[2];
    int failure;
    ssize_t n;
    pid_t pid;

    if (pipe2(error_fds, O_CLOEXEC) < 0 || !open_streams(rank, out)) {
        run_say("rank %d: cannot make its pipes: %s", rank, strerror(errno));
        status = EXIT_LAUNCH;
        return false;
    }
    pid = fork();
    if (pid == 0)
        become_rank(rank, out, error_fds[1], launcher);
    close(error_fds[1]);
    for (int i = 0; i < 2; i++)
        if (out[i] >= 0)
            close(out[i]);
    if (pid < 0) {
        run_say("rank %d: cannot start a process: %s", rank, strerror(errno));
        status = EXIT_LAUNCH;
        close(error_fds[0]);
        return false;
    }
    setpgid(pid, pid); /* the child does this, too: either may be first */
    ranks[rank].pid = pid;
    ranks[rank].running = true;
    running++;

    /* A successful exec closes the pipe, and read() returns 0. */
    do
        n = read(error_fds[0], &failure, sizeof(failure));
    while (n < 0 && errno == EINTR);
    close(error_fds[0]);
    if (n == sizeof(failure)) {
        /* The child has failed before exec: there is no rank to report. */
        waitpid(pid, NULL, 0);
        ranks[rank].running = false;
        running--;
        run_say("cannot run %s: %s", options.command[0], strerror(failure));
        status = failure == ENOENT ? EXIT_NOT_FOUND : EXIT_LAUNCH;
        return false;
    }
    return true;
}

/*
 * The signals that shunt-run handles. A signal that was already ignored at the
 * start (by nohup, or by a script that runs shunt-run in the background) is
 * left out. It stays ignored for shunt-run and for the ranks: Linux queues
 * blocked signals even if they are ignored, so the signalfd would deliver it.
 */
static void choose_signals(sigset_t *set)
{
    static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};

    sigemptyset(set);
    sigaddset(set, SIGCHLD);
    for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++) {
        struct sigaction action;

        if (sigaction(handled[i], NULL, &action) < 0 ||
            action.sa_handler != SIG_IGN)
            sigaddset(set, handled[i]);
    }
}

static bool start_ranks(void)
{
    sigset_t set;

    ranks = calloc((size_t)options.ranks, sizeof(*ranks));
    streams = calloc(2 * (size_t)options.ranks, sizeof(*streams));
    if (!ranks || !streams) {
        run_say("out of memory");
        status = EXIT_LAUNCH;
        return false;
    }
    for (int i = 0; i < 2 * options.ranks; i++)
        streams[i].fd = -1;

    choose_signals(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    /* If SIGCHLD were ignored, the kernel would discard the ranks' exit
     * statuses. */
    signal(SIGCHLD, SIG_DFL);
    signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd < 0) {
        run_say("signalfd: %s", strerror(errno));
        status = EXIT_LAUNCH;
        return false;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!ranks_env_init(&ranks_env)) {
        run_say("no TCP port, or no random numbers: %s", strerror(errno));
        status = EXIT_LAUNCH;
        return false;
    }
    for (int i = 0; i < options.ranks; i++)
        if (!start_rank(i))
            return false;
    return true;
}

/* --- running -------------------------------------------------------------- */

static void run_until_all_ended(void)
{
    size_t count = 2 * (size_t)options.ranks;
    struct pollfd *polls = calloc(OWN_FDS + count, sizeof(*polls));
    struct pollfd few[OWN_FDS];
    struct pollfd *own = polls ? polls : few; /* no memory: read no output */

    while (running > 0 && !(phase == KILLED && now() >= phase_ends)) {
        int wait = phase == KILLED ? 100 : next_deadline();
        size_t taken = polls ? count : 0;

        own_fds(own);
        for (size_t i = 0; i < taken; i++) {
            const struct run_stream *s = &streams[i];

            polls[OWN_FDS + i] = (struct pollfd){
                .fd = s->fd >= 0 && !run_sink_waits(s->to) ? s->fd : -1,
                .events = POLLIN};
        }
        poll(own, (nfds_t)(OWN_FDS + taken), wait);
        /* Output first: what a rank printed before it died must precede the
         * report of its death. */
        for (size_t i = 0; i < taken; i++)
            if (polls[OWN_FDS + i].fd >= 0 && polls[OWN_FDS + i].revents)
                run_stream_take(&streams[i]);
        serve_own_fds(own);
    }
    free(polls);
}

/* Write what is left in the pipes, which other processes may still hold open.
 * Returns whether everything has been written. */
static bool drain(void)
{
    for (int i = 0; i < 2 * options.ranks; i++) {
        struct run_stream *s = &streams[i];

        while (s->fd >= 0 && !run_sink_waits(s->to) && run_stream_take(s))
            continue;
        if (s->fd >= 0 && !run_sink_waits(s->to))
            run_stream_finish(s);
        if (s->fd >= 0)
            return false;
    }
    return !run_sink_waits(&run_out) && !run_sink_waits(&run_err);
}

/*
 * Wait until the output has been read, when all ranks have ended. The reader
 * may be slow, or may not read at all. If the job was ended, or failed, its
 * deadlines apply here as well. In the last phase, wait only while the reader
 * makes progress.
 */
static void wait_for_readers(void)
{
    bool moved = true;

    while (!drain() && (phase < KILLED || (moved && now() < phase_ends))) {
        struct pollfd polls[OWN_FDS];

        own_fds(polls);
        poll(polls, OWN_FDS, phase == KILLED ? 100 : next_deadline());
        moved = serve_own_fds(polls);
    }
    for (int i = 0; i < 2 * options.ranks; i++)
        run_stream_finish(&streams[i]);
}

int main(int argc, char **argv)
{
    struct timespec began;
    int early;

    clock_gettime(CLOCK_REALTIME_COARSE, &began); /* the clock of file times */
    run_sinks_init();
    early = run_options_parse(&options, argc, argv);
    if (early >= 0)
        return early;
    /* The timeout also applies if starting the ranks fails, because nobody may
     * read the messages. */
    job_ends = now() + options.timeout;
    if (start_ranks())
        run_until_all_ended();
    if (ranks && signal_fd >= 0)
        kill_leftovers();
    if (streams && signal_fd >= 0)
        wait_for_readers();
    if (ranks)
        run_traces_merge(options.ranks, &began);
    free(ranks);
    free(streams);
    return status;
}
