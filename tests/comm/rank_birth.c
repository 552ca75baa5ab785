// SPDX-License-Identifier: Apache-2.0
/*
 * Things that init leaves behind in a process: listening sockets, signal
 * handlers, libraries. test_birth.c runs this program.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

/* --- listening sockets --------------------------------------------------------- */

/* Does this process have a descriptor for the socket with this inode? */
static bool is_mine(unsigned long inode)
{
    char want[64], path[64], target[64];
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *d;
    bool found = false;

    snprintf(want, sizeof(want), "socket:[%lu]", inode);
    while (dir && !found && (d = readdir(dir))) {
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/self/fd/%.20s", d->d_name);
        n = readlink(path, target, sizeof(target) - 1);
        if (n < 0)
            continue;
        target[n] = 0;
        found = !strcmp(target, want);
    }
    if (dir)
        closedir(dir);
    return found;
}

/* True for a loopback address: 127/8 or ::1. hex: the address as the kernel
 * prints it, in words of host order. */
static bool is_loopback(const char *hex)
{
    if (strlen(hex) == 8)
        return !strcmp(hex + 6, "7F");
    return !strcmp(hex, "00000000000000000000000001000000");
}

/* Counts this process's listening sockets. Prints each that can be reached from
 * outside. */
static void count_ports(const char *table, int *loopback, int *outside)
{
    char line[512], address[64];
    unsigned port, state;
    unsigned long inode;
    FILE *f = fopen(table, "re");

    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line,
                   " %*d: %63[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s "
                   "%*d %*d %lu",
                   address, &port, &state, &inode) != 4 ||
            state != 0x0a || !is_mine(inode))
            continue;
        if (is_loopback(address)) {
            ++*loopback;
        } else {
            ++*outside;
            fprintf(stderr, "%s: %s port %u listens\n", table, address, port);
        }
    }
    if (f)
        fclose(f);
}

/* Argument: where ports may be open, "nothing" (nowhere) or "loopback". */
static int ports(const struct rank *self)
{
    bool nothing = !strcmp(self->argv[0], "nothing");
    int loopback = 0, outside = 0;

    CHECK_OK(self->comm, shunt_barrier(self->comm));
    count_ports("/proc/net/tcp", &loopback, &outside);
    count_ports("/proc/net/tcp6", &loopback, &outside);
    CHECK(outside == 0, "%d ports are open to the outside", outside);
    CHECK(nothing ? loopback == 0 : loopback > 0, "%d ports of loopback",
          loopback);
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    return 0;
}

static int open_outside;

static bool to_be_silent;

/* Leaves the listening socket open under another number, so that connections
 * are still made. The library's descriptor becomes another socket, to which
 * nobody connects. */
static void silence(int fd)
{
    int other = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_un nameless = {.sun_family = AF_UNIX};

    to_be_silent = false;
    if (other < 0 ||
        bind(other, (struct sockaddr *)&nameless, sizeof(sa_family_t)) ||
        syscall(SYS_listen, other, 1) || dup(fd) < 0 ||
        dup3(other, fd, O_CLOEXEC) < 0)
        abort();
    close(other);
}

/* Replaces the C library's listen(). Records each socket on which the library
 * listens, even if only for a short time. */
int listen(int fd, int backlog)
{
    struct sockaddr_storage address = {0};
    struct sockaddr_in *in = (struct sockaddr_in *)&address;
    socklen_t len = sizeof(address);
    int status;

    getsockname(fd, (struct sockaddr *)&address, &len);
    if (address.ss_family == AF_INET6 ||
        (address.ss_family == AF_INET &&
         ntohl(in->sin_addr.s_addr) >> 24 != 127)) {
        fprintf(stderr, "listens at %s\n",
                address.ss_family == AF_INET ? inet_ntoa(in->sin_addr)
                                             : "an IPv6 address");
        open_outside++;
    }
    status = (int)syscall(SYS_listen, fd, backlog);
    if (!status && to_be_silent)
        silence(fd);
    return status;
}

/* Called by functions that replace those of the C library. With SLOW_ROOT set,
 * a thread of the library sleeps before it polls, so that messages of all ranks
 * are waiting then. It also sleeps after each message, when this process might
 * end. */
static void rest(void)
{
    struct timespec some = {.tv_nsec = 50000000};

    if (getenv("SLOW_ROOT") && gettid() != getpid())
        nanosleep(&some, NULL);
}

int poll(struct pollfd *fds, nfds_t n, int ms)
{
    struct timespec time = {.tv_sec = ms / 1000,
                            .tv_nsec = ms % 1000 * 1000000L};

    rest();
    return ppoll(fds, n, ms < 0 ? NULL : &time, NULL);
}

