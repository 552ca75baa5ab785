// SPDX-License-Identifier: Apache-2.0
/*
 * The trace writer, and the flight recorder; see trace.h.
 *
 * Events are collected in a buffer for each rank. One pwrite(2) writes the
 * events and a closing bracket, over the previous closing bracket. So the file
 * is a complete JSON array at every moment, even if the process is killed.
 *
 * The recorder keeps events in a ring of slots of one size. It turns them into
 * text only when they are written, by the same writer.
 *
 * The format: "Trace Event Format", Google, 2016, JSON array form.
 */
#include "src/trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/log.h"
#include "src/trace/trace_summary.h"
#include "src/trace/track.h"
#include "transports/common/descriptor.h"

#define BUFFER_BYTES ((size_t)64 << 10)
#define EVENT_MAX ((size_t)1024)
#define TAIL "\n]\n"
#define TAIL_BYTES (sizeof(TAIL) - 1)
#define FLUSH_NS 500000000u
#define READER_MS 1000
#define RECORDER_BYTES ((size_t)1 << 20)

/* An event of the recorder; longer arguments are left out. */
struct event {
    uint64_t t_ns;
    long thread;
    char phase;
    char name[31];
    char more[32];
    char args[SHUNTI_TRACE_ARGS];
};

/* The recorder keeps the names of this many threads, the latest ones. */
#define THREADS 64

struct thread {
    long id;
    char args[160];
};

struct recorder {
    /* names are not in the ring, where events would overwrite them */
    struct thread threads[THREADS];
    /* number of threads that were named; the next one gets slot nthreads %
     * THREADS */
    size_t nthreads;
    size_t slots;  /* number of slots in `ring` */
    uint64_t next; /* number of the next event, which gets slot next % slots */
    struct event ring[];
};

struct writer {
    struct writer *next;
    int rank;
    int nranks;
    struct recorder *recorder; /* NULL: none */
    int fd;                    /* -1: no file, or writing it has failed */
    bool stream; /* a FIFO or a terminal: the closing bracket is written only
                    once, at the end */
    off_t offset;
    off_t limit; /* largest size of the file */
    uint64_t written_ns;
    size_t used;
    char buffer[BUFFER_BYTES + TAIL_BYTES];
};

atomic_int shunti_trace_state = -1;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct writer *writers; /* protected by `lock` */

bool shunti_trace_enabled_slow(void)
{
    int state = atomic_load_explicit(&shunti_trace_state, memory_order_relaxed);

    /* several threads may do this at once; all store the same value */
    if (state < 0) {
        state = shunti_env_is_set("SHUNT_TRACE") ||
                shunti_env_is_set("SHUNT_FLIGHT_RECORDER");
        atomic_store_explicit(&shunti_trace_state, state, memory_order_relaxed);
    }
    return state > 0;
}

int shunti_trace_file_rank(int rank)
{
    int own = shunti_log_rank();

    return own >= 0 ? own : rank;
}

static struct writer *find(int rank)
{
    for (struct writer *w = writers; w; w = w->next)
        if (w->rank == rank)
            return w;
    return NULL;
}

/* write(2) to a FIFO. A reader that is gone must not end the program. A reader
 * that does not read must not block it. */
static ssize_t write_to_reader(int fd, const char *data, size_t bytes)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    sigset_t pipe, pending, before;
    ssize_t n;
    int error;

    if (poll(&p, 1, READER_MS) == 0) {
        errno = ETIMEDOUT;
        return -1;
    }
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    n = write(fd, data, bytes);
    error = errno;
    if (n < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE))
        sigtimedwait(&pipe, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return n;
}

/* Write at `at` bytes behind `offset`. A stream has no positions: append. */
static ssize_t write_at(struct writer *w, const char *data, size_t bytes,
                        size_t at)
{
    return w->stream ? write_to_reader(w->fd, data, bytes)
                     : pwrite(w->fd, data, bytes, w->offset + (off_t)at);
}

/* End this file. Bytes of a failed write are cut off, so that the file is valid
 * JSON. */
