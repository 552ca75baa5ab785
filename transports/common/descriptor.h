// SPDX-License-Identifier: Apache-2.0
/*
 * Descriptors that the library keeps are above 2.
 *
 * A program may close its stdin, stdout or stderr, and still print. Its text
 * then goes to whatever got the number: to a window it would be wrong data, to
 * a socket a message of a peer. So each descriptor that is made or received,
 * and kept, passes shunti_fd_lift(), in the library and in its plugins.
 */
#ifndef TRANSPORT_DESCRIPTOR_H
#define TRANSPORT_DESCRIPTOR_H

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Move a descriptor above 2 if it is not. Accepts an error (-1). Returns -1 and
 * errno if that fails; then `fd` is closed. The result is closed at exec if it
 * was moved. */
static inline int shunti_fd_lift(int fd)
{
    int lifted, error;

    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    lifted = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    error = errno;
    close(fd);
    errno = error;
    return lifted;
}

/* An empty memfd. Text of another thread may have arrived in the file before it
 * was moved; truncating it removes the text. */
static inline int shunti_fd_memory(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd > STDERR_FILENO)
        return fd;
    fd = shunti_fd_lift(fd);
    if (fd >= 0 && ftruncate(fd, 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

#endif
