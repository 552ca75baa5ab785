// SPDX-License-Identifier: Apache-2.0
/*
 * Kinds of calls: the numbers by which ranks compare which call each of them
 * makes.
 *
 * A kind belongs to the file that implements the call, which registers it; the
 * core has no list of kinds. Its number is sent in every note. So it must be
 * the same in every process of a job, and is never used for another kind.
 */
#ifndef SHUNTI_KIND_H
#define SHUNTI_KIND_H

#include <stdbool.h>
#include <stdint.h>

struct shunt_request;
struct shunti_blame;

/* The meaning of the low 16 bits of a signature, without SHUNTI_TWO_LEVEL. */
enum shunti_detail {
    SHUNTI_DETAIL_PURPOSE = 0, /* the call that this one is a part of, or 0 */
    SHUNTI_DETAIL_ROOT,
    SHUNTI_DETAIL_ALGORITHM,
    SHUNTI_DETAIL_NONE,
};

struct shunti_kind {
    uint8_t number;   /* 1 .. 255 */
    const char *name; /* "alltoallv": for errors and traces */
    enum shunti_detail detail;
    bool typed;  /* the call's elements have a type, which traces show */
    bool counts; /* the call's argument (note.h) is a digest of counts */
    /* the count decides whether the call takes two levels */
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
 * Purposes: calls that are made of calls of other kinds. Operations that are
 * created while comm->above.purpose is set carry it in the low bits of their
 * signature. So the text of a disagreement or a timeout names the call that the
 * user made. 0: none.
 */
void shunti_purpose_register(unsigned number, const char *name);

/* The signature of a call, in 32 bits, which each note carries: kind, dtype,
 * reduction, detail. If signatures disagree, the error text names the part that
 * does. */
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