static void stop(struct writer *w, const char *why)
{
    const bool ended =
        w->offset && write_at(w, TAIL, TAIL_BYTES, 0) == (ssize_t)TAIL_BYTES;

    shunti_warn("trace", "the trace of rank %d ends here: %s", w->rank, why);
    if (!w->stream &&
        ftruncate(w->fd, ended ? w->offset + (off_t)TAIL_BYTES : 0))
        shunti_warn("trace", "and is not whole: %s", strerror(errno));
    close(w->fd);
    w->fd = -1;
}

static void write_out(struct writer *w)
{
    size_t done = 0, bytes, whole;

    if (w->fd < 0 || !w->used)
        return;
    bytes = w->used;
    memcpy(w->buffer + bytes, TAIL, TAIL_BYTES);
    whole = bytes + (w->stream ? 0 : TAIL_BYTES);
    while (done < whole) {
        ssize_t n = write_at(w, w->buffer + done, whole - done, done);

        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0) {
            stop(w, strerror(errno));
            return;
        }
        done += (size_t)n;
    }
    w->offset += (off_t)bytes;
    w->used = 0;
    w->written_ns = shunti_now_ns();
}

/* --- events --------------------------------------------------------------- */

/* Escape text for a JSON string. */
static void escape(const char *text, char *out, size_t len)
{
    size_t used = 0;

    for (; *text && used + 7 < len; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\') {
            out[used++] = '\\';
            out[used++] = (char)c;
        } else if (c < ' ') {
            used += (size_t)snprintf(out + used, len - used, "\\u%04x", c);
        } else {
            out[used++] = (char)c;
        }
    }
    out[used] = '\0';
}

long shunti_trace_thread_id(void)
{
    static _Thread_local long id;

    if (!id)
        id = syscall(SYS_gettid);
    return id;
}

/*
 * Append an event: the common fields, then `more` (",\"dur\":1.5"), then the
 * arguments.
 */
static void add(struct writer *w, const char *name, char phase, uint64_t t_ns,
                long thread, const char *more, const char *args)
{
    char text[EVENT_MAX], escaped[128];
    int n;

    escape(name, escaped, sizeof(escaped));
    n = snprintf(text, sizeof(text),
                 "%s{\"name\":\"%s\",\"ph\":\"%c\",\"pid\":%d,\"tid\":%ld,"
                 "\"ts\":%llu.%03u%s,\"args\":%s}",
                 w->offset || w->used ? ",\n" : "[\n", escaped, phase, w->rank,
                 thread, (unsigned long long)(t_ns / 1000),
                 (unsigned)(t_ns % 1000), more, args ? args : "{}");
    if (n < 0 || (size_t)n >= sizeof(text)) {
        if (args) /* too long: write the event without arguments */
            add(w, name, phase, t_ns, thread, more, NULL);
        return;
    }
    if (w->used + (size_t)n > BUFFER_BYTES)
        write_out(w);
    if (w->fd < 0)
        return;
    if (w->offset + (off_t)(w->used + (size_t)n + TAIL_BYTES) > w->limit) {
        write_out(w);
        if (w->fd >= 0)
            stop(w, "it has as many bytes as SHUNT_TRACE_MAX allows");
        return;
    }
    memcpy(w->buffer + w->used, text, (size_t)n);
    w->used += (size_t)n;
}

static void keep_thread(struct recorder *recorder, const char *args)
{
    const size_t known =
        recorder->nthreads < THREADS ? recorder->nthreads : THREADS;
    struct thread *t = recorder->threads;

    while (t < recorder->threads + known && t->id != shunti_trace_thread_id())
        t++;
    if (t == recorder->threads + known)
        t = &recorder->threads[recorder->nthreads++ % THREADS];
    t->id = shunti_trace_thread_id();
    snprintf(t->args, sizeof(t->args), "%s", args);
}

static void keep(struct recorder *recorder, const char *name, char phase,
                 uint64_t t_ns, const char *more, const char *args)
{
    struct event *e;

    if (phase == 'M') {
        keep_thread(recorder, args);
        return;
    }
    e = &recorder->ring[recorder->next++ % recorder->slots];
    e->t_ns = t_ns;
    e->thread = shunti_trace_thread_id();
    e->phase = phase;
    snprintf(e->name, sizeof(e->name), "%s", name);
    snprintf(e->more, sizeof(e->more), "%s", more);
    /* A truncated object would not be JSON. */
    if (!args || strlen(args) >= sizeof(e->args))
        args = "{}";
    snprintf(e->args, sizeof(e->args), "%s", args);
}

