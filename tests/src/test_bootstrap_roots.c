// SPDX-License-Identifier: Apache-2.0
/* Two jobs with the same name, and other programs in the place of the root. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/boot/bootstrap_wire.h"
#include "tests/src/joining.h"

/* -- two jobs with one name ------------------------------------------------ */

static const enum shunti_id_kind kinds[] = {SHUNTI_ID_LOCAL, SHUNTI_ID_IPV4};

/* Returns an id like those that a launcher's ranks derive, with a port that is
 * free. */
static struct shunt_id launched_id(enum shunti_id_kind kind)
{
    static const unsigned char loopback[4] = {127, 0, 0, 1};
    struct shunti_id_parts parts = {.kind = kind, .flags = SHUNTI_ID_RETRY};
    struct sockaddr_storage addr;
    struct shunt_id id;
    socklen_t len;
    int fd;

    cr_assert(shunti_auth_random(parts.tag, sizeof(parts.tag)));
    cr_assert(shunti_auth_random(parts.secret, sizeof(parts.secret)));
    memcpy(parts.address, loopback, sizeof(loopback));
    if (kind == SHUNTI_ID_IPV4) {
        struct shunti_id_parts bound = parts;

        shunti_id_sockaddr(&parts, true, &addr, &len);
        fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        cr_assert(!bind(fd, (struct sockaddr *)&addr, len) &&
                  !getsockname(fd, (struct sockaddr *)&addr, &len));
        close(fd);
        shunti_id_set_sockaddr(&bound, &addr);
        parts.port = bound.port;
    }
    shunti_id_pack(&parts, &id);
    return id;
}

static void start_rank(int i, struct shunt_id id, int rank, int nranks)
{
    ranks[i] = (struct birth_rank){
        .id = id, .nranks = nranks, .rank = rank, .timeout = 30, .gathers = 1};
    birth_start(&ranks[i]);
}

/* Starts a root in another process, as rank 0 of a second job with the same
 * name. Returns its status and the text of its error. */
static enum shunt_status serve_elsewhere(struct shunt_id id, char text[400])
{
    enum shunt_status st;
    int ends[2], status;
    pid_t pid;

    cr_assert_eq(pipe(ends), 0);
    pid = fork();
    if (!pid) {
        st = shunti_bootstrap_serve(&id, 2);
        snprintf(text, 400, "%s", shunt_last_error(NULL));
        _exit(write(ends[1], &st, sizeof(st)) != sizeof(st) ||
              write(ends[1], text, 400) != 400);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
    cr_assert_eq(read(ends[0], &st, sizeof(st)), (ssize_t)sizeof(st));
    cr_assert_eq(read(ends[0], text, 400), 400);
    close(ends[0]);
    close(ends[1]);
    return st;
}

/* Rank 1 of job A waits for rank 0 of its job when rank 0 of job B joins. Both
 * ranks 0 and the remaining ranks must get an error. */
Test(bootstrap, two_jobs_that_start_get_errors)
{
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct shunt_id name = launched_id(kinds[k]), a = name;
        char text[400];
        int member;

        cr_assert_eq(shunti_bootstrap_serve(&a, 2), SHUNT_OK);
        member = join_by_hand(&name, 1, 2, false);
        cr_expect_eq(serve_elsewhere(name, text), SHUNT_ERR_MISMATCH);
        expect_text(text, "rank 0 (of 2) joined twice, as process ");
        expect_text(text, "MASTER_PORT");
        start_rank(0, a, 0, 2);
        start_rank(1, name, 1, 2);
        birth_join(&ranks[0]);
        birth_join(&ranks[1]);
        expect_all(2, SHUNT_ERR_MISMATCH, "rank 0 (of 2) joined twice");
        close(member);
    }
}

/* When all ranks of job A have joined, each rank of job B is refused, and job A
 * goes on. */
Test(bootstrap, a_second_job_is_turned_away)
{
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct shunt_id name = launched_id(kinds[k]), a = name;
        char text[400];

        cr_assert_eq(shunti_bootstrap_serve(&a, 2), SHUNT_OK);
        start_rank(0, a, 0, 2);
        start_rank(1, name, 1, 2);
        birth_join(&ranks[0]);
        birth_join(&ranks[1]);
        expect_all_ok(2);
        start_rank(0, name, 1, 2);
        birth_join(&ranks[0]);
        expect_all(1, SHUNT_ERR_MISMATCH, "rank 1 (of 2) joined twice, as");
        cr_expect_eq(serve_elsewhere(name, text), SHUNT_ERR_MISMATCH);
        expect_text(text, "rank 0 (of 2) joined twice, as process ");
        start_rank(0, name, 2, 3);
        birth_join(&ranks[0]);
        expect_all(1, SHUNT_ERR_MISMATCH, "says that there are 3 ranks");
    }
}

/* Another program has rank 0's port. It may listen, but sends nothing. Rank 0
 * sends the error to rank 1, at a unix socket if `near` is true, else at
 * another port. */
