// SPDX-License-Identifier: Apache-2.0
/*
 * A list of the remotes that an endpoint has imported. close() frees those that
 * were not released. struct shunt_transport_remote begins with the link.
 */
#ifndef TRANSPORT_REMOTES_H
#define TRANSPORT_REMOTES_H

struct transport_link {
    struct transport_link *next;
};

static inline void transport_link_add(struct transport_link **list,
                                      struct transport_link *link)
{
    link->next = *list;
    *list = link;
}

/* Remove `link`, which must be in the list. */
static inline void transport_link_remove(struct transport_link **list,
                                         const struct transport_link *link)
{
    while (*list != link)
        list = &(*list)->next;
    *list = link->next;
}

#endif