/* Append an event to the file of a rank, if the rank has one. */
static void record_in_file(struct writer *w, long thread, const char *name,
                           char phase, uint64_t t_ns, const char *more,
                           const char *args)
{
    if (!w || w->fd < 0)
        return;
    add(w, name, phase, t_ns, thread, more, args);
    if (shunti_now_ns() - w->written_ns > FLUSH_NS)
        write_out(w);
}

static void record(int rank, const char *name, char phase, uint64_t t_ns,
                   const char *more, const char *args)
{
    struct writer *w;

    if (!shunti_trace_enabled())
        return;
    pthread_mutex_lock(&lock);
    w = find(shunti_trace_file_rank(rank));
    if (w && w->recorder)
        keep(w->recorder, name, phase, t_ns, more, args);
    record_in_file(w, shunti_trace_thread_id(), name, phase, t_ns, more, args);
    pthread_mutex_unlock(&lock);
}

/* The duration of a span, for an event. */
struct duration {
    char text[48];
};

static struct duration duration_of(uint64_t t0_ns, uint64_t t1_ns)
{
    uint64_t ns = t1_ns > t0_ns ? t1_ns - t0_ns : 0;
    struct duration d;

    snprintf(d.text, sizeof(d.text), ",\"dur\":%llu.%03u",
             (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
    return d;
}

void shunti_trace_span(int rank, const char *name, uint64_t t0_ns,
                       uint64_t t1_ns, const char *args_json)
{
    const struct duration d = duration_of(t0_ns, t1_ns);

    record(rank, name, 'X', t0_ns, d.text, args_json);
}

void shunti_trace_wait(int rank, uint64_t t0_ns, uint64_t t1_ns)
{
    const struct duration d = duration_of(t0_ns, t1_ns);
    struct writer *w;

    if (!shunti_tracked()) {
        shunti_trace_span(rank, "wait", t0_ns, t1_ns, NULL);
        return;
    }
    pthread_mutex_lock(&lock);
    w = find(shunti_trace_file_rank(rank));
    if (w && w->recorder)
        keep(w->recorder, "wait", 'X', t0_ns, d.text, NULL);
    pthread_mutex_unlock(&lock);
}

void shunti_trace_instant(int rank, const char *name, uint64_t t_ns,
                          const char *args_json)
{
    record(rank, name, 'i', t_ns, ",\"s\":\"t\"", args_json);
}

void shunti_trace_counter(int rank, const char *name, uint64_t t_ns,
                          double value)
{
    char args[64];

    /* JSON has no infinities. Drop the value: it is a bug elsewhere. */
    if (!(value - value == 0))
        return;
    snprintf(args, sizeof(args), "{\"value\":%.17g}", value);
    for (char *c = args; *c; c++) /* the program's locale may use a comma */
        *c = *c == ',' ? '.' : *c;
    record(rank, name, 'C', t_ns, "", args);
}

void shunti_trace_thread(int rank, const char *name)
{
    char args[160], escaped[128];

    escape(name, escaped, sizeof(escaped));
    snprintf(args, sizeof(args), "{\"name\":\"%s\"}", escaped);
    record(rank, "thread_name", 'M', 0, "", args);
}

/* --- tracks --------------------------------------------------------------- */

/* The number of a track's row. Threads have the kernel's numbers, which are
 * smaller. */
static long track_id(long thread, int track)
{
    return 1000000000 + 8 * thread + track;
}

void shunti_trace_name_track(int rank, long thread, int track, const char *name,
                             int place)
{
    char args[96];
    struct writer *w;

    pthread_mutex_lock(&lock);
    w = find(shunti_trace_file_rank(rank));
    snprintf(args, sizeof(args), "{\"name\":\"%.60s\"}", name);
    record_in_file(w, track_id(thread, track), "thread_name", 'M', 0, "", args);
    snprintf(args, sizeof(args), "{\"sort_index\":%d}", place);
    record_in_file(w, track_id(thread, track), "thread_sort_index", 'M', 0, "",
                   args);
    pthread_mutex_unlock(&lock);
}

void shunti_trace_on_track(int rank, long thread, int track, const char *name,
                           uint64_t t0_ns, uint64_t t1_ns,
                           const char *args_json)
{
    const struct duration d = duration_of(t0_ns, t1_ns);

    pthread_mutex_lock(&lock);
    record_in_file(find(shunti_trace_file_rank(rank)), track_id(thread, track),
                   name, 'X', t0_ns, d.text, args_json);
    pthread_mutex_unlock(&lock);
}

/* --- files ---------------------------------------------------------------- */

/* Is this a device, such as /dev/null? A suffix for the rank would make no
 * sense. */
static bool is_device(const char *path)
{
    struct stat st;

    return !stat(path, &st) && (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode));
}

static int open_file(const char *variable, int rank, int nranks)
{
    const char *wish = shunti_env_string(variable), *rest = ".%r";
    char pattern[PATH_MAX], path[PATH_MAX];
    int fd = -1;

    if (!wish)
        return -1;
    if (nranks == 1 || strstr(wish, "%r") || is_device(wish))
        rest = "";
    errno = ENAMETOOLONG;
    if (snprintf(pattern, sizeof(pattern), "%s%s", wish, rest) <
            (int)sizeof(pattern) &&
        shunti_expand_path(pattern, rank, path, sizeof(path)))
        fd = shunti_fd_lift(open(path,
                                 O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC |
                                     O_NONBLOCK | O_NOCTTY,
                                 0644));
    if (fd < 0)
        shunti_warn("trace", "cannot write %s '%s': %s; no trace of rank %d",
                    variable, wish,
                    errno == ENXIO ? "nobody reads it" : strerror(errno), rank);
    return fd;
}

static struct writer *new_writer(int rank, int nranks, const char *variable)
{
    /* not zeroed: only the used part of the buffer is read */
    struct writer *w = malloc(sizeof(*w));
    size_t max = shunti_env_size("SHUNT_TRACE_MAX");
    char args[96];

