// SPDX-License-Identifier: Apache-2.0
/*
 * A rank of one of several jobs, which a launcher starts at the same time
 * (tests/src/launchers). SHUNT_TEST_JOB is a number, another one for each job.
 *
 *     rank_jobs SIZE   Exit status 0: the communicator has SIZE ranks, all of
 *                      this job. 3: the communicator has another size, or ranks
 *                      of another job, and no error was returned. 1: an error
 *                      was returned, which is printed.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <shunt/shunt.h>

#define RANKS_MAX 16

static int fail(const char *what, int status)
{
    fprintf(stderr, "%s: %s\n", what, shunt_last_error(NULL));
    return status;
}

int main(int argc, char **argv)
{
    const char *job = getenv("SHUNT_TEST_JOB");
    int64_t mine = job ? atoi(job) : 0, all[RANKS_MAX];
    int size = argc > 1 ? atoi(argv[1]) : 0;
    struct shunt_comm *comm;

    if (size < 1 || size > RANKS_MAX)
        return 2;
    if (shunt_comm_create_env(NULL, &comm))
        return fail("no communicator", 1);
    if (shunt_comm_size(comm) != size) {
        fprintf(stderr, "a world of %d ranks\n", shunt_comm_size(comm));
        return 3;
    }
    if (shunt_allgather(comm, &mine, all, 1, SHUNT_I64))
        return fail("no allgather", 1);
    for (int r = 0; r < size; r++)
        if (all[r] != mine) {
            fprintf(stderr, "rank %d is of job %ld, rank %d of job %ld\n",
                    shunt_comm_rank(comm), (long)mine, r, (long)all[r]);
            return 3;
        }
    if (shunt_comm_finish(comm))
        return fail("no finish", 1);
    shunt_comm_destroy(comm);
    return 0;
}
