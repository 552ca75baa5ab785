// SPDX-License-Identifier: Apache-2.0
/*
 * A copy engine for the test of `shunt-perf copy`. It has no thread: it copies
 * in poll(), one copy at a time. SHUNT_LIAR makes its copies wrong:
 *
 *     byte    the last byte of a copy of several bytes is wrong
 *     early   the signal is raised, and nothing is copied
 *     beyond  a byte behind the destination is written, too
 *     rows    copies of several rows, or by an index, are refused
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/engine.h>

struct shunt_engine_ctx {
    const char *lie;
    struct shunt_engine_copy copy;
    bool under_way;
};

static enum shunt_status liar_probe(const struct shunt_transport_host *host,
                                    char *why, size_t why_len)
{
    (void)host;
    snprintf(why, why_len, "an engine of tests");
    return SHUNT_OK;
}

static enum shunt_status liar_open(const struct shunt_engine_params *params,
                                   struct shunt_engine_ctx **ctx, char *why,
                                   size_t why_len)
{
    const char *lie = params->host->env("SHUNT_LIAR");

    *ctx = calloc(1, sizeof(**ctx));
    if (!*ctx) {
        snprintf(why, why_len, "out of memory");
        return SHUNT_ERR_MEMORY;
    }
    (*ctx)->lie = lie ? lie : "";
    return SHUNT_OK;
}

static void copy_rows(const struct shunt_engine_ctx *ctx)
{
    const struct shunt_engine_copy *c = &ctx->copy;
    unsigned char *to = c->to, *end;

    if (!c->rows || !c->bytes || !strcmp(ctx->lie, "early"))
        return;
    for (size_t i = 0; i < c->rows; i++)
        memcpy(to + i * c->to_stride,
               (const unsigned char *)c->from +
                   (c->index ? c->index[i] : i) * c->from_stride,
               c->bytes);
    end = to + (c->rows - 1) * c->to_stride + c->bytes;
    if (c->bytes > 1 && !strcmp(ctx->lie, "byte"))
        end[-1] ^= 1;
    if (c->bytes > 1 && !strcmp(ctx->lie, "beyond"))
        end[0] ^= 1;
}

static size_t liar_poll(struct shunt_engine_ctx *ctx)
{
    if (ctx->under_way) {
        copy_rows(ctx);
        ctx->under_way = false;
        __atomic_store_n(ctx->copy.signal, ctx->copy.value, __ATOMIC_RELEASE);
    }
    return 0;
}

static void liar_close(struct shunt_engine_ctx *ctx)
{
    if (ctx)
        liar_poll(ctx);
    free(ctx);
}

static enum shunt_status liar_submit(struct shunt_engine_ctx *ctx,
                                     const struct shunt_engine_copy *copy)
{
    if (!strcmp(ctx->lie, "rows") && (copy->rows > 1 || copy->index))
        return SHUNT_ERR_UNSUPPORTED;
    if (ctx->under_way)
        return SHUNT_IN_PROGRESS;
    ctx->copy = *copy;
    ctx->under_way = true;
    return SHUNT_OK;
}

static const struct shunt_transport_knob knobs[] = {
    {"SHUNT_LIAR", NULL, "What it does wrongly."},
    {0},
};

extern const struct shunt_engine shunt_engine_v5;

__attribute__((visibility("default")))
const struct shunt_engine shunt_engine_v5 = {
    .abi = SHUNT_ENGINE_ABI,
    .name = "liar",
    .summary = "an engine of tests",
    .probe = liar_probe,
    .open = liar_open,
    .close = liar_close,
    .submit = liar_submit,
    .poll = liar_poll,
    .knobs = knobs,
};