    if (!w)
        return NULL;
    w->next = NULL;
    w->rank = rank;
    w->nranks = nranks;
    w->recorder = NULL;
    w->offset = 0;
    w->used = 0;
    w->limit = max == SHUNTI_ENV_AUTO ? INT64_MAX : (off_t)max;
    w->fd = open_file(variable, rank, nranks);
    w->stream = w->fd >= 0 && lseek(w->fd, 0, SEEK_CUR) < 0;
    w->written_ns = shunti_now_ns();
    if (w->fd < 0)
        return w;
    snprintf(args, sizeof(args), "{\"name\":\"rank %d of %d (pid %ld)\"}", rank,
             nranks, (long)getpid());
    add(w, "process_name", 'M', 0, shunti_trace_thread_id(), "", args);
    snprintf(args, sizeof(args), "{\"sort_index\":%d}", rank);
    add(w, "process_sort_index", 'M', 0, shunti_trace_thread_id(), "", args);
    write_out(w);
    return w;
}

static void free_writer(struct writer *w)
{
    write_out(w);
    if (w->fd >= 0 && w->stream && w->offset)
        write_at(w, TAIL, TAIL_BYTES, 0);
    if (w->fd >= 0)
        close(w->fd);
    free(w->recorder);
    free(w);
}

/* --- the recorder --------------------------------------------------------- */

static struct recorder *new_recorder(void)
{
    size_t bytes = shunti_env_size("SHUNT_FLIGHT_RECORDER_SIZE"), slots;
    struct recorder *r;