static void port_in_use(bool listens, bool near)
{
    struct shunt_id name = launched_id(SHUNTI_ID_IPV4), a;
    struct shunti_id_parts parts;
    struct sockaddr_storage addr;
    socklen_t len;
    int fd;

    cr_assert_eq(shunti_id_unpack(&name, &parts), SHUNT_OK);
    parts.other = near ? SHUNTI_ID_LOCAL : 0;
    shunti_id_pack(&parts, &name);
    shunti_id_sockaddr(&parts, true, &addr, &len);
    fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&addr, len), 0);
    cr_assert(!listens || !listen(fd, 16));
    a = name;
    start_rank(1, name, 1, 2);
    cr_expect_eq(shunti_bootstrap_serve(&a, 2), SHUNT_ERR_SYSTEM);
    expect_text(shunt_last_error(NULL), "the port is in use");
    birth_join(&ranks[1]);
    cr_expect_eq(ranks[1].status, SHUNT_ERR_SYSTEM, "%s", ranks[1].text);
    expect_text(ranks[1].text, "rank 0 cannot listen at 127.0.0.1:");
    expect_text(ranks[1].text, "the port is in use");
    close(fd);
}

Test(bootstrap, all_ranks_name_a_silent_program_at_the_port)
{
    port_in_use(true, false);
}

Test(bootstrap, all_ranks_name_a_port_that_is_in_use)
{
    port_in_use(false, true);
}

/* Rank 0 cannot reach the address to which the other ranks connect, so it joins
 * over the loopback. */
Test(bootstrap, rank_0_joins_over_loopback)
{
    static const unsigned char nobody[4] = {192, 0, 2, 1};
    struct shunt_id name = launched_id(SHUNTI_ID_IPV4), a;
    struct shunti_id_parts parts;

    for (int v6 = 0; v6 < 2; v6++) {
        cr_assert_eq(shunti_id_unpack(&name, &parts), SHUNT_OK);
        memcpy(parts.address, nobody, sizeof(nobody));
        parts.flags |= SHUNTI_ID_ANY;
        shunti_id_pack(&parts, &a);
        cr_assert_eq(shunti_bootstrap_serve(&a, 2), SHUNT_OK, "%s",
                     shunt_last_error(NULL));
        start_rank(0, a, 0, 2);
        memset(parts.address, 0, sizeof(parts.address));
        if (v6) { /* the other ranks have IPv6 only */
            parts.kind = SHUNTI_ID_IPV6;
            parts.address[15] = 1;
        } else {
            parts.address[0] = 127;
            parts.address[3] = 1;
        }
        shunti_id_pack(&parts, &a);
        start_rank(1, a, 1, 2);
        birth_join(&ranks[0]);
        birth_join(&ranks[1]);
        expect_all_ok(2);
    }
}

/* A process may create one communicator after another at the same address, and
 * may fork. It must be able to use the address again. */
Test(bootstrap, a_held_address_is_released)
{
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct shunt_id name = launched_id(kinds[k]);
        pid_t pid = 0;

        for (int i = 0; i < 3; i++) {
            struct shunt_id a = name;

            cr_assert_eq(shunti_bootstrap_serve(&a, 2), SHUNT_OK, "%s",
                         shunt_last_error(NULL));
            if (i == 1 && !(pid = fork())) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                pause();
            }
            start_rank(0, a, 0, 2);
            start_rank(1, name, 1, 2);
            birth_join(&ranks[0]);
            birth_join(&ranks[1]);
            expect_all_ok(2);
        }
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

/* -- false roots ----------------------------------------------------------- */

struct impostor {
    int listen_fd;
    bool polite; /* follows the protocol, but does not know the secret */
    unsigned char tag[SHUNTI_TAG_BYTES];
    pthread_t thread;
};

static void *impersonate(void *arg)
{
    static const char greeting[] =
        "220 mail.example.org ESMTP, what can I do for you?";
    struct impostor *im = arg;
    unsigned char bytes[SHUNTI_WIRE_HELLO_BYTES];
    int fd = accept(im->listen_fd, NULL, NULL);

    if (!im->polite) {
        (void)!write(fd, greeting, strlen(greeting));
    } else if (get_bytes(fd, bytes, SHUNTI_WIRE_HELLO_BYTES)) {
        memcpy(bytes, SHUNTI_WIRE_MAGIC, SHUNTI_WIRE_MAGIC_BYTES);
        memcpy(bytes + SHUNTI_WIRE_MAGIC_BYTES + SHUNTI_NONCE_BYTES, im->tag,
               sizeof(im->tag));
        (void)!write(fd, bytes, SHUNTI_WIRE_CHALLENGE_BYTES);
        if (get_bytes(fd, bytes, SHUNTI_WIRE_PROOF_BYTES)) {
            unsigned char
                answer[SHUNTI_WIRE_HEADER_BYTES + SHUNTI_WIRE_PROOF_BYTES];

            /* Reflect the rank's own proof. */
            shunti_wire_put_header(answer, SHUNTI_WIRE_WELCOME, 0,
                                   SHUNTI_WIRE_PROOF_BYTES);
            memcpy(answer + SHUNTI_WIRE_HEADER_BYTES, bytes,
                   SHUNTI_WIRE_PROOF_BYTES);
            (void)!write(fd, answer, sizeof(answer));
        }
    }
    while (read(fd, bytes, sizeof(bytes)) > 0)
        ;
    close(fd);
    return NULL;
}

