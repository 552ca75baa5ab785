// SPDX-License-Identifier: Apache-2.0
/* Ports and secrets for the ranks of one host. */

#include "tools/ranks_env.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* Bind a port of the loopback address without listening. Returns the socket, or
 * -1. */
static int hold_port(int family, int port)
{
    struct sockaddr_in in = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    struct sockaddr_in6 in6 = {
        .sin6_family = AF_INET6,
        .sin6_port = htons((uint16_t)port),
        .sin6_addr = IN6ADDR_LOOPBACK_INIT,
    };
    const bool four = family == AF_INET;
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1, error;

    if (fd < 0)
        return -1;
    if (bind(fd, four ? (struct sockaddr *)&in : (struct sockaddr *)&in6,
             four ? sizeof(in) : sizeof(in6)) < 0) {
        error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    return fd;
}

/* Bind both ports. Returns false, with errno of the first that fails. */
static bool hold_ports(struct ranks_env *env, int family)
{
    for (int i = 0; i < 2; i++) {
        env->fds[i] = hold_port(family, env->master_port + i);
        if (env->fds[i] >= 0)
            continue;
        if (i) {
            const int error = errno;

            close(env->fds[0]);
            errno = error;
        }
        env->fds[0] = env->fds[1] = -1;
        return false;
    }
    return true;
}

/*
 * Reserve MASTER_PORT for the program's own use, and the next port, by which
 * Shunt's ranks find each other if they need a port (shunt_comm_create_env()).
 * The sockets stay open and bound, but do not listen. A server that binds with
 * SO_REUSEADDR, as all do, gets the port. Other launchers, which bind without
 * it, do not. Ports of the ephemeral range are not used.
 *
 * A machine may have no IPv4. If it has no loopback address at all, nothing is
 * reserved: ranks of one host do not need a port.
 */
static bool reserve_ports(struct ranks_env *env)
{
    int family = AF_INET;

    for (int attempt = 0; attempt < 1000; attempt++) {
        uint16_t random;

        if (getrandom(&random, sizeof(random), 0) < 0)
            return false;
        env->master_port = 20000 + random % 6000 * 2;
        env->master_addr = family == AF_INET ? "127.0.0.1" : "::1";
        if (hold_ports(env, family))
            return true;
        if (errno == EADDRINUSE)
            continue;
        if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT)
            return false;
        if (family == AF_INET6) {
            env->master_addr = "127.0.0.1";
            return true;
        }
        family = AF_INET6;
    }
    errno = EADDRINUSE;
    return false;
}

bool ranks_env_init(struct ranks_env *env)
{
    unsigned char secret[32];

    memset(env, 0, sizeof(*env));
    if (getrandom(secret, sizeof(secret), 0) != sizeof(secret) ||
        !reserve_ports(env)) {
        env->master_port = 0;
        return false;
    }
    for (size_t i = 0; i < sizeof(secret); i++)
        snprintf(env->secret + 2 * i, 3, "%02x", secret[i]);
    return true;
}

void ranks_env_of(const struct ranks_env *env, int rank, int ranks,
                  struct rank_variables *variables)
{
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        {"RANK", rank},
        {"WORLD_SIZE", ranks},
        {"LOCAL_RANK", rank},
        {"LOCAL_WORLD_SIZE", ranks},
        {"MASTER_PORT", env->master_port},
    };
    size_t n = 0;

    for (; n < sizeof(numbers) / sizeof(numbers[0]); n++)
        snprintf(variables->text[n], sizeof(variables->text[n]), "%s=%d",
                 numbers[n].name, numbers[n].value);
    snprintf(variables->text[n], sizeof(variables->text[n]), "MASTER_ADDR=%s",
             env->master_addr);
    n++;
    snprintf(variables->text[n], sizeof(variables->text[n]), "SHUNT_SECRET=%s",
             env->secret);
}

void ranks_env_finish(struct ranks_env *env)
{
    if (env->master_port != 0)
        for (int i = 0; i < 2; i++)
            if (env->fds[i] >= 0)
                close(env->fds[i]);
    memset(env, 0, sizeof(*env));
}
