// SPDX-License-Identifier: Apache-2.0
/*
 * The table of environment variables, and how their values are read. Folders
 * above this one declare the variables that they use before main() runs.
 */
#include "src/base/env.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/forks.h"
#include "src/base/log.h"
#include "src/kernels/cpu.h"

/* The variables of this folder and of the whole library. Keep them in the order
 * in which a user would look for them. */
static const struct shunti_env_row rows[] = {
    /* Messages and traces. */
    {
        .name = "SHUNT_LOG",
        .type = SHUNTI_ENV_LEVELS,
        .fallback = "warn",
        .help = "Level of messages: off, error, warn, info or debug; other "
                "levels for some subsystems after commas: 'info,shm=debug'.",
    },
    {
        .name = "SHUNT_LOG_FILE",
        .type = SHUNTI_ENV_STRING,
        .help = "File for messages instead of stderr; %r is the rank, %p the "
                "process id.",
    },
    {
        .name = "SHUNT_TRACE",
        .type = SHUNTI_ENV_STRING,
        .help =
            "Write a timeline for Perfetto or chrome://tracing to this file, "
            "one for each rank; %r is the rank, %p the process id. If neither "
            "is in the name, shunt-run merges the files of its ranks into one.",
    },
    {
        .name = "SHUNT_TRACE_MAX",
        .type = SHUNTI_ENV_SIZE,
        .fallback = "1g",
        .help = "Bytes at which a rank's timeline ends.",
    },
    {
        .name = "SHUNT_FLIGHT_RECORDER",
        .type = SHUNTI_ENV_STRING,
        .help = "Keep the last events of the timeline in memory, and write "
                "them to this file when a call times out or a rank is lost; %r "
                "and %p as in SHUNT_TRACE.",
    },
    {
        .name = "SHUNT_FLIGHT_RECORDER_SIZE",
        .type = SHUNTI_ENV_SIZE,
        .fallback = "1m",
        .help = "Bytes of memory for these events in each rank.",
    },
    /* How ranks find each other. */
    {
        .name = "SHUNT_TIMEOUT",
        .type = SHUNTI_ENV_SECONDS,
        .fallback = "120",
        .help = "Seconds to wait for a rank that neither arrives nor is known "
                "to be gone, before a call fails; inf: no limit.",
    },
    {
        .name = "SHUNT_HOST",
        .type = SHUNTI_ENV_STRING,
        .help = "Address to which ranks connect at first. Without a launcher: "
                "an address, host name or interface of the process that "
                "creates the id (unset: any of its addresses). With a "
                "launcher: an address or name of rank 0's host, or an "
                "interface for connections of later communicators.",
    },
    {
        .name = "SHUNT_PORT",
        .type = SHUNTI_ENV_NUMBER,
        .fallback = "auto",
        .help = "TCP port to which ranks connect at first; auto: any free one, "
                "or MASTER_PORT + 1.",
    },
    {
        .name = "SHUNT_SECRET",
        .type = SHUNTI_ENV_STRING,
        .help = "A text that only the ranks of a launched job know: processes "
                "without it are refused. If it is not set, the launcher's "
                "identifiers of the job are used, which others may guess.",
        .secret = true,
    },
    {
        .name = "SHUNT_NODE",
        .type = SHUNTI_ENV_STRING,
        .help = "Name of the node this rank is on. Ranks with different names "
                "share no memory, also on one host: data between them is sent "
                "by a transport for several hosts, if there is one.",
    },
    /* Transports. */
    {
        .name = "SHUNT_TRANSPORTS",
        .type = SHUNTI_ENV_STRING,
        .help =
            "Transports to use, best first ('shm'), or not to use ('^inproc'); "
            "'fault+shm' wraps one in another. Unset: all that work, by score.",
    },
    {
        .name = "SHUNT_PLUGIN_PATH",
        .type = SHUNTI_ENV_STRING,
        .help = "Folders to look for transports in, before those of the "
                "installation; separated by colons.",
    },
    {
        .name = "SHUNT_CMA",
        .type = SHUNTI_ENV_CHOICE,
        .fallback = "auto",
        .choices = "auto|off|no|0",
        .help = "Read memory outside windows straight from the other process "
                "(process_vm_readv), where the kernel allows it.",
    },
    /* How calls wait and move data. */
    {
        .name = "SHUNT_ENGINE",
        .type = SHUNTI_ENV_STRING,
        .help = "Copy engine for large payload inside a node of calls that "
                "were started and are waited for later: dma, or another "
                "plugin; of several (a,b) the first that works here. Unset or "
                "off: the caller's thread copies.",
    },
    {
        .name = "SHUNT_ENGINE_MIN",
        .type = SHUNTI_ENV_SIZE,
        .fallback = "auto",
        .help =
            "Bytes from which the copy engine copies such payload; auto: from "
            "4m on, and only for calls that turn out to be faster with it.",
    },
    {
        .name = "SHUNT_PROGRESS",
        .type = SHUNTI_ENV_CHOICE,
        .fallback = "auto",
        .choices = "caller|thread|auto",
        .help = "Who advances operations. caller: only the caller, in test and "
                "wait; thread: also a thread of each communicator; auto: "
                "between nodes also a thread of the process, while callers of "
                "_start are outside the library.",
    },
    {
        .name = "SHUNT_SPIN",
        .type = SHUNTI_ENV_NUMBER,
        .fallback = "auto",
        .help = "Microseconds to poll in a wait before sleeping; auto: few if "
                "there are more ranks than CPUs.",
    },
    {
        .name = "SHUNT_EAGER",
        .type = SHUNTI_ENV_SIZE,
        .fallback = "auto",
        .help =
            "Bytes up to which a message is sent inside its control message.",
    },
    {
        .name = "SHUNT_EAGER_FAR",
        .type = SHUNTI_ENV_SIZE,
        .fallback = "auto",
        .help =
            "The same for ranks whose memory is not mapped, as on other hosts. "
            "At least SHUNT_EAGER, and equal to it if only SHUNT_EAGER is set.",
    },
    {
        .name = "SHUNT_CHUNK",
        .type = SHUNTI_ENV_SIZE,
        .fallback = "auto",
        .help = "Bytes of a chunk of the staging ring between two ranks.",
    },
    {
        .name = "SHUNT_CHUNKS",
        .type = SHUNTI_ENV_SIZE,
        .fallback = "auto",
        .help = "Chunks of the staging ring between two ranks.",
    },
    {
        .name = "SHUNT_READ_MIN",
        .type = SHUNTI_ENV_SIZE,
        .fallback = "auto",
        .help =
            "Bytes from which memory outside windows is read from the other "
            "process instead of being copied through the staging ring; by "
            "default each pair of ranks learns in use which is faster.",
    },
    {
        .name = "SHUNT_ZCOPY_MIN",
        .type = SHUNTI_ENV_SIZE,
        .fallback = "auto",
        .help =
            "Bytes from which a block for a rank whose memory is not mapped is "
            "sent directly from the sender's memory to the receiver's instead "
            "of through the staging ring; auto: 64k. At least 64.",
    },
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]), DECLARED_MAX = 80 };

