// SPDX-License-Identifier: Apache-2.0
/* Creating, keeping and freeing requests; see request.h. A request is kept
 * while its caller may ask for it. */
#include "src/op/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/inline.h"
#include "src/base/log.h"
#include "src/comm.h"
#include "src/op/engine_worthwhile.h"
#include "src/wire/failure.h"

const struct shunti_options shunti_no_options;

static const char *name_of(uint32_t signature, const struct shunti_class *class)
{
    const char *name = shunti_purpose_name(signature);

    return name ? name : class->name;
}

const char *shunti_request_name(const struct shunt_request *request)
{
    return name_of(request->signature, request->class);
}

static struct shunt_request *take_spare(struct shunt_comm *comm,
                                        size_t state_bytes)
{
    struct shunt_request *request = comm->requests.spare;

    if (request && state_bytes <= request->capacity) {
        comm->requests.spare = request->next;
    } else {
        size_t capacity = state_bytes > comm->requests.spare_state
                              ? state_bytes
                              : comm->requests.spare_state;

        request = malloc(sizeof(*request) + capacity);
        if (!request)
            return NULL;
        request->capacity = capacity;
    }
    return request;
}

/* Bytes of the reserve's state. All other requests have room for more. So the
 * reserve is recognized by its capacity. */
#define RESERVE_STATE 64

bool shunti_request_reserve(struct shunt_comm *comm)
{
    struct shunt_request *request = malloc(sizeof(*request) + RESERVE_STATE);

    if (request)
        request->capacity = RESERVE_STATE;
    comm->reserve = request;
    return request;
}

enum shunt_status (*shunti_request_refuse_for)(struct shunt_comm *comm,
                                               uint32_t signature,
                                               enum shunt_status status,
                                               const char *format, ...);

SHUNTI_NOINLINE enum shunt_status
shunti_request_no_memory(struct shunt_comm *comm,
                         const struct shunti_class *class, uint32_t signature,
                         size_t bytes)
{
    static const char format[] = "%s: no memory for %zu bytes of state";
    const char *name = name_of(signature, class);
    enum shunt_status st;

    if (comm->reserve && !class->reserved && !shunti_purpose_of(signature))
        return shunti_request_refuse_for(comm, signature, SHUNT_ERR_MEMORY,
                                         format, name, bytes);
    st = shunti_comm_fail(comm, SHUNT_ERR_MEMORY, comm->rank, format, name,
                          bytes);
    return shunti_comm_set_error(comm, st);
}

void shunti_request_list(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;

    request->listed = true;
    request->newer = NULL;
    request->older = comm->requests.newest;
    if (comm->requests.newest)
        comm->requests.newest->newer = request;
    comm->requests.newest = request;
}

static void delist(struct shunt_request *request)
{
    if (request->newer)
        request->newer->older = request->older;
    else
        request->comm->requests.newest = request->older;
    if (request->older)
        request->older->newer = request->newer;
}

void shunti_request_free(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;

    if (request->on_trial)
        shunti_worthwhile_cancel(request);
    if (request->listed)
        delist(request);
    if (request->capacity != comm->requests.spare_state) {
        if (request->capacity == RESERVE_STATE)
            comm->reserve = request;
        else
            free(request);
        return;
    }
    request->next = comm->requests.spare;
    comm->requests.spare = request;
}

static void init(struct shunt_request *request, struct shunt_comm *comm,
                 const struct shunti_class *class,
                 const struct shunti_options *options, size_t state_bytes)
{
    request->class = class;
    request->comm = comm;
    request->status = SHUNT_IN_PROGRESS;
    request->error = SHUNT_OK;
    request->second_hand = false;
    request->attachment = SHUNTI_ATTACHED;
    request->stepping = false;
    request->streams = options->streams;
    request->keeps_late = shunti_keeps_late(options);
    request->digest = options->digest;
    request->in_turn = false;
    request->listed = false;
    request->traced = NULL;
    request->on_trial = false;
    request->engine = 0;
    request->error_text = NULL;
    request->begun_ns = 0;
    request->copies = NULL;
    request->reads = NULL;
    request->notice = NULL;
    request->next = NULL;
    /* Hide a size of more than a few stores from the compiler. For a known size
     * it emits "rep stos", whose start-up takes longer than all of libc's
     * memset(). */
    if (!__builtin_constant_p(state_bytes) || state_bytes > 64)
        __asm__("" : "+r"(state_bytes));
    memset(request->state, 0, state_bytes);
}

