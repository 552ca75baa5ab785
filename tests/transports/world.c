// SPDX-License-Identifier: Apache-2.0
/* The world of the transport tests: see world.h. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/plugin/transport_defaults.h"
#include "tests/transports/world.h"

#define YIELDS 200 /* about 0.1 ms if no other thread uses the core */
#define NAP_US 50

/* Long, because the processor of a virtual machine may stand still for 20 s. */
double world_patience = 60.0;

double world_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void world_fail(const struct rank *r, const char *file, int line,
                const char *format, ...)
{
    va_list args;
    char text[1024];

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "# rank %d: %s:%d: %s\n", r ? r->rank : -1,
            strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line, text);
    _exit(1);
}

void world_relax(struct rank *r)
{
    if (r->ctx)
        r->t->progress(r->ctx);
    if (++r->relaxed % YIELDS)
        sched_yield();
    else
        usleep(NAP_US);
}

void world_relax_more(struct rank *r, unsigned *tries)
{
    world_relax(r);
    if (++*tries > YIELDS)
        usleep(NAP_US);
}

/* splitmix64 */
uint64_t world_random(struct rank *r)
{
    uint64_t z = (r->random += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int world_count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    if (!dir)
        return -1;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* -- plugins ---------------------------------------------------------------- */

/* Load a plugin. */
static const struct shunt_transport *load(const char *name)
{
    const char *dir = getenv("SHUNT_PLUGIN_PATH");
    const struct shunt_transport *t;
    char path[4096];
    void *so;

    snprintf(path, sizeof(path), "%s/shunt_%s.so", dir ? dir : ".", name);
    so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so) {
        fprintf(stderr, "# %s\n", dlerror());
        return NULL;
    }
    t = dlsym(so, SHUNT_TRANSPORT_SYMBOL);
    if (!t || t->abi != SHUNT_TRANSPORT_ABI || strcmp(t->name, name)) {
        fprintf(stderr, "# %s is no transport %s\n", path, name);
        return NULL;
    }
    return t;
}

const struct shunt_transport *world_find(const char *name)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct shunt_transport found[8]; /* transports found so far, with the
                                             * loader's defaults */
    const struct shunt_transport *t = NULL;
    size_t i = 0;

    pthread_mutex_lock(&lock);
    while (i < 8 && found[i].name && strcmp(found[i].name, name))
        i++;
    if (i < 8 && !found[i].name && (t = load(name))) {
        found[i] = *t;
        shunti_transport_complete(&found[i]);
    }
    t = i < 8 && found[i].name ? &found[i] : NULL;
    pthread_mutex_unlock(&lock);
    return t;
}

