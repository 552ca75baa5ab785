/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a test does to the devices of its process while it runs. `what`:
 *
 *     down, up   the link: nothing goes through; PORT_ERR, PORT_ACTIVE
 *     lossy      likewise, but nobody is told
 *     qp         one of the device's queue pairs fails; QP_FATAL
 *     gid        the device has other addresses; GID_CHANGE, or with InfiniBand
 *                LID_CHANGE, SM_CHANGE or CLIENT_REREGISTER
 *     subnet     likewise with InfiniBand, and those of another subnet; or of the one
 *                before
 *     error=N, receive=N, calls=N, event=NAME@N
 *                as at the start (harm.c), counted from now on, on all devices
 *     fatal      the device fails, with all that it has not told; DEVICE_FATAL
 *
 * 0: done; else there is nothing to do it to. By dlsym() of "verbs_do" in
 * libibverbs.so.1, which the transport has loaded.
 */
#ifndef VERBS_NOW_H
#define VERBS_NOW_H

int verbs_do(int device, const char *what);
/* The queue pairs that this process has, on all devices. */
int verbs_count(void);

#endif
