// SPDX-License-Identifier: Apache-2.0
/* Unauthenticated peers must not disturb the bootstrap. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/boot/bootstrap_wire.h"
#include "src/boot/peer_user.h"
#include "tests/src/joining.h"

#define PEERS 400 /* more than the root keeps at a time, even of silent peers */

Test(bootstrap, a_flood_of_unauthenticated_peers_changes_nothing)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: shunt\r\n\r\n";
    static int fds[PEERS];
    char path[] = "/tmp/shunt-test-log-XXXXXX", text[256];
    int log = mkstemp(path), refused = 0, dropped = 0;
    struct shunt_id id;
    FILE *f;

    close(log);
    setenv("SHUNT_LOG", "info", 1);
    setenv("SHUNT_LOG_FILE", path, 1);
    shunti_log_reset();
    id = new_id();
    for (int i = 0; i < PEERS; i++) {
        fds[i] = dial(&id);
        cr_assert(fds[i] >= 0);
        if (i % 8 == 1)
            put_bytes(fds[i], request, strlen(request));
        else if (i % 8 == 2)
            put_bytes(fds[i], "s",
                      1); /* the first byte is right, then silence */
        else if (i % 8 == 3)
            shutdown(fds[i], SHUT_WR);
    }
    birth_run(ranks, &id, 8, 8, 30);
    expect_all_ok(8);
    for (int r = 0; r < 8; r++)
        cr_assert_lt(ranks[r].seconds, 9, "did not wait for any peer");
    for (int i = 0; i < PEERS; i++)
        close(fds[i]);

    f = fopen(path, "r");
    while (f && fgets(text, sizeof(text), f)) {
        refused += strstr(text, "refused a connection from") != NULL;
        dropped += strstr(text, "it was the oldest") != NULL;
    }
    fclose(f);
    unlink(path);
    cr_assert_geq(refused, PEERS / 4, "only %d were logged", refused);
    cr_assert_gt(dropped, 0, "silent ones are bounded in number");
}

Test(bootstrap, a_slow_unauthenticated_peer_is_dropped)
{
    double start = shunti_wire_now();
    struct shunt_id id;
    int member, peer;
    char byte;

    setenv("SHUNT_TIMEOUT", "1", 1);
    id = new_id();
    /* the member waits longer than SHUNT_TIMEOUT */
    member = join_by_hand(&id, 0, 2, false);
    peer = dial(&id);
    cr_assert(peer >= 0);
    for (size_t i = 0;; i++) { /* send the peer's bytes slowly, one by one */
        struct pollfd p = {.fd = peer, .events = POLLIN};

        if (i < SHUNTI_WIRE_MAGIC_BYTES)
            put_bytes(peer, &SHUNTI_WIRE_MAGIC[i], 1);
        if (poll(&p, 1, 200) > 0)
            break;
        cr_assert_lt(shunti_wire_now() - start, 20);
    }
    cr_assert_leq(recv(peer, &byte, 1, 0), 0, "it was told something");
    close(peer);
    ranks[0] = (struct birth_rank){
        .id = id, .nranks = 2, .rank = 0, .timeout = 5, .gathers = 1};
    birth_start(&ranks[0]); /* the root must still be there, and check claims */
    birth_join(&ranks[0]);
    expect_all(1, SHUNT_ERR_MISMATCH, "rank 0 (of 2) joined twice");
    close(member);
}

/* Sends a hello and a wrong proof. Returns true if a refusal is received. */
static bool forge(int fd, int rank, int nranks)
{
    struct shunti_auth_transcript transcript = {
        .rank = rank, .nranks = nranks, .timeout_ms = 9000};
    unsigned char bytes[SHUNTI_WIRE_HELLO_BYTES] = {0};

    shunti_wire_put_hello(bytes, &transcript);
    if (send(fd, bytes, SHUNTI_WIRE_HELLO_BYTES, MSG_NOSIGNAL) < 0 ||
        !get_bytes(fd, bytes, SHUNTI_WIRE_CHALLENGE_BYTES))
        return false;
    memset(bytes, 9, SHUNTI_WIRE_PROOF_BYTES);
    return send(fd, bytes, SHUNTI_WIRE_PROOF_BYTES, MSG_NOSIGNAL) > 0 &&
           get_bytes(fd, bytes, SHUNTI_WIRE_HEADER_BYTES) &&
           shunti_wire_get_header(bytes).type == SHUNTI_WIRE_REFUSED;
}

