// SPDX-License-Identifier: Apache-2.0
/* Falling asleep, with a transport and operations for which the moment
 * matters. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "src/comm.h"
#include "src/op/operations.h"
#include "src/op/request.h"
#include "src/plugin/transport_defaults.h"
#include "src/progress/call.h"
#include "src/progress/wait.h"
#include "src/wire/contexts.h"

TestSuite(wait, .timeout = 30);

/* A transport that gets one signal, right after the first arm(). */
struct shunt_transport_ctx {
    int event;
    bool armed, sent;
    bool seen; /* progress() has read the signal */
};

static int progress(struct shunt_transport_ctx *ctx)
{
    uint64_t count;

    if (read(ctx->event, &count, sizeof(count)) != (ssize_t)sizeof(count))
        return 0;
    ctx->seen = true;
    return 1;
}

static enum shunt_status arm(struct shunt_transport_ctx *ctx)
{
    const uint64_t one = 1;

    ctx->armed = true;
    if (!ctx->sent)
        ctx->sent = write(ctx->event, &one, sizeof(one)) > 0;
    return SHUNT_OK;
}

static void disarm(struct shunt_transport_ctx *ctx)
{
    ctx->armed = false;
}

static int wait_fd(struct shunt_transport_ctx *ctx)
{
    return ctx->event;
}

static struct shunt_transport transport = {
    .name = "signal",
    .progress = progress,
    .arm = arm,
    .disarm = disarm,
    .wait_fd = wait_fd,
};

static struct shunt_transport_ctx signals;

/* The step of the older operation, which waits for the signal. */
static enum shunt_status await_signal(struct shunt_request *request)
{
    (void)request;
    return signals.seen ? SHUNT_OK : SHUNT_IN_PROGRESS;
}

/* The step of the younger operation. It progresses the transports in the middle
 * of the step, as operations do that send much. So it may read the signal. */
static enum shunt_status look(struct shunt_request *request)
{
    if (signals.armed)
        shunti_transports_progress(request->comm);
    return request->comm->operations.active == request ? SHUNT_OK
                                                       : SHUNT_IN_PROGRESS;
}

static bool awaits(const struct shunt_request *request, int peer)
{
    (void)request;
    (void)peer;
    return false;
}

static const struct shunti_class older = {
    .name = "older", .step = await_signal, .awaits = awaits};
static const struct shunti_class younger = {
    .name = "younger", .step = look, .awaits = awaits};

Test(wait, a_step_takes_the_signal_of_another)
{
    struct shunti_context context = {.transport = &transport, .ctx = &signals};
    struct shunt_request *first, *second;
    struct shunt_comm_stats stats;
    struct shunt_comm *comm;

    shunti_transport_complete(&transport);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    cr_assert_eq(shunt_comm_create_env(NULL, &comm), SHUNT_OK);
    signals.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    cr_assert(signals.event >= 0 && !comm->contexts.count);
    comm->contexts.all = &context;
    comm->contexts.count = 1;

    cr_assert_eq(
        shunti_request_create(comm, &older, 0, &shunti_no_options, 0, &first),
        SHUNT_OK);
    cr_assert_eq(shunti_request_create(comm, &younger, 0, &shunti_no_options, 0,
                                       &second),
                 SHUNT_OK);
    shunti_request_begin(first);
    shunti_request_begin(second);
    cr_assert_eq(shunti_request_wait(first), SHUNT_OK);
    cr_assert_eq(shunti_request_wait(second), SHUNT_OK);
    cr_assert_eq(shunt_comm_get_stats(comm, &stats, sizeof(stats)), SHUNT_OK);
    cr_expect_eq(stats.sleeps, 0, "%d sleeps, though all was there",
                 (int)stats.sleeps);
    cr_expect_eq(stats.sleeps_missed, 0, "%d sleeps were not woken",
                 (int)stats.sleeps_missed);

    comm->contexts.all = NULL;
    comm->contexts.count = 0;
    shunt_comm_destroy(comm);
    close(signals.event);
}
