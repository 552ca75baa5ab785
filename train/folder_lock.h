// SPDX-License-Identifier: Apache-2.0
/*
 * One job at a time writes to a folder of checkpoints: its rank 0 holds a lock on
 * FOLDER/checkpoint.lock. The kernel releases the lock when that process ends, however
 * it ends; over NFS also for other hosts. The file names the process, and stays: its
 * removal would let two jobs lock two files of that name.
 */
#ifndef TRAIN_FOLDER_LOCK_H
#define TRAIN_FOLDER_LOCK_H

#define FOLDER_LOCK "checkpoint.lock"

enum folder_lock_result {
    FOLDER_LOCK_TAKEN,
    FOLDER_LOCK_NONE,    /* this file system has no locks: train_error_text() */
    FOLDER_LOCK_REFUSED, /* another job has it, or an error: likewise */
};

/* *fd: open while the lock is held; -1: it is not. */
enum folder_lock_result folder_lock_take(const char *folder, int *fd);
/* Does nothing for -1. */
void folder_lock_release(int fd);

#endif
