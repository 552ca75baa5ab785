// SPDX-License-Identifier: Apache-2.0
/* Units of fused/ alone: how a product is cut into parts, and the epilogue. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>

#include "collectives/fused/epilogue.h"
#include "collectives/fused/grid.h"
#include "collectives/fused/worthwhile.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/kernels/dtype.h"

TestSuite(fused_parts, .timeout = 60);

static const size_t lengths[] = {
    0,    1,    2,    15,   16,    17,    63,    64,     65,
    127,  511,  512,  513,  1000,  1023,  1024,  1025,   4095,
    4096, 4099, 5000, 7168, 10000, 18432, 65536, 100003, 1000000,
};
enum { LENGTHS = sizeof(lengths) / sizeof(*lengths) };

/* The parts lie one behind the other, and cover `length`. */
static void is_whole(const struct shunti_cut *cut, size_t length)
{
    size_t sum = 0;

    cr_assert_eq(cut->length, length);
    for (size_t i = 0; i < cut->parts; i++) {
        cr_assert_gt(shunti_part(cut, i), 0);
        sum += shunti_part(cut, i);
    }
    cr_assert_eq(sum, length);
}

/* The step is a multiple of `unit`, unless there is only one part. */
static void has_unit(const struct shunti_cut *cut, size_t unit)
{
    cr_assert(cut->parts <= 1 || cut->step % unit == 0, "step %zu", cut->step);
}

Test(fused_parts, tiles)
{
    for (int i = 0; i < LENGTHS; i++) {
        const struct shunti_cut rows = shunti_cut_tile_rows(lengths[i]);
        const struct shunti_cut cols = shunti_cut_tile_cols(lengths[i]);

        is_whole(&rows, lengths[i]);
        is_whole(&cols, lengths[i]);
        has_unit(&rows, 16);
        has_unit(&cols, 64);
        cr_assert_leq(rows.step, 512);
        cr_assert_leq(cols.step, 1024);
        /* There are hardly more parts than necessary. */
        cr_assert_leq(rows.parts, lengths[i] / 512 + 1);
        cr_assert_leq(cols.parts, lengths[i] / 1024 + 1);
    }
}

Test(fused_parts, panels)
{
    for (int i = 0; i < LENGTHS; i++)
        for (int j = 0; j < LENGTHS; j++) {
            const size_t cols = lengths[i], rows = lengths[j];
            const struct shunti_cut cut =
                shunti_cut_panels(cols, 2 * rows, rows, 2);

            is_whole(&cut, cols);
            has_unit(&cut, 64);
            cr_assert_leq(cut.parts, 32);
            cr_assert(cut.parts <= 1 || cut.step * rows * 4 >= 32 << 10,
                      "%zu columns, %zu rows: %zu panels", cols, rows,
                      cut.parts);
        }
}

/* On one node, a panel and its sum fit into the scratch that is kept. A panel
 * is not narrower than half of that, or than a tile. */
Test(fused_parts, panels_of_one_node)
{
    const size_t kept = SHUNTI_SCRATCH_KEPT / sizeof(float);

    for (int i = 0; i < LENGTHS; i++)
        for (int j = 0; j < LENGTHS; j++) {
            const size_t cols = lengths[i], rows = lengths[j];
            const struct shunti_cut cut =
                shunti_cut_panels(cols, rows, rows, 1);

            is_whole(&cut, cols);
            has_unit(&cut, 64);
            if (rows && cut.step > 64)
                cr_assert_leq(2 * rows * cut.step, kept, "%zu by %zu", rows,
                              cols);
            cr_assert(cut.parts <= 1 || 4 * rows * (cut.step + 64) > kept,
                      "%zu by %zu: steps of %zu", rows, cols, cut.step);
        }
    /* The product of `shunt-perf gemm-rs --ranks 2`, with 64 MiB, is cut into
     * panels as wide as a tile. */
    cr_assert_eq(shunti_cut_panels(2048, 8192, 4096, 1).step, 512);
    cr_assert_eq(shunti_cut_panels(1024, 4096, 2048, 1).parts, 1);
}

