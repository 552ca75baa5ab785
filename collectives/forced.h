// SPDX-License-Identifier: Apache-2.0
/*
 * SHUNT_ALGORITHM: which algorithms the user forces.
 *
 * The value is a list of entries with commas between them:
 *
 *     [KIND=]NAME
 *
 * KIND is a collective; an entry without it concerns all of them. NAME is the
 * name of a row of the table (flat_direct), a family (flat), a member of a
 * family (direct), or auto. Of the entries that match a call, and whose
 * algorithm is possible in the communicator, the last one decides. `auto` is a
 * decision for none.
 */
#ifndef SHUNTI_FORCED_H
#define SHUNTI_FORCED_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/algorithms.h"

struct shunti_entry {
    const char *text; /* as written, `len` characters; 0: no entry */
    size_t len;
    const char *kind; /* kind_len 0: all kinds */
    size_t kind_len;
    const char *name;
    size_t name_len;
};

/* Read the next entry that is not empty, and advance *text behind it. False:
 * there is none. */
bool shunti_entry_next(const char **text, struct shunti_entry *entry);

/* FAMILY: `entry` leaves the choice between members of a family open. */
enum shunti_match { SHUNTI_NO_MATCH, SHUNTI_FAMILY, SHUNTI_EXACTLY };
enum shunti_match shunti_entry_names(const struct shunti_entry *entry,
                                     const struct shunti_row *row);

/* Is the entry "auto", for this kind or for all? */
bool shunti_entry_is_auto(const struct shunti_entry *entry, unsigned kind);

/* NULL, or why the entry is ignored everywhere: "names no algorithm". */
const char *shunti_entry_mistake(const struct shunti_entry *entry);

/* The entry that decides about a kind in this communicator; its `len` is 0 if
 * there is none. */
struct shunti_entry shunti_forced(const struct shunt_comm *comm, unsigned kind);

/* Warn of entries that name no algorithm. Only the first call in a job
 * prints. */
void shunti_forced_report(const struct shunt_comm *comm);

#endif
