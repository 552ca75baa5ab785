// SPDX-License-Identifier: Apache-2.0
/* The address where the root of a launcher's job listens; see
 * launch_place.h. */
#include "src/boot/launch_place.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/env.h"
#include "src/base/error.h"
#include "src/boot/bootstrap.h"
#include "src/boot/hostlist.h"
#include "src/boot/id.h"
#include "src/host/launchers.h"

/* A port derived from the job's tag, below the kernel's ephemeral range. */
static uint16_t derived_port(const unsigned char *tag)
{
    return (uint16_t)(10000 + (tag[0] | tag[1] << 8) % 20000);
}

/*
 * Find the host of rank 0 from Slurm's variables. False: they do not name it.
 *
 * A step has a list of its own. If the step has several components, rank 0 is
 * on the first host of the first component, but the list is sorted by name.
 * mpirun starts its ranks on the hosts of the whole job, from the first one on.
 * If mpirun starts its daemons by srun, there is also a step, whose list does
 * not count.
 */
static bool slurm_host(bool by_srun, char *host, size_t len)
{
    const char *step = shunti_launch_get("SLURM_STEP_NODELIST");
    const char *job = shunti_launch_get("SLURM_JOB_NODELIST");
    const char *component = shunti_launch_get("SLURM_JOB_NODELIST_HET_GROUP_0");

    if (!component) /* the name in older releases of Slurm */
        component = shunti_launch_get("SLURM_JOB_NODELIST_PACK_GROUP_0");
    if (!by_srun && component)
        job = component;
    if (!by_srun)
        return job && shunti_hostlist_first(job, host, len);
    if (step && component && shunti_hostlist_first(component, host, len) &&
        shunti_hostlist_has(step, host))
        return true;
    return step && shunti_hostlist_first(step, host, len);
}

/* Does this rank see that rank 0 is not on the first host of the step? Only
 * rank 0 and the ranks on that host can see it. */
static bool rank_0_is_elsewhere(int rank)
{
    const char *node = shunti_launch_get("SLURM_NODEID");
    const char *tasks =
        shunti_launch_get("SLURM_GTIDS"); /* "0,1": the ranks on this host */
    const bool first = node && !strcmp(node, "0");

    if (shunti_launch_get("SLURM_HET_SIZE"))
        return false; /* SLURM_NODEID is unusable: each component counts its
                         hosts from 0 */
    return rank == 0 ? node && !first : first && tasks && atoi(tasks) != 0;
}

/* This host is the step's first, where ranks of other hosts look for rank 0.
 * Return the number of these ranks if this rank notifies them of the failure. 0
 * if another rank of this host notifies them. */
static int ranks_to_notify(int rank, int nranks)
{
    const char *tasks = shunti_launch_get("SLURM_GTIDS");
    int here = 1;

    if (rank == 0 || !tasks || atoi(tasks) != rank)
        return 0;
    for (; *tasks; tasks++)
        here += *tasks == ',';
    return nranks - here - 1; /* rank 0 notices it itself */
}

/* The host where the root listens: SHUNT_HOST, MASTER_ADDR, or Slurm's host of
 * rank 0. NULL: none is set. *slurm: it is Slurm's host. An interface in
 * SHUNT_HOST does not count, because other hosts cannot find rank 0 by it. An
 * interface is meant for later communicators. */
static const char *root_host(const struct shunti_launcher *l, char *buffer,
                             size_t len, bool *slurm)
{
    const char *host = shunti_env_string("SHUNT_HOST");
    const bool by_srun = shunti_launcher_by_srun(l);
    struct shunti_id_parts interface = {0};

    *slurm = false;
    if (host && shunti_id_interface(host, &interface))
        host = NULL;
    if (!host && shunti_launcher_is_torchrun(l))
        host = shunti_launch_get("MASTER_ADDR");
    if (!host && slurm_host(by_srun, buffer, len)) {
        host = buffer;
        *slurm = true;
    }
    return host;
}

/* Check that rank 0 is on the host that Slurm lists first. Slurm sorts its list
 * of hosts, even if the user ordered them otherwise. Only rank 0 and the ranks
 * of the first host can notice. One of the latter notifies the ranks of other
 * hosts. mpirun ends the job if rank 0 fails. */
static enum shunt_status check_slurm_host(const struct shunti_launcher *l,
                                          int rank, int nranks,
                                          const char *host,
                                          const struct shunti_id_parts *parts)
{
    const bool by_srun = shunti_launcher_by_srun(l);
    const bool wrong = by_srun ? rank_0_is_elsewhere(rank)
                               : rank == 0 && !shunti_id_is_of_this_host(parts);
    enum shunt_status st;

    if (!wrong)
        return SHUNT_OK;
    st = shunti_fail(NULL, SHUNT_ERR_UNSUPPORTED,
                     "rank 0 is not on %s, the first host of Slurm's list, "
                     "where ranks meet (-m arbitrary, SLURM_HOSTFILE?): set "
                     "SHUNT_HOST to an address of rank 0's host, on all "
                     "ranks",
                     host);
    if (by_srun && ranks_to_notify(rank, nranks) > 0)
        shunti_bootstrap_send_failure(parts, ranks_to_notify(rank, nranks));
    return st;
}

