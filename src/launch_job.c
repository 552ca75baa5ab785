// SPDX-License-Identifier: Apache-2.0
/* The identity of a launcher's job; see launch_job.h. */
#include "src/launch_job.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/auth.h"
#include "src/env.h"
#include "src/id.h"
#include "src/launchers.h"
#include "src/log.h"

/*
 * Hydra sets no variable that identifies the job. But each of its processes is
 * the leader of a session, or a descendant of one, whose parent is the host's
 * Hydra proxy. That process identifies the job on this host.
 */
static long session_parent(void)
{
    char path[64], line[512], *p;
    long parent = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)getsid(0));
    f = fopen(path, "re");
    if (!f)
        return (long)getppid();
    p = fgets(line, sizeof(line), f);
    fclose(f);
    /* "pid (command) state ppid": the command may hold anything. */
    p = p ? strrchr(p, ')') : NULL;
    if (!p || sscanf(p + 1, " %*c %ld", &parent) != 1)
        return (long)getppid();
    return parent;
}

/* The job's identity: the same text on all ranks of the job. It does not
 * contain the number of ranks, so that a rank with a wrong number meets the
 * others and is told. */
static void identify(const struct shunti_launcher *l, char *text, size_t len)
{
    bool named = false;
    size_t used = (size_t)snprintf(text, len, "%s|%ld", l->how, (long)getuid());

    for (size_t i = 0; i < sizeof(l->job) / sizeof(l->job[0]); i++) {
        const char *value = shunti_launch_get(l->job[i]);

        if (!value || used >= len)
            continue;
        named = true;
        used += (size_t)snprintf(text + used, len - used, "|%s=%s", l->job[i],
                                 value);
    }
    if (l->parent && !named && used < len)
        snprintf(text + used, len - used, "|parent=%ld", session_parent());
}

void shunti_launch_derive_secret(const struct shunti_launcher *l,
                                 unsigned long call,
                                 struct shunti_id_parts *parts)
{
    const char *given = shunti_env_string("SHUNT_SECRET");
    unsigned char key[SHUNTI_KEY_BYTES], tag[SHUNTI_KEY_BYTES];
    char job[1024], salt[1100];

    /* Even with SHUNT_SECRET the job's identity keeps jobs apart. */
    shunti_auth_digest(given ? given : "", given ? strlen(given) : 0, key);
    identify(l, job, sizeof(job));
    snprintf(salt, sizeof(salt), "%s|call=%lu", job, call);
    shunti_auth_derive(key, "shunt launch", salt, strlen(salt), parts->secret);
    explicit_bzero(key, sizeof(key));
    /* The tag does not depend on SHUNT_SECRET, so that ranks with different
     * secrets meet and are told. */
    shunti_auth_derive(key, "shunt launch tag", salt, strlen(salt), tag);
    memcpy(parts->tag, tag, sizeof(parts->tag));
    if (!given)
        parts->flags |= SHUNTI_ID_PUBLIC;
    shunti_debug("launch", "job identity: %s", salt);
}
