// SPDX-License-Identifier: Apache-2.0
//
// Ports and secrets for the ranks of one host.

#include "ranks_env.h"

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

/*
 * Reserve a TCP port of 127.0.0.1 for rank 0 to listen on. The socket stays
 * open, bound, and does not listen: a second binder that says SO_REUSEADDR, as
 * every server does, gets the port, while other launchers, who look without it,
 * do not. Ports that the system hands out by itself are left alone.
 */
static int reserve_port(int *fd)
{
    for (int attempt = 0; attempt < 1000; attempt++) {
        struct sockaddr_in address = {
            .sin_family = AF_INET,
            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        };
        uint16_t random = 0;
        int one = 1;
        int port;

        if (getrandom(&random, sizeof(random), 0) < 0)
            break;
        port = 20000 + random % 12000;
        address.sin_port = htons((uint16_t)port);
        *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (*fd < 0)
            break;
        if (bind(*fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
            setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
            return port;
        }
        close(*fd);
        *fd = -1;
    }
    return -1;
}

bool ranks_env_init(struct ranks_env *env)
{
    unsigned char secret[32];

    memset(env, 0, sizeof(*env));
    env->fds[0] = env->fds[1] = -1;
    env->master_port = reserve_port(&env->fds[0]);
    env->shunt_port = reserve_port(&env->fds[1]);
    if (env->master_port < 0 || env->shunt_port < 0 ||
        getrandom(secret, sizeof(secret), 0) != sizeof(secret)) {
        int failure = errno;

        ranks_env_finish(env);
        errno = failure;
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
        {"SHUNT_PORT", env->shunt_port},
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
    for (int i = 0; i < 2; i++) {
        if (env->master_port != 0 && env->fds[i] >= 0)
            close(env->fds[i]);
        env->fds[i] = -1;
    }
    memset(env->secret, 0, sizeof(env->secret));
}