static enum shunt_status root_port(const struct shunti_launcher *l, bool master,
                                   const unsigned char *tag, int *port)
{
    double wish = shunti_env_number("SHUNT_PORT");
    enum shunt_status st;

    if (wish > 65535)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "SHUNT_PORT=%.0f is not a TCP port (1 to 65535)",
                           wish);
    if (wish >= 1) {
        *port = (int)wish;
        return SHUNT_OK;
    }
    *port = derived_port(tag);
    if (shunti_launcher_is_torchrun(l) && master) {
        st = shunti_launch_number("MASTER_PORT", 1, 65534, port);
        if (st)
            return st;
        (*port)++; /* torchrun's own store listens on MASTER_PORT */
    }
    return SHUNT_OK;
}

/*
 * Add a second address. Ranks that were started with a wrong number of ranks
 * may believe that the job spans several hosts. They look for rank 0 at
 * MASTER_ADDR instead of at the unix socket, or the reverse. So a rank that
 * finds no root also tries the other address. It finds the root there, and gets
 * an error.
 */
static void add_second_place(const struct shunti_launcher *l,
                             struct shunti_id_parts *parts)
{
    const char *host = shunti_launch_get("MASTER_ADDR");
    struct shunti_id_parts there;
    int port;

    if (parts->kind != SHUNTI_ID_LOCAL) {
        parts->other = SHUNTI_ID_LOCAL;
        return;
    }
    /* Use only an address that needs no name service. */
    if (!shunti_launcher_is_torchrun(l) || !host ||
        (strcmp(host, "localhost") &&
         strspn(host, "0123456789.") != strlen(host)) ||
        shunti_launch_number("MASTER_PORT", 1, 65534, &port) ||
        shunti_id_resolve(host, (uint16_t)(port + 1), &there))
        return;
    parts->other = there.kind;
    parts->port = there.port;
    memcpy(parts->address, there.address, sizeof(parts->address));
}

enum shunt_status shunti_launch_place(const struct shunti_launcher *l, int rank,
                                      int nranks, struct shunti_id_parts *parts)
{
    bool asked =
        shunti_env_is_set("SHUNT_HOST") || shunti_env_is_set("SHUNT_PORT");
    char buffer[256];
    const char *host;
    enum shunt_status st;
    bool slurm;
    int port;

    parts->flags |= SHUNTI_ID_RETRY;
    if (!asked && shunti_launcher_on_one_host(l, nranks)) {
        parts->kind = SHUNTI_ID_LOCAL;
        add_second_place(l, parts);
        return SHUNT_OK;
    }

    host = root_host(l, buffer, sizeof(buffer), &slurm);
    if (!host && shunti_launcher_on_one_host(l, nranks))
        host = "127.0.0.1";
    if (!host && shunti_launcher_is_torchrun(l))
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "RANK and WORLD_SIZE=%d are set, but MASTER_ADDR is "
                           "not: set it to rank 0's host",
                           nranks);
    if (!host)
        return shunti_fail(NULL, SHUNT_ERR_UNSUPPORTED,
                           "%s started %d ranks on several hosts: set "
                           "SHUNT_HOST and SHUNT_PORT to an address of rank "
                           "0's host and a free port, on all ranks",
                           l->how, nranks);
    st = root_port(
        l, shunti_launch_get("MASTER_PORT") || shunti_launch_get("MASTER_ADDR"),
        parts->tag, &port);
    if (st)
        return st;
    st = shunti_id_resolve(host, (uint16_t)port, parts);
    if (st)
        return shunti_fail(NULL, st,
                           "%s (from %s): set %s to an address of rank 0's "
                           "host, on all ranks",
                           shunti_error_last(),
                           shunti_env_is_set("SHUNT_HOST") ? "SHUNT_HOST"
                           : slurm                         ? "Slurm"
                                                           : "MASTER_ADDR",
                           slurm || shunti_env_is_set("SHUNT_HOST")
                               ? "SHUNT_HOST"
                               : "MASTER_ADDR");
    /* A name may resolve to 127.0.1.1 on its own host, and to another address
     * on others: listen on all addresses, unless it is a name of loopback. */
    if (strcmp(host, "localhost") && strcmp(host, "127.0.0.1") &&
        strcmp(host, "::1") && strcmp(host, "[::1]"))
        parts->flags |= SHUNTI_ID_ANY;
    add_second_place(l, parts);
    return slurm ? check_slurm_host(l, rank, nranks, host, parts) : SHUNT_OK;
}
