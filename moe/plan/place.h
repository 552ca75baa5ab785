// SPDX-License-Identifier: Apache-2.0
/*
 * A place for a plan: windows and handle entries that a plan uses. All ranks
 * choose the same place for a plan. A place keeps its windows when its plan is
 * destroyed, and when its exchange is destroyed (exchanges.h).
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
    /* The plan that was made in this place last, or memory for a first plan.
     * NULL: no exchange has the place. */
    struct shunti_plan *plan;
    uint32_t entry; /* entry of the plan's handle (handle.h) */
    size_t users;   /* number of unfinished requests */
    /* The four buffers, then a scratch for each. */
    struct shunti_window *window;
    size_t buffer_rows;   /* rows that a buffer holds; same on all ranks */
    size_t buffer_bytes;  /* bytes of buffer_rows; same on all ranks */
    size_t buffer_stride; /* buffer_bytes in whole pages of this host */
    /* For the scratch of each buffer: the parts for which requests use it
     * (shunti_cut_bits()), and their plan. Waves share a place, so the plan may
     * be any of them. */
    uint64_t borrowed[SHUNTI_BUFFERS];
    const struct shunti_plan *borrower[SHUNTI_BUFFERS];
    /* Windows in the memory of a device (device_window.h); NULL: never used. */
    struct shunti_device_windows *device_windows;
    struct shunti_rail_window {
        struct shunti_window *window;
        /* Sizes of the window's two areas, the same on all ranks. The first
         * area holds signals and never anything else (rails.h). The second area
         * holds rows and results. signals_used, used: bytes of each area that
         * the plan, or its waves so far, need. */
        size_t signals, bytes;
        size_t signals_used, used;
        size_t touched;     /* bytes of the second area that may have pages:
                               pages.h */
    } rail[SHUNTI_TOWARDS]; /* one window for each direction of a plan:
                               rails.h */
    /* For each buffer, then for each scratch: the number of bytes from its
     * start that may have pages (pages.h). */
    size_t touched[2 * SHUNTI_BUFFERS];
    unsigned idle;  /* number of plans made in other places since this place had
                       a plan */
    uint32_t *wave; /* (nwaves) entries of the handles of waves */
    size_t nwaves, wave_max;
};

#endif
