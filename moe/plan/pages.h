// SPDX-License-Identifier: Apache-2.0
/*
 * Pages of the windows of plans. A window is address space; pages of it are there
 * once somebody has written to them. They stay for the next plan in the place, for
 * which new ones would cost more than its rows' copies, but no more than that plan
 * needs: what a burst has left behind it is given back.
 */
#ifndef SHUNTI_PAGES_H
#define SHUNTI_PAGES_H

#include <stddef.h>

#include <shunt/moe.h>

struct shunt_moe;
struct shunti_place;
struct shunti_plan;

/* The plan's rows may be written to in this buffer, or in the scratch for it. */
void shunti_pages_use(const struct shunti_plan *plan,
                      enum shunt_moe_buffer which);
void shunti_pages_use_scratch(const struct shunti_plan *plan,
                              enum shunt_moe_buffer which);

/* The plan has been made: what it does not need of its place is given back, and
 * what places have that were idle for long. */
void shunti_pages_fit(struct shunti_plan *plan);

/* A place has new windows, or gives back all its pages. */
void shunti_pages_forget(struct shunti_place *at);
void shunti_pages_drop(const struct shunt_moe *moe, struct shunti_place *at);

#endif
