// SPDX-License-Identifier: Apache-2.0
/*
 * Undoes changes that UCX makes to the process that loads it.
 *
 * When loaded, UCX patches the beginnings of mmap(), munmap() and other
 * functions of libc, to notice memory that is unmapped. That is unsafe if other
 * threads run, as they do when this plugin is loaded, and breaks the leak
 * sanitizer. The patches are not needed before a registration cache asks for
 * them, and then UCX makes them anyway.
 *
 * UCX catches SIGSEGV and similar signals to print a backtrace. The program's
 * own reaction (a core file, a sanitizer's report) is better. UCX also catches
 * SIGHUP to stop for a debugger. A program that reloads its settings on SIGHUP
 * would stop instead. So the previous handlers are restored.
 *
 * UCX prints errors of connections, which this transport reports itself. While
 * a thread is inside of calls of this transport, UCX's messages are written to
 * the library's log.
 *
 * A change that the user's environment asks for is not undone. The functions
 * for signals and the log are in UCX's development headers, which some
 * installations lack. There, signals and the log are left unchanged.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transports/ucx/ucx.h"

/*
 * libucm calls ucm_mmap_init() when it is loaded. If libucm is loaded with this
 * plugin, the symbol is this function and not that of libucm. (If libucm was
 * loaded before, this function is never called.)
 */
extern void ucm_mmap_init(void);

__attribute__((visibility("default"))) void ucm_mmap_init(void)
{
    void *real = dlsym(RTLD_NEXT, "ucm_mmap_init");
    void (*init)(void);

    if (!real ||
        (!getenv("UCX_MEM_EVENTS") && !getenv("UCX_MEM_MMAP_HOOK_MODE")))
        return;
    memcpy(&init, &real, sizeof(init));
    init();
}

/*
 * UCX has a thread. A child of fork() does not have the thread, and no function
 * starts it again. So a new context of the child would wait for the thread
 * until a timeout.
 */
static atomic_uint users;     /* number of contexts that exist */
static atomic_bool abandoned; /* contexts existed in a parent of this process */

static void forked(void)
{
    if (atomic_load(&users))
        atomic_store(&abandoned, true);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forked);
}

bool ucx_user_add(char *why, size_t why_len)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    if (atomic_load(&abandoned)) {
        snprintf(
            why, why_len,
            "UCX was in use when fork() made this process, and its thread "
            "is not here: use another transport (SHUNT_TRANSPORTS=shm,tcp), "
            "or make the communicator in a program that is started by "
            "exec()");
        return false;
    }
    atomic_fetch_add(&users, 1);
    return true;
}

void ucx_user_remove(void)
{
    atomic_fetch_sub(&users, 1);
}

#if __has_include(<ucs/debug/debug.h>) && __has_include(<ucs/debug/log_def.h>)

#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

/* Key of the context whose call a thread is in. A thread-local variable would
 * make gcc 12's leak sanitizer crash, because this library is loaded late. */
static pthread_key_t inside;
static bool quiet;

struct shunt_transport_ctx *ucx_enter(struct shunt_transport_ctx *ctx)
{
    struct shunt_transport_ctx *outer;

    if (!quiet)
        return NULL;
    outer = pthread_getspecific(inside);
    pthread_setspecific(inside, ctx);
    return outer;
}

void ucx_leave(struct shunt_transport_ctx *outer)
{
    if (quiet)
        pthread_setspecific(inside, outer);
}

__attribute__((format(printf, 6, 0))) static ucs_log_func_rc_t
to_our_log(const char *file, unsigned line, const char *function,
           ucs_log_level_t level, const ucs_log_component_config_t *component,
           const char *format, va_list args)
{
    const struct shunt_transport_ctx *ctx = pthread_getspecific(inside);
    const struct shunt_transport_host *host = ctx ? ctx->host : NULL;
    va_list copy;
    char text[512];

    (void)file;
    (void)line;
    (void)function;
    (void)component;
    if (!host || !host->log || level == UCS_LOG_LEVEL_FATAL ||
        level > UCS_LOG_LEVEL_WARN)
        return UCS_LOG_FUNC_RC_CONTINUE;
    va_copy(copy, args);
    vsnprintf(text, sizeof(text), format, copy);
    va_end(copy);
    host->log(SHUNT_TRANSPORT_INFO, "ucx", "UCX: %s", text);
    return UCS_LOG_FUNC_RC_STOP;
}

static void take_log(void)
{
    if (getenv("UCX_LOG_LEVEL") || pthread_key_create(&inside, NULL))
        return;
    quiet = true;
    ucs_log_push_handler(to_our_log);
}

void ucx_be_quiet(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, take_log);
}

/* Is the handler of this signal a function of UCX? */
static bool caught_by_ucx(int number)
{
    struct sigaction action;
    Dl_info info;
    void *code;

    if (sigaction(number, NULL, &action))
        return false;
    memcpy(&code, &action.sa_sigaction, sizeof(code));
    return dladdr(code, &info) && info.dli_fname &&
           strstr(info.dli_fname, "libucs");
}

/* Runs when this plugin, and perhaps UCX with it, is loaded. */
__attribute__((constructor)) static void give_signals_back(void)
{
    bool errors = getenv("UCX_HANDLE_ERRORS") || getenv("UCX_ERROR_SIGNALS");
    bool debug = getenv("UCX_DEBUG_SIGNO");

    for (int s = 1; s < NSIG; s++) {
        bool is_error =
            s == SIGILL || s == SIGSEGV || s == SIGBUS || s == SIGFPE;

        if (!(is_error ? errors : debug) && caught_by_ucx(s))
            ucs_debug_disable_signal(s);
    }
}

#else

struct shunt_transport_ctx *ucx_enter(struct shunt_transport_ctx *ctx)
{
    return ctx;
}

void ucx_leave(struct shunt_transport_ctx *outer)
{
    (void)outer;
}

void ucx_be_quiet(void)
{
}

#endif