/* Variables of other folders and of plugins. A row is written under the lock,
 * and counted when it is complete. */
static struct shunti_env_row declared[DECLARED_MAX];
static atomic_size_t declared_count;
static pthread_mutex_t declare_lock = PTHREAD_MUTEX_INITIALIZER;

const struct shunti_env_row *shunti_env_row_at(size_t i)
{
    if (i < ROWS)
        return &rows[i];
    i -= ROWS;
    return i < atomic_load_explicit(&declared_count, memory_order_acquire)
               ? &declared[i]
               : NULL;
}

const struct shunti_env_row *shunti_env_row_of(const char *name)
{
    const struct shunti_env_row *row;

    for (size_t i = 0; (row = shunti_env_row_at(i)); i++)
        if (!strcmp(row->name, name))
            return row;
    return NULL;
}

bool shunti_env_declare(const struct shunti_env_row *row)
{
    size_t count;
    bool there;

    pthread_mutex_lock(&declare_lock);
    count = atomic_load_explicit(&declared_count, memory_order_relaxed);
    there = shunti_env_row_of(row->name) != NULL;
    if (!there && count < DECLARED_MAX) {
        declared[count] = *row;
        atomic_store_explicit(&declared_count, count + 1, memory_order_release);
        there = true;
    }
    pthread_mutex_unlock(&declare_lock);
    return there;
}

void shunti_env_declare_all(const struct shunti_env_row *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool there = shunti_env_declare(&from[i]);
        assert(there);
        (void)there;
    }
}

/* Declare the variables of src/kernels. Files there cannot do so, because they
 * must not include src/base. */
__attribute__((constructor)) static void declare_kernels(void)
{
    shunti_env_declare_all(shunti_cpu_env, SHUNTI_CPU_ENV);
}

const char *shunti_env_raw(const char *name)
{
    return shunti_env_row_of(name) ? secure_getenv(name) : NULL;
}

/* -- values ---------------------------------------------------------------- */

bool shunti_parse_size(const char *text, size_t *bytes)
{
    unsigned long long value;
    unsigned shift = 0;
    char *end;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno)
        return false;
    switch (tolower((unsigned char)*end)) {
    case 'k':
        shift = 10;
        break;
    case 'm':
        shift = 20;
        break;
    case 'g':
        shift = 30;
        break;
    default:
        break;
    }
    end += shift != 0;
    if (shift && tolower((unsigned char)*end) == 'i') /* KiB */
        end++;
    if (tolower((unsigned char)*end) == 'b')
        end++;
    /* SIZE_MAX is reserved: it stands for "auto". */
    if (*end || value >= SIZE_MAX >> shift)
        return false;
    *bytes = (size_t)value << shift;
    return true;
}

/* Read digits and a point. strtod() would depend on the program's locale. */
static bool parse_number(const char *text, double *value)
{
    double scale = 1;
    bool digits = false, point = false;

    *value = 0;
    for (; *text; text++) {
        if (*text == '.' && !point) {
            point = true;
            continue;
        }
        if (!isdigit((unsigned char)*text))
            return false;
        digits = true;
        *value = *value * 10 + (*text - '0');
        if (point)
            scale *= 10;
    }
    *value /= scale;
    return digits && isfinite(*value);
}