static void limit_descriptors(rlim_t most)
{
    struct rlimit limit;

    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = most ? most : limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* Makes unauthenticated connections from another process, which keeps them open
 * until *pipe_end is closed. */
static pid_t flood(const struct shunt_id *id, int count, bool forging,
                   int *pipe_end)
{
    struct timeval timeout = {.tv_sec = 3};
    int ready[2], stay[2];
    pid_t pid;
    char byte;

    cr_assert(!pipe(ready) && !pipe(stay));
    pid = fork();
    if (!pid) {
        close(stay[1]);
        limit_descriptors(0);
        for (int i = 0; i < count; i++) {
            int fd = dial(id);

            if (fd < 0)
                break;
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
            if (forging && !forge(fd, 0, 2))
                break;
        }
        (void)!write(ready[1], "", 1);
        (void)!read(stay[0], &byte, 1);
        _exit(0);
    }
    close(ready[1]);
    close(stay[0]);
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    *pipe_end = stay[1];
    return pid;
}

/* Makes an init of `n` ranks in spite of `count` unauthenticated peers. */
static void init_during_flood(const struct shunt_id *id, int count,
                              bool forging, int n)
{
    int pipe_end;
    pid_t pid = flood(id, count, forging, &pipe_end);

    birth_run(ranks, id, n, n, 20);
    expect_all_ok(n);
    close(pipe_end);
    waitpid(pid, NULL, 0);
}

/* The root has started before the limit was set, so it does not know the
 * limit. */
Test(bootstrap, refused_peers_that_stay_are_bounded)
{
    struct shunt_id id;

    setenv("SHUNT_HOST", "127.0.0.1", 1);
    id = new_id();
    limit_descriptors(400);
    init_during_flood(&id, 450, true, 4);
}

Test(bootstrap, unauthenticated_peers_leave_descriptors_to_the_process)
{
    struct shunt_id id;

    limit_descriptors(120);
    id = new_id();
    init_during_flood(&id, 200, false, 8);
}

/* A peer with a wrong proof may claim to be a rank that has joined, or an
 * impossible rank. The root must not report it as a rank with another
 * SHUNT_SECRET. */
Test(bootstrap, impossible_ranks_with_wrong_proofs_change_nothing)
{
    static const struct {
        int rank, nranks;
    } claims[] = {{0, 3}, {3, 3}, {-1, 3}, {0x61616161, 0x61616161}, {1, -1}};
    struct shunti_id_parts parts = {.kind = SHUNTI_ID_LOCAL,
                                    .flags = SHUNTI_ID_RETRY};
    struct shunt_id id;
    int member;

    cr_assert(shunti_auth_random(parts.tag, sizeof(parts.tag)));
    cr_assert(shunti_auth_random(parts.secret, sizeof(parts.secret)));
    shunti_id_pack(&parts, &id);
    cr_assert_eq(shunti_bootstrap_serve(&id, 3), SHUNT_OK);
    member = join_by_hand(&id, 0, 3, false);
    for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
        int fd = dial(&id);

        cr_expect(forge(fd, claims[i].rank, claims[i].nranks));
        close(fd);
    }
    for (int r = 1; r < 3; r++) {
        ranks[r] = (struct birth_rank){
            .id = id, .nranks = 3, .rank = r, .timeout = 20};
        birth_start(&ranks[r]);
    }
    for (int r = 1; r < 3; r++) {
        birth_join(&ranks[r]);
        cr_expect_eq(ranks[r].status, SHUNT_OK, "rank %d: %s", r,
                     ranks[r].text);
    }
    close(member);
}

/* Many kernels list closed connections as root's in their table. So if this
 * process ran as root, a peer that closed at once was taken for a process of
 * the same user. */
Test(bootstrap, a_peer_that_has_left_is_of_no_user)
{
    for (int how = 0; how < 3; how++) {
        struct linger linger = {.l_onoff = 1};
        struct sockaddr_in addr = {.sin_family = AF_INET};
        socklen_t len = sizeof(addr);
        int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), near;

        addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        cr_assert(!bind(door, (struct sockaddr *)&addr, len) &&
                  !listen(door, 1) &&
                  !getsockname(door, (struct sockaddr *)&addr, &len) &&
                  !connect(far, (struct sockaddr *)&addr, len));
        near = accept(door, NULL, NULL);
        put_bytes(far, "proof", 5);
        if (how == 2)
            setsockopt(far, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
        if (how)
            close(far);
        cr_expect_eq(shunti_peer_user(near, true),
                     how ? SHUNTI_USER_GONE : SHUNTI_USER_OURS, "how %d", how);
        if (!how)
            close(far);
        close(near);
        close(door);
    }
}

