// SPDX-License-Identifier: Apache-2.0
/*
 * Transports: finding, loading and choosing them.
 *
 *     plugin.c         loads a transport
 *     plugin_files.c   finds the files
 *     plugin_list.c    lists all of them
 *     plugin_choose.c  chooses the candidates of a communicator
 *
 * A transport NAME is the shared object shunt_NAME.so in the first of these
 * folders that has one: those of SHUNT_PLUGIN_PATH (separated by ':'), then
 * shunt/ and transports/ beside the object that contains this code: libshunt.so,
 * or a program that links it statically. For a program also transports/ and the
 * folder of installed plugins, one level up. So an installation can be moved.
 * The folder that this build was configured for counts only if these folders
 * contain no plugin. The current folder never counts. A transport is loaded
 * once, and stays loaded until the process ends.
 */
#ifndef SHUNTI_PLUGIN_H
#define SHUNTI_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/status.h>

#include <shunt/engine.h>
#include <shunt/transport.h>

#define SHUNTI_TRANSPORT_NAME_MAX 32
#define SHUNTI_TRANSPORTS_MAX 16
/* Bytes of a list of transports as the user gives it, with the final zero. */
#define SHUNTI_TRANSPORT_LIST_MAX 512

/* The functions that the library offers to plugins; one table per process. */
const struct shunt_transport_host *shunti_transport_host(void);

/* Makes progress on other communicators while a transport closes. A pointer set
 * by wait.c, to break the cycle plugin.c -> wait.c -> contexts.c ->
 * plugin.c. */
extern void (*shunti_transport_meanwhile)(void);

/*
 * A transport by name, loaded on first use. NULL: `why` has the reason, and the
 * folders that were searched. Thread safe.
 */
const struct shunt_transport *shunti_transport_find(const char *name, char *why,
                                                    size_t why_len);

/* A copy engine by name, loaded on first use: as shunti_transport_find(). */
const struct shunt_engine *shunti_engine_find(const char *name, char *why,
                                              size_t why_len);

/* Does a file of this transport exist? Does not load it. Thread safe. */
bool shunti_transport_is_there(const char *name);
/* Does a transport reach other hosts (SHUNT_TRANSPORT_IS_FAR)? Does not load
 * it. */
bool shunti_transport_is_far(const char *name);

/* A transport to try. */
struct shunti_candidate {
    char name[SHUNTI_TRANSPORT_NAME_MAX];
    const struct shunt_transport *transport;  /* NULL: far, not loaded yet */
    char options[128];                        /* for "fault+shm": "shm" */
    struct shunt_transport_estimate estimate; /* valid if the transport is
                                                 loaded */
    bool far;    /* reaches other hosts: SHUNT_TRANSPORT_IS_FAR */
    bool wanted; /* the user has named it */
};

struct shunti_candidates {
    struct shunti_candidate item[SHUNTI_TRANSPORTS_MAX];
    size_t count;
};

/*
 * The transports that `spec` allows, in the order in which to try them.
 *
 *     NULL, ""     all that work here, by falling score; those with a score of
 *                  0 or less must be named
 *     "shm,ucx"    these, in this order; one that does not work is an error
 *     "fault+shm"  fault, with the options "shm"
 *     "^rdma,ucx"  all but these
 *
 * Transports that are far are not loaded; the attempt to open them shows
 * whether they work. They are last, unless the user gives the order.
 *
 * SHUNT_ERR_INVALID: an unknown name (the text lists the known ones) or a
 * malformed list. SHUNT_ERR_UNSUPPORTED: no transport works, or one that was
 * named does not. The text is in shunti_error_last().
 */
enum shunt_status shunti_transport_candidates(const char *spec,
                                              struct shunti_candidates *out);

/* Load a candidate that is far. SHUNT_ERR_UNSUPPORTED: `why` has the reason. */
enum shunt_status shunti_candidate_load(struct shunti_candidate *candidate,
                                        char *why, size_t why_len);

/* An entry of shunt-info's list: one plugin file, even if it cannot be
 * loaded. */
struct shunti_transport_entry {
    const struct shunt_engine
        *engine; /* not NULL: the plugin is a copy engine and no transport */
    char name[SHUNTI_TRANSPORT_NAME_MAX];
    char *path;
    const struct shunt_transport *transport; /* NULL: could not be loaded */
    bool usable;                             /* probe() succeeded */
    bool far;                                /* SHUNT_TRANSPORT_IS_FAR */
    int score; /* also valid if the transport is far and was not loaded */
    struct shunt_transport_estimate estimate;
    char why[1024]; /* why it is not usable, or what probe() found; may be
                       several lines */
};

/* List every plugin file, by falling score, then by name. NULL and count 0:
 * none, or memory ran out. */
struct shunti_transport_entry *shunti_transport_list(size_t *count);
void shunti_transport_list_destroy(struct shunti_transport_entry *list,
                                   size_t count);

#endif
