// SPDX-License-Identifier: Apache-2.0
/*
 * Tests for messages that were sent before a collective call of both ranks:
 * MPI's own collective calls make progress, so the first MPI_Test() afterwards
 * is true, and MPI_Iprobe() finds the message. MPI does not promise that, but
 * programs rely on it.
 *
 * Ranks are in pairs, and the lower one sends. Between two ranks, MPI delivers
 * messages in order, so the messages of MPI's own collective calls arrive last.
 */

#include "check.h"

#include <stdlib.h>

/* More messages than MPICH receives in a few calls. */
enum { MOST = 20, INTS = 8 };

static MPI_Comm pair;
static bool sends;

static void begin(void)
{
    MPI(MPI_Comm_split(MPI_COMM_WORLD, world_rank / 2, world_rank, &pair));
    sends = world_rank % 2 == 0;
}

static void end(void)
{
    MPI(MPI_Comm_free(&pair));
}

/* -- collective calls ---------------------------------------------------------
 */

enum { COLLECTIVES = 10 };

/* Call number `which`. In each of these calls, the upper rank of a pair waits
 * for data of the lower rank. */
static void collective(int which)
{
    int in[2] = {world_rank, world_rank}, out[2];
    const int ones[2] = {1, 1}, places[2] = {0, 1}, bytes[2] = {0, sizeof(int)};
    const MPI_Datatype types[2] = {MPI_INT, MPI_INT};

    switch (which) {
    case 0:
        MPI(MPI_Barrier(pair));
        break;
    case 1:
        MPI(MPI_Bcast(in, 1, MPI_INT, 0, pair));
        break;
    case 2:
        MPI(MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, pair));
        break;
    case 3:
        MPI(MPI_Reduce_scatter(in, out, ones, MPI_INT, MPI_SUM, pair));
        break;
    case 4:
        MPI(MPI_Reduce_scatter_block(in, out, 1, MPI_INT, MPI_SUM, pair));
        break;
    case 5:
        MPI(MPI_Allgather(in, 1, MPI_INT, out, 1, MPI_INT, pair));
        break;
    case 6:
        MPI(MPI_Allgatherv(in, 1, MPI_INT, out, ones, places, MPI_INT, pair));
        break;
    case 7:
        MPI(MPI_Alltoall(in, 1, MPI_INT, out, 1, MPI_INT, pair));
        break;
    case 8:
        MPI(MPI_Alltoallv(in, ones, places, MPI_INT, out, ones, places, MPI_INT,
                          pair));
        break;
    default:
        MPI(MPI_Alltoallw(in, ones, bytes, types, out, ones, bytes, types,
                          pair));
    }
}

/* -- tests of messages --------------------------------------------------------
 */

enum { TEST, TESTALL, TESTANY, TESTSOME, STATUS, IPROBE, IMPROBE, TESTS };

static MPI_Request requests[MOST];
static MPI_Status statuses[MOST];
static int received[MOST][INTS];

static bool takes_requests(int test)
{
    return test != IPROBE && test != IMPROBE;
}

/* Make one call of kind `test`. Returns whether the last one of `n` messages
 * has arrived (MPI_Testall(): whether all have). */
static bool ask(int test, int n)
{
    MPI_Request *last = &requests[n - 1];
    int flag = -1, at[1] = {-1};
    MPI_Message message;

    switch (test) {
    case TEST:
        MPI(MPI_Test(last, &flag, MPI_STATUS_IGNORE));
        break;
    case TESTALL:
        MPI(MPI_Testall(n, requests, &flag, statuses));
        break;
    case TESTANY:
        MPI(MPI_Testany(1, last, at, &flag, MPI_STATUS_IGNORE));
        CHECK(at[0] == (flag ? 0 : MPI_UNDEFINED));
        break;
    case TESTSOME:
        MPI(MPI_Testsome(1, last, &flag, at, statuses));
        CHECK(!flag || at[0] == 0);
        break;
    case STATUS:
        MPI(MPI_Request_get_status(*last, &flag, MPI_STATUS_IGNORE));
        break;
    case IPROBE:
        MPI(MPI_Iprobe(0, n - 1, pair, &flag, MPI_STATUS_IGNORE));
        break;
    default:
        MPI(MPI_Improbe(0, n - 1, pair, &flag, &message, MPI_STATUS_IGNORE));
        if (flag)
            MPI(MPI_Imrecv(received[n - 1], INTS, MPI_INT, &message, last));
    }
    CHECK(flag == 0 || flag == 1);
    return flag;
}

static void send_some(int n, int round, int call)
{
    int sent[MOST][INTS];

    for (int i = 0; i < n; i++) {
        for (int k = 0; k < INTS; k++)
            sent[i][k] = 1000 * round + 10 * i + k;
        MPI(MPI_Isend(sent[i], INTS, MPI_INT, 1, i, pair, &requests[i]));
    }
    collective(call);
    MPI(MPI_Waitall(n, requests, statuses));
}

static void receive_some(int n, int round, int call, int test)
{
    CHECK(!ask(test, n));
    collective(0);
    CHECK(!ask(test, n));
    collective(0);
    collective(call);
    CHECK(ask(test, n));
    for (int i = 0; i < n; i++)
        if (!takes_requests(test) && requests[i] == MPI_REQUEST_NULL)
            MPI(MPI_Irecv(received[i], INTS, MPI_INT, 0, i, pair,
                          &requests[i]));
    MPI(MPI_Waitall(n, requests, statuses));
    for (int i = 0; i < n; i++)
        for (int k = 0; k < INTS; k++)
            CHECK(received[i][k] == 1000 * round + 10 * i + k);
}

