// SPDX-License-Identifier: Apache-2.0
/*
 * Parses SHUNT_TEST_VERBS, a list of these words, separated by commas:
 *
 *     devices=N   N devices (1)
 *     lacks=RANK  this rank has none
 *     ooo         payloads are placed in pieces, in any order within and between
 *                 requests; completions are in order
 *     srd         completions are in any order, too
 *     late        a request is acknowledged before its payload is placed
 *     rnr         receivers sometimes ask to be tried again
 *     partial     a poll returns few of the completions that there are
 *     ghosts      packets under way when a queue pair fails arrive up to 30 ms
 *                 later, if the receiver's queue pair still accepts them
 *     pages       a NIC writes to the pages that memory had when it was
 *                 registered, and must find there what it sends; needs io_uring
 *     full=N      one in N posts returns ENOMEM
 *     broken=N    post N of the process returns EIO
 *     error=N     request N of the process completes in error
 *     receive=N   immediate N that arrives at the process completes in error
 *     event=NAME@N   an asynchronous event at request N: port, device, qp or gid
 *     calls=N     the calls that connect (registration, receive requests,
 *                 creating and modifying a queue pair) return ENOMEM, from the
 *                 N-th on
 *     net=N       addresses are of another network
 *     ib          ports are of InfiniBand: packets have a LID, and GIDs are not
 *                 of IP
 *     grh         ib, and packets need a global header, too
 *     subnets     each device is in another subnet
 *     sl=N        packets of other service levels are lost
 *     depth=N     queues of a device have room for N entries
 *     pinned=N    a device registers at most N KiB in all (like RLIMIT_MEMLOCK)
 *     mr=N        a device registers at most N KiB at once, and reports that
 *     modest=N    the same, and reports nothing
 *     reg=N       a registration takes N us
 *     mtu=N       requests of more than N bytes do not arrive
 *     stuck=N     connecting or destroying a queue pair takes N ms, or until
 *                 its link is up again
 *     slow=N      a request is sent N ms after it was posted
 *     seed=N      seed of all that is random
 *     nasty       srd,late,rnr,partial,full=7
 *
 * Without SHUNT_TEST_VERBS there is no device.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/verbs/nic.h"

static struct harm read_harm;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_uint requests, receives, calls;

static const struct {
    const char *name;
    enum ibv_event_type type;
} events[] = {
    {"port", IBV_EVENT_PORT_ERR},
    {"device", IBV_EVENT_DEVICE_FATAL},
    {"qp", IBV_EVENT_QP_FATAL},
    {"gid", IBV_EVENT_GID_CHANGE},
};

static bool read_event(struct harm *h, const char *word)
{
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        size_t len = strlen(events[i].name);

        if (!strncmp(word, events[i].name, len) && word[len] == '@') {
            h->event = events[i].type;
            h->event_at = (unsigned)strtoul(word + len + 1, NULL, 10);
            return true;
        }
    }
    return false;
}

static bool read_flag(struct harm *h, const char *word)
{
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {
        {"ooo", &h->out_of_order}, {"srd", &h->unordered},
        {"late", &h->late},        {"rnr", &h->not_ready},
        {"partial", &h->partial},  {"ghosts", &h->ghosts},
        {"pages", &h->pages},      {"ib", &h->infiniband},
        {"grh", &h->grh},          {"subnets", &h->subnets},
    };

    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (!strcmp(word, flags[i].name)) {
            *flags[i].flag = true;
            return true;
        }
    }
    if (strcmp(word, "nasty"))
        return false;
    h->unordered = h->late = h->not_ready = h->partial = true;
    h->full = 7;
    return true;
}

static bool read_number(struct harm *h, const char *word)
{
    unsigned long devices = 0, seed = 0;
    const char *value = strchr(word, '=');

    if (!value)
        return false;
    value++;
    if (!strncmp(word, "devices=", 8))
        h->devices = (int)(devices = strtoul(value, NULL, 10));
    else if (!strncmp(word, "lacks=", 6))
        h->lacks = !strcmp(value, getenv("RANK") ? getenv("RANK") : "");
    else if (!strncmp(word, "seed=", 5))
        h->seed = seed = strtoul(value, NULL, 10);
    else if (!strncmp(word, "pinned=", 7))
        h->pinned = (size_t)strtoul(value, NULL, 10) << 10;
    else if (!strncmp(word, "mr=", 3) || !strncmp(word, "modest=", 7)) {
        h->mr = (size_t)strtoul(value, NULL, 10) << 10;
        h->modest = word[1] == 'o';
    } else if (!strncmp(word, "reg=", 4))
        h->reg = (unsigned)strtoul(value, NULL, 10);
    else if (!strncmp(word, "mtu=", 4))
        h->mtu = (size_t)strtoul(value, NULL, 10);
    else if (!strncmp(word, "stuck=", 6))
        h->stuck = (int64_t)strtoul(value, NULL, 10) * 1000;
    else if (!strncmp(word, "slow=", 5))
        h->slow = (int64_t)strtoul(value, NULL, 10) * 1000;
    else if (!strncmp(word, "full=", 5))
        h->full = (unsigned)strtoul(value, NULL, 10);
    else if (!strncmp(word, "broken=", 7))
        h->broken = (unsigned)strtoul(value, NULL, 10);
    else if (!strncmp(word, "error=", 6))
        h->error = (unsigned)strtoul(value, NULL, 10);
    else if (!strncmp(word, "receive=", 8))
        h->receive = (unsigned)strtoul(value, NULL, 10);
    else if (!strncmp(word, "net=", 4))
        h->network = (uint8_t)strtoul(value, NULL, 10);
    else if (!strncmp(word, "sl=", 3))
        h->service = (int)strtoul(value, NULL, 10);
    else if (!strncmp(word, "depth=", 6))
        h->depth = (int)strtoul(value, NULL, 10);
    else if (!strncmp(word, "calls=", 6))
        h->calls = (unsigned)strtoul(value, NULL, 10);
    else if (!strncmp(word, "event=", 6))
        return read_event(h, value);
    else
        return false;
    return devices <= 8;
}

static void read_words(void)
{
    const char *env = getenv("SHUNT_TEST_VERBS");
    char *words = env ? strdup(env) : NULL, *word, *rest = NULL;

    if (!words)
        return;
    read_harm.devices = 1;
    read_harm.depth = 32767;
    read_harm.service = -1;
    read_harm.seed = 1;
    for (word = strtok_r(words, ",", &rest); word;
         word = strtok_r(NULL, ",", &rest)) {
        if (!strcmp(word, "rc") || read_flag(&read_harm, word) ||
            read_number(&read_harm, word))
            continue;
        fprintf(stderr, "SHUNT_TEST_VERBS: no such word: %s\n", word);
        abort();
    }
    if (read_harm.unordered)
        read_harm.out_of_order = true;
    if (read_harm.lacks)
        read_harm.devices = 0;
    free(words);
}

const struct harm *harm(void)
{
    pthread_once(&once, read_words);
    return &read_harm;
}

unsigned harm_next_request(void)
{
    return atomic_fetch_add(&requests, 1) + 1;
}

unsigned harm_next_receive(void)
{
    return atomic_fetch_add(&receives, 1) + 1;
}

bool harm_call_fails(void)
{
    const unsigned from = harm()->calls;

    return from && atomic_fetch_add(&calls, 1) + 1 >= from;
}

bool harm_set(const char *word)
{
    pthread_once(&once, read_words);
    atomic_store(&requests, 0);
    atomic_store(&receives, 0);
    atomic_store(&calls, 0);
    read_harm.error = read_harm.receive = read_harm.event_at = 0;
    read_harm.calls = 0;
    read_harm.broken = 0;
    return read_number(&read_harm, word);
}

void harm_report(const char *format, ...)
{
    const char *path = getenv("SHUNT_TEST_VERBS_REPORT");
    char line[512];
    va_list args;
    int n, fd;

    n = snprintf(line, sizeof(line), "process %d: ", (int)getpid());
    va_start(args, format);
    n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
    va_end(args);
    if (n > (int)sizeof(line) - 2)
        n = (int)sizeof(line) - 2;
    line[n++] = '\n';
    fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)
              : dup(2);
    if (fd < 0)
        return;
    if (write(fd, line, (size_t)n) < 0)
        abort();
    close(fd);
}