enum shunt_status
shunti_request_create(struct shunt_comm *comm, const struct shunti_class *class,
                      uint32_t signature, const struct shunti_options *options,
                      size_t state_bytes, struct shunt_request **out)
{
    enum shunt_status st = shunti_comm_check(comm);
    struct shunt_request *request;

    *out = NULL;
    if (st)
        return st;
    if (comm->calls.finish_called)
        return shunti_fail(&comm->error, SHUNT_ERR_INVALID,
                           "%s after shunt_comm_finish(): only destroy it now",
                           name_of(signature, class));
    if (comm->layers.unfinished)
        shunti_layers_before_call(comm);
    request = take_spare(comm, state_bytes);
    if (!request && class->reserved) {
        request = comm->reserve;
        comm->reserve = NULL;
    }
    if (!request)
        return shunti_request_no_memory(comm, class, signature, state_bytes);
    init(request, comm, class, options, state_bytes);
    request->seq = comm->operations.next_seq++;
    request->signature = signature;
    *comm->operations.tail = request;
    comm->operations.tail = &request->next;
    comm->operations.untrailed++;
    *out = request;
    return SHUNT_OK;
}

enum shunt_status shunti_request_compose(struct shunt_comm *comm,
                                         const struct shunti_class *class,
                                         size_t state_bytes,
                                         struct shunt_request **out)
{
    struct shunt_request *request = take_spare(comm, state_bytes);

    *out = request;
    if (!request)
        return SHUNT_ERR_MEMORY;
    init(request, comm, class, &shunti_no_options, state_bytes);
    request->seq = 0;
    request->signature = 0;
    shunti_request_list(request);
    return SHUNT_OK;
}

void shunti_request_drop(struct shunt_request *request)
{
    if (request->class->cleanup)
        request->class->cleanup(request);
    shunti_request_drop_text(request);
    shunti_request_free(request);
}

SHUNTI_NOINLINE void shunti_request_drop_text(struct shunt_request *request)
{
    free(request->error_text);
    request->error_text = NULL;
}

SHUNTI_NOINLINE void shunti_request_drop_traced(struct shunt_request *request)
{
    free(request->traced);
    request->traced = NULL;
}

/* Keep the error of a request whose call has returned, for the next call to
 * return. Of several errors the first one stays. */
static void keep_for_next(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;

    if (comm->calls.late.status) {
        shunti_request_drop_text(request);
        return;
    }
    comm->calls.late.status = request->status;
    comm->calls.late.text = request->error_text;
    request->error_text = NULL;
}

/* Did the failure of the communicator end the request? Then the failure's error
 * text is also that of the request. */
static bool is_by_failure(const struct shunt_request *request)
{
    const int failure = request->comm->failure.status;

    return failure && (int)request->status == failure;
}

/* By the time that this request is collected, the communicator's last error may
 * be that of another operation. So the request keeps its own text. */
SHUNTI_NOINLINE void shunti_request_keep_text(struct shunt_request *request)
{
    if (request->attachment == SHUNTI_TRAILING &&
        !request->comm->failure.status)
        keep_for_next(request);
    else if (request->attachment != SHUNTI_ATTACHED)
        shunti_request_drop_text(request);
    else if (!request->error_text && !is_by_failure(request))
        request->error_text = strdup(request->comm->error.text);
}

const char *shunti_request_text(const struct shunt_request *request)
{
    if (request->error_text)
        return request->error_text;
    return is_by_failure(request)
               ? request->comm->failure.text
               : shunt_strerror(request->error ? request->error
                                               : request->status);
}

enum shunt_status shunti_request_error(struct shunt_request *request,
                                       enum shunt_status status,
                                       const char *format, ...)
{
    char text[400];
    va_list args;

    if (request->error && !request->second_hand)
        return request->error;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    request->error = status;
    request->second_hand = false;
    free(request->error_text);
    request->error_text = strdup(text);
    /* Do not set the communicator's error text yet: another call may be about
     * to fail. */
    shunti_debug("error", "%s: %s", shunt_strerror(status), text);
    return status;
}
