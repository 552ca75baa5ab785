// SPDX-License-Identifier: Apache-2.0
/*
 * A program that closes some of its descriptors 0 to 2, before or after init,
 * and continues to print to them. test_stdio.c runs it.
 *
 * The printed text must not be written anywhere. After every call each write
 * must fail with EBADF, because the library owns none of these numbers. All
 * results must be right. The test itself prints to a duplicate of stderr.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "tests/comm/swap.h"
#include "tests/harness/closed_stdio.h"
#include "tests/harness/rank_main.h"

enum { BLOCK = 3000, LARGE = 300 << 10 };
enum { TOKENS = 8, HIDDEN = 32, EXPERTS = 6 };

#define DO(set, comm, call)                          \
    do {                                             \
        CHECK_OK((comm), call);                      \
        CHECK_RUN(closed_stdio_print((set), #call)); \
    } while (0)

static int event; /* an eventfd, made before anything was closed */

/* --- calls while descriptors are closed ----------------------------------- */

/* Sends from one window, and receives into another one. */
static int windows(const struct rank *self, int set)
{
    const size_t bytes = (size_t)BLOCK * (size_t)self->size;
    unsigned char *send, *recv;

    DO(set, self->comm, shunt_mem_alloc(self->comm, bytes, (void **)&send));
    DO(set, self->comm, shunt_mem_alloc(self->comm, bytes, (void **)&recv));
    for (size_t i = 0; i < bytes; i++) {
        CHECK(!send[i] && !recv[i], "set %d: byte %zu is not zero", set, i);
        send[i] = (unsigned char)(self->rank * 31 + (int)(i / BLOCK) * 7 + 1);
    }
    CHECK_RUN(closed_stdio_print(set, "filling a window"));
    DO(set, self->comm,
       shunt_alltoall(self->comm, send, recv, BLOCK, SHUNT_U8));
    for (size_t i = 0; i < bytes; i++)
        CHECK(recv[i] ==
                  (unsigned char)((int)(i / BLOCK) * 31 + self->rank * 7 + 1),
              "set %d: byte %zu of the window is %d", set, i, recv[i]);
    DO(set, self->comm, shunt_mem_free(self->comm, recv));
    DO(set, self->comm, shunt_mem_free(self->comm, send));
    return 0;
}

/* Each token has one expert and no weight, so combine must return the tokens
 * unchanged. */
static int experts(const struct rank *self, int set)
{
    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;
    float x[TOKENS * HIDDEN], y[TOKENS * HIDDEN], *rows;
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows in;
    struct shunt_moe *moe;
    int32_t idx[TOKENS];

    config.hidden = HIDDEN;
    config.dtype = SHUNT_F32;
    config.experts = EXPERTS;
    config.topk = 1;
    config.max_tokens = TOKENS;
    config.weights = SHUNT_MOE_PLAIN_SUM;
    for (int t = 0; t < TOKENS; t++)
        idx[t] = (t + self->rank) % EXPERTS;
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        x[i] = (float)(self->rank * 1000 + i);
    DO(set, self->comm, shunt_moe_create(self->comm, &config, &moe));
    DO(set, self->comm, shunt_moe_plan_create(moe, idx, NULL, TOKENS, &plan));
    shunt_moe_plan_rows(plan, &in, sizeof(in));
    rows = shunt_moe_buffer(plan, SHUNT_MOE_ROWS);
    DO(set, self->comm, shunt_moe_dispatch(plan, x, rows, in.total));
    DO(set, self->comm, shunt_moe_combine(plan, rows, NULL, y));
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        CHECK(x[i] == y[i], "set %d: y[%d] is %g, not %g", set, i, (double)y[i],
              (double)x[i]);
    shunt_moe_plan_destroy(plan);
    shunt_moe_destroy(moe);
    return closed_stdio_print(set, "destroying a plan");
}

/* Exchanges blocks, some of them through descriptors. A helper thread notifies
 * the end of some. */
static int exchanges(const struct rank *self, int set)
{
    for (int k = 0; k < 4; k++) {
        struct swap swap;
        uint64_t ended;

        CHECK_RUN(swap_init(&swap, self, k % 2 ? LARGE : 100));
        CHECK_RUN(swap_start(&swap, self, self->comm, k));
        CHECK_RUN(closed_stdio_print(set, "a start"));
        if (k < 2) {
            DO(set, self->comm, shunt_notify_fd(swap.request, event));
            CHECK(read(event, &ended, sizeof(ended)) == sizeof(ended),
                  "read: %s", strerror(errno));
        }
        CHECK_RUN(closed_stdio_print(set, "the end of a request"));
        DO(set, self->comm, shunt_wait(&swap.request));
        CHECK_RUN(swap_check(&swap, self, k));
        swap_finish(&swap);
    }
    return 0;
}