static void meet_impostor(bool polite, const char *part)
{
    struct shunti_id_parts parts = {.kind = SHUNTI_ID_IPV4,
                                    .address = {127, 0, 0, 1}};
    struct sockaddr_storage addr;
    struct impostor im = {.polite = polite};
    struct shunti_bootstrap *bs;
    struct shunt_id id;
    socklen_t len;

    shunti_id_sockaddr(&parts, true, &addr, &len);
    im.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(im.listen_fd, (struct sockaddr *)&addr, len), 0);
    cr_assert_eq(listen(im.listen_fd, 1), 0);
    getsockname(im.listen_fd, (struct sockaddr *)&addr, &len);
    parts.port = ntohs(((struct sockaddr_in *)&addr)->sin_port);
    shunti_id_pack(&parts, &id);
    pthread_create(&im.thread, NULL, impersonate, &im);
    cr_assert_eq(shunti_bootstrap_join(&id, 2, 0, 20, &bs), SHUNT_ERR_MISMATCH);
    expect_text(shunt_last_error(NULL), part);
    pthread_join(im.thread, NULL);
    close(im.listen_fd);
}

Test(bootstrap, something_else_listens_there)
{
    meet_impostor(false, "is not Shunt");
}

Test(bootstrap, a_root_without_the_secret)
{
    meet_impostor(true, "does not know the secret");
}

/* A root with another id on the same port must not end when ranks of this id
 * connect to it. */
Test(bootstrap, another_root_has_the_port)
{
    struct shunt_id id = new_id(), old;
    struct shunti_bootstrap *bs;
    struct shunti_id_parts parts;
    double start = shunti_wire_now();

    cr_assert_eq(shunti_id_unpack(&id, &parts), SHUNT_OK);
    parts.tag[0] ^= 1;
    shunti_id_pack(&parts, &old);
    cr_assert_eq(shunti_bootstrap_join(&old, 2, 1, 20, &bs),
                 SHUNT_ERR_MISMATCH);
    expect_text(shunt_last_error(NULL), "the ranks of another job");
    cr_assert_lt(shunti_wire_now() - start, 5);
    birth_run(ranks, &id, 2, 2, 20);
    expect_all_ok(2);
}

/* Starts a process of another user that listens at the address of `parts`, but
 * sends nothing. */
static pid_t squat(const struct shunti_id_parts *parts)
{
    int up[2];
    char byte;
    pid_t pid;

    cr_assert_eq(pipe(up), 0);
    pid = fork();
    if (!pid) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_storage addr;
        socklen_t len;

        shunti_id_sockaddr(parts, true, &addr, &len);
        if (setresuid(65534, 65534, 65534) ||
            prctl(PR_SET_PDEATHSIG, SIGKILL) ||
            bind(fd, (struct sockaddr *)&addr, len) || listen(fd, 16) ||
            write(up[1], "", 1) != 1)
            _exit(1);
        pause();
    }
    close(up[1]);
    cr_assert_eq(read(up[0], &byte, 1), 1, "the squatter");
    close(up[0]);
    return pid;
}

/* The job has a secret, but any process can compute its address. */
Test(bootstrap, another_user_has_the_meeting_place)
{
    static const char who[] = "is held by user 65534";
    struct shunti_id_parts far, near;
    struct shunti_bootstrap *bs;
    struct shunt_id id = new_id();
    double start;
    pid_t pid;

    if (geteuid())
        cr_skip_test("only root can be another user");
    /* At the other address there is a root that would admit this process. */
    cr_assert_eq(shunti_id_unpack(&id, &far), SHUNT_OK);
    near = far;
    near.flags |= SHUNTI_ID_RETRY;
    near.kind = SHUNTI_ID_LOCAL;
    near.other = far.kind;
    shunti_id_pack(&near, &id);
    pid = squat(&near);

    start = shunti_wire_now();
    cr_expect_eq(shunti_bootstrap_serve(&id, 2), SHUNT_ERR_SYSTEM);
    expect_text(shunt_last_error(NULL), who);
    cr_expect_eq(shunti_bootstrap_join(&id, 1, 0, 20, &bs), SHUNT_ERR_MISMATCH);
    expect_text(shunt_last_error(NULL), who);
    cr_expect_lt(shunti_wire_now() - start, 0.9);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}
