// SPDX-License-Identifier: Apache-2.0
/* The tables of kinds and purposes; see kind.h. Constructors fill them. */
#include "src/base/kind.h"

#include <assert.h>
#include <stddef.h>

static const struct shunti_kind *kinds[256]; /* indexed by the kind in a
                                                signature */
static const char *purposes[SHUNTI_PURPOSES];

void shunti_kind_register(const struct shunti_kind *kind)
{
    assert(kind->number && kind->number < SHUNTI_KINDS && !kinds[kind->number]);
    kinds[kind->number] = kind;
}

void shunti_purpose_register(unsigned number, const char *name)
{
    assert(number && number < SHUNTI_PURPOSES && !purposes[number]);
    purposes[number] = name;
}

const struct shunti_kind *shunti_kind_of(uint32_t signature)
{
    static const struct shunti_kind unknown = {.name = "something else"};
    const struct shunti_kind *kind = kinds[signature >> 24];

    return kind ? kind : &unknown;
}

const char *shunti_kind_name(unsigned kind)
{
    return kind < 256 ? shunti_kind_of(kind << 24)->name
                      : shunti_kind_of(0)->name;
}

unsigned shunti_purpose_of(uint32_t signature)
{
    return shunti_kind_of(signature)->detail == SHUNTI_DETAIL_PURPOSE
               ? signature & 0xffff & ~SHUNTI_TWO_LEVEL
               : 0;
}

const char *shunti_purpose_name(uint32_t signature)
{
    const unsigned purpose = shunti_purpose_of(signature);

    return purpose < SHUNTI_PURPOSES ? purposes[purpose] : NULL;
}
