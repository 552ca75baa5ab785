// SPDX-License-Identifier: Apache-2.0
/* SHUNT_ALGORITHM: entries, and the rows that they name; see forced.h. */
#include "collectives/forced.h"

#include <string.h>

#include "collectives/coll_state.h"
#include "src/base/env.h"
#include "src/base/kind.h"
#include "src/comm.h"

static bool word_is(const char *at, size_t len, const char *word)
{
    return strlen(word) == len && !memcmp(at, word, len);
}

/* --- reading -------------------------------------------------------------- */

/* Read one end of a range. If it is empty, *bytes becomes `absent`. */
static bool read_end(const char *at, size_t len, size_t absent, size_t *bytes)
{
    char text[24];

    *bytes = absent;
    if (!len)
        return true;
    if (len >= sizeof(text))
        return false;
    memcpy(text, at, len);
    text[len] = 0;
    return shunti_parse_size(text, bytes);
}

/* Read a range such as "4k-", "-16k" or "4k-16k". */
static bool read_sizes(const char *at, size_t len, struct shunti_sizes *sizes)
{
    const char *dash = memchr(at, '-', len);
    const size_t before = dash ? (size_t)(dash - at) : 0;

    return dash && len > 1 && read_end(at, before, 0, &sizes->low) &&
           read_end(dash + 1, len - before - 1, SIZE_MAX, &sizes->high) &&
           sizes->low <= sizes->high;
}

static struct shunti_entry read_entry(const char *text, size_t len)
{
    const char *equals = memchr(text, '=', len);
    const char *name = equals ? equals + 1 : text;
    const size_t rest = len - (size_t)(name - text);
    const char *colon = memchr(name, ':', rest);
    const size_t name_len = colon ? (size_t)(colon - name) : rest;
    struct shunti_entry entry = {.text = text,
                                 .len = len,
                                 .kind = text,
                                 .name = name,
                                 .name_len = name_len,
                                 .has_sizes = colon,
                                 .sizes_valid = true,
                                 .sizes = SHUNTI_ALL_SIZES};

    if (equals)
        entry.kind_len = (size_t)(equals - text);
    if (colon)
        entry.sizes_valid =
            read_sizes(colon + 1, rest - name_len - 1, &entry.sizes);
    return entry;
}

bool shunti_entry_next(const char **text, struct shunti_entry *entry)
{
    size_t len;

    *text += strspn(*text, ",");
    len = strcspn(*text, ",");
    *entry = read_entry(*text, len);
    *text += len;
    return len != 0;
}

/* --- what an entry names -------------------------------------------------- */

/* True if `entry` is about `kind`, or about all kinds. An entry with an empty
 * kind, "=flat", is about none. */
static bool is_about(const struct shunti_entry *entry, unsigned kind)
{
    return entry->name == entry->text ||
           word_is(entry->kind, entry->kind_len, shunti_kind_name(kind));
}

enum shunti_match shunti_entry_names(const struct shunti_entry *entry,
                                     const struct shunti_row *row)
{
    const char *name = entry->name, *member = shunti_row_member(row);
    const size_t len = entry->name_len;

    if (!entry->sizes_valid || !len || !is_about(entry, row->kind))
        return SHUNTI_NO_MATCH;
    if (word_is(name, len, row->name) || (member && word_is(name, len, member)))
        return SHUNTI_EXACTLY;
    /* `name` is the family, such as "flat" of "flat_direct" */
    return member && !strncmp(row->name, name, len) &&
                   row->name + len + 1 == member
               ? SHUNTI_FAMILY
               : SHUNTI_NO_MATCH;
}

bool shunti_entry_is_auto(const struct shunti_entry *entry, unsigned kind)
{
    return entry->sizes_valid && is_about(entry, kind) &&
           word_is(entry->name, entry->name_len, "auto");
}

const char *shunti_entry_mistake(const struct shunti_entry *entry)
{
    if (!entry->sizes_valid)
        return "has no range of sizes such as 0-16k, 64k- or -4k";
    for (size_t i = 0; shunti_row_at(i); i++)
        if (shunti_entry_names(entry, shunti_row_at(i)) ||
            shunti_entry_is_auto(entry, shunti_row_at(i)->kind))
            return NULL;
    return "names no algorithm (shunt-info --algorithms has the names)";
}

const char *shunti_select_mistake(const char *text, size_t *len,
                                  const char **why)
{
    struct shunti_entry entry;

    while (shunti_entry_next(&text, &entry)) {
        *why = shunti_entry_mistake(&entry);
        *len = entry.len;
        if (*why)
            return entry.text;
    }
    return NULL;
}

/* --- what is forced ------------------------------------------------------- */

static bool is_possible(const struct shunt_comm *comm,
                        const struct shunti_entry *entry, unsigned kind)
{
    const struct shunti_row *row;

    for (size_t i = 0; (row = shunti_row_at(i)); i++)
        if (row->kind == kind && shunti_entry_names(entry, row) &&
            row->possible->here(comm))
            return true;
    return false;
}

struct shunti_entry shunti_forced(const struct shunt_comm *comm, unsigned kind,
                                  size_t bytes, struct shunti_sizes *same)
{
    const struct shunti_entry none = {0};
    const char *text = shunti_coll_state(comm)->algorithm;
    struct shunti_entry entry, found = none;

    while (shunti_entry_next(&text, &entry)) {
        const bool is_auto = shunti_entry_is_auto(&entry, kind);

        if (!is_auto && !is_possible(comm, &entry, kind))
            continue;
        shunti_sizes_narrow(same, entry.sizes, bytes);
        if (!shunti_sizes_have(entry.sizes, bytes))
            continue;
        if (is_auto)
            found = none;
        else if (entry.has_sizes || !found.has_sizes)
            found = entry;
    }
    return found;
}
