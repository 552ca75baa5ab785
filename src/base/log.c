// SPDX-License-Identifier: Apache-2.0
/*
 * The logger; see log.h. A message takes a mutex, is formatted on the stack,
 * and written by one write(2). Messages are rare, and readable lines of several
 * ranks matter more than a microsecond of the writer.
 */
#include "src/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/forks.h"
#include "transports/common/descriptor.h"

#define RULES_MAX 16
#define UNREAD INT_MAX

atomic_int shunti_log_threshold = UNREAD;

static const char *const level_names[] = {"off", "error", "warn", "info",
                                          "debug"};

struct rule {
    char subsystem[24];
    int level;
};

/* `lock` protects these variables. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int base_level;
static struct rule rules[RULES_MAX];
static size_t nrules;
static int log_fd = -1;      /* descriptor of SHUNT_LOG_FILE; -1: not open */
static int log_fd_rank = -1; /* the rank in the name of that file */
static bool log_fd_failed;
static bool no_stderr; /* descriptor 2 was closed at some time */

static atomic_int process_rank = -1;
static _Thread_local int thread_rank = -1;
static _Thread_local bool thread_rank_set;

static int level_of(const char *word, size_t len)
{
    for (int i = SHUNTI_LOG_OFF; i <= SHUNTI_LOG_DEBUG; i++)
        if (strlen(level_names[i]) == len && !memcmp(level_names[i], word, len))
            return i;
    return -1;
}

/* Parse one "level" or "subsystem=level". False: it is neither. */
static bool parse_word(const char *word, size_t len, struct rule *rule)
{
    const char *equals = memchr(word, '=', len);
    size_t name = equals ? (size_t)(equals - word) : 0;
    const char *level = equals ? equals + 1 : word;

    rule->level = level_of(level, len - (size_t)(level - word));
    if (rule->level < 0 || (equals && !name) || name >= sizeof(rule->subsystem))
        return false;
    memcpy(rule->subsystem, word, name);
    rule->subsystem[name] = '\0'; /* "": the level of all subsystems without a
                                     rule */
    return true;
}

bool shunti_log_understood(const char *text)
{
    struct rule rule;
    size_t n = 0;

    while (*text) {
        size_t len = strcspn(text, ",");

        if (!parse_word(text, len, &rule) ||
            (*rule.subsystem && ++n > RULES_MAX))
            return false;
        text += len;
        text += *text == ',';
    }
    return true;
}

/* Fill the rules from SHUNT_LOG. Invalid words are ignored; shunti_env_report()
 * warns of them. */
static void read_rules(void)
{
    const char *text = shunti_env_raw("SHUNT_LOG");
    bool bad = false;
    int threshold;

    base_level = SHUNTI_LOG_WARN;
    nrules = 0;
    while (text && *text) {
        size_t len = strcspn(text, ",");
        struct rule rule;

        if (!parse_word(text, len, &rule))
            bad = true;
        else if (!*rule.subsystem)
            base_level = rule.level;
        else if (nrules < RULES_MAX)
            rules[nrules++] = rule;
        text += len;
        text += *text == ',';
    }
    /* A user who misspelled a level expects at least warnings. */
    if (bad && base_level < SHUNTI_LOG_WARN)
        base_level = SHUNTI_LOG_WARN;

    threshold = base_level;
    for (size_t i = 0; i < nrules; i++)
        if (rules[i].level > threshold)
            threshold = rules[i].level;
    atomic_store_explicit(&shunti_log_threshold, threshold,
                          memory_order_relaxed);
}

static int level_for(const char *subsystem)
{
    for (size_t i = nrules; i-- > 0;) /* the last rule for a subsystem wins */
        if (!strcmp(rules[i].subsystem, subsystem))
            return rules[i].level;
    return base_level;
}

bool shunti_expand_path(const char *pattern, int rank, char *path,
                        unsigned long len)
{
    size_t used = 0;

    for (const char *p = pattern; *p; p++) {
        char piece[16] = {*p, '\0'};
        size_t n;

        if (*p == '%' && p[1] == 'r') {
            if (rank >= 0)
                snprintf(piece, sizeof(piece), "%d", rank);
            else
                strcpy(piece, "x");
            p++;
        } else if (*p == '%' && p[1] == 'p') {
            snprintf(piece, sizeof(piece), "%ld", (long)getpid());
            p++;
        } else if (*p == '%' && p[1] == '%') {
            p++;
        }
        n = strlen(piece);
        if (used + n >= len)
            return false;
        memcpy(path + used, piece, n);
        used += n;
    }
    if (!len)
        return false;
    path[used] = '\0';
    return true;
}

/* Set no_stderr if the program has closed stderr. A file that the program opens
 * later may get descriptor 2. */
static void look(void)
{
    const int flags = fcntl(STDERR_FILENO, F_GETFL);

    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        no_stderr = true;
}

void shunti_log_look(void)
{
    pthread_mutex_lock(&lock);
    look();
    pthread_mutex_unlock(&lock);
}

/* Runs when the library is loaded. */
__attribute__((constructor)) static void look_first(void)
{
    look();
}

/* The descriptor of stderr. -1: descriptor 2 is not the program's stderr. */
static int stderr_fd(void)
{
    look();
    return no_stderr ? -1 : STDERR_FILENO;
}

