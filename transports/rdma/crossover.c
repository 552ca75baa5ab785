// SPDX-License-Identifier: Apache-2.0
/*
 * The size from which on unregistered memory of a put is registered for the
 * put. From that size on, registering costs less than copying the payload into
 * the ring and out of it. Both are measured when the devices are opened. The
 * measured pages exist already, and each try to copy uses other pages. The
 * fastest of some tries counts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "transports/rdma/rdma.h"

#define TRIES 7
#define MEMORY (2 * TRIES * RDMA_COPIED_MOST)

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Returns the seconds that registering takes, or a negative number if it
 * failed. */
static double time_registering(const struct rdma_nic *nic, void *addr,
                               size_t bytes)
{
    double least = -1;

    for (int i = 0; i < TRIES; i++) {
        const double start = now();
        struct ibv_mr *mr = ibv_reg_mr(nic->pd, addr, bytes, 0);
        double taken;

        if (!mr)
            return -1;
        ibv_dereg_mr(mr);
        taken = now() - start;
        least = i == 0 || taken < least ? taken : least;
    }
    return least;
}

/* Returns the seconds that copying into the ring and out of it takes. */
static double time_copying(unsigned char *to, const unsigned char *from,
                           size_t bytes)
{
    double least = 0;

    for (int i = 0; i < TRIES; i++) {
        const double start = now();
        double taken;

        memcpy(to, from, bytes);
        __asm__ volatile("" ::: "memory");
        memcpy(to, from, bytes);
        __asm__ volatile("" ::: "memory");
        taken = now() - start;
        to += 2 * RDMA_COPIED_MOST;
        from += 2 * RDMA_COPIED_MOST;
        least = i == 0 || taken < least ? taken : least;
    }
    return least;
}

static void measure(struct shunt_transport_ctx *ctx, unsigned char *memory)
{
    static const size_t sizes[] = {12 << 10, 16 << 10, RDMA_COPIED_MOST};
    const struct shunt_transport_host *host = ctx->host;
    double registering = 0, copying = 0;

    memset(memory, 1, MEMORY);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        registering = time_registering(&ctx->nics[0], memory, sizes[i]);
        copying = time_copying(memory + RDMA_COPIED_MOST, memory, sizes[i]);
        if (registering >= 0 && copying > registering)
            break;
        ctx->copied = sizes[i];
    }
    if (host->log)
        host->log(
            SHUNT_TRANSPORT_INFO, "rdma",
            "%s: puts of up to %zu bytes are copied, the memory of larger "
            "ones is registered (last measured: %.2f us to copy, %.2f to "
            "register; SHUNT_RDMA_COPY)",
            ctx->nics[0].name, ctx->copied, copying * 1e6, registering * 1e6);
}

enum shunt_status rdma_find_crossover(struct shunt_transport_ctx *ctx,
                                      char *why, size_t why_len)
{
    const struct shunt_transport_host *host = ctx->host;
    const char *asked = host->env ? host->env("SHUNT_RDMA_COPY") : NULL;
    unsigned char *memory;
    char *end;

    ctx->copied = RDMA_SMALL;
    if (asked && asked[0]) {
        const unsigned long bytes = strtoul(asked, &end, 10);

        if (*end || bytes < RDMA_SMALL || bytes > RDMA_COPIED_MOST) {
            snprintf(why, why_len,
                     "SHUNT_RDMA_COPY is %s, and not a number from %zu to %zu",
                     asked, RDMA_SMALL, RDMA_COPIED_MOST);
            return SHUNT_ERR_INVALID;
        }
        ctx->copied = bytes;
        return SHUNT_OK;
    }
    memory = malloc(MEMORY);
    if (!memory) {
        snprintf(why, why_len, "out of memory");
        return SHUNT_ERR_MEMORY;
    }
    measure(ctx, memory);
    free(memory);
    return SHUNT_OK;
}
