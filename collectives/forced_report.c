// SPDX-License-Identifier: Apache-2.0
/*
 * Warnings about SHUNT_ALGORITHM; see forced.h. Without a warning, users would
 * think that an entry is used which never is.
 */
#include "collectives/forced.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "collectives/coll_state.h"
#include "src/base/env.h"
#include "src/base/kind.h"
#include "src/base/log.h"
#include "src/comm.h"
#include "src/host/launchers.h"

/* True if `entry` decides about calls of this kind and size. */
static bool decides(const struct shunt_comm *comm,
                    const struct shunti_entry *entry, unsigned kind,
                    size_t bytes)
{
    struct shunti_sizes same = SHUNTI_ALL_SIZES;

    if (bytes && !shunti_kind_is_sized(kind))
        return false;
    return shunti_forced(comm, kind, bytes, &same).text == entry->text;
}

/* True if `entry` decides about any call. Look only at sizes where a range
 * begins, and behind its end, because decisions change only there. */
static bool has_effect(const struct shunt_comm *comm,
                       const struct shunti_entry *entry)
{
    const char *text = shunti_coll_state(comm)->algorithm;
    const struct shunti_row *row;
    struct shunti_entry other;

    while (shunti_entry_next(&text, &other))
        for (size_t i = 0; (row = shunti_row_at(i)); i++)
            if (decides(comm, entry, row->kind, other.sizes.low) ||
                decides(comm, entry, row->kind, other.sizes.high + 1))
                return true;
    return false;
}

/* Find a row that the entry names; if there are several, one that is possible
 * here. */
static const struct shunti_row *named_row(const struct shunt_comm *comm,
                                          const struct shunti_entry *entry)
{
    const struct shunti_row *row, *found = NULL;

    for (size_t i = 0; (row = shunti_row_at(i)); i++)
        if (shunti_entry_names(entry, row) &&
            (!found || row->possible->here(comm)))
            found = row;
    return found;
}

/* True if an earlier row of `kind` (0: of any kind) that is possible here has
 * the same name. */
static bool is_repeated(const struct shunt_comm *comm,
                        const struct shunti_row *row, unsigned kind)
{
    const struct shunti_row *other;

    for (size_t i = 0; (other = shunti_row_at(i)) != row; i++)
        if ((!kind || other->kind == kind) && other->possible->here(comm) &&
            !strcmp(other->name, row->name))
            return true;
    return false;
}

/* List the algorithms that are possible here for `kind`; 0: for all kinds. */
static void list_possible(const struct shunt_comm *comm, unsigned kind,
                          char *text, size_t size)
{
    const struct shunti_row *row;
    size_t used = 0;

    *text = 0;
    for (size_t i = 0; (row = shunti_row_at(i)); i++)
        if ((!kind || row->kind == kind) && row->possible->here(comm) &&
            !is_repeated(comm, row, kind) && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s",
                                     used ? ", " : "", row->name);
}

/* Warn of an entry that names a possible algorithm, but decides about no
 * call. */
static void warn_of_unused(const struct shunti_entry *entry, unsigned kind)
{
    if (!kind || shunti_kind_is_sized(kind) ||
        shunti_sizes_have(entry->sizes, 0))
        shunti_warn("select",
                    "SHUNT_ALGORITHM: '%.*s' has no effect, later entries "
                    "override it",
                    (int)entry->len, entry->text);
    else
        shunti_warn("select",
                    "SHUNT_ALGORITHM: '%.*s' has no effect, each %s counts as "
                    "0 bytes",
                    (int)entry->len, entry->text, shunti_kind_name(kind));
}

static void warn_of(const struct shunt_comm *comm,
                    const struct shunti_entry *entry)
{
    const struct shunti_row *row = named_row(comm, entry);
    const unsigned kind = entry->kind_len ? row->kind : 0;
    char possible[200];

    if (row->possible->here(comm)) {
        warn_of_unused(entry, kind);
        return;
    }
    list_possible(comm, kind, possible, sizeof(possible));
    shunti_warn("select",
                "SHUNT_ALGORITHM: '%.*s' has no effect in a communicator of "
                "%d node%s, it is possible only %s; possible here%s%s: %s",
                (int)entry->len, entry->text, comm->nodes,
                comm->nodes == 1 ? "" : "s", row->possible->words,
                kind ? " for " : "", kind ? shunti_kind_name(kind) : "",
                possible);
}

/* Warn if the value is too long: the communicator keeps only its first
 * characters. */
static void mind_length(const struct shunt_comm *comm)
{
    const char *value = shunti_env_string("SHUNT_ALGORITHM");
    const struct shunti_coll_state *coll = shunti_coll_state(comm);
    const size_t kept = strlen(coll->algorithm);

    if (value && value[kept] && !strncmp(value, coll->algorithm, kept))
        shunti_warn("select",
                    "SHUNT_ALGORITHM: '%s' is ignored, the value has more than "
                    "%zu characters",
                    value + kept + strspn(value + kept, ","),
                    sizeof(coll->algorithm) - 1);
}

void shunti_forced_report(const struct shunt_comm *comm)
{
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    const char *text = shunti_coll_state(comm)->algorithm;
    struct shunti_entry entry;

    if (!*text || !shunti_launch_speaks(comm->rank) ||
        atomic_flag_test_and_set_explicit(&reported, memory_order_relaxed))
        return;
    mind_length(comm);
    while (shunti_entry_next(&text, &entry)) {
        const char *mistake = shunti_entry_mistake(&entry);

        if (mistake)
            shunti_warn("select", "SHUNT_ALGORITHM: '%.*s' is ignored, it %s",
                        (int)entry.len, entry.text, mistake);
        else if (named_row(comm, &entry) && !has_effect(comm, &entry))
            warn_of(comm, &entry);
    }
}