/* Is the path a FIFO? A FIFO is opened without blocking: a reader must have
 * opened it already, and messages may be lost if the reader is slow. */
static bool is_fifo(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISFIFO(st.st_mode);
}

static void give_up_file(int error)
{
    log_fd_failed = true;
    if (stderr_fd() >= 0)
        dprintf(STDERR_FILENO,
                "shunt: cannot write SHUNT_LOG_FILE '%s' (%s); logging here\n",
                shunti_env_raw("SHUNT_LOG_FILE"), strerror(error));
}

/* The descriptor to write to: the log file, or stderr if there is none. -1:
 * neither. */
static int log_target(void)
{
    const char *pattern = shunti_env_raw("SHUNT_LOG_FILE");
    int rank = atomic_load_explicit(&process_rank, memory_order_relaxed);
    char path[PATH_MAX];

    if (!pattern || !*pattern || log_fd_failed)
        return stderr_fd();
    if (log_fd >= 0 && (rank == log_fd_rank || !strstr(pattern, "%r")))
        return log_fd;

    /* Open the file: this is the first message, or the rank has become
     * known. */
    if (log_fd >= 0)
        close(log_fd);
    log_fd = -1;
    log_fd_rank = rank;
    if (shunti_expand_path(pattern, rank, path, sizeof(path)))
        log_fd =
            shunti_fd_lift(open(path,
                                O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC |
                                    O_NOCTTY | (is_fifo(path) ? O_NONBLOCK : 0),
                                0644));
    if (log_fd >= 0)
        return log_fd;
    give_up_file(errno);
    return stderr_fd();
}

static void write_line(int level, const char *subsystem, const char *format,
                       va_list args)
{
    char line[1024], who[32] = "";
    int rank = shunti_log_rank();
    size_t len, head;
    struct timespec now;
    struct tm tm = {0};
    int n, fd;

    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    if (rank >= 0)
        snprintf(who, sizeof(who), " rank %d", rank);
    n = snprintf(line, sizeof(line),
                 "%02d:%02d:%02d.%03ld shunt[%ld]%s %s %s: ", tm.tm_hour,
                 tm.tm_min, tm.tm_sec, now.tv_nsec / 1000000, (long)getpid(),
                 who, level_names[level], subsystem);
    head = n < 0 ? 0 : (size_t)n;
    if (head >= sizeof(line))
        head = sizeof(line) - 1;
    n = vsnprintf(line + head, sizeof(line) - head, format, args);
    len = head + (n < 0 ? 0 : (size_t)n);
    if (len >= sizeof(line)) {
        len = sizeof(line) - 1;
        memcpy(line + len - 3, "...", 3);
    }
    for (size_t i = 0; i < len; i++) /* one message, one line */
        if ((unsigned char)line[i] < ' ')
            line[i] = ' ';
    line[len++] = '\n';

    /* A log that cannot be written is no reason to fail. */
    fd = log_target();
    if (fd < 0 || write(fd, line, len) >= 0)
        return;
    if (fd == log_fd && (errno == ENOSPC || errno == EDQUOT || errno == EIO)) {
        give_up_file(errno);
        fd = log_target();
        if (fd >= 0 && write(fd, line, len) < 0)
            return;
    }
}

static void ensure_read(void)
{
    if (atomic_load_explicit(&shunti_log_threshold, memory_order_relaxed) ==
        UNREAD)
        read_rules();
}

bool shunti_log_wanted(enum shunti_log_level level, const char *subsystem)
{
    int saved = errno;
    bool wanted;

    pthread_mutex_lock(&lock);
    ensure_read();
    wanted = (int)level <= level_for(subsystem);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return wanted;
}

void shunti_log_write(enum shunti_log_level level, const char *subsystem,
                      const char *format, ...)
{
    int saved = errno;
    va_list args;

    if (level < SHUNTI_LOG_ERROR || level > SHUNTI_LOG_DEBUG)
        return;
    va_start(args, format);
    pthread_mutex_lock(&lock);
    ensure_read();
    if ((int)level <= level_for(subsystem))
        write_line((int)level, subsystem, format, args);
    pthread_mutex_unlock(&lock);
    va_end(args);
    errno = saved;
}

void shunti_log_set_rank(int rank)
{
    int none = -1;

    if (!thread_rank_set || thread_rank < 0)
        thread_rank = rank;
    thread_rank_set = true;
    if (rank >= 0)
        atomic_compare_exchange_strong_explicit(&process_rank, &none, rank,
                                                memory_order_relaxed,
                                                memory_order_relaxed);
}

int shunti_log_rank(void)
{
    return thread_rank_set
               ? thread_rank
               : atomic_load_explicit(&process_rank, memory_order_relaxed);
}

void shunti_log_reset(void)
{
    pthread_mutex_lock(&lock);
    if (log_fd >= 0)
        close(log_fd);
    log_fd = -1;
    log_fd_rank = -1;
    log_fd_failed = false;
    no_stderr = false;
    thread_rank = -1;
    thread_rank_set = false;
    atomic_store_explicit(&process_rank, -1, memory_order_relaxed);
    atomic_store_explicit(&shunti_log_threshold, UNREAD, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
    static struct shunti_fork fork = {.lock = &lock};

    shunti_fork_watch(&fork);
}
