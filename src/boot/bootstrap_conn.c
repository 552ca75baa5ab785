// SPDX-License-Identifier: Apache-2.0
/*
 * One connection of the root: its queue of messages, its input, and its end.
 *
 * A message may be queued on many connections, each of which holds a reference.
 * Sockets do not block: bytes that a socket does not accept stay queued.
 */
#include "src/boot/bootstrap_root.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/boot/bootstrap_wire.h"

struct shunti_reply *shunti_reply_new(uint32_t type, int32_t status,
                                      size_t bytes)
{
    struct shunti_reply *r =
        malloc(sizeof(*r) + SHUNTI_WIRE_HEADER_BYTES + bytes);

    if (!r)
        return NULL;
    r->refs = 1;
    r->len = SHUNTI_WIRE_HEADER_BYTES + bytes;
    shunti_wire_put_header(r->bytes, type, status, bytes);
    return r;
}

void shunti_reply_release(struct shunti_reply *r)
{
    if (r && !--r->refs)
        free(r);
}

bool shunti_conn_flush(struct shunti_conn *c)
{
    while (c->nout) {
        struct shunti_reply *r = c->out[0];
        ssize_t n = send(c->fd, r->bytes + c->out_sent, r->len - c->out_sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        c->out_sent += (size_t)n;
        if (c->out_sent < r->len)
            continue;
        shunti_reply_release(r);
        c->nout--;
        memmove(c->out, c->out + 1, c->nout * sizeof(c->out[0]));
        c->out_sent = 0;
    }
    if (c->stage == SHUNTI_CONN_LEAVING && !c->shut) {
        shutdown(c->fd, SHUT_WR);
        c->shut = true;
    }
    return true;
}

bool shunti_conn_send(struct shunti_conn *c, struct shunti_reply *r)
{
    if (!r || c->nout == SHUNTI_CONN_OUTBOX)
        return false;
    r->refs++;
    c->out[c->nout++] = r;
    return true;
}

void shunti_conn_close(struct shunti_conn *c)
{
    if (c->fd < 0)
        return;
    close(c->fd);
    c->fd = -1;
    for (unsigned i = 0; i < c->nout; i++)
        shunti_reply_release(c->out[i]);
    c->nout = 0;
    free(c->body);
    c->body = NULL;
}

void shunti_conn_leave(struct shunti_conn *c)
{
    c->stage = SHUNTI_CONN_LEAVING;
    c->deadline = shunti_wire_now() + SHUNTI_ROOT_LINGER_SECONDS;
    free(c->body);
    c->body = NULL;
}

ssize_t shunti_conn_receive(struct shunti_conn *c, void *buffer, size_t len)
{
    for (;;) {
        ssize_t n = recv(c->fd, buffer, len, MSG_DONTWAIT);

        if (n > 0)
            return n;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        return -1;
    }
}

void shunti_root_release_spare(struct shunti_root *root)
{
    if (root->spare_fd >= 0)
        close(root->spare_fd);
    root->spare_fd = -1;
}