__attribute__((format(printf, 3, 4))) static void
log_line(int level, const char *transport, const char *format, ...)
{
    va_list args;

    if (!getenv("SHUNT_TEST_VERBOSE"))
        return;
    fprintf(stderr, "# %s (%d): ", transport, level);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

static const char *read_env(const char *name)
{
    return getenv(name);
}

static const char *remedy(int error)
{
    return error == EMFILE ? "; raise `ulimit -n`" : "";
}

const struct shunt_transport_host world_host = {
    .abi = SHUNT_TRANSPORT_ABI,
    .log = log_line,
    .env = read_env,
    .find = world_find,
    .remedy = remedy,
};

/* -- the board -------------------------------------------------------------- */

void world_barrier(struct rank *r)
{
    struct board *b = r->board;
    int generation = atomic_load(&b->generation);

    if (atomic_fetch_add(&b->arrived, 1) == r->nranks - 1) {
        atomic_store(&b->arrived, 0);
        atomic_fetch_add(&b->generation, 1);
        return;
    }
    UNTIL(r, atomic_load(&b->generation) != generation);
}

void world_await_flag(struct rank *r, int flag, int value)
{
    for (double end = world_now() + world_patience;
         atomic_load(&r->board->flags[flag]) < value;) {
        if (world_now() > end)
            FAIL(r, "flag %d does not become %d", flag, value);
        usleep(NAP_US);
    }
}

/* Has this rank handled everything that arrived? */
static bool idle(struct rank *r)
{
    struct pollfd pfd = {.fd = r->t->wait_fd(r->ctx), .events = POLLIN};
    bool nothing = r->t->arm(r->ctx) == SHUNT_OK && poll(&pfd, 1, 0) == 0;

    r->t->disarm(r->ctx);
    return nothing;
}

int world_count_fds_still(struct rank *r)
{
    /* A peer may have made one connection more than needed, and closed it. That
     * connection is open here until its end is read. */
    world_barrier(r);
    UNTIL(r, idle(r));
    world_barrier(r);
    if (r->rank == 0 || !r->threads)
        r->board->fds[r->rank] = world_count_fds();
    world_barrier(r);
    return r->board->fds[r->threads ? 0 : r->rank];
}

void world_put_slot(struct rank *r, const void *blob, size_t len)
{
    CHECK(r, len <= SLOT_BYTES, "%zu", len);
    world_barrier(r); /* no rank reads the previous blobs any more */
    memcpy(r->board->slot[r->rank], blob, len);
    r->board->len[r->rank] = len;
    world_barrier(r);
}

/* -- connecting ------------------------------------------------------------- */

void world_open_only(struct rank *r)
{
    struct shunt_transport_params params = {
        .host = &world_host,
        .options = r->options,
        .rank = r->rank,
        .nranks = r->nranks,
        .unreached = r->nranks - 1,
        .one_host = true,
    };
    char why[256] = "";

    memcpy(params.secret, r->secret, sizeof(params.secret));
    r->fds = world_count_fds();
    memset(r->eps, 0, sizeof(r->eps));
    if (r->t->open(&params, &r->ctx, why, sizeof(why)))
        FAIL(r, "open: %s", why);
}

void world_open_and_tell(struct rank *r)
{
    unsigned char blob[SHUNT_TRANSPORT_ADDRESS_MAX];
    size_t len = sizeof(blob);

    world_open_only(r);
    EXPECT(r, SHUNT_OK, r->t->address(r->ctx, blob, &len));
    world_put_slot(r, blob, len);
}

enum shunt_status world_connect_step(struct rank *r, int peer)
{
    enum shunt_status st = r->t->connect(r->ctx, peer, r->board->slot[peer],
                                         r->board->len[peer], &r->eps[peer]);

    r->t->progress(r->ctx);
    return st;
}

void world_connect(struct rank *r)
{
    int missing = r->nranks - 1;
    bool done[MAX_RANKS] = {false};
    double deadline = world_now() + world_patience;

    done[r->rank] = true;
    while (missing > 0) {
        int first = (int)(world_random(r) % (uint64_t)r->nranks);

        for (int i = 0; i < r->nranks; i++) {
            int p = (first + i) % r->nranks;
            enum shunt_status st;

            if (done[p])
                continue;
            st = r->t->connect(r->ctx, p, r->board->slot[p], r->board->len[p],
                               &r->eps[p]);
            if (st == SHUNT_OK) {
                done[p] = true;
                missing--;
            } else if (st != SHUNT_IN_PROGRESS) {
                FAIL(r, "connect %d: %d, %s", p, (int)st, r->t->error(r->ctx));
            }
        }
        if (world_now() > deadline)
            FAIL(r, "%d peers are not connected", missing);
        world_relax(r);
    }
}

void world_open(struct rank *r)
{
    world_open_and_tell(r);
    world_connect(r);
    world_barrier(r);
}

void world_close_uncounted(struct rank *r)
{
    for (int p = 0; p < r->nranks; p++) {
        if (r->eps[p] && r->t->alive(r->eps[p]))
            UNTIL(r, r->t->flush(r->eps[p]) != SHUNT_IN_PROGRESS);
    }
    world_barrier(r);
    r->t->close(r->ctx);
    r->ctx = NULL;
    world_barrier(r);
}

void world_close(struct rank *r)
{
    world_close_uncounted(r);
    /* Threads share a table of descriptors, so the number is final only when
     * all threads have closed. A kernel thread closes some descriptors
     * later. */
    UNTIL(r, world_count_fds() <= r->fds || r->threads);
}

/* -- memory ----------------------------------------------------------------- */

int world_memfd(struct rank *r, size_t bytes)
{
    int fd = memfd_create("shunt-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    CHECK(r, fd >= 0 && !ftruncate(fd, (off_t)bytes), "%s", strerror(errno));
    return fd;
}

static void give_back(void *arg)
{
    struct owned *owned = arg;

    munmap(owned->addr, owned->bytes);
    if (owned->done)
        atomic_fetch_add(owned->done, 1);
    free(owned);
}

void window_create_counted(struct rank *r, struct window *w, size_t bytes,
                           atomic_int *done)
{
    struct owned *owned = malloc(sizeof(*owned));
    struct shunt_transport_memory memory = {
        .bytes = bytes,
        .done = give_back,
        .arg = owned,
    };
    unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
    size_t len = sizeof(key);

    memset(w, 0, sizeof(*w));
    w->bytes = bytes;
    w->fd = world_memfd(r, bytes);
    w->addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, w->fd, 0);
    CHECK(r, w->addr != MAP_FAILED && owned, "%s", strerror(errno));
    *owned = (struct owned){w->addr, bytes, done};
    memory.addr = w->addr;
    memory.fd = w->fd;
    EXPECT(r, SHUNT_OK, r->t->reg(r->ctx, &memory, key, &len, &w->reg));
    world_put_slot(r, key, len);
    for (int p = 0; p < r->nranks; p++) {
        enum shunt_status st = SHUNT_IN_PROGRESS;

        if (p == r->rank)
            continue;
        UNTIL(r,
              (st = r->t->import(r->eps[p], r->board->slot[p], r->board->len[p],
                                 &w->remote[p])) != SHUNT_IN_PROGRESS);
        EXPECT(r, SHUNT_OK, st);
        w->map[p] = r->t->map(r->eps[p], w->remote[p]);
        CHECK(r, !w->map[p] == !(r->t->caps(r->eps[p]) & SHUNT_TRANSPORT_MAP),
              "map() and caps() disagree");
    }
    world_barrier(r);
}

void window_create(struct rank *r, struct window *w, size_t bytes)
{
    window_create_counted(r, w, bytes, NULL);
}

void window_destroy(struct rank *r, struct window *w)
{
    for (int p = 0; p < r->nranks; p++) {
        if (w->remote[p]) {
            UNTIL(r, r->t->flush(r->eps[p]) != SHUNT_IN_PROGRESS);
            r->t->release(r->eps[p], w->remote[p]);
        }
    }
    world_barrier(r);
    r->t->dereg(r->ctx, w->reg);
    close(w->fd);
}

uint64_t *window_word(struct window *w, size_t offset)
{
    return (uint64_t *)(void *)(w->addr + offset);
}

uint64_t word_load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

void world_put(struct rank *r, int peer, const struct shunt_transport_put *put)
{
    enum shunt_status st = SHUNT_IN_PROGRESS;

    UNTIL(r, (st = r->t->put(r->eps[peer], put)) != SHUNT_IN_PROGRESS);
    EXPECT(r, SHUNT_OK, st);
}

enum shunt_status world_get(struct rank *r, int peer, uint64_t address,
                            void *local, size_t bytes)
{
    enum shunt_status ended = SHUNT_OK, st = SHUNT_IN_PROGRESS;
    const struct shunt_transport_get get = {
        .address = address,
        .local = local,
        .bytes = bytes,
        .status = &ended,
    };

    UNTIL(r, (st = r->t->get(r->eps[peer], &get)) != SHUNT_IN_PROGRESS);
    if (st)
        return st;
    UNTIL(r, ended != SHUNT_IN_PROGRESS);
    return ended;
}

void world_signal(struct rank *r, struct window *w, int peer, size_t offset,
                  uint64_t value, int channel)
{
    struct shunt_transport_put put = {
        .signal = w->remote[peer],
        .signal_offset = offset,
        .signal_value = value,
        .channel = channel,
    };

    world_put(r, peer, &put);
}

void world_all_signal(struct rank *r)
{
    struct window w;

    window_create(r, &w, 8 * (size_t)r->nranks);
    for (int p = 0; p < r->nranks; p++) {
        CHECK(r, p == r->rank || r->t->alive(r->eps[p]), "rank %d", p);
        if (p != r->rank)
            world_signal(r, &w, p, 8 * (size_t)r->rank, 9, 0);
    }
    for (int p = 0; p < r->nranks; p++)
        UNTIL(r,
              p == r->rank || word_load(window_word(&w, 8 * (size_t)p)) == 9);
    world_barrier(r);
    window_destroy(r, &w);
}

void world_sleep_until(struct rank *r, const uint64_t *word, uint64_t value)
{
    struct pollfd pfd = {.fd = r->t->wait_fd(r->ctx), .events = POLLIN};
    double deadline = world_now() + world_patience;

    for (;;) {
        int n = 1;

        if (word_load(word) == value)
            return;
        if (r->t->arm(r->ctx) == SHUNT_OK && word_load(word) != value)
            n = poll(&pfd, 1, 3000);
        r->t->disarm(r->ctx);
        r->t->progress(r->ctx);
        if (n == 0 && word_load(word) == value)
            FAIL(r, "slept through a wake-up");
        if (world_now() > deadline)
            FAIL(r, "no signal: %llu, not %llu",
                 (unsigned long long)word_load(word),
                 (unsigned long long)value);
    }
}

/* -- the runner ------------------------------------------------------------- */

static void die_with(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
}

/* SHUNT_TEST_MOUNTS=PID,PID...: rank r enters the mount namespace of the r-th
 * process, and so sees its files and devices. If there are more ranks than
 * processes, the list is repeated. */
static void enter_mounts(int rank)
{
    const char *list = getenv("SHUNT_TEST_MOUNTS");
    int pids[MAX_RANKS], n = 0, used = 0, fd;
    char path[64];

    while (list && n < MAX_RANKS &&
           sscanf(list, "%d%n", &pids[n], &used) == 1) {
        n++;
        list += used;
        list += *list == ',';
    }
    if (n == 0)
        return;
    snprintf(path, sizeof(path), "/proc/%d/ns/mnt", pids[rank % n]);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNS))
        FAIL(NULL, "%s: %s", path, strerror(errno));
    close(fd);
}

