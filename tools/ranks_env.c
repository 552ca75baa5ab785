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

/* Bind a port of 127.0.0.1 without listening. Returns the socket, or -1. */
static int hold_port(int port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        close(fd);
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    return fd;
}

/*
 * Reserve MASTER_PORT for the program's own use, and the port after it, where
 * ranks of Shunt meet if they need a port (shunt_comm_create_env()). The
 * sockets stay open and bound, but do not listen: a server that binds with
 * SO_REUSEADDR, as all do, gets the port; other launchers, which bind without
 * it, do not. Ports of the ephemeral range are not used.
 */
static bool reserve_ports(struct ranks_env *env)
{
    for (int attempt = 0; attempt < 1000; attempt++) {
        uint16_t random;

        if (getrandom(&random, sizeof(random), 0) < 0)
            return false;
        env->master_port = 20000 + random % 6000 * 2;
        env->fds[0] = hold_port(env->master_port);
        env->fds[1] = hold_port(env->master_port + 1);
        if (env->fds[0] >= 0 && env->fds[1] >= 0)
            return true;
        for (int i = 0; i < 2; i++)
            if (env->fds[i] >= 0)
                close(env->fds[i]);
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
    snprintf(variables->text[n], sizeof(variables->text[n]),
             "MASTER_ADDR=127.0.0.1");
    n++;
    snprintf(variables->text[n], sizeof(variables->text[n]), "SHUNT_SECRET=%s",
             env->secret);
}

void ranks_env_finish(struct ranks_env *env)
{
    if (env->master_port != 0)
        for (int i = 0; i < 2; i++)
            close(env->fds[i]);
    memset(env, 0, sizeof(*env));
}
