// SPDX-License-Identifier: Apache-2.0
/*
 * Logging: warnings, unless SHUNT_LOG asks for more or less.
 *
 * SHUNT_LOG is a level (off, error, warn, info, debug), and may set other
 * levels for some subsystems: "info,shm=debug,bootstrap=off". Lines are written
 * to stderr, or to SHUNT_LOG_FILE, where %r stands for the rank and %p for the
 * process id. The library checks stderr when it is loaded, and later. Once it
 * finds stderr closed, it writes nothing there any more, because descriptor 2
 * may be another file. Each line is one write(2), so that lines of several
 * ranks do not mix. errno is preserved. A message that is not wanted costs one
 * load and a branch.
 *
 * Levels:
 *   error  something failed, and no caller gets the error
 *   warn   the library continues, but not as it was asked to; if that concerns
 *          the whole job, one rank logs it: shunti_launch_speaks()
 *   info   decisions, and which part made them (a few lines for each
 *          communicator); each refused unauthenticated peer; errors that a
 *          caller also gets, and may ignore
 *   debug  for developers of Shunt
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

/* The highest level that any subsystem wants. Above all levels until the first
 * message has read SHUNT_LOG. */
extern atomic_int shunti_log_threshold;

/* Is a message wanted? Exact; for messages that are expensive to format. */
bool shunti_log_wanted(enum shunti_log_level level, const char *subsystem);

/* Use the macros below instead. */
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
 * Set the rank of this thread's messages; -1: none. The first rank that is set
 * stays. Communicators made later, for example by a split, number their ranks
 * differently. But the reader of a log knows the process by its first rank. The
 * first rank of the process is also in the name of the log file (%r), and is
 * used for threads that have set none.
 */
void shunti_log_set_rank(int rank);
/* The rank of this thread's messages; -1: none. */
int shunti_log_rank(void);

/*
 * Expand %r (rank; "x" if < 0), %p (process id) and %% in a path. False: it
 * does not fit.
 */
bool shunti_expand_path(const char *pattern, int rank, char *path,
                        unsigned long len);

/* Check whether stderr is closed. */
void shunti_log_look(void);

/* For tests: read SHUNT_LOG and SHUNT_LOG_FILE again. Not thread safe. */
void shunti_log_reset(void);

/* Is `text` a valid value of SHUNT_LOG? */
bool shunti_log_understood(const char *text);

#endif
