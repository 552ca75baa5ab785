// SPDX-License-Identifier: Apache-2.0
/*
 * Operations in the timeline; see trace_request.h.
 */
#include "src/op/trace_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/comm.h"
#include "src/kernels/dtype.h"
#include "src/op/note.h"
#include "src/trace/trace.h"
#include "src/trace/trace_summary.h"
#include "src/trace/track.h"
#include "src/wire/failure.h"

/* Bytes of the text about protocols. */
#define WAYS_TEXT 112

/* Append "seq":7,"algorithm":"flat",...: a description of the request, without
 * braces. */
static size_t describe(const struct shunt_request *request, char *args,
                       size_t size)
{
    const struct shunti_kind *kind = shunti_kind_of(request->signature);
    const char *purpose = shunti_purpose_name(request->signature);
    size_t n = (size_t)snprintf(args, size, "\"seq\":%llu",
                                (unsigned long long)request->seq);

    if (request->class->algorithm)
        n += (size_t)snprintf(args + n, size - n, ",\"algorithm\":\"%s\"",
                              request->class->algorithm);
    if (kind->typed)
        n += (size_t)snprintf(args + n, size - n, ",\"dtype\":\"%s\"",
                              shunti_dtype_name((enum shunt_dtype)(
                                  request->signature >> 20 & 15)));
    if (kind->detail == SHUNTI_DETAIL_ROOT)
        n += (size_t)snprintf(args + n, size - n, ",\"root\":%u",
                              request->signature & 0xffff & ~SHUNTI_TWO_LEVEL);
    if (purpose)
        n += (size_t)snprintf(args + n, size - n, ",\"part_of\":\"%s\"",
                              purpose);
    return n;
}

/* Append ,"bytes":24,"to":{"1":8,"2":16}: the bytes sent to other ranks. With
 * many ranks only some of them are listed. */
static size_t describe_bytes(const struct shunt_request *request, char *args,
                             size_t size, uint64_t *bytes_sent)
{
    const struct shunt_comm *comm = request->comm;
    uint64_t sum =
        request->class->sent_in_all ? request->class->sent_in_all(request) : 0;
    char peers[144] = ""; /* the other arguments take 230 bytes at most */
    size_t n = 0;

    for (int r = 0; r < comm->nranks && request->class->sent; r++) {
        size_t bytes = r == comm->rank ? 0 : request->class->sent(request, r);

        sum += bytes;
        if (bytes && n + 40 < sizeof(peers))
            n += (size_t)snprintf(peers + n, sizeof(peers) - n, "%s\"%d\":%zu",
                                  n ? "," : "", r, bytes);
    }
    *bytes_sent = sum;
    return (size_t)snprintf(args, size, ",\"bytes\":%llu,\"to\":{%s}",
                            (unsigned long long)sum, peers);
}

/* Append ,"ways":{"window":[1,2],"read":[3]}: the protocols that were used, and
 * with which ranks. The room is shared equally among the protocols; each has
 * room for at least one rank. */
static size_t describe_ways(const struct shunt_request *request, char *args,
                            size_t size)
{
    static const char *const names[] = {
        [SHUNTI_WAY_INLINE] = "inline", [SHUNTI_WAY_WINDOW] = "window",
        [SHUNTI_WAY_READ] = "read",     [SHUNTI_WAY_STREAM] = "stream",
        [SHUNTI_WAY_ZCOPY] = "zcopy",
    };
    const int nranks = request->comm->nranks;
    unsigned taken = 0;
    size_t n, share;

    for (int r = 0; r < nranks && request->traced; r++)
        taken |= request->traced->ways[r];
    if (!taken)
        return 0;
    n = (size_t)snprintf(args, size, ",\"ways\":{");
    share = (WAYS_TEXT - n - 2) / (size_t)__builtin_popcount(taken);
    for (int way = SHUNTI_WAY_INLINE; way <= SHUNTI_WAY_ZCOPY; way++) {
        const size_t end = n + share;
        const char *sign = "";

        if (!(taken >> way & 1))
            continue;
        n += (size_t)snprintf(args + n, size - n, "%s\"%s\":[",
                              args[n - 1] == '{' ? "" : ",", names[way]);
        for (int r = 0; r < nranks && n + 7 <= end; r++) {
            if (!(request->traced->ways[r] >> way & 1))
                continue;
            n += (size_t)snprintf(args + n, size - n, "%s%d", sign, r);
            sign = ",";
        }
        n += (size_t)snprintf(args + n, size - n, "]");
    }
    return n + (size_t)snprintf(args + n, size - n, "}");
}

