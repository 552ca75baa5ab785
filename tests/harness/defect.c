// SPDX-License-Identifier: Apache-2.0
/*
 * A program with one mistake of each kind. It checks that the sanitizers find
 * mistakes. Only then does a run without findings mean something.
 */

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *volatile kept;
static volatile int shared; /* not atomic, so two threads race */

static void *increment(void *unused)
{
    (void)unused;
    for (int i = 0; i < 1000; i++)
        shared++;
    return NULL;
}

static int race(void)
{
    pthread_t threads[2];

    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, increment, NULL) != 0)
            return 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    volatile int number = INT_MAX;

    if (strcmp(what, "none") == 0)
        return 0;
    if (strcmp(what, "leak") == 0) {
        kept = malloc(1000);
        kept = NULL;
        return 0;
    }
    if (strcmp(what, "overflow") == 0) {
        volatile char *text = malloc(8);

        if (text)
            text[argc + 6] = 'x'; /* argc is 2: text[8], but the compiler does
                                   * not know that */
        free((void *)text);
        return 0;
    }
    if (strcmp(what, "undefined") == 0) {
        number++;
        return 0;
    }
    if (strcmp(what, "race") == 0)
        return race();
    fprintf(stderr, "usage: defect none|leak|overflow|undefined|race\n");
    return 2;
}
