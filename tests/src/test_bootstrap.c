// SPDX-License-Identifier: Apache-2.0
/*
 * The bootstrap: inits that work, and inits that fail with the right text on
 * every rank. Other files of this suite test unauthenticated peers, false
 * roots, and addresses.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/boot/bootstrap_io.h"
#include "src/boot/bootstrap_wire.h"
#include "tests/src/joining.h"

TestSuite(bootstrap, .timeout = 60);

/* -- inits that work ------------------------------------------------------- */

Test(bootstrap, births_of_many_sizes)
{
    static const int sizes[] = {1, 2, 3, 8, BIRTH_MAX};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct shunt_id id = new_id();

        birth_run(ranks, &id, sizes[i], sizes[i], 30);
        expect_all_ok(sizes[i]);
    }
}

Test(bootstrap, two_births_have_different_keys)
{
    unsigned char first[32];
    struct shunt_id id = new_id();

    birth_run(ranks, &id, 2, 2, 30);
    expect_all_ok(2);
    memcpy(first, ranks[0].key, sizeof(first));
    id = new_id();
    birth_run(ranks, &id, 2, 2, 30);
    expect_all_ok(2);
    cr_assert(memcmp(first, ranks[0].key, sizeof(first)));
}

Test(bootstrap, ranks_may_come_late_and_slowly)
{
    struct shunt_id id = new_id();
    unsigned char bytes[64];
    int fd = join_by_hand(&id, 2, 3, true);

    for (int r = 0; r < 2; r++) {
        ranks[r] = (struct birth_rank){
            .id = id, .nranks = 3, .rank = r, .timeout = 30, .gathers = 1};
        birth_start(&ranks[r]);
    }
    cr_assert(get_bytes(fd, bytes,
                        SHUNTI_WIRE_HEADER_BYTES + SHUNTI_WIRE_SALT_BYTES));
    cr_assert_eq(shunti_wire_get_header(bytes).type, SHUNTI_WIRE_READY);
    shunti_wire_put_header(bytes, SHUNTI_WIRE_GATHER, 0, 0);
    /* a blob without bytes, as rank 2's blobs are */
    put_bytes(fd, bytes, SHUNTI_WIRE_HEADER_BYTES);
    for (int r = 0; r < 2; r++)
        birth_join(&ranks[r]);
    expect_all_ok(2);
    close(fd);
}

/* -- inits that fail ------------------------------------------------------- */

Test(bootstrap, malformed_ids)
{
    struct shunti_bootstrap *bs = NULL;
    struct shunt_id id = new_id(), bad;

    memset(&bad, 0, sizeof(bad));
    cr_assert_eq(shunti_bootstrap_join(&bad, 1, 0, 5, &bs), SHUNT_ERR_INVALID);
    expect_text(shunt_last_error(NULL), "not an id");
    cr_assert_null(bs);
    for (size_t i = 0; i < sizeof(id.bytes); i++) { /* each byte in turn */
        bad = id;
        bad.bytes[i] ^= 0x40;
        cr_assert_eq(shunti_bootstrap_join(&bad, 1, 0, 5, &bs),
                     SHUNT_ERR_INVALID, "byte %zu", i);
    }
    cr_assert_eq(shunti_bootstrap_join(NULL, 1, 0, 5, &bs), SHUNT_ERR_INVALID);
    cr_assert_eq(shunt_id_create(NULL), SHUNT_ERR_INVALID);
}

/* Returns an id whose digest is right, but which has `value` at byte `at`. */
static struct shunt_id id_with(size_t at, unsigned char value)
{
    unsigned char digest[SHUNTI_KEY_BYTES];
    struct shunt_id id = new_id();
    const size_t end = sizeof(id.bytes) - 16;

    id.bytes[at] = value;
    shunti_auth_digest(id.bytes, end, digest);
    memcpy(id.bytes + end, digest, 16);
    return id;
}

/* The layout is in byte 8, and the kind of address in byte 9 (id.c). */
Test(bootstrap, ids_of_other_releases)
{
    struct shunt_id id = new_id();
    struct shunti_id_parts parts;
    const unsigned char layout = id.bytes[8], kind = id.bytes[9];

    id = id_with(8, layout);
    cr_assert_eq(shunti_id_unpack(&id, &parts), SHUNT_OK, "%s",
                 shunt_last_error(NULL));
    for (int step = -1; step <= 1; step += 2) {
        id = id_with(8, (unsigned char)(layout + step));
        cr_assert_eq(shunti_id_unpack(&id, &parts), SHUNT_ERR_INVALID);
        expect_text(shunt_last_error(NULL), "use the same release everywhere");
    }
    id = id_with(9, kind);
    cr_assert_eq(shunti_id_unpack(&id, &parts), SHUNT_OK);
    id = id_with(9, 77);
    cr_assert_eq(shunti_id_unpack(&id, &parts), SHUNT_ERR_INVALID);
    expect_text(shunt_last_error(NULL), "an unknown kind (77)");
}

/* Runs `count` ranks. The last of them claims to be `odd_rank` of
 * `odd_nranks`. */
