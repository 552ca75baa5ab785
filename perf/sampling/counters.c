// SPDX-License-Identifier: Apache-2.0
/*
 * Reads counters by rtnetlink: a dump of all queueing disciplines, and one
 * request for the interface.
 */
#include "perf/sampling/counters.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/gen_stats.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>

#define REPLY_BYTES 65536

struct question {
    struct nlmsghdr head;
    union {
        struct tcmsg tc;
        struct ifinfomsg link;
    };
};

/* The counter to find in a reply. */
struct search {
    int index; /* index of the interface */
    bool found;
    struct perf_counters *counters;
};

static const struct rtattr *find(const struct rtattr *a, size_t length,
                                 unsigned short type)
{
    for (int left = (int)length; RTA_OK(a, left); a = RTA_NEXT(a, left))
        if ((a->rta_type & NLA_TYPE_MASK) == type)
            return a;
    return NULL;
}

static const struct rtattr *find_in(const struct rtattr *nest,
                                    unsigned short type)
{
    return nest ? find(RTA_DATA(nest), RTA_PAYLOAD(nest), type) : NULL;
}

/* Copy the first `bytes` of an attribute; false if it has fewer. Newer
 * kernels append fields. */
static bool copy(void *to, size_t bytes, const struct rtattr *a)
{
    if (!a || RTA_PAYLOAD(a) < bytes)
        return false;
    memcpy(to, RTA_DATA(a), bytes);
    return true;
}

static void see_queue(const struct nlmsghdr *m, struct search *s)
{
    const struct tcmsg *tc = NLMSG_DATA(m);
    size_t length = m->nlmsg_len - NLMSG_LENGTH(sizeof(*tc));
    const struct rtattr *all = TCA_RTA(tc), *kind, *stats;
    struct gnet_stats_basic basic;
    struct gnet_stats_queue queue;

    if (m->nlmsg_type != RTM_NEWQDISC || tc->tcm_ifindex != s->index ||
        tc->tcm_parent != TC_H_ROOT)
        return;
    kind = find(all, length, TCA_KIND);
    stats = find(all, length, TCA_STATS2);
    if (!kind || !copy(&basic, sizeof(basic), find_in(stats, TCA_STATS_BASIC)))
        return;
    snprintf(s->counters->kind, sizeof(s->counters->kind), "%.*s",
             (int)RTA_PAYLOAD(kind), (const char *)RTA_DATA(kind));
    /* "noqueue" is not a discipline: it never sees a packet. */
    if (strcmp(s->counters->kind, "noqueue") == 0)
        return;
    s->counters->sent = basic.bytes;
    if (copy(&queue, sizeof(queue), find_in(stats, TCA_STATS_QUEUE)))
        s->counters->dropped = queue.drops;
    s->counters->queue = s->found = true;
}

static void see_link(const struct nlmsghdr *m, struct search *s)
{
    const struct ifinfomsg *link = NLMSG_DATA(m);
    size_t length = m->nlmsg_len - NLMSG_LENGTH(sizeof(*link));
    struct rtnl_link_stats64 stats;
    const size_t enough =
        sizeof(stats.rx_packets) * 4; /* the fields up to tx_bytes */

    if (m->nlmsg_type != RTM_NEWLINK || link->ifi_index != s->index ||
        !copy(&stats, enough, find(IFLA_RTA(link), length, IFLA_STATS64)))
        return;
    s->counters->sent = stats.tx_bytes;
    s->found = true;
}

static const char *ask(int fd, struct question *q,
                       void (*see)(const struct nlmsghdr *, struct search *),
                       struct search *s)
{
    static _Alignas(struct nlmsghdr) char reply[REPLY_BYTES];

    q->head.nlmsg_flags |= NLM_F_REQUEST;
    if (send(fd, q, q->head.nlmsg_len, 0) < 0)
        return strerror(errno);
    for (;;) {
        ssize_t n = recv(fd, reply, sizeof(reply), 0);
        if (n <= 0)
            return n < 0 ? strerror(errno) : "netlink: nothing came";
        const struct nlmsghdr *m = (const void *)reply;
        for (unsigned left = (unsigned)n; NLMSG_OK(m, left);
             m = NLMSG_NEXT(m, left)) {
            if (m->nlmsg_type == NLMSG_DONE)
                return NULL;
            if (m->nlmsg_type == NLMSG_ERROR)
                return "netlink refused the question";
            see(m, s);
        }
        if (!(q->head.nlmsg_flags & NLM_F_DUMP))
            return NULL;
    }
}

static const char *ask_both(int fd, struct search *s)
{
    struct question q = {
        .head = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct tcmsg)),
                 .nlmsg_type = RTM_GETQDISC,
                 .nlmsg_flags = NLM_F_DUMP},
        .tc = {.tcm_family = AF_UNSPEC, .tcm_ifindex = s->index},
    };
    const char *wrong = ask(fd, &q, see_queue, s);
    if (wrong || s->found)
        return wrong;

    q = (struct question){
        .head = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
                 .nlmsg_type = RTM_GETLINK},
        .link = {.ifi_family = AF_UNSPEC, .ifi_index = s->index},
    };
    wrong = ask(fd, &q, see_link, s);
    return wrong || s->found ? wrong : "the interface has no counters";
}

const char *perf_counters_read(const char *interface, struct perf_counters *c)
{
    struct search s = {(int)if_nametoindex(interface), false, c};
    struct timeval patience = {.tv_sec = 10};

    memset(c, 0, sizeof(*c));
    if (!s.index)
        return "there is no such interface";
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0)
        return strerror(errno);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    const char *wrong = ask_both(fd, &s);
    close(fd);
    return wrong;
}
