// SPDX-License-Identifier: Apache-2.0
/*
 * A place for a plan: windows, and entries for handles. All ranks choose the
 * same place for a plan. A place keeps its windows when its plan is destroyed,
 * and when its exchange is destroyed (exchanges.h).
 */
#ifndef SHUNTI_PLACE_H
#define SHUNTI_PLACE_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/moe.h>

#include "moe/plan/direction.h"
#include "src/wire/window.h"

#define SHUNTI_BUFFERS 4 /* enum shunt_moe_buffer */

struct shunti_device_windows;
struct shunti_plan;

struct shunti_place {
    /* The plan that was made here last, or memory for the first one. NULL: no
     * exchange has the place. */
    struct shunti_plan *plan;
    uint32_t entry; /* of its plan's handle */
    size_t users;   /* unfinished requests */
    /* The four buffers, then a scratch for each. */
    struct shunti_window *window;
    size_t buffer_rows;   /* capacity of a buffer; same on all ranks */
    size_t buffer_bytes;  /* of these rows; same on all ranks */
    size_t buffer_stride; /* buffer_bytes in whole pages of this host */
    /* For the scratch of each buffer: the parts of a plan that requests use it
     * for (shunti_cut_bits()), and that plan, since waves share a place. */
    uint64_t borrowed[SHUNTI_BUFFERS];
    const struct shunti_plan *borrower[SHUNTI_BUFFERS];
    /* Windows in the memory of a device (device_window.h); NULL: never used. */
    struct shunti_device_windows *device_windows;
    struct shunti_rail_window {
        struct shunti_window *window;
        /* Sizes of its two areas, the same on all ranks. The first area holds
         * signals and never anything else (rails.h). Rows and results are in
         * the second. `_used`: what the plan, or its waves so far, need. */
        size_t signals, bytes;
        size_t signals_used, used;
        size_t touched;     /* bytes of the second area that may have pages:
                               pages.h */
    } rail[SHUNTI_TOWARDS]; /* by the direction that it was made for: rails.h */
    /* Bytes of each buffer, then of each scratch, that may have pages. */
    size_t touched[2 * SHUNTI_BUFFERS];
    unsigned idle;  /* plans made in other places since this one had a plan */
    uint32_t *wave; /* (nwaves) entries of the handles of waves */
    size_t nwaves, wave_max;
};

#endif