ssize_t send(int fd, const void *bytes, size_t n, int flags)
{
    ssize_t sent = sendto(fd, bytes, n, flags, NULL, 0);

    rest();
    return sent;
}

/* Makes communicators from one whose ranks are on one host. */
static int ports_of_later_births(const struct rank *self)
{
    struct shunt_comm *comm, *made[3] = {NULL};
    enum shunt_status st;

    CHECK_OK(NULL, shunt_comm_create_env(NULL, &comm));
    CHECK_OK(comm, shunt_comm_dup(comm, &made[0]));
    CHECK_OK(comm, shunt_comm_split(comm, self->rank % 2, 0, &made[1]));
    /* One rank ends, so that shrink has a lost rank. Before, all others must
     * have left the split, or they might lack a message of that rank. */
    st = shunt_barrier(made[0]);
    if (self->rank == self->size - 1)
        _exit(st != SHUNT_OK);
    CHECK(shunt_barrier(comm), "it was not lost");
    CHECK_OK(comm, shunt_comm_shrink(comm, &made[2]));
    CHECK(open_outside == 0, "%d ports were open to the outside", open_outside);
    for (int i = 0; i < 3; i++)
        shunt_comm_destroy(made[i]);
    shunt_comm_destroy(comm);
    return 0;
}

/* --- libraries ------------------------------------------------------------------ */

/* args: a part of a library's name that must not be loaded */
static int not_loaded(const struct rank *self)
{
    char line[512];
    FILE *f = fopen("/proc/self/maps", "re");
    bool found = false;

    while (f && fgets(line, sizeof(line), f))
        found |= strstr(line, self->argv[0]) != NULL;
    CHECK(f != NULL, "maps");
    fclose(f);
    CHECK(!found, "%s is loaded", self->argv[0]);
    return 0;
}

/* --- signal handlers ------------------------------------------------------------ */

/* Flags that a program may set; the C library adds SA_RESTORER. */
#define FLAGS (SA_RESTART | SA_SIGINFO | SA_NODEFER | SA_ONSTACK)

static void ours(int number)
{
    (void)number;
}

/* Init must not change the program's signal handlers: one handler for every
 * second signal, and the default for the others. args: the beginning of
 * shunt_comm_transport() for the other rank. */
static int handlers(const struct rank *self)
{
    struct sigaction before[NSIG], after, mine = {.sa_flags = SA_RESTART};
    struct shunt_comm *comm;

    memset(before, 0, sizeof(before));
    mine.sa_handler = ours;
    for (int s = 1; s < NSIG; s++) {
        if (s % 2)
            (void)sigaction(s, &mine, NULL); /* some cannot be set */
        (void)sigaction(s, NULL, &before[s]);
    }
    CHECK_OK(NULL, shunt_comm_create_env(NULL, &comm));
    CHECK(!strncmp(shunt_comm_transport(comm, 1 - self->rank), self->argv[0],
                   strlen(self->argv[0])),
          "the other is reached by %s",
          shunt_comm_transport(comm, 1 - self->rank));
    for (int s = 1; s < NSIG; s++) {
        memset(&after, 0, sizeof(after));
        if (sigaction(s, NULL, &after))
            continue;
        CHECK(after.sa_handler == before[s].sa_handler &&
                  (after.sa_flags & FLAGS) == (before[s].sa_flags & FLAGS),
              "signal %d (%s) has another handler", s, strsignal(s));
    }
    CHECK_OK(comm, shunt_comm_finish(comm));
    shunt_comm_destroy(comm);
    for (int s = 1; s < NSIG; s++) {
        memset(&after, 0, sizeof(after));
        if (sigaction(s, NULL, &after))
            continue;
        CHECK(after.sa_handler == before[s].sa_handler,
              "signal %d (%s) has another handler at the end", s, strsignal(s));
    }
    return 0;
}

/* --- wrong environments of ranks ------------------------------------------ */

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Changes the user if the environment says so. The real user id stays the same,
 * and the job's identity follows from that id. So this process acts like
 * another user who wants to join the job. Returns false if that user cannot run
 * the program. */
static bool change_user(void)
{
    const char *uid = getenv("OTHER_USER"), *folder;
    char path[512];

    if (!uid)
        return true;
    folder = getenv("SHUNT_PLUGIN_PATH");
    snprintf(path, sizeof(path), "%s/shunt_shm.so", folder ? folder : "");
    return !seteuid((uid_t)atoi(uid)) && !eaccess(path, R_OK);
}