struct job {
    const struct test_case *test;
    struct rank rank;
    pthread_t thread;
};

static void *run_rank(void *arg)
{
    struct job *job = arg;
    struct rank *r = &job->rank;

    if (!job->test->bare)
        world_open(r);
    job->test->run(r);
    if (r->ctx)
        world_close(r);
    return NULL;
}

static void init_job(struct job *job, const struct test_case *c,
                     const struct shunt_transport *t, const char *options,
                     int nranks, int rank, bool threads, struct board *board)
{
    memset(job, 0, sizeof(*job));
    job->test = c;
    job->rank = (struct rank){
        .board = board,
        .rank = rank,
        .nranks = nranks,
        .threads = threads,
        .options = options,
        .t = t,
        .random = (uint64_t)rank * 7919 + 17,
    };
    /* The secret depends on the number of ranks, because inproc's registry
     * belongs to the whole process. */
    for (size_t i = 0; i < sizeof(job->rank.secret); i++)
        job->rank.secret[i] = (unsigned char)(i * 7 + (size_t)nranks);
}

static void run_threads(struct job *jobs, int n)
{
    for (int i = 0; i < n; i++) {
        if (pthread_create(&jobs[i].thread, NULL, run_rank, &jobs[i]))
            FAIL(NULL, "no threads");
    }
    for (int i = 0; i < n; i++)
        pthread_join(jobs[i].thread, NULL);
}

