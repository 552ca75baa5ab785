// SPDX-License-Identifier: Apache-2.0
/*
 * The settings of a run.
 */
#include "perf/tables/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *perf_cpu_model(void)
{
    static char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    const char *model = "unknown";

    while (f && fgets(line, sizeof(line), f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        model = colon + 1 + strspn(colon + 1, " ");
        break;
    }
    if (f)
        fclose(f);
    return model;
}

const char *perf_partials(const struct perf_options *o)
{
    return o->partials == SHUNT_MOE_PARTIALS_F32 ? "f32"
                                                 : perf_dtype_name(o->dtype);
}

static const char *transport_to(const struct perf_group *g, int rank)
{
    return g->comm ? shunt_comm_transport(g->comm, rank)
                   : "none, the peer alone";
}

const char *perf_transport(const struct perf_settings *settings)
{
    const struct perf_group *g = settings->group;
    return transport_to(g, g->ranks > 1 ? 1 : 0);
}

const char *perf_far_transport(const struct perf_settings *settings)
{
    const struct perf_group *g = settings->group;
    int far = perf_host_rank(g, 1, 0);
    return far > 0 ? transport_to(g, far) : "";
}

const char *perf_environment(void)
{
    static const char *const names[] = {
        "SHUNT_SPIN",      "SHUNT_MOE_MODE",
        "SHUNT_ALGORITHM", "SHUNT_TRANSPORTS",
        "SHUNT_CHUNK",     "SHUNT_EAGER",
        "SHUNT_NODE",      "OMPI_MCA_pml",
        "OMPI_MCA_btl",    "OMPI_MCA_mpi_yield_when_idle",
        "UCX_TLS",         "SHUNT_PROGRESS",
        "SHUNT_READ_MIN",  "SHUNT_ALLREDUCE_DIRECT",
    };
    static char text[512];

    text[0] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *value = getenv(names[i]);
        if (value)
            snprintf(text + strlen(text), sizeof(text) - strlen(text),
                     "%s%s=%.40s", text[0] ? " " : "", names[i], value);
    }
    return text[0] ? text : NULL;
}
