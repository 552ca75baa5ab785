// SPDX-License-Identifier: Apache-2.0
/*
 * Kinds of calls: the numbers by which ranks compare which call each of them
 * makes.
 *
 * The number of a kind is sent in every note, so it must be the same in every
 * process of a job: all numbers are in the list below, and none is written by
 * hand. The file that implements a call registers its kind.
 */
#ifndef SHUNTI_KIND_H
#define SHUNTI_KIND_H

#include <stdbool.h>
#include <stdint.h>

struct shunt_request;
struct shunti_blame;

/* All kinds. A new one is added at the end. */
enum shunti_kind_number {
    SHUNTI_KIND_NONE,
    /* collectives/ */
    SHUNTI_KIND_BARRIER,
    SHUNTI_KIND_BROADCAST,
    SHUNTI_KIND_ALLGATHER,
    SHUNTI_KIND_ALLGATHERV,
    SHUNTI_KIND_REDUCE_SCATTER,
    SHUNTI_KIND_REDUCE_SCATTERV,
    SHUNTI_KIND_ALLREDUCE,
    SHUNTI_KIND_ALLTOALL,
    SHUNTI_KIND_ALLTOALLV,
    /* Agreements: src/progress/agree.h. */
    SHUNTI_KIND_MEM_ALLOC,
    SHUNTI_KIND_MEM_FREE,
    SHUNTI_KIND_CREATE,
    SHUNTI_KIND_FINISH,
    /* moe/ */
    SHUNTI_KIND_MOE_DISPATCH,
    SHUNTI_KIND_MOE_COMBINE,
    SHUNTI_KIND_MOE_COMBINE_BACKWARD,
    SHUNTI_KIND_MOE_DISPATCH_BACKWARD,
    SHUNTI_KIND_MOE_REFRESH,
    SHUNTI_KIND_MOE_REDUCE,
    SHUNTI_KIND_MOE_MOVE,
    SHUNTI_KIND_MOE_GRADIENTS,

    SHUNTI_KINDS,
    /* kinds below this number may have several algorithms */
    SHUNTI_KINDS_CHOSEN = SHUNTI_KIND_ALLTOALLV + 1
};

_Static_assert(SHUNTI_KINDS <= 256, "a signature has 8 bits for the kind");

/* All purposes. A purpose is a call that consists of calls of other kinds. */
enum shunti_purpose {
    SHUNTI_PURPOSE_ITSELF, /* the operation is not a part of another call */
    SHUNTI_PURPOSE_MOE_CREATE,
    SHUNTI_PURPOSE_MOE_SET_PLACEMENT,
    SHUNTI_PURPOSE_MOE_PLAN_CREATE,
    SHUNTI_PURPOSE_MOE_DISPATCH,
    SHUNTI_PURPOSE_MOE_COMBINE,
    SHUNTI_PURPOSE_MOE_COMBINE_BACKWARD,
    SHUNTI_PURPOSE_MOE_DISPATCH_BACKWARD,
    SHUNTI_PURPOSE_GEMM_REDUCE_SCATTER,
    SHUNTI_PURPOSE_ALLGATHER_GEMM,

    SHUNTI_PURPOSES
};

/* The meaning of the low 16 bits of a signature, without SHUNTI_TWO_LEVEL. */
enum shunti_detail {
    SHUNTI_DETAIL_PURPOSE = 0, /* the purpose: the call that this one is a part
                                  of, or 0 */
    SHUNTI_DETAIL_ROOT,
    SHUNTI_DETAIL_ALGORITHM,
    SHUNTI_DETAIL_NONE,
};

struct shunti_kind {
    uint8_t number;   /* enum shunti_kind_number */
    const char *name; /* "alltoallv": for errors and traces */
    enum shunti_detail detail;
    bool typed;  /* the call's elements have a type, which traces show */
    bool counts; /* the call's argument (note.h) is a digest of counts */
    /* the count of elements decides whether the call takes two levels */
    bool split_by_count;
    /* Record the error of a call whose signature agrees with that of this rank,
     * but whose argument does not. NULL: the argument is a number of bytes, or
     * a digest if `counts`. */
    void (*mismatch)(struct shunt_request *request,
                     const struct shunti_blame *blame);
};

/*
 * Register a kind. Called from a constructor, which runs before any
 * communicator exists:
 *
 *     __attribute__((constructor)) static void register_kind(void)
 */
void shunti_kind_register(const struct shunti_kind *kind);

/*
 * Purposes: calls that consist of calls of other kinds. The operations of such
 * a call carry its purpose in the low bits of their signature. So the text of a
 * disagreement or a timeout names the call that the user made. The number 0
 * stands for no purpose.
 */
void shunti_purpose_register(unsigned number, const char *name);

/* The signature of a call, in 32 bits, which each note carries: kind, dtype,
 * reduction, detail. If signatures differ, the error text names the part that
 * differs. */
#define SHUNTI_SIGNATURE(kind, dtype, op, root)                                \
    ((uint32_t)(kind) << 24 | (uint32_t)(dtype) << 20 | (uint32_t)(op) << 16 | \
     ((uint32_t)(root)&0xffff))

/* A bit of a signature, next to the detail: the call is made in two levels
 * (collectives/two_level.h). */
#define SHUNTI_TWO_LEVEL 0x8000u

/* The kind of a signature. If it is not registered, a kind named "something
 * else". */
const struct shunti_kind *shunti_kind_of(uint32_t signature);

/* The name of a kind, such as "alltoallv". "something else" for an unknown
 * kind. */
const char *shunti_kind_name(unsigned kind);

/* The purpose of a signature; 0: none. */
unsigned shunti_purpose_of(uint32_t signature);

/* The name of a signature's purpose, such as "moe_plan_create". NULL: the
 * operation is not a part of another call. */
const char *shunti_purpose_name(uint32_t signature);

#endif
