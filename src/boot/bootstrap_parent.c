// SPDX-License-Identifier: Apache-2.0
/* The parent of a new communicator, as its init uses it: see bootstrap.h. */
#include "src/boot/bootstrap.h"

#include <stdlib.h>

#include "src/base/error.h"

bool shunti_parent_cancelled(struct shunti_parent *parent)
{
    return parent && parent->cancelled &&
           parent->cancelled(parent->arg, parent->why, sizeof(parent->why));
}

enum shunt_status shunti_parent_agree(struct shunti_parent *parent,
                                      enum shunt_status mine)
{
    enum shunt_status st = parent->agree(parent->arg, mine);

    parent->agreed = true;
    parent->joined = !st;
    return st;
}

void shunti_parent_add_reported(struct shunti_parent *parent, int name)
{
    int *blamed;

    if (!parent)
        return;
    blamed = realloc(parent->blamed, (parent->nblamed + 1) * sizeof(*blamed));
    if (!blamed)
        return;
    blamed[parent->nblamed++] = name;
    parent->blamed = blamed;
}

void shunti_parent_blame(struct shunti_parent *parent, int name)
{
    const size_t before = parent ? parent->nblamed : 0;

    shunti_parent_add_reported(parent, name);
    if (!parent || parent->nblamed == before)
        return;
    parent->blamed[before] = parent->blamed[parent->nmissed];
    parent->blamed[parent->nmissed++] = name;
}

enum shunt_status shunti_parent_error(const struct shunti_parent *parent)
{
    return shunti_fail(NULL, SHUNT_ERR_PEER, "%s", parent->why);
}
