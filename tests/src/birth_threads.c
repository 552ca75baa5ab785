// SPDX-License-Identifier: Apache-2.0
/*
 * Several inits at the same time in one process, for the thread sanitizer: root
 * threads, ranks, the log, and the loader of transports.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/host/topology.h"
#include "src/plugin/plugin.h"
#include "src/trace/trace.h"
#include "tests/src/birth.h"

#define BIRTHS 4
#define RANKS 4

static void *look_around(void *arg)
{
    struct shunti_place place;
    char why[512];
    uint64_t t = shunti_now_ns();

    shunti_trace_begin(*(int *)arg, RANKS);
    shunti_place_here(&place);
    shunti_transport_find("shm", why, sizeof(why));
    shunti_transport_find("none", why, sizeof(why));
    shunti_trace_span(*(int *)arg, "look around", t, shunti_now_ns(), NULL);
    shunti_trace_flush(*(int *)arg);
    return NULL;
}

int main(void)
{
    static struct birth_rank ranks[BIRTHS][RANKS];
    char folder[] = "/tmp/shunt-birth-XXXXXX", path[64];
    pthread_t lookers[RANKS];
    int numbers[RANKS], failed = 0;

    if (!mkdtemp(folder))
        return 2;
    snprintf(path, sizeof(path), "%s/trace.%%r", folder);
    setenv("SHUNT_TRACE", path, 1);
    snprintf(path, sizeof(path), "%s/log", folder);
    setenv("SHUNT_LOG_FILE", path, 1);
    setenv("SHUNT_LOG", "debug", 1);

    for (int b = 0; b < BIRTHS; b++) {
        struct shunt_id id;

        if (shunt_id_create(&id)) {
            printf("Bail out! %s\n", shunt_last_error(NULL));
            return 1;
        }
        for (int r = 0; r < RANKS; r++) {
            ranks[b][r] = (struct birth_rank){.id = id,
                                              .nranks = RANKS,
                                              .rank = r,
                                              .timeout = 60,
                                              .gathers = 3};
            birth_start(&ranks[b][r]);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        numbers[r] = r;
        pthread_create(&lookers[r], NULL, look_around, &numbers[r]);
    }
    printf("1..%d\n", BIRTHS * RANKS);
    for (int b = 0; b < BIRTHS; b++) {
        for (int r = 0; r < RANKS; r++) {
            struct birth_rank *rank = &ranks[b][r];
            bool ok;

            birth_join(rank);
            ok = !rank->status && rank->done == 3 &&
                 !memcmp(rank->key, ranks[b][0].key, sizeof(rank->key));
            printf("%sok %d - birth %d, rank %d %s\n", ok ? "" : "not ",
                   b * RANKS + r + 1, b, r, rank->text);
            failed += !ok;
        }
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(lookers[r], NULL);

    unlink(path);
    for (int r = 0; r < RANKS; r++) {
        snprintf(path, sizeof(path), "%s/trace.%d", folder, r);
        unlink(path);
    }
    rmdir(folder);
    return failed != 0;
}