/* Brings up the loopback device of this process's network namespace and adds an
 * address. Removes that address if `address` is NULL. */
static bool set_second_address(const char *address)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq device = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    struct ifreq second = {.ifr_name = "lo:0"};
    struct sockaddr_in *in = (struct sockaddr_in *)&second.ifr_addr;
    bool set;

    if (address) {
        in->sin_family = AF_INET;
        inet_pton(AF_INET, address, &in->sin_addr);
        set = !ioctl(fd, SIOCSIFFLAGS, &device) &&
              !ioctl(fd, SIOCSIFADDR, &second);
    } else {
        /* bringing it down removes the address */
        set = !ioctl(fd, SIOCSIFFLAGS, &second);
    }
    close(fd);
    return set;
}

/* The root must not look up a peer of another host in the kernel's table: that
 * takes long, and the table has no entry for such a peer. Here the peer has an
 * address that this host no longer has. */
Test(bootstrap, a_peer_of_another_host_is_not_looked_up)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    struct sockaddr_in from = {.sin_family = AF_INET};
    socklen_t len = sizeof(addr);
    int door, far, near;

    if (unshare(CLONE_NEWNET) || !set_second_address("10.9.8.7"))
        cr_skip_test("no network of our own");
    door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    inet_pton(AF_INET, "10.9.8.7", &from.sin_addr);
    cr_assert(!bind(door, (struct sockaddr *)&addr, len) && !listen(door, 1) &&
              !getsockname(door, (struct sockaddr *)&addr, &len) &&
              !bind(far, (struct sockaddr *)&from, len) &&
              !connect(far, (struct sockaddr *)&addr, len));
    near = accept(door, NULL, NULL);
    cr_expect_eq(shunti_peer_user(near, true), SHUNTI_USER_OURS);
    cr_assert(set_second_address(NULL));
    cr_expect_eq(shunti_peer_user(near, true), SHUNTI_USER_UNKNOWN);
    close(near);
    close(far);
    close(door);
}

Test(bootstrap, a_wrong_secret_is_refused)
{
    struct shunt_id id = new_id(), forged;
    struct shunti_id_parts parts;

    cr_assert_eq(shunti_id_unpack(&id, &parts), SHUNT_OK);
    parts.secret[31] ^= 1;
    shunti_id_pack(&parts, &forged);
    birth_run(ranks, &forged, 2, 2, 20);
    expect_all(2, SHUNT_ERR_MISMATCH, "secret is not the same");
    birth_run(ranks, &id, 2, 2, 20);
    expect_all_ok(2);
}

Test(bootstrap, a_replayed_proof_is_refused)
{
    struct shunti_auth_transcript transcript = {
        .rank = 0, .nranks = 2, .timeout_ms = 9000};
    unsigned char bytes[SHUNTI_WIRE_HELLO_BYTES], proof[SHUNTI_KEY_BYTES];
    struct shunt_id id = new_id();
    struct shunti_id_parts parts;

    cr_assert_eq(shunti_id_unpack(&id, &parts), SHUNT_OK);
    for (int i = 0; i < 2; i++) {
        int fd = dial(&id);

        shunti_wire_put_hello(bytes, &transcript);
        put_bytes(fd, bytes, SHUNTI_WIRE_HELLO_BYTES);
        cr_assert(get_bytes(fd, bytes, SHUNTI_WIRE_CHALLENGE_BYTES));
        memcpy(transcript.root_nonce, bytes + SHUNTI_WIRE_MAGIC_BYTES,
               SHUNTI_NONCE_BYTES);
        /* the "overheard" proof is right for its own challenge only */
        if (i == 0) {
            shunti_auth_prove(parts.secret, SHUNTI_AUTH_RANK, &transcript,
                              proof);
        } else {
            put_bytes(fd, proof, sizeof(proof));
            cr_assert(get_bytes(fd, bytes, SHUNTI_WIRE_HEADER_BYTES));
            cr_assert_eq(shunti_wire_get_header(bytes).type,
                         SHUNTI_WIRE_REFUSED);
        }
        close(fd);
    }
    birth_run(ranks, &id, 2, 2, 20);
    expect_all_ok(2);
}
