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
 * If several entries match a call, and their algorithms are possible in the
 * communicator, the last one decides. But an entry without SIZES is the choice
 * for the remaining sizes: it does not override one with SIZES. `auto` always
 * overrides, and forces nothing.
 */
#ifndef SHUNTI_FORCED_H
#define SHUNTI_FORCED_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/algorithms.h"

struct shunti_entry {
    const char *text; /* the entry as written, `len` characters; len 0: no
                         entry */
    size_t len;
    const char *kind; /* kind_len 0: all kinds */
    size_t kind_len;
    const char *name;
    size_t name_len;
    bool has_sizes, sizes_valid; /* sizes_valid: also true if there are no
                                    sizes */
    struct shunti_sizes sizes;
};

/* Read the next entry that is not empty, and advance *text behind it. False:
 * there is none. */
bool shunti_entry_next(const char **text, struct shunti_entry *entry);

/* FAMILY: `entry` leaves the choice between members of a family open. */
enum shunti_match { SHUNTI_NO_MATCH, SHUNTI_FAMILY, SHUNTI_EXACTLY };
enum shunti_match shunti_entry_names(const struct shunti_entry *entry,
                                     const struct shunti_row *row);

/* True if the entry is "auto" for `kind`, or for all kinds. */
bool shunti_entry_is_auto(const struct shunti_entry *entry, unsigned kind);

/* The reason why the entry is ignored in every communicator, such as "names no
 * algorithm"; or NULL. */
const char *shunti_entry_mistake(const struct shunti_entry *entry);

/*
 * Find the entry that decides about a call in this communicator; its `len` is 0
 * if there is none. Narrow *same, a range that contains `bytes`, to sizes about
 * which the same entry decides.
 */
struct shunti_entry shunti_forced(const struct shunt_comm *comm, unsigned kind,
                                  size_t bytes, struct shunti_sizes *same);

/* Warn of entries without an effect in this communicator. Only the first call
 * in a job prints. */
void shunti_forced_report(const struct shunt_comm *comm);

#endif
