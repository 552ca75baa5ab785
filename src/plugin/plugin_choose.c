// SPDX-License-Identifier: Apache-2.0
/* Chooses among the transports by the user's list (SHUNT_TRANSPORTS). */
#include "src/plugin/plugin.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/plugin/plugin_files.h"
#include "src/plugin/plugin_list.h"

/* Print the names of all transports, for messages: "shm, inproc, fault". */
static void list_names(char *text, size_t len)
{
    struct shunti_plugin_list list = shunti_plugin_list(false);
    size_t used = 0;

    for (size_t i = 0; i < list.count && used < len; i++)
        if (!list.item[i].engine)
            used += (size_t)snprintf(text + used, len - used, "%s%s",
                                     used ? ", " : "", list.item[i].name);
    if (!used)
        snprintf(text, len, "none was found (see shunt-info)");
    shunti_transport_list_destroy(list.item, list.count);
}

/* Add a candidate. NULL: an error. */
static struct shunti_candidate *add_candidate(struct shunti_candidates *out,
                                              const char *name,
                                              const char *options)
{
    struct shunti_candidate *c = &out->item[out->count];

    if (out->count == SHUNTI_TRANSPORTS_MAX) {
        shunti_fail(NULL, SHUNT_ERR_INVALID, "more than %d transports",
                    SHUNTI_TRANSPORTS_MAX);
        return NULL;
    }
    if (strlen(options) >= sizeof(c->options)) {
        shunti_fail(NULL, SHUNT_ERR_INVALID,
                    "the options '%s' of transport %s are too long", options,
                    name);
        return NULL;
    }
    strcpy(c->name, name);
    strcpy(c->options, options);
    out->count++;
    return c;
}

/* Add a transport of the user's list: "name" or "name+options". */
static enum shunt_status add_wanted(struct shunti_candidates *out,
                                    const char *word)
{
    char name[SHUNTI_TRANSPORT_NAME_MAX] = "", why[512], known[256];
    size_t len = strcspn(word, "+");
    const char *options = word[len] ? word + len + 1 : "";
    const struct shunt_transport *t = NULL;
    struct shunti_candidate *c;
    bool far = false;

    snprintf(why, sizeof(why), "no transport has such a name");
    if (len && len < sizeof(name)) {
        memcpy(name, word, len);
        far = shunti_transport_is_far(name);
        if (!far)
            t = shunti_transport_find(name, why, sizeof(why));
    }
    if (!t && !far) {
        list_names(known, sizeof(known));
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "transport '%s': %s; there are: %s", word, why,
                           known);
    }
    c = add_candidate(out, name, options);
    if (!c)
        return SHUNT_ERR_INVALID;
    c->transport = t;
    c->far = far;
    c->wanted = true;
    if (t && !shunti_plugin_probe(t, &c->estimate, why, sizeof(why)))
        return shunti_fail(NULL, SHUNT_ERR_UNSUPPORTED,
                           "transport %s does not work here: %s", name, why);
    return SHUNT_OK;
}

enum shunt_status shunti_candidate_load(struct shunti_candidate *c, char *why,
                                        size_t why_len)
{
    if (c->transport)
        return SHUNT_OK;
    c->transport = shunti_transport_find(c->name, why, why_len);
    if (!c->transport)
        return SHUNT_ERR_UNSUPPORTED;
    if (c->transport->score > 0 || c->wanted)
        return SHUNT_OK;
    snprintf(why, why_len, "it must be asked for in SHUNT_TRANSPORTS");
    c->transport = NULL;
    return SHUNT_ERR_UNSUPPORTED;
}

static bool is_listed(char *const *words, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(words[i], name))
            return true;
    return false;
}

/* Check the names that are excluded. A transport that does not exist is an
 * error: a spelling mistake. */
static enum shunt_status check_excluded(char *const *words, size_t nwords,
                                        const struct shunti_transport_entry *e,
                                        size_t count)
{
    char known[256];

    for (size_t i = 0; i < nwords; i++) {
        size_t j = 0;

        while (j < count && (e[j].engine || strcmp(words[i], e[j].name)))
            j++;
        if (j < count)
            continue;
        list_names(known, sizeof(known));
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "transport '%s', which is not to be used, does not "
                           "exist; there are: %s",
                           words[i], known);
    }
    return SHUNT_OK;
}

static enum shunt_status add_all_but(struct shunti_candidates *out,
                                     char *const *words, size_t nwords)
{
    char why[512] = "no plugin was found; is SHUNT_PLUGIN_PATH right?";
    struct shunti_plugin_list list = shunti_plugin_list(false);
    enum shunt_status st =
        list.cut ? shunti_fail(NULL,
                               list.cut == ENOMEM ? SHUNT_ERR_MEMORY
                                                  : SHUNT_ERR_SYSTEM,
                               "cannot list the transports: %s%s",
                               strerror(list.cut), shunti_remedy(list.cut))
                 : check_excluded(words, nwords, list.item, list.count);

    for (size_t i = 0; !st && i < list.count; i++) {
        struct shunti_transport_entry *e = &list.item[i];
        struct shunti_candidate *c;

        if (e->engine || is_listed(words, nwords, e->name))
            continue;
        if (!e->far && (!e->transport || !e->usable)) {
            snprintf(why, sizeof(why), "%s: %.400s", e->name, e->why);
            shunti_info("plugin", "transport %s", why);
        } else if (e->score > 0) {
            c = add_candidate(out, e->name, "");
            if (!c) {
                st = SHUNT_ERR_INVALID;
                break;
            }
            c->transport = e->transport;
            c->estimate = e->estimate;
            c->far = e->far;
        }
    }
    shunti_transport_list_destroy(list.item, list.count);
    if (!st && !out->count)
        st = shunti_fail(NULL, SHUNT_ERR_UNSUPPORTED,
                         "no transport works here (%s); shunt-info lists them",
                         why);
    return st;
}

/* Split "a, b,c" in place. */
static size_t split(char *text, char *words[SHUNTI_TRANSPORTS_MAX])
{
    size_t n = 0;
    char *save = NULL;

    for (char *w = strtok_r(text, ", \t", &save);
         w && n < SHUNTI_TRANSPORTS_MAX; w = strtok_r(NULL, ", \t", &save))
        words[n++] = w;
    return n;
}

enum shunt_status shunti_transport_candidates(const char *spec,
                                              struct shunti_candidates *out)
{
    char text[SHUNTI_TRANSPORT_LIST_MAX], *words[SHUNTI_TRANSPORTS_MAX];
    enum shunt_status st = SHUNT_OK;
    bool except;
    size_t n;

    memset(out, 0, sizeof(*out));
    spec = spec ? spec : "";
    except = *spec == '^';
    if (strlen(spec) >= sizeof(text))
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "the list of transports is too long");
    strcpy(text, spec + except);
    n = split(text, words);
    if (strchr(spec + except, '^') || (except && !n))
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "transports '%s': give those to use ('shm,ucx'), or "
                           "those not to use after one ^ ('^shm,ucx')",
                           spec);
    if (except || !n)
        return add_all_but(out, words, n);
    for (size_t i = 0; !st && i < n; i++)
        st = add_wanted(out, words[i]);
    return st;
}
