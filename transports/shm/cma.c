// SPDX-License-Identifier: Apache-2.0
/*
 * Reading a peer's plain memory: process_vm_readv (cross memory attach).
 *
 * Whether the kernel allows such a read depends on seccomp filters, Yama, user
 * and process namespaces, and on dumpability. So a read is tried with each
 * peer. This rank reads a random cookie of the peer, and the peer reads one of
 * this rank. get() is offered only if both reads worked, so that both sides
 * choose the same algorithms.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "transports/common/descriptor.h"
#include "transports/shm/shm.h"

/* The most bytes of one call. The kernel stops just below 2 GiB anyway. */
#define CHUNK ((size_t)1 << 30)

bool shm_cma_allowed(const struct shunt_transport_host *host)
{
    const char *value = host->env ? host->env("SHUNT_CMA") : NULL;

    return !value || (strcasecmp(value, "off") && strcmp(value, "0") &&
                      strcasecmp(value, "no"));
}

void shm_cma_consent(void)
{
    char scope = '0';
    int fd = shunti_fd_lift(
        open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC));

    if (fd < 0)
        return; /* no Yama */
    /* With scope 1 a process may name a process that may read its memory. With
     * 2 and 3 this process cannot change anything. */
    if (read(fd, &scope, 1) == 1 && scope == '1')
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    close(fd);
}

bool shm_cma_try(pid_t pid, uint64_t address, uint64_t cookie)
{
    uint64_t found = ~cookie;
    struct iovec local = {&found, sizeof(found)};
    struct iovec remote = {(void *)(uintptr_t)address, sizeof(found)};

    if (pid <= 0)
        return false;
    if (process_vm_readv(pid, &local, 1, &remote, 1, 0) !=
        (ssize_t)sizeof(found))
        return false;
    /* In another namespace, `pid` may be another process, which has another
     * cookie. */
    return found == cookie;
}

int shm_cma_self(void)
{
    uint64_t here = 1, there = 0;
    struct iovec local = {&there, sizeof(there)};
    struct iovec remote = {&here, sizeof(here)};

    if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) < 0)
        return errno;
    return 0;
}

static enum shunt_status get_failed(struct shunt_transport_ep *ep,
                                    uint64_t address, size_t bytes, int error)
{
    switch (error) {
    case EFAULT:
        return shm_fail(ep->ctx, SHUNT_ERR_INVALID,
                        "rank %d has no memory at %#llx (%zu bytes), or we "
                        "have none to read it to",
                        ep->peer, (unsigned long long)address, bytes);
    case ESRCH:
        return shm_fail(ep->ctx, SHUNT_ERR_PEER, "rank %d (pid %ld) is gone",
                        ep->peer, (long)ep->pid);
    case EPERM:
        return shm_fail(ep->ctx, SHUNT_ERR_SYSTEM,
                        "process_vm_readv of rank %d (pid %ld) is not allowed "
                        "any more; set SHUNT_CMA=off to do without it",
                        ep->peer, (long)ep->pid);
    default:
        return shm_fail(ep->ctx, SHUNT_ERR_SYSTEM,
                        "process_vm_readv of rank %d (pid %ld): %s; set "
                        "SHUNT_CMA=off to do without it",
                        ep->peer, (long)ep->pid, strerror(error));
    }
}

enum shunt_status shm_get(struct shunt_transport_ep *ep,
                          const struct shunt_transport_get *get)
{
    uint64_t address = get->address;
    size_t bytes = get->bytes;
    char *to = get->local;

    if (!ep->cma)
        return shm_fail(ep->ctx, SHUNT_ERR_UNSUPPORTED,
                        "plain memory of rank %d cannot be read here",
                        ep->peer);
    if (ep->gone)
        return shm_fail(ep->ctx, SHUNT_ERR_PEER, "rank %d is gone", ep->peer);
    while (bytes > 0) {
        size_t part = bytes < CHUNK ? bytes : CHUNK;
        struct iovec here = {to, part};
        struct iovec there = {(void *)(uintptr_t)address, part};
        ssize_t n = process_vm_readv(ep->pid, &here, 1, &there, 1, 0);

        /* The kernel reads up to the last valid page, and then returns EFAULT.
         * A signal may also end a call early. */
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return get_failed(ep, address, bytes, n < 0 ? errno : EFAULT);
        to += n;
        address += (uint64_t)n;
        bytes -= (size_t)n;
    }
    *get->status = SHUNT_OK;
    return SHUNT_OK;
}
