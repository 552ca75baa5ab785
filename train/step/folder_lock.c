// SPDX-License-Identifier: Apache-2.0
/*
 * Two bytes of the file are locked; the file need not be that long. OWNER is
 * locked as long as the job runs. NAME is locked while the file's text is
 * written or read, so that the text is never that of an earlier job. The locks
 * belong to the open file (F_OFD_SETLK), not to the process: closing another
 * descriptor does not release them. The locks also work over NFS.
 */
#include "train/step/folder_lock.h"

#include "train/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OWNER = 1 << 20, NAME };

static int set_lock(int fd, short type, off_t at)
{
    struct flock lock = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};

    return fcntl(fd, F_OFD_SETLK, &lock) ? errno : 0;
}

static bool is_busy(int error)
{
    return error == EAGAIN || error == EACCES;
}

/* Lock NAME, which other jobs hold for a few system calls only. Give up after
 * two seconds, in case that a process was stopped meanwhile. */
static int lock_name(int fd)
{
    int error = set_lock(fd, F_WRLCK, NAME);

    for (int ms = 0; is_busy(error) && ms < 2000; ms++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        error = set_lock(fd, F_WRLCK, NAME);
    }
    return error;
}

static int write_name(int fd)
{
    char host[256] = "", text[320];

    gethostname(host, sizeof(host) - 1);
    const int n = snprintf(text, sizeof(text), "process %ld on host %s\n",
                           (long)getpid(), host);
    return ftruncate(fd, 0) || pwrite(fd, text, (size_t)n, 0) != n ? -1 : 0;
}

/* Refuse with the name of the job that has the lock. */
static int refuse(const char *path, int fd, bool named)
{
    char text[320] = "";

    if (named && pread(fd, text, sizeof(text) - 1, 0) > 0)
        text[strcspn(text, "\n")] = '\0';
    return train_error("another job writes checkpoints to this folder: %s%s. "
                       "Wait until it has ended, or give another folder (%s is "
                       "locked)",
                       text[0] ? "its rank 0 is " : "it has just begun", text,
                       path);
}

enum folder_lock_result folder_lock_take(const char *folder, int *fd)
{
    char path[4200];

    snprintf(path, sizeof(path), "%s/" FOLDER_LOCK, folder);
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
               0666);
    if (*fd < 0) {
        train_error("cannot write to the folder %s: " FOLDER_LOCK ": %s",
                    folder, strerror(errno));
        return FOLDER_LOCK_REFUSED;
    }
    const int named = lock_name(*fd), owned = set_lock(*fd, F_WRLCK, OWNER);
    const int written = owned ? 0 : write_name(*fd);
    const int error = owned ? owned : errno;

    if (is_busy(owned))
        refuse(path, *fd, !named);
    else if (owned || written)
        train_error("cannot lock %s: %s", path, strerror(error));
    if (!named)
        set_lock(*fd, F_UNLCK, NAME);
    if (!owned && !written)
        return FOLDER_LOCK_TAKEN;
    close(*fd);
    *fd = -1;
    return is_busy(owned) || written ? FOLDER_LOCK_REFUSED : FOLDER_LOCK_NONE;
}

void folder_lock_release(int fd)
{
    if (fd < 0)
        return;
    if (ftruncate(fd, 0) == 0) /* on failure the file keeps the name of the
                                  ended job */
        fsync(fd);
    close(fd);
}
