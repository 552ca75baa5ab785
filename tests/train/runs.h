// SPDX-License-Identifier: Apache-2.0
/* Runs of shunt-train in a folder of the test, for the suite train_run. */
#ifndef TEST_TRAIN_RUNS_H
#define TEST_TRAIN_RUNS_H

#include "tests/harness/harness.h"

/* The folder of the test, shunt-train, and two texts. */
extern char folder[64], program[512], text1[512], text2[512];

/* A path in the folder of the test. It is valid until the eighth next call. */
char *in_folder(const char *name);

/* A job with a small model, and these further arguments. */
struct harness_job job(int ranks, const char *const *more);
#define JOB(ranks, ...) job(ranks, (const char *const[]){__VA_ARGS__, NULL})

/* Runs a job, which must succeed. */
void run(struct harness_job j);

bool contains(const char *text, const char *what);

/* Returns the content of a file. The caller frees it. */
char *read_all(const char *path);

/* Reads the losses of each step from a log. Returns their number. */
size_t losses(const char *path, double *loss, double *val, size_t most);

/* Two logs must have the same losses, of `steps` steps. */
void same_losses(const char *a, const char *b, size_t steps);

#endif