void shunti_trace_request_begin(struct shunt_request *request)
{
    const uint64_t now = shunti_now_ns();

    request->begun_ns = now;
    /* If memory runs out, the event lacks the fields that need `traced`. */
    request->traced =
        calloc(1, sizeof(*request->traced) + (size_t)request->comm->nranks);
    if (request->traced)
        request->traced->began_ns = request->traced->in_ns = now;
}

void shunti_trace_request_in(const struct shunt_request *request)
{
    request->traced->in_ns = shunti_now_ns();
}

void shunti_trace_request_out(const struct shunt_request *request)
{
    struct shunti_traced *t = request->traced;

    t->inside_ns += shunti_now_ns() - t->in_ns;
    t->in_ns = 0;
}

/* Append ,"inside_us":5.001,"hidden":0.667: how long the caller was in calls
 * for the request, and the fraction of the request's time in which the caller
 * was not in such a call. Also adds the times to the summary
 * (trace_summary.h). */
static size_t describe_hidden(const struct shunt_request *request, uint64_t now,
                              uint64_t bytes, char *args, size_t size)
{
    const char *purpose = shunti_purpose_name(request->signature);
    const struct shunti_traced *t = request->traced;
    uint64_t under_way, inside;
    unsigned hidden;

    if (!t)
        return 0;
    under_way = now - t->began_ns;
    inside = t->inside_ns + (t->in_ns ? now - t->in_ns : 0);
    hidden =
        under_way ? (unsigned)((under_way - inside) * 1000 / under_way) : 0;
    if (shunti_tracked())
        shunti_summary_add_call(shunti_trace_file_rank(request->comm->rank),
                                purpose ? purpose : request->class->name, bytes,
                                inside, under_way);
    return (size_t)snprintf(
        args, size, ",\"inside_us\":%llu.%03u,\"hidden\":%u.%03u",
        (unsigned long long)(inside / 1000), (unsigned)(inside % 1000),
        hidden / 1000, hidden % 1000);
}

void shunti_trace_request(const struct shunt_request *request)
{
    const uint64_t now = shunti_now_ns();
    char args[SHUNTI_TRACE_ARGS] = "{";
    uint64_t bytes;
    size_t n = 1;

    n += describe(request, args + n, sizeof(args) - n);
    n += describe_bytes(request, args + n, sizeof(args) - n, &bytes);
    n += describe_ways(request, args + n, sizeof(args) - n);
    n += describe_hidden(request, now, bytes, args + n, sizeof(args) - n);
    snprintf(args + n, sizeof(args) - n, ",\"status\":%d}",
             (int)request->status);
    shunti_trace_span(request->comm->rank, request->class->name,
                      request->begun_ns, now, args);
}

/* The peers that a request awaits, as "1,2". */
static void list_awaited(const struct shunt_request *request, char *text,
                         size_t size)
{
    size_t n = 0;

    text[0] = '\0';
    for (int r = 0; r < request->comm->nranks && n + 16 < size; r++)
        if (r != request->comm->rank && request->class->awaits(request, r))
            n += (size_t)snprintf(text + n, size - n, "%s%d", n ? "," : "", r);
}

/* Record that the communicator has failed, with comm->failure.text, and the
 * operations under way with the ranks that they await. */
static void trace_failure(struct shunt_comm *comm)
{
    const uint64_t now = shunti_now_ns();
    char args[SHUNTI_TRACE_ARGS], awaited[128];

    for (struct shunt_request *r = comm->operations.active; r; r = r->next) {
        size_t n = 1;

        args[0] = '{';
        n += describe(r, args + n, sizeof(args) - n);
        list_awaited(r, awaited, sizeof(awaited));
        snprintf(args + n, sizeof(args) - n,
                 ",\"unfinished\":true,\"awaits\":[%s]}", awaited);
        shunti_trace_span(comm->rank, r->class->name,
                          r->begun_ns ? r->begun_ns : now, now, args);
    }
    shunti_trace_failed(comm->rank, comm->failure.text);
}

__attribute__((constructor)) static void trace_failures(void)
{
    shunti_fail_trace = trace_failure;
}
