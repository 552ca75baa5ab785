// SPDX-License-Identifier: Apache-2.0
/*
 * Blocking I/O with deadlines on sockets, for a rank that talks to the root.
 * All waits use shunti_bootstrap_poll(), and end early when `parent` cancels
 * the init.
 */
#ifndef SHUNTI_BOOTSTRAP_IO_H
#define SHUNTI_BOOTSTRAP_IO_H

#include <stdbool.h>
#include <stddef.h>

struct shunti_id_parts;
struct shunti_parent;

enum shunti_io {
    SHUNTI_IO_OK,
    SHUNTI_IO_TIMEOUT,
    SHUNTI_IO_CLOSED,
    SHUNTI_IO_CANCELLED
};

/* Wait for `events` of poll(2). SHUNTI_IO_OK: the socket is ready, or broken;
 * the next call on it returns the error. */
enum shunti_io shunti_io_wait(int fd, short events, double deadline,
                              struct shunti_parent *parent);

/* Send or receive `len` bytes; `parent` may be NULL. */
enum shunti_io shunti_io_send(int fd, const void *data, size_t len,
                              double deadline, struct shunti_parent *parent);
enum shunti_io shunti_io_receive(int fd, void *data, size_t len,
                                 double deadline, struct shunti_parent *parent);

/* Sleep for `seconds`, or less. */
void shunti_io_sleep(double seconds);

/* Return a connected socket, or -1 and errno. */
int shunti_io_connect(const struct shunti_id_parts *parts, double deadline,
                      struct shunti_parent *parent);

/* Is a process of another user at the other end of unix socket `fd`? If so,
 * `why` names that user. */
bool shunti_io_is_other_user(int fd, char *why, size_t why_len);

#endif