    if (!shunti_env_is_set("SHUNT_FLIGHT_RECORDER"))
        return NULL;
    slots = (bytes == SHUNTI_ENV_AUTO ? RECORDER_BYTES : bytes) /
            sizeof(r->ring[0]);
    slots = slots ? slots : 1;
    r = malloc(sizeof(*r) + slots * sizeof(r->ring[0]));
    if (!r) {
        shunti_warn("trace", "no memory for SHUNT_FLIGHT_RECORDER_SIZE");
        return NULL;
    }
    r->nthreads = 0;
    r->slots = slots;
    r->next = 0;
    return r;
}

/* Write all events of the recorder, from the oldest on. A later failure writes
 * the file again, with the newer events. */
static void dump(const struct writer *from)
{
    const struct recorder *r = from->recorder;
    struct writer *w =
        new_writer(from->rank, from->nranks, "SHUNT_FLIGHT_RECORDER");

    if (!w)
        return;
    w->limit = INT64_MAX;
    for (size_t i = 0; i < r->nthreads && i < THREADS && w->fd >= 0; i++)
        add(w, "thread_name", 'M', 0, r->threads[i].id, "", r->threads[i].args);
    for (uint64_t i = r->next > r->slots ? r->next - r->slots : 0;
         i < r->next && w->fd >= 0; i++) {
        const struct event *e = &r->ring[i % r->slots];

        add(w, e->name, e->phase, e->t_ns, e->thread, e->more, e->args);
    }
    free_writer(w);
}

void shunti_trace_failed(int rank, const char *why)
{
    char args[208], escaped[180];
    struct writer *w;

    if (!shunti_trace_enabled())
        return;
    escape(why, escaped, sizeof(escaped));
    snprintf(args, sizeof(args), "{\"why\":\"%s\"}", escaped);
    shunti_trace_instant(rank, "failed", shunti_now_ns(), args);
    pthread_mutex_lock(&lock);
    w = find(shunti_trace_file_rank(rank));
    if (w)
        write_out(w);
    if (w && w->recorder)
        dump(w);
    pthread_mutex_unlock(&lock);
}

/* --- beginning and end ---------------------------------------------------- */

/*
 * A forked child has the parent's buffers and files, at the offsets of the
 * fork. Its events would overwrite those that the parent has written since. So
 * a child traces nothing. It does not touch the lock, which another thread may
 * have held.
 */
static bool forked;

static void after_fork_child(void)
{
    forked = true;
    atomic_store_explicit(&shunti_trace_state, 0, memory_order_relaxed);
    atomic_store_explicit(&shunti_tracks_state, 0, memory_order_relaxed);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork_child);
}

void shunti_trace_begin(int rank, int nranks)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct writer *w;

    if (!shunti_trace_enabled())
        return;
    pthread_once(&once, watch_forks);
    rank = shunti_trace_file_rank(rank);
    pthread_mutex_lock(&lock);
    if (!find(rank)) {
        w = new_writer(rank, nranks, "SHUNT_TRACE");
        if (w) {
            w->recorder = new_recorder();
            w->next = writers;
            writers = w;
            if (w->fd >= 0)
                atomic_store_explicit(&shunti_tracks_state, 1,
                                      memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&lock);
}

void shunti_trace_flush(int rank)
{
    struct writer *w;

    if (!shunti_trace_enabled())
        return;
    shunti_track_flush();
    pthread_mutex_lock(&lock);
    w = find(shunti_trace_file_rank(rank));
    if (w)
        write_out(w);
    pthread_mutex_unlock(&lock);
}

static void sum_up(struct writer *w)
{
    char args[SHUNTI_SUMMARY_ARGS];

    while (shunti_summary_take(w->rank, args))
        record_in_file(w, shunti_trace_thread_id(), "summary", 'i',
                       shunti_now_ns(), ",\"s\":\"p\"", args);
}

static void close_all(void)
{
    if (forked)
        return;
    shunti_track_end();
    atomic_store_explicit(&shunti_tracks_state, 0, memory_order_relaxed);
    pthread_mutex_lock(&lock);
    while (writers) {
        struct writer *w = writers;

        writers = w->next;
        sum_up(w);
        free_writer(w);
    }
    pthread_mutex_unlock(&lock);
}

void shunti_trace_reset(void)
{
    close_all();
    atomic_store_explicit(&shunti_trace_state, -1, memory_order_relaxed);
}

/* Runs at exit, and before the library is unloaded. */
__attribute__((destructor)) static void finish(void)
{
    close_all();
}
