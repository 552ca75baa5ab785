// SPDX-License-Identifier: Apache-2.0
/*
 * The list of all plugins.
 */
#ifndef SHUNTI_PLUGIN_LIST_H
#define SHUNTI_PLUGIN_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "src/plugin/plugin.h"

struct shunti_plugin_list {
    struct shunti_transport_entry *item;
    size_t count;
    int cut; /* errno, if the list is incomplete; else 0 */
};

/* Ask a transport whether it works here. False: `why` says why not. */
bool shunti_plugin_probe(const struct shunt_transport *t,
                         struct shunt_transport_estimate *estimate, char *why,
                         size_t why_len);

/* Every plugin file, by falling score; the caller frees the items by
 * shunti_transport_list_destroy(). Only if `far`, those that are far are loaded,
 * and copy engines are asked whether they work here. */
struct shunti_plugin_list shunti_plugin_list(bool far);

#endif
