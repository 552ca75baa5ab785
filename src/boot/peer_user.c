// SPDX-License-Identifier: Apache-2.0
/* The user at the other end of a socket. */
#include "src/boot/peer_user.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transports/common/descriptor.h"

#define TEXT 48
#define TIME_WAIT 6 /* a socket in this state has no owner */

static enum shunti_peer_user compare(unsigned long uid)
{
    return uid == geteuid() ? SHUNTI_USER_OURS : SHUNTI_USER_OTHER;
}

/* Print an address as in /proc/net/tcp: "0100007F:1F90". *v6 is true if the
 * address is in the table tcp6. False: the family has no such table. */
static bool print_address(const struct sockaddr_storage *addr, char *text,
                          bool *v6)
{
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
    const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
    uint32_t word[4];

    *v6 = false;
    if (addr->ss_family == AF_INET) {
        snprintf(text, TEXT, "%08X:%04X", in->sin_addr.s_addr,
                 ntohs(in->sin_port));
        return true;
    }
    if (addr->ss_family != AF_INET6)
        return false;
    memcpy(word, &in6->sin6_addr, sizeof(word));
    if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
        snprintf(text, TEXT, "%08X:%04X", word[3], ntohs(in6->sin6_port));
        return true;
    }
    *v6 = true;
    snprintf(text, TEXT, "%08X%08X%08X%08X:%04X", word[0], word[1], word[2],
             word[3], ntohs(in6->sin6_port));
    return true;
}

/* Does this address belong to another host? bind() to any port of it is a cheap
 * way to ask. */
static bool is_elsewhere(struct sockaddr_storage addr)
{
    bool v6 = addr.ss_family == AF_INET6;
    int fd =
        shunti_fd_lift(socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    bool elsewhere;

    if (v6)
        ((struct sockaddr_in6 *)&addr)->sin6_port = 0;
    else
        ((struct sockaddr_in *)&addr)->sin_port = 0;
    elsewhere = fd >= 0 &&
                bind(fd, (struct sockaddr *)&addr,
                     v6 ? sizeof(struct sockaddr_in6)
                        : sizeof(struct sockaddr_in)) < 0 &&
                errno == EADDRNOTAVAIL;
    if (fd >= 0)
        close(fd);
    return elsewhere;
}

/* Find the owner of the socket with these addresses. */
static enum shunti_peer_user look_up(const char *table, const char *local,
                                     const char *remote)
{
    enum shunti_peer_user user = SHUNTI_USER_UNKNOWN;
    FILE *f = fopen(table, "re");
    char line[512];

    while (f && user == SHUNTI_USER_UNKNOWN && fgets(line, sizeof(line), f)) {
        char a[TEXT], b[TEXT];
        unsigned long uid, inode;
        unsigned state;

        if (sscanf(line, " %*d: %47s %47s %x %*s %*s %*s %lu %*s %lu", a, b,
                   &state, &uid, &inode) == 5 &&
            state != TIME_WAIT && !strcmp(a, local) && !strcmp(b, remote))
            user = inode ? compare(uid) : SHUNTI_USER_GONE;
    }
    if (f)
        fclose(f);
    return user;
}

/* Has the other end closed or reset the connection? Its line in the table is
 * then gone, or names root as the owner. */
static bool is_closed(int fd)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len))
        return errno != EPERM && errno != ENOSYS && errno != EACCES;
    return info.tcpi_state != TCP_ESTABLISHED;
}

bool shunti_peer_uid(int fd, uid_t *uid)
{
    struct ucred cred = {0};
    socklen_t len = sizeof(cred);
    int family = 0;
    socklen_t family_len = sizeof(family);

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &family_len) ||
        family != AF_UNIX ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len))
        return false;
    *uid = cred.uid;
    return true;
}

enum shunti_peer_user shunti_peer_user(int fd, bool tcp)
{
    struct sockaddr_storage ours = {0}, theirs = {0};
    socklen_t ours_len = sizeof(ours), theirs_len = sizeof(theirs);
    char local[TEXT], remote[TEXT];
    enum shunti_peer_user user;
    bool v6, same;
    uid_t uid;

    if (getsockname(fd, (struct sockaddr *)&ours, &ours_len))
        return SHUNTI_USER_UNKNOWN;
    if (ours.ss_family == AF_UNIX)
        return shunti_peer_uid(fd, &uid) ? compare(uid) : SHUNTI_USER_HIDDEN;
    if (!tcp)
        return SHUNTI_USER_UNKNOWN;
    if (getpeername(fd, (struct sockaddr *)&theirs, &theirs_len))
        return SHUNTI_USER_GONE;
    if (!print_address(&theirs, local, &v6) ||
        !print_address(&ours, remote, &same) || same != v6)
        return SHUNTI_USER_UNKNOWN;
    user =
        is_elsewhere(theirs) /* much faster than a search of the table */
            ? SHUNTI_USER_UNKNOWN
            : look_up(v6 ? "/proc/net/tcp6" : "/proc/net/tcp", local, remote);
    /* check is_closed() after the table was read */
    return is_closed(fd) ? SHUNTI_USER_GONE : user;
}
