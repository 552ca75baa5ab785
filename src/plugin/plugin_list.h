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
    int cut; /* errno if the list is incomplete; otherwise 0 */
};

/* Probe whether a transport works here. False: `why` has the reason. */
bool shunti_plugin_probe(const struct shunt_transport *t,
                         struct shunt_transport_estimate *estimate, char *why,
                         size_t why_len);

/* List every plugin file, by falling score. The caller frees the items by
 * shunti_transport_list_destroy(). Only if `far`: loads the plugins that are
 * far, and probes copy engines. */
struct shunti_plugin_list shunti_plugin_list(bool far);

#endif