Test(fused_parts, chunks)
{
    for (int i = 0; i < LENGTHS; i++)
        for (int j = 0; j < LENGTHS; j++) {
            const size_t rows = lengths[i], bytes = lengths[j];
            const size_t n = shunti_chunks(rows, bytes);

            cr_assert(n >= 1 && n <= 32);
            cr_assert_eq(shunti_chunk_begin(rows, 0, n), 0);
            cr_assert_eq(shunti_chunk_begin(rows, n, n), rows);
            for (size_t c = 0; c < n; c++) {
                const size_t at = shunti_chunk_begin(rows, c, n);
                const size_t end = shunti_chunk_begin(rows, c + 1, n);

                cr_assert_leq(at, end);
                cr_assert(n == 1 || end - at >= 64, "%zu rows: %zu", rows,
                          end - at);
                cr_assert(n == 1 || (end - at + 1) * bytes >= 32 << 10,
                          "%zu rows of %zu bytes: %zu", rows, bytes, n);
            }
        }
}

/* The epilogue has the order and the roundings that fused.h names. With these
 * numbers, another order gives other bits. */
Test(fused_parts, epilogue)
{
    enum { N = 2500 };
    static float sum[N], out[N], bias[N];
    static uint16_t narrow[N];
    struct shunti_fused_out o = {
        .at = out, .rows = 1, .cols = N, .ld = N, .dtype = SHUNT_F32};

    for (int i = 0; i < N; i++) {
        sum[i] = ldexpf(1 + (float)i / N, i % 30 - 15);
        bias[i] = -ldexpf(1 + (float)i / N / 3, i % 29 - 14);
        out[i] = ldexpf(1 - (float)i / N, i % 31 - 16);
        narrow[i] = shunti_f32_to_bf16(out[i]);
    }
    o.epilogue = (struct shunt_epilogue){1, 0, NULL};
    cr_assert(shunti_epilogue_is_none(&o));
    o.epilogue = (struct shunt_epilogue){0.7f, 1.3f, bias};
    cr_assert(!shunti_epilogue_is_none(&o));
    float before[N];
    for (int i = 0; i < N; i++)
        before[i] = out[i];
    shunti_epilogue(&o, 0, 0, 1, N, sum, N);
    for (int i = 0; i < N; i++) {
        const float a = 0.7f * sum[i], b = 1.3f * before[i];
        const float ab = a + b, want = ab + bias[i];

        cr_assert_eq(shunti_f32_bits(out[i]), shunti_f32_bits(want), "%d", i);
    }
    o.at = narrow;
    o.dtype = SHUNT_BF16;
    uint16_t old[N];
    for (int i = 0; i < N; i++)
        old[i] = narrow[i];
    /* From column 3 on, as rows of one element. */
    o.ld = 1;
    shunti_epilogue(&o, 3, 0, N - 3, 1, sum, 1);
    for (int i = 0; i < N; i++) {
        const float a = i < 3 ? 0 : 0.7f * sum[i - 3];
        const float b = 1.3f * shunti_bf16_to_f32(old[i]);
        const float ab = a + b, want = ab + bias[0];

        cr_assert_eq(narrow[i], i < 3 ? old[i] : shunti_f32_to_bf16(want), "%d",
                     i);
    }
    /* The epilogue does not read `out` if beta is 0, and a zero keeps its
     * sign. */
    out[0] = NAN;
    sum[0] = -0.0f;
    o = (struct shunti_fused_out){.at = out,
                                  .rows = 1,
                                  .cols = 1,
                                  .ld = 1,
                                  .dtype = SHUNT_F32,
                                  .epilogue = {2, 0, NULL}};
    shunti_epilogue(&o, 0, 0, 1, 1, sum, 1);
    cr_assert_eq(shunti_f32_bits(out[0]), 0x80000000u);
}

/* A group of parts that are sent together ends at the end of a part. */
Test(fused_parts, together)
{
    for (int i = 0; i < LENGTHS; i++)
        for (size_t together = 1; together < 40; together += 3) {
            const struct shunti_cut cut =
                shunti_cut_panels(lengths[i], 2000, 1000, 2);
            const struct shunti_cut more = shunti_cut_together(&cut, together);

            is_whole(&more, lengths[i]);
            cr_assert(more.parts <= 1 || more.step == cut.step * together);
            cr_assert_eq(more.parts, (cut.parts + together - 1) / together);
        }
}

/* --- what is sent together -------------------------------------------------- */

static size_t together(struct shunt_comm *comm, size_t parts, size_t bytes)
{
    return shunti_parts_together(comm, SHUNTI_PURPOSE_ALLGATHER_GEMM, parts,
                                 bytes);
}

