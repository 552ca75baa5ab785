// SPDX-License-Identifier: Apache-2.0
/*
 * The choice between algorithms; see select.h.
 *
 *     collective          algorithm
 *     allreduce           direct up to SHUNT_ALLREDUCE_DIRECT bytes (0: never,
 *                         a large number: always), segments beyond
 *     all the others      one exchange of all pairs (exchange.h)
 *
 * How a block travels (inline, window, raw read, stream) is its sender's choice
 * alone, told in the note: note.h, SHUNT_EAGER and SHUNT_READ_MIN.
 */
#include "select.h"

#include <string.h>

#include "comm.h"
#include "env.h"

static bool word_is(const char *at, size_t len, const char *word)
{
    return strlen(word) == len && !memcmp(at, word, len);
}

/* What SHUNT_ALGORITHM wants for a kind: the last that names it, or names
 * none; 0: nothing. */
static enum shunti_algorithm forced(const struct shunt_comm *comm,
                                    enum shunti_kind kind)
{
    const char *kind_name = shunti_kind_name(kind);
    const char *at = comm->tune.algorithm;
    enum shunti_algorithm algorithm = 0;

    while (*at) {
        size_t len = strcspn(at, ",");
        const char *sign = memchr(at, '=', len);
        const char *name = sign ? sign + 1 : at;
        size_t name_len = len - (size_t)(name - at);

        if (!sign || word_is(at, (size_t)(sign - at), kind_name)) {
            if (word_is(name, name_len, "flat"))
                algorithm = SHUNTI_FLAT;
            else if (word_is(name, name_len, "two_level"))
                algorithm = SHUNTI_LEVELS;
        }
        at += len;
        at += *at == ',';
    }
    return algorithm;
}

enum shunti_algorithm shunti_select(const struct shunt_comm *comm,
                                    enum shunti_kind kind, size_t bytes)
{
    enum shunti_algorithm algorithm;

    algorithm = comm->nodes > 1 ? forced(comm, kind) : SHUNTI_FLAT;
    if (!algorithm)
        algorithm = SHUNTI_FLAT;
    if (kind == SHUNTI_KIND_ALLREDUCE && algorithm == SHUNTI_FLAT)
        algorithm = comm->nranks == 1 || bytes <= comm->tune.allreduce_direct
                        ? SHUNTI_ALLREDUCE_DIRECT
                        : SHUNTI_ALLREDUCE_SEGMENTS;
    if (kind == SHUNTI_KIND_ALLREDUCE && algorithm == SHUNTI_LEVELS)
        algorithm = bytes <= comm->tune.allreduce_direct
                        ? SHUNTI_ALLREDUCE_WHOLE
                        : SHUNTI_ALLREDUCE_LANES;
    return algorithm;
}

size_t shunti_select_carry(const struct shunt_comm *comm)
{
    return comm->tune.carry == SHUNTI_ENV_AUTO ? 16 << 10 : comm->tune.carry;
}
