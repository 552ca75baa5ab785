// SPDX-License-Identifier: Apache-2.0
/* Checks which options exclude each other; see options_check.h. */
#include "perf/options/options_check.h"

void perf_options_check_run(const struct perf_options *o)
{
    if (o->json && o->csv && !o->json_file && !o->csv_file)
        perf_die(PERF_EXIT_USAGE, "--json and --csv cannot both go to stdout; "
                                  "name a file for one, as in --csv=FILE");
    if (o->births && !o->ranks)
        perf_die(PERF_EXIT_USAGE,
                 "--repeat-births: only what --ranks starts can be started "
                 "again");
    if (o->begin > o->end)
        perf_die(PERF_EXIT_USAGE, "-b is above -e");
    if (o->only_peer && o->peer == PERF_PEER_NONE && !o->link)
        perf_die(PERF_EXIT_USAGE, "--only-peer: no --peer is given");
}

void perf_options_check_op(const struct perf_options *o)
{
    if (perf_op_reduces(o->op) && o->dtype == SHUNT_FP8_E4M3)
        perf_die(PERF_EXIT_USAGE, "--dtype: fp8 is only moved, not reduced");
    if (perf_op_is_moe(o->op) && !perf_op_has_experts(o->op) &&
        o->dtype != SHUNT_BF16 && o->dtype != SHUNT_F32)
        perf_die(PERF_EXIT_USAGE, "--dtype: %s takes bf16 or f32",
                 perf_op_name(o->op));
    if (o->mem == PERF_MEM_DEVICE &&
        (!perf_op_is_moe(o->op) || perf_op_has_experts(o->op)))
        perf_die(PERF_EXIT_USAGE,
                 "--mem device: only dispatch, combine, moe and backward take "
                 "memory of a GPU");
    if (o->mem == PERF_MEM_DEVICE &&
        ((o->peer != PERF_PEER_NONE && o->peer != PERF_PEER_MEMCPY) || o->link))
        perf_die(PERF_EXIT_USAGE,
                 "--mem device is compared with copies by the GPU's driver: it "
                 "takes no --peer but memcpy");
    if (o->in_place &&
        (o->op == PERF_BARRIER || o->op == PERF_BROADCAST ||
         perf_op_is_moe(o->op) || perf_op_is_fused(o->op) ||
         perf_op_is_experts(o->op) || o->op == PERF_COPY || o->op == PERF_PUT))
        perf_die(PERF_EXIT_USAGE,
                 "--in-place does not apply to %s: leave it out",
                 perf_op_name(o->op));
    if ((o->op == PERF_DISPATCH || o->op == PERF_MOE) && !o->overlap &&
        o->batch > 1)
        perf_die(PERF_EXIT_USAGE,
                 "--batch: a sample of %s is one call, from making its plan to "
                 "releasing it; leave --batch out, or add --overlap",
                 perf_op_name(o->op));
    if ((perf_op_is_fused(o->op) || perf_op_has_experts(o->op)) &&
        o->dtype != SHUNT_F32)
        perf_die(PERF_EXIT_USAGE, "--dtype: %s takes f32", perf_op_name(o->op));
    if (perf_op_is_fused(o->op) &&
        (o->peer == PERF_PEER_MEMCPY || o->only_peer || o->link || o->overlap))
        perf_die(PERF_EXIT_USAGE,
                 "%s is compared with itself, unfused, and with --peer mpi: it "
                 "takes neither another peer, --only-peer nor --overlap",
                 perf_op_name(o->op));
    if (o->op == PERF_COPY && (o->peer != PERF_PEER_NONE || o->link ||
                               o->overlap || o->mem == PERF_MEM_WINDOW))
        perf_die(PERF_EXIT_USAGE,
                 "copy is compared with memcpy() in malloc memory: it takes "
                 "neither --peer, --overlap nor --mem window");
    if (o->op == PERF_PUT &&
        ((o->peer != PERF_PEER_NONE && o->peer != PERF_PEER_VERBS) || o->link ||
         o->overlap || o->only_peer))
        perf_die(PERF_EXIT_USAGE,
                 "put is compared with --peer verbs alone: it takes neither "
                 "another peer, --only-peer nor --overlap");
    if (o->op == PERF_PUT && o->begin == 0)
        perf_die(PERF_EXIT_USAGE, "-b: a put has bytes");
    if (perf_op_is_experts(o->op) &&
        (o->peer != PERF_PEER_NONE || o->link || o->overlap ||
         o->dtype != SHUNT_F32 || o->mem == PERF_MEM_WINDOW))
        perf_die(
            PERF_EXIT_USAGE,
            "%s is compared with a plain copy, of f32 in malloc memory: it "
            "takes neither --peer, --overlap, --dtype nor --mem window",
            perf_op_name(o->op));
    if (perf_op_is_experts(o->op) &&
        (!o->slots || !o->expert_bytes || o->expert_bytes % sizeof(float)))
        perf_die(PERF_EXIT_USAGE,
                 "%s: some experts travel (--slots), and each has bytes in a "
                 "multiple of 4 (--expert-bytes)",
                 perf_op_name(o->op));
    if (o->op != PERF_PUT && o->peer == PERF_PEER_VERBS)
        perf_die(PERF_EXIT_USAGE, "--peer verbs: only put is compared with it");
    if (perf_op_has_experts(o->op) &&
        (o->peer != PERF_PEER_NONE || o->link || o->overlap))
        perf_die(PERF_EXIT_USAGE,
                 "%s is compared with itself, %s: it takes neither --peer nor "
                 "--overlap",
                 perf_op_name(o->op),
                 o->op == PERF_MOE_LAYER   ? "waiting at once"
                 : o->op == PERF_MOE_PARTS ? "in one part"
                                           : "without balance");
    if (o->op == PERF_MOE_STEP && o->parts)
        perf_die(PERF_EXIT_USAGE, "--parts: moe-step has whole plans");
    if (o->op == PERF_MOE_STEP &&
        (o->wire == SHUNT_MOE_WIRE_FP8 || o->expert_bytes % sizeof(float)))
        perf_die(PERF_EXIT_USAGE,
                 "moe-step checks f32 values: it takes no --wire fp8, and "
                 "--expert-bytes in multiples of 4");
    if (o->op == PERF_MOE_PARTS && o->parts)
        perf_die(PERF_EXIT_USAGE,
                 "--parts: moe-parts measures 1, 2, 4, 8 and what is learned");
    if (o->op == PERF_MOE_LAYER && o->parts > 1 && o->micro_batches > 1)
        perf_die(PERF_EXIT_USAGE,
                 "--parts: only with --micro-batches 1; each of two computes "
                 "while the other's rows travel");
    if (o->op == PERF_MOE_LAYER && o->parts > PERF_MAX_LAYER_PARTS)
        perf_die(PERF_EXIT_USAGE, "--parts: moe-layer takes at most %d",
                 PERF_MAX_LAYER_PARTS);
    if (perf_op_has_experts(o->op) && o->mem != PERF_MEM_WINDOW)
        perf_die(PERF_EXIT_USAGE,
                 "--mem: %s computes in the plan's own buffers",
                 perf_op_name(o->op));
    if (perf_op_is_moe(o->op) && o->skew == PERF_SKEW_W4 &&
        o->peer != PERF_PEER_NONE)
        perf_die(PERF_EXIT_USAGE,
                 "--workload W4: some tokens have no expert, which only Shunt "
                 "takes; leave out --peer");
    if (perf_op_is_moe(o->op) && o->topk > o->experts)
        perf_die(PERF_EXIT_USAGE, "--topk is larger than --experts");
}
