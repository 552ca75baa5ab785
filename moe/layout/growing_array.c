// SPDX-License-Identifier: Apache-2.0
/* Arrays that grow; see growing_array.h. */
#include "moe/layout/growing_array.h"

#include <stdlib.h>
#include <string.h>

bool shunti_grow(void *array, size_t *have, size_t need, size_t size)
{
    void *at, *bigger;

    /* The caller's pointer may be of any type, so copy its bytes. */
    memcpy(&at, array, sizeof(at));
    if (at && need <= *have)
        return true;
    bigger = reallocarray(at, need ? need : 1, size);
    if (!bigger)
        return false;
    memcpy(array, &bigger, sizeof(bigger));
    *have = need;
    return true;
}
