// SPDX-License-Identifier: Apache-2.0
/*
 * A lock, so that one job at a time writes to a folder of checkpoints. Rank 0
 * of the job holds a lock on FOLDER/checkpoint.lock. The kernel releases the
 * lock when that process ends, however it ends. Over NFS the lock also works
 * between hosts. The file contains the name of the process. The file is never
 * removed: otherwise two jobs could lock two different files of that name.
 */
#ifndef TRAIN_FOLDER_LOCK_H
#define TRAIN_FOLDER_LOCK_H

#define FOLDER_LOCK "checkpoint.lock"

enum folder_lock_result {
    FOLDER_LOCK_TAKEN,
    FOLDER_LOCK_NONE,    /* this file system has no locks: see
                            train_error_text() */
    FOLDER_LOCK_REFUSED, /* another job has the lock, or an error: see
                            train_error_text() */
};

/* Takes the lock. *fd stays open while the lock is held. Sets *fd to -1 if this
 * call did not take the lock. */
enum folder_lock_result folder_lock_take(const char *folder, int *fd);
/* Releases the lock. Does nothing for -1. */
void folder_lock_release(int fd);

#endif
