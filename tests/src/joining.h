// SPDX-License-Identifier: Apache-2.0
/* Ranks that join one after another, or step by step, for the tests of the
 * bootstrap. */
#ifndef SHUNT_TEST_JOINING_H
#define SHUNT_TEST_JOINING_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/src/birth.h"

extern struct birth_rank ranks[BIRTH_MAX];

struct shunt_id new_id(void);

/* `text` must have `part` in it. */
void expect_text(const char *text, const char *part);

/* The first `n` ranks have joined, made their exchanges, and have the same
 * key. */
void expect_all_ok(int n);

/* The first `n` ranks have failed in time, with `status`, and with `part` in
 * the text. */
void expect_all(int n, enum shunt_status status, const char *part);

/* Returns a blocking socket that is connected to the root, with a receive
 * timeout. */
int dial(const struct shunt_id *id);

void put_bytes(int fd, const void *bytes, size_t len);

/* Returns false if the peer sent fewer bytes. */
bool get_bytes(int fd, void *bytes, size_t len);

/* Joins as a rank by writing the messages of the handshake, and returns the
 * connection. */
int join_by_hand(const struct shunt_id *id, int rank, int nranks, bool slowly);

#endif
