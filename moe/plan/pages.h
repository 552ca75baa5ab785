// SPDX-License-Identifier: Apache-2.0
/*
 * Pages of the windows of plans. A window is address space. Each of its pages
 * exists once a rank has written to the page. Pages stay for the next plan in
 * the place, because new pages would cost more than copying the plan's rows.
 * Pages that the next plan does not need are returned to the kernel, so memory
 * for a burst of rows is not held for ever.
 */
#ifndef SHUNTI_PAGES_H
#define SHUNTI_PAGES_H

#include <stddef.h>

#include <shunt/moe.h>

struct shunt_moe;
struct shunti_place;
struct shunti_plan;

/* Record that the plan's rows may be written to this buffer, or to its
 * scratch. */
void shunti_pages_use(const struct shunti_plan *plan,
                      enum shunt_moe_buffer which);
void shunti_pages_use_scratch(const struct shunti_plan *plan,
                              enum shunt_moe_buffer which);

/* Release the pages of the plan's place that the plan does not need, and the
 * pages of places that have been idle for long. Called when the plan has been
 * made. */
void shunti_pages_fit(struct shunti_plan *plan);

/* forget: record that the place gets new windows, without pages. drop: release
 * all pages of the place. */
void shunti_pages_forget(struct shunti_place *at);
void shunti_pages_drop(const struct shunt_moe *moe, struct shunti_place *at);

#endif
