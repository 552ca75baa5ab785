// SPDX-License-Identifier: Apache-2.0
/* Rails that fail at random moments; see outages.h. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/verbs/now.h"
#include "tests/verbs/outages.h"

/* A failed rail must be back within this time, in seconds. */
#define BACK_S 5.0

/* Indexes of the board's flags: the number of outages so far, and the number of
 * rails of rank 0 (and of rank 1, behind it). */
enum { DONE, RAILS_OF_0 };

uint64_t outages_counter(struct rank *r, const char *name)
{
    struct shunt_transport_counter all[20];
    const size_t count = r->t->counters(r->ctx, all, 20);

    for (size_t i = 0; i < count && i < 20; i++)
        if (!strcmp(all[i].name, name))
            return all[i].value;
    FAIL(r, "there is no counter %s", name);
}

/* The command of rdma-vm that disconnects a device, or NULL outside of
 * rdma-vm. */
static const char *nics_command(void)
{
    return getenv("SHUNT_TEST_NICS");
}

static void do_by_nics(struct rank *r, int device, const char *what)
{
    char command[512];

    snprintf(command, sizeof(command), "%s %s rxe%d%d", nics_command(), what,
             r->rank, device);
    if (system(command))
        FAIL(r, "%s", command);
}

/* Returns a function of the stand-in, which stays loaded. */
static void *verbs_function(struct rank *r, const char *name)
{
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *function = library ? dlsym(library, name) : NULL;

    if (!function)
        FAIL(r, "libibverbs is not the stand-in");
    dlclose(library);
    return function;
}

void outages_do(struct rank *r, int device, const char *what)
{
    int (*verbs)(int, const char *);

    if (nics_command()) {
        do_by_nics(r, device, what);
        return;
    }
    *(void **)&verbs = verbs_function(r, "verbs_do");
    if (verbs(device, what))
        FAIL(r, "%s: there is no device %d", what, device);
}

bool outages_plug_in(struct rank *r, int device)
{
    int (*verbs)(int, const char *);

    *(void **)&verbs = verbs_function(r, "verbs_do");
    return !verbs(device, "up");
}

void outages_await_loss(struct rank *r)
{
    const double step = 0.02;
    double counted = 0, before = world_now();
    unsigned tries = 0;

    while (r->t->alive(r->eps[!r->rank])) {
        double now;

        world_relax_more(r, &tries);
        now = world_now();
        counted += now - before < step ? now - before : step;
        before = now;
        CHECK(r, counted < 1, "not lost in a second");
    }
}

int outages_queue_pairs(struct rank *r)
{
    int (*verbs)(void);

    *(void **)&verbs = verbs_function(r, "verbs_count");
    return verbs();
}

static const char *kind_of(uint64_t random, int rails)
{
    if (nics_command())
        return "down";
    /* "lossy" lasts until the NIC gives up. With one rail, the rank that must
     * end it may wait in a put. */
    if (random >= 95 && rails > 1)
        return "lossy";
    if (random >= 75)
        return "gid";
    /* A short "down" does not lose the last rail. */
    return random >= 45 && rails > 1 ? "down" : "qp";
}

/* Does this rank cause the failure? */
static bool is_ours(const struct rank *r, int done)
{
    return (int)((unsigned)done * 2654435761u >> 16 & 1) == r->rank;
}

static void begin(struct rank *r, struct outages *o)
{
    const char *kind = kind_of(world_random(r) % 100, o->rails);

    o->device = (int)(world_random(r) % (uint64_t)o->rails);
    o->lost = outages_counter(r, "rails lost");
    o->since = world_now();
    o->over = 0;
    outages_do(r, o->device, kind);
    if (strcmp(kind, "down") != 0 && strcmp(kind, "lossy") != 0)
        o->over = o->since;
}

/* Follow an outage that this rank has caused, until all rails are back. */
static void follow(struct rank *r, struct outages *o, bool all_back)
{
    const double now = world_now();
    const bool seen = outages_counter(r, "rails lost") > o->lost;

    CHECK(r, seen || now < o->since + BACK_S, "device %d: nobody noticed",
          o->device);
    if (!o->over && seen && world_random(r) % 16 == 0) {
        outages_do(r, o->device, "up");
        o->over = world_now();
    }
    if (!o->over || !seen)
        return;
    CHECK(r, now < o->over + BACK_S, "device %d: not used again", o->device);
    if (!all_back)
        return;
    if (now - o->over > o->longest)
        o->longest = now - o->over;
    o->device = -1;
    atomic_fetch_add(&r->board->flags[DONE], 1);
}

bool outages_step(struct rank *r, struct outages *o)
{
    atomic_int *flags = r->board->flags;
    const int rails = (int)outages_counter(r, "rails");
    const int done = atomic_load(&flags[DONE]);
    bool all_back;

    atomic_store(&flags[RAILS_OF_0 + r->rank], rails);
    if (!o->rails) {
        o->rails = rails;
        o->device = -1;
    }
    all_back = rails == o->rails &&
               atomic_load(&flags[RAILS_OF_0 + 1 - r->rank]) == rails;
    if (o->device >= 0) {
        follow(r, o, all_back);
        return false;
    }
    if (done >= o->wanted)
        return all_back;
    if (!is_ours(r, done) || !all_back)
        return false;
    if (o->before-- > 0)
        return false;
    o->before = (int)(world_random(r) % 300);
    begin(r, o);
    return false;
}
