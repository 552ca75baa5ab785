// SPDX-License-Identifier: Apache-2.0
/*
 * Handles: callers use them instead of pointers to objects. So using a handle
 * after its object is gone is an error and not a crash.
 *
 * A handle consists of two numbers: that of an entry in a table, and the count
 * of handles that were issued from this entry. The process has one table. A
 * user keeps an entry for long, and issues one handle after another from it.
 * Only the last handle is valid. An old handle still leads to the owner of the
 * entry, until the entry is given back. So a plan that has been destroyed still
 * leads to its communicator, whose other ranks must be notified of the bad
 * call.
 *
 * Handles are odd, so that none is mistaken for an address, and are never used
 * twice: the count has 43 bits.
 */
#ifndef SHUNTI_HANDLE_H
#define SHUNTI_HANDLE_H

#include <stdbool.h>
#include <stdint.h>

/* The kind of the object. A handle passed as another kind is not valid. */
enum shunti_handle_kind { SHUNTI_HANDLE_MOE = 1, SHUNTI_HANDLE_PLAN };

/* Take an entry. 0: memory ran out. Any thread may call this, and the functions
 * below, but only one thread at a time may work on the same entry. */
uint32_t shunti_handle_take(enum shunti_handle_kind kind, void *owner);
/* Give an entry back. From now on its handles lead to no object and no owner. 0
 * is allowed. */
void shunti_handle_give_back(uint32_t entry);

/* Give the entry, and with it all its handles, a new owner. */
void shunti_handle_pass(uint32_t entry, void *owner);

/* Issue a new handle of `object`. The one before becomes invalid. */
void *shunti_handle_issue(uint32_t entry, void *object);
/* Make the last handle that was issued invalid. */
void shunti_handle_revoke(uint32_t entry);

/* The object of a valid handle; otherwise NULL. */
void *shunti_handle_object(enum shunti_handle_kind kind, const void *handle);
/* Was the handle issued by a parent of this process? In a child of fork() no
 * handle of the parent is valid, but each still leads to its owner. */
bool shunti_handle_is_inherited(enum shunti_handle_kind kind,
                                const void *handle);
/* The owner of a handle, valid or not, if its entry is still taken; otherwise
 * NULL. */
void *shunti_handle_owner(enum shunti_handle_kind kind, const void *handle);

#endif