/* Returns whether some child ended in a wrong way. It does not collect the
 * child. */
static bool one_failed(const pid_t *pids, int children, int killed)
{
    for (int i = 0; i < children; i++) {
        siginfo_t info = {.si_pid = 0};

        if (pids[i] > 0 && killed != i + 1 &&
            !waitid(P_PID, (id_t)pids[i], &info, WEXITED | WNOHANG | WNOWAIT) &&
            info.si_pid == pids[i] &&
            (info.si_code != CLD_EXITED || info.si_status))
            return true;
    }
    return false;
}

/* Wait for a child, at most until the deadline. Returns false if it was killed.
 * After one child has failed, the deadline is a second from then: the other
 * children would only wait for the failed one, and would report nothing new. */
static bool reap(const pid_t *pids, int children, int which, int killed,
                 double *deadline, int *status)
{
    const pid_t pid = pids[which];
    bool failed = false;

    for (;;) {
        pid_t got = waitpid(pid, status, WNOHANG);

        if (got == pid)
            return true;
        if (!failed && one_failed(pids, children, killed)) {
            failed = true;
            if (*deadline > world_now() + 1)
                *deadline = world_now() + 1;
        }
        if (world_now() > *deadline) {
            kill(pid, SIGKILL);
            waitpid(pid, status, 0);
            return false;
        }
        usleep(500);
    }
}

static bool ended_well(int rank, int status, bool killed)
{
    if (killed)
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    if (WIFSIGNALED(status))
        fprintf(stderr, "# rank %d: %s\n", rank, strsignal(WTERMSIG(status)));
    else
        fprintf(stderr, "# rank %d: exit status %d\n", rank,
                WEXITSTATUS(status));
    return false;
}

bool world_run(const struct test_case *c, const struct shunt_transport *t,
               const char *options, int nranks, bool threads)
{
    struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct job *jobs = calloc((size_t)nranks, sizeof(*jobs));
    int children = threads ? 1 : nranks;
    pid_t pids[MAX_RANKS] = {0};
    pid_t parent = getpid();
    double deadline = world_now() + 4 * world_patience;
    bool ok = board != MAP_FAILED && jobs;

    for (int i = 0; ok && i < nranks; i++)
        init_job(&jobs[i], c, t, options, nranks, i, threads, board);
    fflush(NULL);
    for (int i = 0; ok && i < children; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            die_with(parent);
            if (threads) {
                run_threads(jobs, nranks);
            } else {
                enter_mounts(i);
                run_rank(&jobs[i]);
            }
            free(jobs);
            exit(0); /* not _exit: the sanitizers report at exit */
        }
        ok = pids[i] > 0;
    }
    for (int i = 0; i < children; i++) {
        int status = 0;

        if (pids[i] <= 0)
            continue;
        if (!ok && deadline > world_now() + 1)
            deadline = world_now() + 1;
        if (!reap(pids, children, i, c->killed, &deadline, &status)) {
            fprintf(stderr, "# rank %d: missed the deadline\n", i);
            ok = false;
        } else if (!ended_well(i, status, c->killed == i + 1)) {
            ok = false;
        }
    }
    free(jobs);
    munmap(board, sizeof(*board));
    return ok;
}
