// SPDX-License-Identifier: Apache-2.0
/*
 * UCX as a guest in somebody's process: what it does beside communicating, and
 * we do not want it to do unasked.
 *
 * Loaded, it rewrites the beginnings of mmap(), munmap() and others of libc, to
 * hear of memory that goes away; that is unsafe when other threads run, as they
 * do when we are loaded, breaks the leak sanitizer, and is of no use before a
 * cache of registrations asks for it, upon which UCX does it anyhow.
 *
 * It catches SIGSEGV and its like to print a backtrace; the program's own way
 * to crash (a core file, a sanitizer's report) is better. It takes SIGHUP to
 * stop for a debugger; a program that reloads its settings on SIGHUP would stop
 * instead. Whatever handlers were there before are put back.
 *
 * It prints what goes wrong on a connection, which is for us to report: while a
 * thread is inside our calls, its messages go to the library's log.
 *
 * Where the user's environment asks for any of it, it stays as it is. Signals
 * and log are of UCX's development headers, which some installations lack.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transports/ucx/ucx.h"

/*
 * libucm calls this when it is loaded. Its symbols are looked up in us first,
 * as it comes with us (unless it was there before: then this is never called).
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

#if __has_include(<ucs/debug/debug.h>) && __has_include(<ucs/debug/log_def.h>)

#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

/* The context that this thread is inside of. No thread-local variable: in a
 * library that is loaded late, those make gcc 12's leak sanitizer crash. */
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

/* Is the handler of this signal UCX's? */
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

/* At once when we, and so perhaps UCX, are loaded. */
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
