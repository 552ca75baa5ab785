// SPDX-License-Identifier: Apache-2.0
/*
 * Logging: warnings, unless SHUNT_LOG asks for more or less.
 *
 * SHUNT_LOG is a level (off, error, warn, info, debug), and may set others for
 * some subsystems: "info,shm=debug,bootstrap=off". Lines go to stderr, or to
 * SHUNT_LOG_FILE, where %r stands for the rank and %p for the process id; each
 * is one write(2), so that lines of several ranks do not mix. errno is
 * preserved. A message that is not wanted costs one load and a branch.
 *
 * Levels: error, something failed and no caller is told; warn, the library goes
 * on, but not as was asked for (what concerns the job, one rank says:
 * shunti_launch_speaks()); info, what was decided and by whom (a few lines in a
 * communicator's life), each refused stranger, and what callers get as an error
 * as well, and may drop; debug, for us.
 */
#ifndef SHUNTI_LOG_H
#define SHUNTI_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

enum shunti_log_level { /* numbers as in enum shunt_transport_log */
                        SHUNTI_LOG_OFF = 0,
                        SHUNTI_LOG_ERROR,
                        SHUNTI_LOG_WARN,
                        SHUNTI_LOG_INFO,
                        SHUNTI_LOG_DEBUG,
};

/* The highest level that any subsystem wants; above all until SHUNT_LOG has
 * been read, by the first message. */
extern atomic_int shunti_log_threshold;

/* Exact, for messages that are expensive to put together. */
bool shunti_log_wanted(enum shunti_log_level level, const char *subsystem);

/* Use the macros below. */
void shunti_log_write(enum shunti_log_level level, const char *subsystem,
                      const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* shunti_log(SHUNTI_LOG_INFO, "bootstrap", "rank %d joined", rank) */
#define shunti_log(level, subsystem, ...)                                      \
    do {                                                                       \
        if ((int)(level) <=                                                    \
            atomic_load_explicit(&shunti_log_threshold, memory_order_relaxed)) \
            shunti_log_write((level), (subsystem), __VA_ARGS__);               \
    } while (0)

#define shunti_error(subsystem, ...) \
    shunti_log(SHUNTI_LOG_ERROR, subsystem, __VA_ARGS__)
#define shunti_warn(subsystem, ...) \
    shunti_log(SHUNTI_LOG_WARN, subsystem, __VA_ARGS__)
#define shunti_info(subsystem, ...) \
    shunti_log(SHUNTI_LOG_INFO, subsystem, __VA_ARGS__)
#define shunti_debug(subsystem, ...) \
    shunti_log(SHUNTI_LOG_DEBUG, subsystem, __VA_ARGS__)

/*
 * Whose messages this thread's are; -1: no rank's. The first rank that is set
 * stays: communicators made later, by a split say, number their ranks
 * otherwise, but the reader of a log knows the process by its first. The first
 * rank of the process also names the log file (%r), and is taken for threads
 * that have set none.
 */
void shunti_log_set_rank(int rank);
/* The rank of this thread's messages, -1: none. */
int shunti_log_rank(void);

/*
 * Put a path together from one with %r (rank; "x" if < 0), %p (process id) and
 * %% in it. false: does not fit.
 */
bool shunti_expand_path(const char *pattern, int rank, char *path,
                        unsigned long len);

/* For tests: read SHUNT_LOG and SHUNT_LOG_FILE again. Not thread safe. */
void shunti_log_reset(void);

/* Is this a SHUNT_LOG? */
bool shunti_log_understood(const char *text);

#endif