static void run_with_odd_one(int count, int nranks, int odd_rank,
                             int odd_nranks)
{
    struct shunt_id id = new_id();

    for (int r = 0; r < count; r++) {
        ranks[r] = (struct birth_rank){
            .id = id, .nranks = nranks, .rank = r, .timeout = 20, .gathers = 1};
        if (r == count - 1) {
            ranks[r].rank = odd_rank;
            ranks[r].nranks = odd_nranks;
        }
        birth_start(&ranks[r]);
    }
    for (int r = 0; r < count; r++)
        birth_join(&ranks[r]);
}

Test(bootstrap, a_rank_that_comes_twice)
{
    run_with_odd_one(4, 4, 1, 4);
    expect_all(4, SHUNT_ERR_MISMATCH, "rank 1 (of 4) joined twice");
}

Test(bootstrap, ranks_that_disagree_on_their_number)
{
    run_with_odd_one(3, 3, 2, 5);
    expect_all(3, SHUNT_ERR_MISMATCH, "3");
    expect_all(3, SHUNT_ERR_MISMATCH, "5");
    expect_all(3, SHUNT_ERR_MISMATCH, "rank 2");
}

Test(bootstrap, a_rank_out_of_range)
{
    run_with_odd_one(3, 3, 7, 3);
    expect_all(2, SHUNT_ERR_MISMATCH, "rank 7 of 3");
    cr_assert_eq(ranks[2].status, SHUNT_ERR_INVALID);
    expect_text(ranks[2].text, "rank 7");
}

Test(bootstrap, nonsense_numbers_of_ranks)
{
    static const int bad[][2] = {{0, 0}, {-1, 0}, {2, -1}, {100000000, 0}};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct shunti_bootstrap *bs;
        struct shunt_id id = new_id();

        cr_assert_eq(shunti_bootstrap_join(&id, bad[i][0], bad[i][1], 10, &bs),
                     SHUNT_ERR_INVALID);
    }
}

Test(bootstrap, missing_ranks_are_named)
{
    struct shunt_id id = new_id();

    for (int i = 0; i < 4; i++) { /* 4 of 6 ranks: ranks 2 and 5 are missing */
        ranks[i] = (struct birth_rank){.id = id,
                                       .nranks = 6,
                                       .rank = i < 2 ? i : i + 1,
                                       .timeout = 1,
                                       .gathers = 1};
        birth_start(&ranks[i]);
    }
    for (int i = 0; i < 4; i++)
        birth_join(&ranks[i]);
    expect_all(4, SHUNT_ERR_TIMEOUT, "ranks 2, 5 did not join within 1 s");
    for (int i = 0; i < 4; i++)
        cr_assert_lt(ranks[i].seconds, 4);
}

Test(bootstrap, latecomers_hear_of_the_failure)
{
    struct shunt_id id = new_id();

    birth_run(ranks, &id, 1, 3, 0.3);
    expect_all(1, SHUNT_ERR_TIMEOUT, "ranks 1, 2 did not join");
    birth_run(ranks, &id, 1, 3, 10);
    expect_all(1, SHUNT_ERR_TIMEOUT, "ranks 1, 2 did not join");
}

static int polls;

static int count_polls(struct pollfd *fds, unsigned long n, int ms)
{
    polls++;
    return poll(fds, n, ms);
}

static bool yes(void *arg, char *why, size_t size)
{
    (void)arg;
    snprintf(why, size, "it has failed");
    return true;
}

/* Rank 1 has joined, and then neither reads nor closes. The library waits until
 * the error can be sent to it. Meanwhile it serves the other communicators of
 * the thread, by polling. It waits no longer than the parent communicator
 * works. */
Test(bootstrap, others_are_answered_while_a_silent_rank_is_notified)
{
    struct shunt_id id = new_id();
    struct shunti_parent failed = {.cancelled = yes};
    int fd = join_by_hand(&id, 1, 2, false);
    double began;

    ranks[0] = (struct birth_rank){
        .id = id, .nranks = 2, .timeout = 0.3, .gathers = 1};
    birth_start(&ranks[0]);
    birth_join(&ranks[0]);
    expect_all(1, SHUNT_ERR_TIMEOUT, "rank 1");
    shunti_bootstrap_poll = count_polls;
    began = shunti_wire_now();
    shunti_bootstrap_settle(20, &failed);
    cr_assert_lt(shunti_wire_now() - began, 1);
    shunti_bootstrap_settle(0.2, NULL);
    cr_assert_geq(shunti_wire_now() - began, 0.2, "nobody was to be told");
    cr_assert_gt(polls, 10);
    close(fd);
    shunti_bootstrap_settle(20, NULL);
    cr_assert_lt(shunti_wire_now() - began, 10);
}

Test(bootstrap, a_rank_that_dies_while_joining)
{
    struct shunt_id id = new_id();
    int fd = join_by_hand(&id, 2, 4, false);

    for (int r = 0; r < 2; r++) {
        ranks[r] = (struct birth_rank){
            .id = id, .nranks = 4, .rank = r, .timeout = 20, .gathers = 1};
        birth_start(&ranks[r]);
    }
    close(fd);
    for (int r = 0; r < 2; r++)
        birth_join(&ranks[r]);
    expect_all(2, SHUNT_ERR_PEER, "rank 2 went away");
}

