// SPDX-License-Identifier: Apache-2.0
/* The thread of a NIC. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/verbs/nic.h"

#define PACKETS 64 /* most packets received by a queue pair in one step */

int64_t nic_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* splitmix64 */
uint64_t nic_random(struct nic *nic, uint64_t n)
{
    uint64_t z = (nic->random += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

void nic_kick(struct nic *nic)
{
    const uint64_t one = 1;
    ssize_t n = write(nic->kick, &one, sizeof(one));

    (void)n; /* an error means that the pipe is full, and so already readable */
}

void nic_event(struct nic *nic, enum ibv_event_type type, void *element,
               int port)
{
    struct nic_event event = {.event.event_type = type};

    if (element) {
        event.event.element.qp = element;
        event.qp_num = event.event.element.qp->qp_num;
    } else {
        event.event.element.port_num = port;
    }
    if (write(nic->async_write, &event, sizeof(event)) < 0)
        harm_report("nobody reads the asynchronous events");
}

/* --- one round -------------------------------------------------------------- */

static struct nic_qp *find_qp(struct nic *nic, uint32_t number)
{
    struct nic_qp *qp = nic->qps;

    while (qp && qp->ibv.qp_num != number)
        qp = qp->next;
    return qp;
}

static void receive(struct nic *nic, struct nic_qp *qp)
{
    struct nic_packet packet;

    for (int i = 0; i < PACKETS; i++) {
        ssize_t n = recv(qp->fd, &packet, sizeof(packet), MSG_DONTWAIT);

        if (n != (ssize_t)sizeof(packet))
            return;
        if (packet.to != qp->ibv.qp_num)
            continue;
        if (nic_is_cut(nic, qp) || (harm()->mtu && packet.kind == NIC_REQUEST &&
                                    packet.bytes > harm()->mtu)) {
            nic_stay_silent(qp, &packet);
            continue;
        }
        if (packet.kind == NIC_REQUEST)
            nic_on_request(nic, qp, &packet);
        else
            nic_on_answer(nic, qp, &packet);
    }
}

static void read_kick(struct nic *nic)
{
    uint64_t count;
    ssize_t n = read(nic->kick, &count, sizeof(count));

    (void)n;
}

/* Returns the earlier of two times; -1 means never. */
static int64_t sooner(int64_t a, int64_t b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* Do all work that is possible now. Returns the time until the next check, in
 * us, or -1 to wait for an event. */
static int64_t work(struct nic *nic)
{
    const int64_t now = nic_now();
    int64_t next = nic_ghosts_send(nic, now);

    for (struct nic_qp *qp = nic->qps; qp && !nic->fatal; qp = qp->next) {
        next = sooner(next, nic_place_some(nic, qp, now));
        nic_send_some(nic, qp);
        next = sooner(next, nic_look_at_time(nic, qp, now));
    }
    return next;
}

static void *run(void *arg)
{
    struct nic *nic = arg;

    pthread_mutex_lock(&nic->lock);
    while (!nic->stop) {
        struct epoll_event events[16];
        const int64_t next = work(nic);
        const struct timespec wait = {next / 1000000, next % 1000000 * 1000};
        int n;

        if (harm()->late && nic_random(nic, 64) == 0) {
            const useconds_t pause = (useconds_t)nic_random(nic, 300);

            pthread_mutex_unlock(&nic->lock);
            usleep(pause);
            pthread_mutex_lock(&nic->lock);
        }
        pthread_mutex_unlock(&nic->lock);
        n = epoll_pwait2(nic->epoll, events, 16, next < 0 ? NULL : &wait, NULL);
        pthread_mutex_lock(&nic->lock);
        for (int i = 0; i < n; i++) {
            struct nic_qp *qp;

            if (!events[i].data.u32) {
                read_kick(nic);
                continue;
            }
            qp = find_qp(nic, events[i].data.u32);
            if (qp)
                receive(nic, qp);
        }
    }
    pthread_mutex_unlock(&nic->lock);
    return NULL;
}

bool nic_start(struct nic *nic)
{
    struct epoll_event event = {.events = EPOLLIN};
    sigset_t all, before;
    int error;

    nic->epoll = epoll_create1(EPOLL_CLOEXEC);
    nic->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (nic->epoll < 0 || nic->kick < 0 ||
        epoll_ctl(nic->epoll, EPOLL_CTL_ADD, nic->kick, &event))
        return false;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    error = pthread_create(&nic->thread, NULL, run, nic);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !error;
}

void nic_stop(struct nic *nic)
{
    pthread_mutex_lock(&nic->lock);
    nic->stop = true;
    pthread_mutex_unlock(&nic->lock);
    nic_kick(nic);
    pthread_join(nic->thread, NULL);
    nic_ghosts_end(nic);
}
