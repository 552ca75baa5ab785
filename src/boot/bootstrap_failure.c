// SPDX-License-Identifier: Apache-2.0
/*
 * The failure of an init. Only the first failure counts. It is sent to every
 * member, with the numbers of the ranks that did not join or send in time.
 */
#include "src/boot/bootstrap_root.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/log.h"

int shunti_root_rank_name(const struct shunti_root *root, int rank)
{
    return rank >= 0 && rank < root->nnames ? root->names[rank] : rank;
}

/* An ERROR frame lists at most this many ranks. */
#define BLAMED_MAX 100

/* The rank at the other end may belong to this process. It then calls
 * shunti_bootstrap_settle() and exits. So count one connection more, until the
 * event loop counts again. */
void shunti_root_send_failure(struct shunti_root *root, struct shunti_conn *c)
{
    root->failures_sent++;
    shunti_root_count_conns(root, root->counted + 1);
    if (c->fd < 0)
        return;
    if (!shunti_conn_send(c, root->failure_frame)) {
        shunti_conn_close(c); /* the queue is full: the rank sees end of file */
        return;
    }
    shunti_conn_leave(c);
}

void shunti_root_turn_away(struct shunti_root *root, struct shunti_conn *c,
                           const char *text)
{
    size_t len = strlen(text);
    struct shunti_reply *frame =
        shunti_reply_new(SHUNTI_WIRE_ERROR, SHUNT_ERR_MISMATCH, len);

    if (!root->warned)
        shunti_warn("bootstrap",
                    "root %s: %s; this job has all its ranks, and goes on",
                    root->where, text);
    root->warned = true;
    if (frame)
        memcpy(frame->bytes + SHUNTI_WIRE_HEADER_BYTES, text, len);
    if (shunti_conn_send(c, frame))
        shunti_conn_leave(c);
    else
        shunti_conn_close(c);
    shunti_reply_release(frame);
}

bool shunti_root_reserve_failure(struct shunti_root *root)
{
    root->failure_frame = shunti_reply_new(
        SHUNTI_WIRE_ERROR, 0, sizeof(root->text) + 1 + 4 * BLAMED_MAX);
    return root->failure_frame;
}

/* Fill the ERROR frame: the text, and the ranks for which `is` returns true. */
static void fill_failure_frame(struct shunti_root *root,
                               bool (*is)(const struct shunti_root *, int))
{
    size_t len = strlen(root->text), blamed = 0, bytes;
    struct shunti_reply *frame = root->failure_frame;
    unsigned char *at = frame->bytes + SHUNTI_WIRE_HEADER_BYTES;

    for (int r = 0; is && r < root->nranks && blamed < BLAMED_MAX; r++)
        blamed += is(root, r);
    bytes = len + (blamed ? 1 + 4 * blamed : 0);
    shunti_wire_put_header(frame->bytes, SHUNTI_WIRE_ERROR, root->failure,
                           bytes);
    frame->len = SHUNTI_WIRE_HEADER_BYTES + bytes;
    memcpy(at, root->text, len);
    at += len;
    if (blamed)
        *at++ = 0;
    for (int r = 0; blamed && r < root->nranks; r++) {
        if (!is(root, r))
            continue;
        shunti_wire_put32(at, (uint32_t)shunti_root_rank_name(root, r));
        at += 4;
        blamed--;
    }
}

__attribute__((format(printf, 4, 5))) void
shunti_root_fail_for(struct shunti_root *root, enum shunt_status status,
                     bool (*is)(const struct shunti_root *, int),
                     const char *format, ...)
{
    va_list args;

    if (root->failure)
        return;
    va_start(args, format);
    vsnprintf(root->text, sizeof(root->text), format, args);
    va_end(args);
    root->failure = status;
    root->failed_at = shunti_wire_now();
    shunti_info("bootstrap", "root %s: %s", root->where, root->text);
    fill_failure_frame(root, is);
    for (int r = 0; r < root->nranks; r++)
        if (root->members[r] && root->members[r]->stage == SHUNTI_CONN_MEMBER)
            shunti_root_send_failure(root, root->members[r]);
    root->deadline =
        shunti_wire_now() + (root->timeout < SHUNTI_ROOT_LINGER_SECONDS
                                 ? root->timeout
                                 : SHUNTI_ROOT_LINGER_SECONDS);
}
