// SPDX-License-Identifier: Apache-2.0
/*
 * Transports: finding them, loading them, and choosing among them.
 *
 * A transport NAME is the shared object shunt_NAME.so in the first of these
 * folders that has it: those of SHUNT_PLUGIN_PATH (separated by ':'), and
 * shunt/ and transports/ beside the object that this code is in (libshunt.so).
 * The library does not know its prefix, which may be moved. Loaded once, for
 * the life of the process.
 */
#ifndef SHUNTI_PLUGIN_H
#define SHUNTI_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/status.h>

#include <shunt/transport.h>

#define SHUNTI_TRANSPORT_NAME_MAX 32
#define SHUNTI_TRANSPORTS_MAX 16

/* The library's side of the plugin contract; one for the process. */
const struct shunt_transport_host *shunti_transport_host(void);

/*
 * A transport by name, loaded if need be. NULL: `why` says why not, and where
 * it was looked for. Thread safe.
 */
const struct shunt_transport *shunti_transport_find(const char *name, char *why,
                                                    size_t why_len);

/* Is there a file of this transport? It is not loaded. Thread safe. */
bool shunti_transport_is_there(const char *name);

/* One to try, best first. */
struct shunti_candidate {
    char name[SHUNTI_TRANSPORT_NAME_MAX];
    const struct shunt_transport *transport; /* NULL: far, and not loaded yet */
    char options[128];                       /* "fault+shm": "shm" */
    struct shunt_transport_estimate estimate; /* of one that is loaded */
    bool far;                                 /* see SHUNT_TRANSPORT_IS_FAR */
    bool wanted;                              /* by name */
};

struct shunti_candidates {
    struct shunti_candidate item[SHUNTI_TRANSPORTS_MAX];
    size_t count;
};

/*
 * The transports that `spec` allows.
 *
 *     NULL, ""     all that work here, by falling score; not those with a
 *                  score of 0 or less, which must be asked for
 *     "shm,ucx"    these, in this order; one that does not work is an error
 *     "fault+shm"  fault, with the options "shm"
 *     "^rdma,ucx"  all but these
 *
 * Those that are far are not loaded, and whether they work is found out when
 * they are opened. Unless the order is given they come last.
 *
 * SHUNT_ERR_INVALID: an unknown name (the text lists what exists) or a
 * malformed list; SHUNT_ERR_UNSUPPORTED: none works, or not one asked for;
 * the text says why, in shunti_error_last().
 */
enum shunt_status shunti_transport_candidates(const char *spec,
                                              struct shunti_candidates *out);

/* Load one that is far. SHUNT_ERR_UNSUPPORTED, and `why`. */
enum shunt_status shunti_candidate_load(struct shunti_candidate *candidate,
                                        char *why, size_t why_len);

/* For shunt-info: every plugin file there is, loadable or not. */
struct shunti_transport_entry {
    char name[SHUNTI_TRANSPORT_NAME_MAX];
    char *path;
    const struct shunt_transport *transport; /* NULL: could not be loaded */
    bool usable;                             /* probe() said so */
    bool far;                                /* SHUNT_TRANSPORT_IS_FAR */
    struct shunt_transport_estimate estimate;
    char why[1024]; /* why not, or what probe() found; may have lines */
};

/* By falling score, then by name. NULL and count 0: none, or no memory. */
struct shunti_transport_entry *shunti_transport_list(size_t *count);
void shunti_transport_list_destroy(struct shunti_transport_entry *list,
                                   size_t count);

#endif
