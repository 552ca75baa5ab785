// SPDX-License-Identifier: Apache-2.0
/* Printing of choices and of the table of algorithms, for tools. */
#include <stdio.h>

#include "collectives/carry.h"
#include "collectives/forced.h"
#include "src/base/kind.h"
#include "src/comm.h"

static void print_link(FILE *out, const char *name,
                       const struct shunti_link *link)
{
    fprintf(
        out,
        "  %-16s latency %.1f us, each further message %.2f us, %.3g GB/s\n",
        name, link->latency * 1e6, link->gap * 1e6, 1e-9 / link->byte);
}

static void print_size(FILE *out, size_t bytes)
{
    if (bytes >= 1 << 20 && bytes % (1 << 20) == 0)
        fprintf(out, "%zum", bytes >> 20);
    else if (bytes >= 1 << 10 && bytes % (1 << 10) == 0)
        fprintf(out, "%zuk", bytes >> 10);
    else
        fprintf(out, "%zu", bytes);
}

/* The next size to look at: the first size of another range, or the next power
 * of two, because the cheapest row may change at any size. */
static size_t next_size(const struct shunti_chosen *chosen, size_t bytes)
{
    size_t power = 32;

    while (power <= bytes)
        power *= 2;
    return chosen->same.high < power - 1 ? chosen->same.high + 1 : power;
}

/* Print "flat up to 4k, two_level": the choice for sizes in ascending order. */
static void print_kind(FILE *out, const struct shunt_comm *comm, unsigned kind)
{
    const size_t end = shunti_kind_is_sized(kind) ? (size_t)256 << 20 : 0;
    struct shunti_chosen now = shunti_choose(comm, kind, 0), next;
    size_t last = 0; /* the last size for which `now` is known to be the
                        choice */

    fprintf(out, "  %-16s ", shunti_kind_name(kind));
    for (size_t bytes = next_size(&now, 0); bytes <= end;
         bytes = next_size(&next, bytes)) {
        next = shunti_choose(comm, kind, bytes);
        if (next.row != now.row) {
            fprintf(out, "%s up to ", now.row->name);
            print_size(out, now.same.high < bytes ? now.same.high : last);
            fprintf(out, ", ");
        }
        now = next;
        last = bytes;
    }
    fprintf(out, "%s\n", now.row->name);
}

static bool is_first_of_kind(size_t i)
{
    return i == 0 || shunti_row_at(i)->kind != shunti_row_at(i - 1)->kind;
}

void shunti_select_table(const struct shunt_comm *comm, FILE *out)
{
    shunti_forced_report(comm);
    if (comm->nodes > 1) {
        print_link(out, "inside a node", &comm->links.inside);
        print_link(out, "between nodes", &comm->links.across);
        fprintf(out, "  %-16s %.1f\n", "ranks per CPU", comm->links.crowd);
    }
    for (size_t i = 0; shunti_row_at(i); i++)
        if (is_first_of_kind(i))
            print_kind(out, comm, shunti_row_at(i)->kind);
    if (comm->nodes > 1) {
        fprintf(out, "  in alltoall, a relay forwards blocks of up to ");
        print_size(out, shunti_carry_limit(comm));
        fprintf(out, " (SHUNT_CARRY)\n");
    }
}

void shunti_select_names(FILE *out)
{
    const struct shunti_row *row;

    for (size_t i = 0; (row = shunti_row_at(i)); i++) {
        if (is_first_of_kind(i))
            fprintf(out, "%s  %-16s", i ? "\n" : "",
                    shunti_kind_name(row->kind));
        fprintf(out, "%s %s", is_first_of_kind(i) ? "" : ",", row->name);
        if (row->possible->words)
            fprintf(out, " (%s)", row->possible->words);
    }
    fprintf(out, "\n");
}
