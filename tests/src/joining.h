// SPDX-License-Identifier: Apache-2.0
/* Ranks that join one after another or by hand, for the tests of the bootstrap. */
#ifndef SHUNT_TEST_JOINING_H
#define SHUNT_TEST_JOINING_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/src/birth.h"

extern struct birth_rank ranks[BIRTH_MAX];

struct shunt_id new_id(void);

/* `text` must have `part` in it. */
void expect_text(const char *text, const char *part);

/* The first `n` ranks joined, exchanged and have one key. */
void expect_all_ok(int n);

/* The first `n` ranks failed in time, with `status` and `part` in the text. */
void expect_all(int n, enum shunt_status status, const char *part);

/* A socket connected to the root, blocking, with a receive timeout. */
int dial(const struct shunt_id *id);

void put_bytes(int fd, const void *bytes, size_t len);

/* Returns false if the peer sent fewer bytes. */
bool get_bytes(int fd, void *bytes, size_t len);

/* Join by hand; the test gets the connection. */
int join_by_hand(const struct shunt_id *id, int rank, int nranks, bool slowly);

#endif
