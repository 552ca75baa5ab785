// SPDX-License-Identifier: Apache-2.0
/* Watches the process of a peer on this host; see process.h. */
#include "transports/common/process.h"
#include "transports/common/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void transport_process_describe(struct transport_process *process)
{
    int fd = shunti_fd_lift(
        open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    struct stat st;

    memset(process, 0, sizeof(*process));
    process->pid = -1;
    if (fd < 0)
        return;
    if (read(fd, process->boot, sizeof(process->boot) - 1) > 0 &&
        !stat("/proc/self/ns/pid", &st)) {
        process->pid_ns = st.st_ino;
        process->pid = getpid();
    }
    close(fd);
}

int transport_process_watch(const struct transport_process *theirs, bool *ended)
{
    struct transport_process ours;
    int fd;

    *ended = false;
    transport_process_describe(&ours);
    if (ours.pid < 0 || theirs->pid <= 0 || ours.pid == theirs->pid ||
        ours.pid_ns != theirs->pid_ns ||
        memcmp(ours.boot, theirs->boot, sizeof(ours.boot)))
        return -1;
    fd = shunti_fd_lift((int)syscall(SYS_pidfd_open, (pid_t)theirs->pid, 0));
    *ended = fd < 0 && errno == ESRCH;
    return fd;
}

bool transport_process_ended(int pidfd)
{
    struct pollfd pfd = {.fd = pidfd, .events = POLLIN};

    return pidfd >= 0 && poll(&pfd, 1, 0) > 0;
}