/* Makes the system call `number` fail from now on as if it did not exist. */
static bool forbid(int number)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 4, .filter = code};

    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static bool forbid_what_is_asked(void)
{
    static const struct {
        const char *name;
        int number;
    } calls[] = {
        {"memfd", SYS_memfd_create},    {"eventfd", SYS_eventfd2},
        {"getrandom", SYS_getrandom},   {"accept4", SYS_accept4},
        {"getsockopt", SYS_getsockopt}, {"close_range", SYS_close_range},
    };
    const char *name = getenv("NO_SYSTEM_CALL");

    for (size_t i = 0; name && i < sizeof(calls) / sizeof(calls[0]); i++)
        if (!strcmp(name, calls[i].name))
            return forbid(calls[i].number);
    return !name;
}

/* args: the most seconds that init may take, then the error texts of rank 0, 1,
 * ... The last text holds for all further ranks. */
static int fails(const struct rank *self)
{
    const char *rank = getenv("RANK");
    int which = 1 + (rank ? atoi(rank) : 0);
    const char *want = self->argv[which < self->argc ? which : self->argc - 1];
    bool can = change_user() && forbid_what_is_asked();
    double began = now_s(), took;
    struct shunt_comm *comm;
    enum shunt_status st = shunt_comm_create_env(NULL, &comm);
    const char *text = shunt_last_error(NULL);

    took = now_s() - began;
    CHECK(can, "this user cannot be another, read the plugins, or filter");
    CHECK(st, "a communicator was made");
    CHECK(strstr(text, want), "'%s' does not say '%s' (after %.1f s)", text,
          want, took);
    CHECK(took < atof(self->argv[0]), "'%s' took %.1f s", text, took);
    return 0;
}

static int joins(const struct rank *self)
{
    struct shunt_comm *comm;

    (void)self;
    CHECK_OK(NULL, shunt_comm_create_env(NULL, &comm));
    CHECK_OK(comm, shunt_comm_finish(comm));
    shunt_comm_destroy(comm);
    return 0;
}

/* --- a root that is silent ------------------------------------------------------- */

/* Ranks 1 and 2 form a group in the order 2, 1. The root of the group runs in
 * the process of rank 1 and is silent. So the error must name rank 1, by its
 * number in the old communicator. All ranks are alive, so the old communicator
 * must still work. */
static int silent_root(const struct rank *self)
{
    for (int round = 0; round < 2; round++) {
        struct shunt_comm *group = NULL;
        enum shunt_status st;

        to_be_silent = self->rank == 1 && round == 0;
        st = shunt_comm_split(self->comm, self->rank > 0, -self->rank, &group);
        CHECK(!to_be_silent, "the library listens in another way");
        shunt_comm_destroy(group);
        CHECK_STATUS(self->comm, st,
                     self->rank && !round ? SHUNT_ERR_TIMEOUT : SHUNT_OK);
        CHECK(!st || strstr(shunt_last_error(self->comm), "in rank 1"), "%s",
              shunt_last_error(self->comm));
        CHECK_OK(self->comm, shunt_barrier(self->comm));
    }
    return 0;
}

/* --- a rank that is lost while a communicator is made ---------------------------- */

/* the signal that this rank raises when it makes the control window */
static int to_raise;

int memfd_create(const char *name, unsigned flags)
{
    if (to_raise)
        raise(to_raise);
    return (int)syscall(SYS_memfd_create, name, flags);
}

/* args: "stop" or "kill". Rank 1 is stopped or killed when all ranks of the
 * split have connected to it. It has another number in the new communicator. */
static int lost_inside(const struct rank *self)
{
    const bool stop = !strcmp(self->argv[0], "stop");
    const enum shunt_status want = stop ? SHUNT_ERR_TIMEOUT : SHUNT_ERR_PEER;
    struct shunt_comm *made = NULL;
    enum shunt_status st;
    const int *lost;
    size_t count;

    if (self->rank == 1) {
        rank_say("lost");
        to_raise = stop ? SIGSTOP : SIGKILL;
    }
    st = shunt_comm_split(self->comm, 0, -self->rank, &made);
    CHECK(self->rank != 1, "it makes no control window");
    CHECK_STATUS(self->comm, st, want);
    CHECK_OK(self->comm, shunt_comm_lost(self->comm, &lost, &count));
    CHECK(count == 1 && lost[0] == 1, "%zu lost, rank %d: %s", count,
          count ? lost[0] : -1, shunt_last_error(self->comm));
    CHECK_STATUS(self->comm, shunt_barrier(self->comm), want);
    return 0;
}

static const struct rank_case cases[] = {
    {"ports", ports, .min_ranks = 2},
    {"ports_of_later_births", ports_of_later_births, .min_ranks = 3,
     .no_comm = true},
    {"not_loaded", not_loaded, .min_ranks = 2},
    {"handlers", handlers, .min_ranks = 2, .no_comm = true},
    {"fails", fails, .no_comm = true},
    {"joins", joins, .no_comm = true},
    {"silent_root", silent_root, .min_ranks = 3},
    {"lost_inside", lost_inside, .breaks_comm = true, .min_ranks = 4},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
