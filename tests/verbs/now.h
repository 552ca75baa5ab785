/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of the devices of this process while a test runs. `what`:
 *
 *     down, up   the link: all packets are lost; PORT_ERR, PORT_ACTIVE
 *     lossy      all packets are lost, without an event
 *     qp         one of the device's queue pairs fails; QP_FATAL
 *     gid        the device gets other addresses; GID_CHANGE, or with
 *                InfiniBand LID_CHANGE, SM_CHANGE or CLIENT_REREGISTER
 *     subnet     like `gid`, with InfiniBand: the new addresses are in another
 *                subnet, or in the previous one again error=N, receive=N,
 *                calls=N, event=NAME@N as at the start (harm.c), counted from
 *                now on, on all devices
 *     fatal      the device fails, with all completions not yet polled;
 *                DEVICE_FATAL
 *
 * verbs_do() returns 0 if the change was made, and otherwise there was no
 * object to change. Find the function by dlsym() of "verbs_do" in
 * libibverbs.so.1, which the transport has loaded.
 */
#ifndef VERBS_NOW_H
#define VERBS_NOW_H

int verbs_do(int device, const char *what);
/* The number of queue pairs of this process, on all devices. */
int verbs_count(void);

#endif
