// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/boot/bootstrap_wire.h"
#include "tests/src/joining.h"

struct birth_rank ranks[BIRTH_MAX];

struct shunt_id new_id(void)
{
    struct shunt_id id;

    cr_assert_eq(shunt_id_create(&id), SHUNT_OK, "%s", shunt_last_error(NULL));
    return id;
}

void expect_text(const char *text, const char *part)
{
    cr_assert(strstr(text, part), "'%s' should say '%s'", text, part);
}

void expect_all_ok(int n)
{
    for (int r = 0; r < n; r++) {
        cr_assert_eq(ranks[r].status, SHUNT_OK, "rank %d: %s", r,
                     ranks[r].text);
        cr_assert_eq(ranks[r].done, ranks[r].gathers, "rank %d", r);
        cr_assert(!memcmp(ranks[r].key, ranks[0].key, 32));
    }
}

int dial(const struct shunt_id *id)
{
    struct timeval timeout = {.tv_sec = 20};
    struct shunti_id_parts parts;
    struct sockaddr_storage addr;
    socklen_t len;
    int fd;

    cr_assert_eq(shunti_id_unpack(id, &parts), SHUNT_OK);
    shunti_id_sockaddr(&parts, false, &addr, &len);
    fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    if (connect(fd, (struct sockaddr *)&addr, len)) {
        close(fd);
        return -1;
    }
    return fd;
}

void put_bytes(int fd, const void *bytes, size_t len)
{
    cr_assert_eq(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

bool get_bytes(int fd, void *bytes, size_t len)
{
    return recv(fd, bytes, len, MSG_WAITALL) == (ssize_t)len;
}

int join_by_hand(const struct shunt_id *id, int rank, int nranks, bool slowly)
{
    struct shunti_auth_transcript transcript = {
        .rank = rank, .nranks = nranks, .timeout_ms = 30000};
    unsigned char bytes[SHUNTI_WIRE_HELLO_BYTES], proof[SHUNTI_KEY_BYTES];
    struct shunti_id_parts parts;
    int fd = dial(id);

    cr_assert(fd >= 0);
    cr_assert_eq(shunti_id_unpack(id, &parts), SHUNT_OK);
    memcpy(transcript.start, parts.start, sizeof(transcript.start));
    memset(transcript.rank_nonce, 7, sizeof(transcript.rank_nonce));
    shunti_wire_put_hello(bytes, &transcript);
    for (size_t i = 0; slowly && i < SHUNTI_WIRE_HELLO_BYTES; i++)
        put_bytes(fd, bytes + i, 1);
    if (!slowly)
        put_bytes(fd, bytes, SHUNTI_WIRE_HELLO_BYTES);
    cr_assert(get_bytes(fd, bytes, SHUNTI_WIRE_CHALLENGE_BYTES));
    memcpy(transcript.root_nonce, bytes + SHUNTI_WIRE_MAGIC_BYTES,
           SHUNTI_NONCE_BYTES);
    shunti_auth_prove(parts.secret, SHUNTI_AUTH_RANK, &transcript, proof);
    put_bytes(fd, proof, sizeof(proof));
    cr_assert(get_bytes(fd, bytes, SHUNTI_WIRE_HEADER_BYTES));
    cr_assert_eq(shunti_wire_get_header(bytes).type, SHUNTI_WIRE_WELCOME);
    cr_assert(get_bytes(fd, bytes, SHUNTI_WIRE_PROOF_BYTES));
    shunti_auth_prove(parts.secret, SHUNTI_AUTH_ROOT, &transcript, proof);
    cr_assert(!memcmp(bytes, proof, sizeof(proof)), "the root's proof");
    return fd;
}

void expect_all(int n, enum shunt_status status, const char *part)
{
    for (int r = 0; r < n; r++) {
        cr_assert_eq(ranks[r].status, status, "rank %d: %d %s", r,
                     ranks[r].status, ranks[r].text);
        expect_text(ranks[r].text, part);
        cr_assert_lt(ranks[r].seconds, 15);
    }
}
