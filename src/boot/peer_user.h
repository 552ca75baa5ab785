// SPDX-License-Identifier: Apache-2.0
/*
 * The user at the other end of a connected socket, according to the kernel.
 *
 * For a unix socket the kernel always knows. For a TCP connection it knows if
 * both ends are on this host (and in this network namespace): /proc/net/tcp has
 * a line for each of them.
 */
#ifndef SHUNTI_PEER_USER_H
#define SHUNTI_PEER_USER_H

#include <stdbool.h>

#include <sys/types.h>

enum shunti_peer_user {
    SHUNTI_USER_UNKNOWN, /* the peer is on another host, or there is no /proc */
    SHUNTI_USER_OURS,    /* the effective user of this process */
    SHUNTI_USER_OTHER,
    SHUNTI_USER_GONE,   /* the TCP connection is closed */
    SHUNTI_USER_HIDDEN, /* the kernel refuses to say; errno says why */
};

/* The effective user at the other end of a unix socket. If this process has
 * connected, that is the user that called listen(). False: not a unix
 * socket. */
bool shunti_peer_uid(int fd, uid_t *uid);

/* The user at the other end. `tcp`: answer for TCP connections, too. */
enum shunti_peer_user shunti_peer_user(int fd, bool tcp);

#endif