/* Read a number, or "inf", which stands for 30 years (clock.h). */
static bool parse_seconds(const char *text, double *value)
{
    if (!strcasecmp(text, "inf")) {
        *value = SHUNTI_NEVER_SECONDS;
        return true;
    }
    if (!parse_number(text, value) || *value <= 0)
        return false;
    *value = fmin(*value, SHUNTI_NEVER_SECONDS);
    return true;
}

static bool is_bool(const char *text)
{
    static const char *const words[][2] = {
        {"0", "1"}, {"no", "yes"}, {"off", "on"}, {"false", "true"}};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!strcasecmp(text, words[i][0]) || !strcasecmp(text, words[i][1]))
            return true;
    return false;
}

static bool among(const char *choices, const char *text, size_t n)
{
    while (*choices) {
        size_t len = strcspn(choices, "|");

        if (len == n && !strncasecmp(choices, text, n))
            return true;
        choices += len;
        choices += *choices == '|';
    }
    return false;
}

/* Does `text` consist of one or two of the choices? */
static bool are_among(const char *choices, const char *text)
{
    const size_t n = strcspn(text, ",");

    return among(choices, text, n) &&
           (!text[n] || among(choices, text + n + 1, strlen(text + n + 1)));
}

bool shunti_env_valid(const struct shunti_env_row *row, const char *text)
{
    double number;
    size_t bytes;

    switch (row->type) {
    case SHUNTI_ENV_STRING:
        return true;
    case SHUNTI_ENV_CHOICE:
        return among(row->choices, text, strlen(text));
    case SHUNTI_ENV_PAIR:
        return are_among(row->choices, text);
    case SHUNTI_ENV_BOOL:
        return is_bool(text);
    case SHUNTI_ENV_SIZE:
        return !strcmp(text, "auto") || shunti_parse_size(text, &bytes);
    case SHUNTI_ENV_NUMBER:
        return !strcmp(text, "auto") || parse_number(text, &number);
    case SHUNTI_ENV_SECONDS:
        return parse_seconds(text, &number);
    case SHUNTI_ENV_LEVELS:
        return shunti_log_understood(text);
    }
    return false;
}

const char *shunti_env_takes(const struct shunti_env_row *row)
{
    switch (row->type) {
    case SHUNTI_ENV_STRING:
        return "a text";
    case SHUNTI_ENV_CHOICE:
        return row->choices;
    case SHUNTI_ENV_PAIR:
        return "one of the words that shunt-info --env shows, or two with a "
               "comma";
    case SHUNTI_ENV_BOOL:
        return "yes or no";
    case SHUNTI_ENV_SIZE:
        return "bytes (64k, 1m), or auto";
    case SHUNTI_ENV_NUMBER:
        return "a number, not negative, or auto";
    case SHUNTI_ENV_SECONDS:
        return "a number of seconds, more than 0, or inf";
    case SHUNTI_ENV_LEVELS:
        return "a level (off, error, warn, info, debug) or subsystem=level, "
               "separated by commas";
    }
    return "";
}

/* The text in use: that of the environment if it is valid, otherwise the
 * default. */
static const char *value_of(const char *name, enum shunti_env_type type)
{
    const struct shunti_env_row *row = shunti_env_row_of(name);
    const char *text;

    assert(row && row->type == type);
    if (!row || row->type != type)
        return NULL;
    text = secure_getenv(name);
    if (!text || !*text)
        return row->fallback;
    if (shunti_env_valid(row, text))
        return text;
    return row->fallback; /* shunti_env_report() warns of the invalid value */
}

const char *shunti_env_string(const char *name)
{
    return value_of(name, SHUNTI_ENV_STRING);
}

const char *shunti_env_choice(const char *name)
{
    return value_of(name, SHUNTI_ENV_CHOICE);
}

const char *shunti_env_pair(const char *name)
{
    return value_of(name, SHUNTI_ENV_PAIR);
}

size_t shunti_env_size(const char *name)
{
    const char *text = value_of(name, SHUNTI_ENV_SIZE);
    size_t bytes;

    if (!text || !shunti_parse_size(text, &bytes))
        return SHUNTI_ENV_AUTO;
    return bytes;
}

double shunti_env_number(const char *name)
{
    const struct shunti_env_row *row = shunti_env_row_of(name);
    bool seconds = row && row->type == SHUNTI_ENV_SECONDS;
    const char *text =
        value_of(name, seconds ? SHUNTI_ENV_SECONDS : SHUNTI_ENV_NUMBER);
    double value;

    if (!text ||
        !(seconds ? parse_seconds(text, &value) : parse_number(text, &value)))
        return -1;
    return value;
}

bool shunti_env_is_set(const char *name)
{
    const char *text = shunti_env_raw(name);

    assert(shunti_env_row_of(name));
    return text && *text;
}

__attribute__((constructor)) static void watch_forks(void)
{
    static struct shunti_fork fork = {.lock = &declare_lock};

    shunti_fork_watch(&fork);
}
