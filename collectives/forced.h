// SPDX-License-Identifier: Apache-2.0
/*
 * SHUNT_ALGORITHM: which algorithms the user forces.
 *
 * The value is a list of entries with commas between them:
 *
 *     [KIND=]NAME[:SIZES]
 *
 * KIND is a collective; an entry without it concerns all of them. NAME is the
 * name of a row of the table (flat_direct), a family (flat), a member of a
 * family (direct), or auto. SIZES is LOW-HIGH, LOW- or -HIGH, in bytes as
 * shunti_select() sees them, with both ends.
 *
 * The last entry decides that matches a call, and whose algorithm is possible
 * in the communicator. But an entry without SIZES is the choice for the
 * remaining sizes: it does not override one with SIZES. `auto` always
 * overrides, and forces nothing.
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
    bool has_sizes, sizes_valid; /* valid: also if there are none */
    struct shunti_sizes sizes;
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

/*
 * The entry that decides about a call in this communicator; its `len` is 0 if
 * there is none. Narrows *same, a range that contains `bytes`, to sizes about
 * which the same entry decides.
 */
struct shunti_entry shunti_forced(const struct shunt_comm *comm, unsigned kind,
                                  size_t bytes, struct shunti_sizes *same);

/* Warn of entries without an effect in this communicator. Only the first call
 * in a job prints. */
void shunti_forced_report(const struct shunt_comm *comm);

#endif
