// SPDX-License-Identifier: Apache-2.0
/* Ids with several addresses. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "src/boot/bootstrap_io.h"
#include "src/boot/bootstrap_wire.h"
#include "tests/src/joining.h"

static void set_place(struct shunti_id_place *place, int family,
                      const char *text)
{
    place->kind = family == AF_INET ? SHUNTI_ID_IPV4 : SHUNTI_ID_IPV6;
    cr_assert_eq(inet_pton(family, text, place->address), 1);
}

/* If there are more addresses than an id has room for, it keeps the first ones,
 * in their order. */
Test(bootstrap, ids_have_several_addresses)
{
    struct shunti_id_parts parts = {.kind = SHUNTI_ID_IPV4,
                                    .port = 4321,
                                    .address = {10, 1, 2, 3}},
                           again, one;
    char text[400];
    struct shunt_id id;

    for (int i = 0; i < 3; i++)
        set_place(&parts.more[parts.nmore++], AF_INET, "10.1.2.4");
    set_place(&parts.more[parts.nmore++], AF_INET6, "fd00::1");
    set_place(&parts.more[parts.nmore++], AF_INET6, "fd00::2");
    set_place(&parts.more[parts.nmore++], AF_INET, "10.1.2.5");
    shunti_id_pack(&parts, &id);
    cr_assert_eq(shunti_id_unpack(&id, &again), SHUNT_OK);
    shunti_id_describe_all(&again, text, sizeof(text));
    cr_assert_str_eq(text, "10.1.2.3:4321, 10.1.2.4:4321, 10.1.2.4:4321, "
                           "10.1.2.4:4321, [fd00::1]:4321, 10.1.2.5:4321");
    cr_assert(!shunti_id_nth(&again, 6, &one));

    /* The nonce of a start takes the room of the last IPv6 address. */
    again = parts;
    again.flags = SHUNTI_ID_START;
    memset(again.start, 0xa5, sizeof(again.start));
    shunti_id_pack(&again, &id);
    memset(&again, 0, sizeof(again));
    cr_assert_eq(shunti_id_unpack(&id, &again), SHUNT_OK);
    for (size_t i = 0; i < sizeof(again.start); i++)
        cr_assert_eq(again.start[i], 0xa5);
    shunti_id_describe_all(&again, text, sizeof(text));
    cr_assert_str_eq(text, "10.1.2.3:4321, 10.1.2.4:4321, 10.1.2.4:4321, "
                           "10.1.2.4:4321, 10.1.2.5:4321");

    parts.kind = SHUNTI_ID_IPV6;
    inet_pton(AF_INET6, "fd00::3", parts.address);
    parts.scope = 7;
    shunti_id_pack(&parts, &id);
    cr_assert_eq(shunti_id_unpack(&id, &again), SHUNT_OK);
    shunti_id_describe_all(&again, text, sizeof(text));
    cr_assert_str_eq(text, "[fd00::3]:4321, 10.1.2.4:4321, 10.1.2.4:4321, "
                           "10.1.2.4:4321, 10.1.2.5:4321");
    cr_assert_eq(again.scope, 7);
}

/* Nothing listens at the first addresses, so ranks connect to the last one.
 * Then another root listens there. */
Test(bootstrap, any_address_of_an_id)
{
    struct shunti_id_parts parts, wrong;
    double start = shunti_wire_now();
    struct shunt_id id, other;

    setenv("SHUNT_HOST", "127.0.0.1", 1);
    id = new_id();
    other = new_id();
    cr_assert_eq(shunti_id_unpack(&id, &parts), SHUNT_OK);
    cr_assert_eq(shunti_id_unpack(&other, &wrong), SHUNT_OK);
    cr_assert_eq(inet_pton(AF_INET, "127.100.100.100", parts.address), 1);
    set_place(&parts.more[parts.nmore++], AF_INET6, "::1");
    set_place(&parts.more[parts.nmore++], AF_INET, "127.200.200.200");
    set_place(&parts.more[parts.nmore++], AF_INET, "127.0.0.1");
    shunti_id_pack(&parts, &id);
    birth_run(ranks, &id, 2, 2, 20);
    expect_all_ok(2);
    cr_assert_lt(shunti_wire_now() - start, 5);
    /* Another root has the same port, so the ranks must fail long before the
     * timeout. */
    parts.port = wrong.port;
    shunti_id_pack(&parts, &id);
    birth_run(ranks, &id, 2, 2, 60);
    for (int r = 0; r < 2; r++)
        cr_assert_eq(ranks[r].status, SHUNT_ERR_MISMATCH, "%s", ranks[r].text);
}

Test(bootstrap, ids_follow_host_and_port)
{
    struct shunti_id_parts parts;
    struct shunt_id id;
    char text[64];

    setenv("SHUNT_HOST", "127.0.0.1", 1);
    id = new_id();
    cr_assert_eq(shunti_id_unpack(&id, &parts), SHUNT_OK);
    shunti_id_describe(&parts, text, sizeof(text));
    expect_text(text, "127.0.0.1:");
    cr_assert_neq(parts.port, 0);

    /* the port is in use by that root */
    snprintf(text, sizeof(text), "%d", parts.port);
    setenv("SHUNT_PORT", text, 1);
    cr_assert_eq(shunt_id_create(&id), SHUNT_ERR_SYSTEM);
    expect_text(shunt_last_error(NULL), "SHUNT_PORT");
    unsetenv("SHUNT_PORT");

    setenv("SHUNT_HOST", "lo", 1); /* an interface */
    id = new_id();
    cr_assert_eq(shunti_id_unpack(&id, &parts), SHUNT_OK);
    cr_assert_eq(parts.address[0], 127);

    setenv("SHUNT_HOST", "no-such-host.invalid", 1);
    cr_assert_eq(shunt_id_create(&id), SHUNT_ERR_SYSTEM);
    expect_text(shunt_last_error(NULL), "no-such-host.invalid");

    setenv("SHUNT_HOST", "127.0.0.1", 1);
    setenv("SHUNT_PORT", "70000", 1);
    cr_assert_eq(shunt_id_create(&id), SHUNT_ERR_INVALID);
    expect_text(shunt_last_error(NULL), "70000");
}

/* A rank that has missed the root names the root first, even if the root has
 * reported other ranks to it before. */
Test(bootstrap, reported_ranks_follow_missed_ones)
{
    struct shunti_parent parent = {.root = 0};
    const int all[] = {0, 4, 3, 2};

    shunti_parent_add_reported(&parent, 2);
    shunti_parent_add_reported(&parent, 3);
    shunti_parent_blame(&parent, 0);
    shunti_parent_blame(&parent, 4);
    cr_assert_eq(parent.nmissed, 2);
    cr_assert_eq(parent.nblamed, 4);
    for (int i = 0; i < 4; i++)
        cr_assert(parent.blamed[i] == all[i] ||
                      (i >= 2 && parent.blamed[i] == all[5 - i]),
                  "place %d: rank %d", i, parent.blamed[i]);
    shunti_parent_add_reported(NULL, 1);
    shunti_parent_blame(NULL, 1);
    free(parent.blamed);
}