/* Joins rank 1 by hand up to READY, while rank 0 waits in its gather. Returns
 * the connection. */
static int beside_rank_0(void)
{
    struct shunt_id id = new_id();
    unsigned char bytes[64];
    int fd = join_by_hand(&id, 1, 2, false);

    ranks[0] =
        (struct birth_rank){.id = id, .nranks = 2, .timeout = 20, .gathers = 1};
    birth_start(&ranks[0]);
    cr_assert(get_bytes(fd, bytes,
                        SHUNTI_WIRE_HEADER_BYTES + SHUNTI_WIRE_SALT_BYTES));
    return fd;
}

static void send_header(int fd, uint32_t type, uint64_t bytes)
{
    unsigned char header[SHUNTI_WIRE_HEADER_BYTES];

    shunti_wire_put_header(header, type, 0, bytes);
    put_bytes(fd, header, sizeof(header));
}

Test(bootstrap, a_rank_that_dies_while_exchanging)
{
    close(beside_rank_0());
    birth_join(&ranks[0]);
    expect_all(1, SHUNT_ERR_PEER, "rank 1 went away");
}

Test(bootstrap, a_rank_that_leaves_before_exchanging)
{
    int fd = beside_rank_0();

    send_header(fd, SHUNTI_WIRE_BYE, 0);
    birth_join(&ranks[0]);
    expect_all(1, SHUNT_ERR_PEER, "rank 1 left");
    close(fd);
}

Test(bootstrap, a_member_that_sends_too_much)
{
    int fd = beside_rank_0();

    send_header(fd, SHUNTI_WIRE_GATHER, SHUNTI_BLOB_MAX + 1);
    birth_join(&ranks[0]);
    expect_all(1, SHUNT_ERR_MISMATCH, "rank 1 sent");
    close(fd);
}

Test(bootstrap, a_member_that_sends_nonsense)
{
    int fd = beside_rank_0();

    send_header(fd, 4711, 0);
    birth_join(&ranks[0]);
    expect_all(1, SHUNT_ERR_MISMATCH, "rank 1 sent an unknown message (4711)");
    close(fd);
}

Test(bootstrap, a_rank_that_gives_up_says_why)
{
    struct shunt_id id = new_id();

    for (int r = 0; r < 3; r++) {
        ranks[r] = (struct birth_rank){
            .id = id, .nranks = 3, .rank = r, .timeout = 20, .gathers = 1};
        ranks[r].abort = r == 1 ? "no transport works here" : NULL;
        birth_start(&ranks[r]);
    }
    for (int r = 0; r < 3; r++)
        birth_join(&ranks[r]);
    ranks[1] = ranks[2];
    expect_all(2, SHUNT_ERR_REMOTE, "rank 1: no transport works here");
}

Test(bootstrap, an_id_serves_once)
{
    struct shunt_id id = new_id();

    birth_run(ranks, &id, 2, 2, 20);
    expect_all_ok(2);
    birth_run(ranks, &id, 2, 2, 20);
    expect_all(2, SHUNT_ERR_PEER, "no process listens");
}

Test(bootstrap, a_root_that_nobody_visits_ends)
{
    double start = shunti_wire_now();
    struct shunt_id id;
    int fd;

    setenv("SHUNT_TIMEOUT", "0.2", 1);
    id = new_id();
    /* Connect until nothing listens any more. A connection that is still in the
     * queue when the root ends is reset, not refused. */
    while ((fd = dial(&id)) >= 0 || errno == ECONNRESET) {
        struct pollfd p = {.fd = fd, .events = POLLIN};

        cr_assert_lt(shunti_wire_now() - start, 20);
        if (fd < 0)
            continue;
        poll(&p, 1, 100);
        close(fd);
    }
    cr_assert_eq(errno, ECONNREFUSED, "%s", strerror(errno));
}

/* Two groups of a split may be made at the same time by processes of one
 * host. */
Test(bootstrap, later_communicators_share_shunt_port)
{
    static const int names[2][2] = {{0, 2}, {1, 3}};
    struct shunti_id_parts parts = {.kind = SHUNTI_ID_IPV4,
                                    .address = {127, 0, 0, 1}};
    struct shunt_id ids[2];
    int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_storage addr;
    char port[8];
    socklen_t len;

    shunti_id_sockaddr(&parts, true, &addr, &len);
    cr_assert(!bind(probe, (struct sockaddr *)&addr, len) &&
              !getsockname(probe, (struct sockaddr *)&addr, &len));
    shunti_id_set_sockaddr(&parts, &addr);
    close(probe);
    snprintf(port, sizeof(port), "%u", parts.port);
    setenv("SHUNT_PORT", port, 1);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(
            shunti_id_create_named(names[i], 2, SHUNTI_REACH_HOSTS, &ids[i]),
            SHUNT_OK, "%d: %s", i, shunt_last_error(NULL));
    for (int i = 0; i < 2; i++) {
        birth_run(ranks, &ids[i], 2, 2, 20);
        expect_all_ok(2);
    }
}