/* Send `n` messages, and test after each of the collective calls. No test may
 * find a message before it is sent. */
static void messages(int test, int n)
{
    if (comm_size(pair) < 2)
        return;
    for (int round = 0; round < 3 * COLLECTIVES; round++) {
        const int call = round % COLLECTIVES;

        for (int i = 0; i < n; i++) {
            requests[i] = MPI_REQUEST_NULL;
            if (!sends && takes_requests(test))
                MPI(MPI_Irecv(received[i], INTS, MPI_INT, 0, i, pair,
                              &requests[i]));
        }
        if (sends) {
            collective(0);
            collective(0);
            send_some(n, round, call);
        } else {
            receive_some(n, round, call, test);
        }
    }
}

static void one(int test)
{
    messages(test, 1);
}

static void many(int test)
{
    messages(test, MOST);
}

/* -- tests of windows, and without collective calls ---------------------------
 */

/* The upper rank's window is open until the lower rank has completed its
 * access. No data is put, because MPICH 4.0.2 loses it. Only one pair takes
 * part, because in Open MPI 4.1 windows of two pairs have the same file. */
static void window(int variant)
{
    MPI_Group both, other;
    int *memory, flag, peer = sends;
    MPI_Win win;

    (void)variant;
    if (world_size < 2 || world_rank > 1)
        return;
    MPI(MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, pair, &memory,
                         &win));
    MPI(MPI_Comm_group(pair, &both));
    MPI(MPI_Group_incl(both, 1, &peer, &other));
    for (int round = 0; round < 3 * COLLECTIVES; round++) {
        const int call = round % COLLECTIVES;

        if (sends) {
            MPI(MPI_Win_start(other, 0, win));
            collective(0);
            MPI(MPI_Win_complete(win));
            collective(call);
        } else {
            MPI(MPI_Win_post(other, 0, win));
            MPI(MPI_Win_test(win, &flag));
            CHECK(!flag);
            collective(0);
            collective(call);
            MPI(MPI_Win_test(win, &flag));
            CHECK(flag);
        }
        collective(0);
    }
    MPI(MPI_Group_free(&other));
    MPI(MPI_Group_free(&both));
    MPI(MPI_Win_free(&win));
}

#if MPI_VERSION >= 4
/* A partitioned message. Here the sender has to make progress, too, so the
 * first test may be too early. */
static void parts(int variant)
{
    int data[2] = {-1, -1}, flag;
    MPI_Request request;

    (void)variant;
    if (comm_size(pair) < 2)
        return;
    if (sends)
        MPI(MPI_Psend_init(data, 2, 1, MPI_INT, 1, 0, pair, MPI_INFO_NULL,
                           &request));
    else
        MPI(MPI_Precv_init(data, 2, 1, MPI_INT, 0, 0, pair, MPI_INFO_NULL,
                           &request));
    for (int round = 0; round < 3 * COLLECTIVES; round++) {
        MPI(MPI_Start(&request));
        collective(0);
        for (int i = 0; sends && i < 2; i++) {
            data[i] = round + i;
            MPI(MPI_Pready(i, request));
        }
        collective(round % COLLECTIVES);
        for (flag = sends; !flag;)
            MPI(MPI_Parrived(request, 1, &flag));
        CHECK(data[1] == round + 1);
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        collective(0);
    }
    MPI(MPI_Request_free(&request));
}
#endif

/* A message to this rank itself. Runs before any collective call of the
 * program, and again at the end. */
static void alone(int variant)
{
    int flag = -1, number = -1, mine = 17;
    MPI_Request request;

    (void)variant;
    MPI(MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE));
    CHECK(!flag);
    MPI(MPI_Irecv(&number, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request));
    MPI(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
    CHECK(!flag && number == -1);
    MPI(MPI_Send(&mine, 1, MPI_INT, 0, 0, MPI_COMM_SELF));
    for (flag = 0; !flag;)
        MPI(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
    CHECK(request == MPI_REQUEST_NULL && number == mine);
}

static int errors;

static void count_error(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
    errors++;
}

/* An error is reported only once, even after a collective call. */
static void error(int variant)
{
    MPI_Errhandler handler;
    int flag = 0;

    (void)variant;
    MPI(MPI_Comm_create_errhandler(count_error, &handler));
    MPI(MPI_Comm_set_errhandler(pair, handler));
    collective(0);
    CHECK(MPI_Iprobe(99, 0, pair, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS);
    CHECK(errors == 1);
    MPI(MPI_Errhandler_free(&handler));
    MPI(MPI_Comm_set_errhandler(pair, MPI_ERRORS_ARE_FATAL));
}

static const struct check_case cases[] = {
    {"alone", alone, 0, 1},
    {"test", one, TEST, 2},
    {"testall", one, TESTALL, 2},
    {"testany", one, TESTANY, 2},
    {"testsome", one, TESTSOME, 2},
    {"get_status", one, STATUS, 2},
    {"iprobe", one, IPROBE, 2},
    {"improbe", one, IMPROBE, 2},
    {"test_of_many", many, TEST, 2},
    {"testall_of_many", many, TESTALL, 2},
    {"iprobe_of_many", many, IPROBE, 2},
    {"improbe_of_many", many, IMPROBE, 2},
    {"window", window, 0, 2},
#if MPI_VERSION >= 4
    {"parts", parts, 0, 2},
#endif
    {"error", error, 0, 1},
    {"alone_afterwards", alone, 0, 1},
    {0},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases, MPI_THREAD_SINGLE, begin, end);
}