static int children(const struct rank *self, int set)
{
    int32_t one = 1, sum = 0;
    struct shunt_comm *dup, *half;

    DO(set, self->comm, shunt_comm_dup(self->comm, &dup));
    DO(set, dup, shunt_allreduce(dup, &one, &sum, 1, SHUNT_I32, SHUNT_SUM));
    CHECK(sum == self->size, "set %d: sum %d", set, (int)sum);
    DO(set, dup, shunt_comm_split(dup, self->rank % 2, 0, &half));
    DO(set, half, shunt_allreduce(half, &one, &sum, 1, SHUNT_I32, SHUNT_SUM));
    CHECK(sum == shunt_comm_size(half), "set %d: sum %d", set, (int)sum);
    DO(set, half, shunt_comm_finish(half));
    shunt_comm_destroy(half);
    DO(set, dup, shunt_comm_finish(dup));
    shunt_comm_destroy(dup);
    return closed_stdio_print(set, "destroying communicators");
}

static int use(const struct rank *self, int set)
{
    CHECK_RUN(closed_stdio_print(set, "init"));
    CHECK_RUN(windows(self, set));
    CHECK_RUN(experts(self, set));
    CHECK_RUN(exchanges(self, set));
    CHECK_RUN(children(self, set));
    return 0;
}

/* --- a thread that prints all the time ---------------------------------------------- */

struct printer {
    pthread_t thread;
    atomic_bool stop;
    int set, failed;
};

static void *print_on(void *arg)
{
    struct printer *p = arg;

    while (!atomic_load(&p->stop) && !p->failed) {
        p->failed = closed_stdio_print(p->set, "something in another thread");
        sched_yield();
    }
    return NULL;
}

static int printer_start(struct printer *p, int set)
{
    p->set = set;
    p->failed = 0;
    atomic_init(&p->stop, false);
    CHECK(!pthread_create(&p->thread, NULL, print_on, p), "no thread");
    return 0;
}

static int printer_end(struct printer *p)
{
    atomic_store(&p->stop, true);
    pthread_join(p->thread, NULL);
    return p->failed;
}

/* --- the cases ------------------------------------------------------------------- */

static int with_set(const struct rank *self, int set, bool before)
{
    struct rank own = *self;
    struct printer printer;
    enum shunt_status st;
    int failed;

    if (before)
        closed_stdio_close(set);
    CHECK_RUN(printer_start(&printer, before ? set : 0));
    CHECK_OK(NULL, shunt_comm_create_env(NULL, &own.comm));
    CHECK(own.size == shunt_comm_size(own.comm), "%d ranks",
          shunt_comm_size(own.comm));
    if (!before) {
        CHECK_RUN(printer_end(&printer));
        closed_stdio_close(set);
        CHECK_RUN(printer_start(&printer, set));
    }
    failed = use(&own, set);
    if (failed) {
        shunt_comm_abort(own.comm);
        return failed;
    }
    st = shunt_comm_finish(own.comm);
    CHECK(!st, "set %d: %s", set, rank_why(own.comm, st));
    shunt_comm_destroy(own.comm);
    CHECK_RUN(printer_end(&printer));
    CHECK_RUN(closed_stdio_print(set, "shunt_comm_destroy"));
    return closed_stdio_open(set);
}

/* Runs the case for each single descriptor, for each pair, and for all
 * three. */
static int closed(const struct rank *self, bool before)
{
    CHECK_RUN(closed_stdio_keep());
    event = eventfd(0, EFD_CLOEXEC);
    CHECK(event > STDERR_FILENO, "eventfd: %s", strerror(errno));
    for (int set = 1; set <= CLOSED_STDIO_ALL; set++)
        CHECK_RUN(with_set(self, set, before));
    return 0;
}

static int closed_before(const struct rank *self)
{
    return closed(self, true);
}

static int closed_after(const struct rank *self)
{
    return closed(self, false);
}

/* The shell that started this program has closed all three descriptors. Then
 * the program opens the file `arg`, which becomes descriptor 2. */
static int file_in_place_of_stderr(const struct rank *self)
{
    struct rank own = *self;
    struct stat now;
    int file;

    stderr = fdopen(9, "w");
    CHECK(stderr, "no descriptor 9");
    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        file = open(self->argv[0], O_RDWR | O_CREAT | O_APPEND, 0600);
        CHECK(file == fd, "%d is open: got %d", fd, file);
    }
    event = eventfd(0, EFD_CLOEXEC);
    CHECK_OK(NULL, shunt_comm_create_env(NULL, &own.comm));
    CHECK_RUN(use(&own, 0));
    CHECK_OK(own.comm, shunt_comm_finish(own.comm));
    shunt_comm_destroy(own.comm);
    CHECK(!fstat(STDERR_FILENO, &now) && !now.st_size,
          "%ld bytes are in the program's file", (long)now.st_size);
    return 0;
}

static const struct rank_case cases[] = {
    {"closed_before", closed_before, .no_comm = true, .no_threads = true},
    {"closed_after", closed_after, .no_comm = true, .no_threads = true},
    {"file_in_place_of_stderr", file_in_place_of_stderr, .no_comm = true,
     .no_threads = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
