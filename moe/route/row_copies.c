// SPDX-License-Identifier: Apache-2.0
/* Tokens' rows by the copy engine; see row_copies.h. */
#include "moe/route/row_copies.h"

#include <stdlib.h>
#include <string.h>

#include "src/op/engine.h"
#include "src/op/request.h"

/* Bytes of tokens in a part. A cache holds them while their rows are written to
 * this rank and to others. */
#define PART ((size_t)512 << 10)
/* Most blocks of a call. A queue of the engine should hold all of them, because
 * later no thread may be in the library to submit the rest. */
#define MOST ((size_t)512)

enum state {
    FRESH,
    STARTED,
    DONE,
};

struct block {
    struct shunti_copy copy;
    struct shunti_copy_rows rows;
    int rank;
    enum state state;
};

struct place {
    unsigned char *rows; /* the rank's row buffer; NULL: not ready */
    size_t left;         /* number of blocks that are not done */
    size_t begin, end;   /* range of the lists that its next block has so far */
};

struct shunti_row_copies {
    const struct shunti_plan *plan;
    const unsigned char *src;
    size_t from, to;       /* tokens from <= t < to */
    uint32_t *token, *row; /* lists by rank: token[i] goes to row[i] */
    struct block *blocks;  /* (count) by part, then by rank */
    size_t count;
    size_t open;         /* all blocks before this one are done */
    struct place *place; /* (nranks) */
};

/* --- making the copies ---------------------------------------------------- */

/* Find where the list of each rank begins. Returns the number of all rows. */
static size_t lay_out(struct shunti_row_copies *c,
                      const struct shunti_handshake_notes *notes, size_t *ranks)
{
    const struct shunti_plan *plan = c->plan;
    size_t all = 0;

    for (size_t i = plan->first[c->from]; i < plan->first[c->to]; i++)
        c->place[plan->terms[i].rank].end++;
    *ranks = 0;
    for (int r = 0; r < plan->moe->nranks; r++) {
        const size_t rows = notes[r].direct ? c->place[r].end : 0;

        c->place[r].begin = c->place[r].end = all;
        all += rows;
        *ranks += rows != 0;
    }
    return all;
}

/* For each rank, make a block of the entries that were listed since the last
 * call. */
static void cut(struct shunti_row_copies *c, size_t whole)
{
    for (int r = 0; r < c->plan->moe->nranks; r++) {
        struct place *p = &c->place[r];

        if (p->begin == p->end)
            continue;
        c->blocks[c->count++] = (struct block){
            .rows = {p->end - p->begin, c->token + p->begin, c->row + p->begin,
                     c->plan->moe->row_bytes, whole},
            .rank = r,
        };
        p->begin = p->end;
        p->left++;
    }
}

static void list(struct shunti_row_copies *c,
                 const struct shunti_handshake_notes *notes, size_t part,
                 size_t whole)
{
    const struct shunti_plan *plan = c->plan;

    for (size_t t = c->from; t < c->to; t++) {
        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++) {
            const struct shunti_term *term = &plan->terms[i];
            size_t at;

            if (!notes[term->rank].direct)
                continue;
            at = c->place[term->rank].end++;
            c->token[at] = (uint32_t)t;
            c->row[at] = term->row;
        }
        if ((t + 1 - c->from) % part == 0)
            cut(c, whole);
    }
    cut(c, whole);
}

static bool make(struct shunti_row_copies *c,
                 const struct shunti_handshake_notes *notes, size_t rows,
                 size_t ranks)
{
    const size_t bytes = c->plan->moe->row_bytes, tokens = c->to - c->from;
    size_t parts = tokens * bytes / PART + 1, part;

    if (parts > MOST / ranks)
        parts = MOST / ranks + 1;
    part = tokens / parts + 1;
    c->token = malloc(2 * rows * sizeof(*c->token));
    c->blocks = malloc((parts + 1) * ranks * sizeof(*c->blocks));
    if (!c->token || !c->blocks)
        return false;
    c->row = c->token + rows;
    list(c, notes, part, rows * bytes);
    return true;
}

struct shunti_row_copies *shunti_row_copies_create(
    struct shunt_request *request, const struct shunti_plan *plan, size_t from,
    size_t to, const struct shunti_handshake_notes *notes, const void *src)
{
    struct shunti_row_copies *c;
    size_t rows, ranks;

    if (!shunti_copy_scatters(request))
        return NULL;
    c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->plan = plan;
    c->src = src;
    c->from = from;
    c->to = to;
    c->place = calloc((size_t)plan->moe->nranks, sizeof(*c->place));
    rows = c->place ? lay_out(c, notes, &ranks) : 0;
    if (rows && shunti_copy_suits(request, rows * plan->moe->row_bytes) &&
        make(c, notes, rows, ranks))
        return c;
    shunti_row_copies_destroy(c);
    return NULL;
}

void shunti_row_copies_destroy(struct shunti_row_copies *c)
{
    if (!c)
        return;
    free(c->token);
    free(c->blocks);
    free(c->place);
    free(c);
}

/* --- moving the rows ------------------------------------------------------ */

void shunti_row_copies_ready(struct shunti_row_copies *c, int rank,
                             unsigned char *rows)
{
    c->place[rank].rows = rows;
}

void shunti_row_copies_drop(struct shunti_row_copies *c, int rank)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->blocks[i].rank == rank)
            c->blocks[i].state = DONE;
    c->place[rank].left = 0;
}

bool shunti_row_copies_done(const struct shunti_row_copies *c, int rank)
{
    return !c->place[rank].left;
}

static void end(struct shunti_row_copies *c, struct block *b)
{
    b->state = DONE;
    c->place[b->rank].left--;
}

/* Begin a block. False: the engine has no room now. *here: in/out; this thread
 * adds the bytes that it has copied itself. */
static bool begin(struct shunt_request *request, struct shunti_row_copies *c,
                  struct block *b, size_t *here)
{
    const size_t bytes = c->plan->moe->row_bytes;
    unsigned char *to = c->place[b->rank].rows;

    switch (shunti_copy_rows_start(request, &b->copy, to, c->src, bytes,
                                   &b->rows)) {
    case SHUNT_OK:
        b->state = STARTED;
        return true;
    case SHUNT_IN_PROGRESS:
        return false;
    default:
        shunti_copy_rows_here(to, c->src, bytes, &b->rows);
        *here += b->rows.rows * bytes;
        end(c, b);
        return true;
    }
}

/* The caller waits: copy one of the last blocks here, if the engine has not
 * begun it. Returns its bytes. */
static size_t take_back(struct shunt_request *request,
                        struct shunti_row_copies *c)
{
    for (size_t i = c->count; i-- > c->open;) {
        struct block *b = &c->blocks[i];

        if (b->state != STARTED)
            continue;
        if (!shunti_copy_take_back(request, &b->copy))
            return 0; /* the engine has also begun all earlier blocks */
        end(c, b);
        return b->rows.rows * c->plan->moe->row_bytes;
    }
    return 0;
}

size_t shunti_row_copies_step(struct shunt_request *request,
                              struct shunti_row_copies *c)
{
    size_t here = 0;
    bool room = true;

    for (size_t i = c->open; i < c->count; i++) {
        struct block *b = &c->blocks[i];

        if (b->state == STARTED && shunti_copy_test(request, &b->copy))
            end(c, b);
        if (b->state == FRESH && room && c->place[b->rank].rows)
            room = begin(request, c, b, &here);
        if (b->state == DONE && i == c->open)
            c->open++;
    }
    return here ? here : take_back(request, c);
}
