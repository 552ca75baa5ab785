// SPDX-License-Identifier: Apache-2.0
/* The identity of a launcher's job; see launch_job.h. */
#include "src/boot/launch_job.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/log.h"
#include "src/boot/auth.h"
#include "src/boot/id.h"
#include "src/host/ancestors.h"
#include "src/host/launchers.h"

struct text {
    char *bytes;
    size_t used, len;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t,
                                                      const char *format, ...)
{
    va_list args;

    if (t->used >= t->len)
        return;
    va_start(args, format);
    t->used +=
        (size_t)vsnprintf(t->bytes + t->used, t->len - t->used, format, args);
    va_end(args);
}

/* Add the variables of a launcher's row that are set. False: none is set. */
static bool add_variables(struct text *t, const struct shunti_launcher *l)
{
    bool named = false;

    for (size_t i = 0; i < sizeof(l->job) / sizeof(l->job[0]); i++) {
        const char *value = shunti_launch_get(l->job[i]);

        if (value)
            add(t, "|%s=%s", l->job[i], value);
        named |= value != NULL;
    }
    return named;
}

/*
 * Hydra sets no variable that identifies the job. But a Hydra proxy on each
 * host starts all processes of the job there. The proxy's command line has the
 * address where mpiexec listens. All hosts of this job have that address, and
 * no other job has it.
 *
 * Other process managers have no such option. Each of their processes is the
 * leader of a session, or a descendant of one. The parent of that leader
 * identifies the job on this host.
 */
static void add_manager(struct text *t, bool named)
{
    char address[256];

    if (shunti_ancestor_option("proxy", "--control-port", address,
                               sizeof(address)))
        add(t, "|control=%s", address);
    else if (!named)
        add(t, "|parent=%ld", shunti_session_parent());
}

/*
 * The job's identity: the same text on all ranks of the job. It does not
 * contain the number of ranks, so that a rank with a wrong number finds the
 * others and gets an error. If another launcher has started exactly these ranks
 * (a script has set RANK=$SLURM_PROCID, or srun speaks MPICH's protocol), then
 * its job is this job.
 */
static void identify(const struct shunti_launcher *l, char *bytes, size_t len)
{
    const struct shunti_launcher *around = shunti_launcher_around(l);
    struct text t = {.bytes = bytes, .len = len};
    bool named;

    add(&t, "%s|%ld", l->how, (long)getuid());
    named = add_variables(&t, l);
    if (around)
        named |= add_variables(&t, around);
    if (l->parent || (around && around->parent))
        add_manager(&t, named);
}

void shunti_launch_derive_secret(const struct shunti_launcher *l,
                                 unsigned long call,
                                 struct shunti_id_parts *parts)
{
    const char *given = shunti_env_string("SHUNT_SECRET");
    unsigned char key[SHUNTI_KEY_BYTES], tag[SHUNTI_KEY_BYTES];
    char job[4096], salt[4200];

    /* Even with SHUNT_SECRET the job's identity keeps jobs apart. */
    shunti_auth_digest(given ? given : "", given ? strlen(given) : 0, key);
    identify(l, job, sizeof(job));
    snprintf(salt, sizeof(salt), "%s|call=%lu", job, call);
    shunti_auth_derive(key, "shunt launch", salt, strlen(salt), parts->secret);
    explicit_bzero(key, sizeof(key));
    /* The tag does not depend on SHUNT_SECRET, so that ranks with different
     * secrets find each other and get an error. */
    shunti_auth_derive(key, "shunt launch tag", salt, strlen(salt), tag);
    memcpy(parts->tag, tag, sizeof(parts->tag));
    if (!given)
        parts->flags |= SHUNTI_ID_PUBLIC;
    shunti_debug("launch", "job identity: %s", salt);
}
