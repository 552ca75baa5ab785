// SPDX-License-Identifier: Apache-2.0
/*
 * Handles: what a caller holds in the place of a pointer to an object, so that
 * one whose object is gone is an error and no crash.
 *
 * A handle names an entry of a table, one for the whole process, and how often
 * the entry had been used before. Entries are taken for long: whoever has one
 * issues handle after handle from it, of which the last is valid. An old one
 * still tells whose it was (the owner), until the entry is given back. So a
 * plan that has been destroyed still leads to its communicator, whose other
 * ranks must hear of the bad call.
 *
 * Handles are odd, so that none is mistaken for an address, and are never used
 * twice: the count has 40 bits.
 */
#ifndef SHUNTI_HANDLE_H
#define SHUNTI_HANDLE_H

#include <stdbool.h>
#include <stdint.h>

/* What a handle is of; one kind given for another is no handle. */
enum shunti_handle_kind { SHUNTI_HANDLE_MOE = 1, SHUNTI_HANDLE_PLAN };

/* Take an entry. 0: no memory. Any thread, as all of these; but what is done
 * with one entry is done by one thread at a time. */
uint32_t shunti_handle_take(enum shunti_handle_kind kind, void *owner);
/* Give it back: no handle of it leads anywhere any more. 0 is allowed. */
void shunti_handle_give_back(uint32_t entry);

/* It belongs to another owner from now on, and so do all handles of it. */
void shunti_handle_pass(uint32_t entry, void *owner);

/* A new handle of `object`; the one before becomes invalid. */
void *shunti_handle_issue(uint32_t entry, void *object);
/* The last handle issued becomes invalid. */
void shunti_handle_revoke(uint32_t entry);

/* The object of a valid handle, else NULL. */
void *shunti_handle_object(enum shunti_handle_kind kind, const void *handle);
/* The owner of a handle, valid or not, whose entry is still taken; else
 * NULL. */
void *shunti_handle_owner(enum shunti_handle_kind kind, const void *handle);

#endif