/* Give the communicator a state of its own, with SHUNT_FUSED=auto. */
static struct shunti_fused_state *give_state(struct shunt_comm *comm)
{
    static _Alignas(uint64_t) unsigned char memory[4096];

    cr_assert_leq(shunti_layers_bytes(), sizeof(memory));
    shunti_layers_attach(&comm->layers, memory);
    shunti_fused_state(comm)->setting = SHUNTI_FUSED_AUTO;
    return shunti_fused_state(comm);
}

/* A group of parts takes at least four latencies (0.2 ms), or all parts are one
 * group. */
Test(fused_parts, worthwhile)
{
    static struct shunt_comm comm = {
        .nranks = 2,
        .nodes = 2,
        .links = {.across = {.latency = 50e-6, .byte = 8e-9}, .crowd = 1},
    };
    const size_t mib = 1 << 20;
    struct shunti_fused_state *state = give_state(&comm);

    cr_assert(shunti_fused_streams(&comm) && !shunti_fused_waits(&comm));
    /* 16 parts take 4.2 ms, so each takes 0.26 ms */
    cr_assert_eq(together(&comm, 16, mib), 1);
    /* 16 parts take 0.52 ms, so each takes 0.033 ms; 0.2 ms are 6.1 parts */
    cr_assert_eq(together(&comm, 16, mib / 8), 7);
    /* 16 parts take 0.26 ms, which is less than two groups of 0.2 ms */
    cr_assert_eq(together(&comm, 16, mib / 16), 16);
    cr_assert_eq(together(&comm, 0, 0), 1);
    cr_assert_eq(together(&comm, 1, mib), 1);
    comm.links.crowd = 2;
    cr_assert_eq(together(&comm, 16, mib), 2);
    comm.links.across.byte = 0.8e-9; /* 10 Gbit/s */
    cr_assert(!shunti_fused_streams(&comm));
    state->setting = SHUNTI_FUSED_ALWAYS;
    cr_assert_eq(together(&comm, 16, 16), 1);
    state->setting = SHUNTI_FUSED_OFF;
    cr_assert_eq(together(&comm, 16, mib), 16);
    cr_assert(shunti_fused_waits(&comm));
    state->setting = SHUNTI_FUSED_AUTO;
    comm.nodes = 1;
    cr_assert_eq(together(&comm, 16, 16 * mib), 16);
    cr_assert_eq(shunti_parts_together(
                     &comm, SHUNTI_PURPOSE_GEMM_REDUCE_SCATTER, 16, 16 * mib),
                 1);
    cr_assert(shunti_fused_waits(&comm) && !shunti_fused_streams(&comm));
}

/* At 10 Gbit/s a group takes at least 32 latencies (0.32 ms). 16 parts take
 * 1.68 ms, so each takes 0.1 ms, and 0.32 ms are 3.05 parts. */
Test(fused_parts, pays_on_a_fast_link)
{
    static struct shunt_comm comm = {
        .nranks = 2,
        .nodes = 2,
        .links = {.across = {.latency = 10e-6, .byte = 0.8e-9}, .crowd = 1},
    };
    const size_t mib = 1 << 20;
    struct shunti_fused_state *state = give_state(&comm);

    cr_assert_eq(together(&comm, 16, 4 * mib), 4);
    /* 16 parts take 0.42 ms, which is less than two groups */
    cr_assert_eq(together(&comm, 16, mib), 16);
    /* A caller that waits may skip the agreement up to 1 MiB on any link; other
     * callers only for small calls. */
    cr_assert(shunti_fused_trusts(&comm, mib, false));
    cr_assert(!shunti_fused_trusts(&comm, mib + 1, true));
    comm.links.across.byte = 8e-9;
    cr_assert(!shunti_fused_trusts(&comm, mib, false));
    cr_assert(shunti_fused_trusts(&comm, mib / 64, false));
    cr_assert(shunti_fused_trusts(&comm, mib, true));
    state->setting = SHUNTI_FUSED_ALWAYS;
    cr_assert(!shunti_fused_trusts(&comm, 1, false));
}

Test(fused_parts, tiles_of_all_rows)
{
    cr_assert(shunti_tiles_together(1000000, 1));
    cr_assert(shunti_tiles_together(32, 2) && !shunti_tiles_together(33, 2));
}
