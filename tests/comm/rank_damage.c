// SPDX-License-Identifier: Apache-2.0
/*
 * Something else has overwritten control memory, so that ranks, statuses and
 * sizes in it are not valid. Every rank must get an error that names a rank of
 * the communicator, and must not use such a value. test_damage.c runs these
 * cases, on two ranks of one node.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/shunt.h>

#include "src/comm.h"
#include "src/op/note.h"
#include "tests/harness/rank_main.h"

enum { VICTIM, VANDAL };

/* Checks that each "rank N" in an error text is a rank of the communicator. */
static int names_ranks(const struct rank *self, const char *text)
{
    for (const char *at = strstr(text, "rank "); at; at = strstr(at, "rank ")) {
        char *end;
        long n;

        at += strlen("rank ");
        n = strtol(at, &end, 10);
        CHECK(end == at || (n >= 0 && n < self->size), "\"%s\"", text);
    }
    return 0;
}

/* The communicator must have ended with `want`, and its text must contain
 * `words`. */
static int ended(const struct rank *self, enum shunt_status st,
                 enum shunt_status want, const char *words)
{
    const char *text = shunt_last_error(self->comm);

    CHECK(st == want, "%s", rank_why(self->comm, st));
    CHECK(strstr(text, words), "\"%s\" does not say \"%s\"", text, words);
    CHECK(!strstr(text, "unknown status"), "\"%s\"", text);
    return names_ranks(self, text);
}

/* Calls until the communicator ends. The harness limits the time. */
static enum shunt_status call_on(const struct rank *self)
{
    enum shunt_status st;

    do
        st = shunt_barrier(self->comm);
    while (!st);
    return st;
}

/* --- abort words ----------------------------------------------------------------- */

/* Abort words that are not valid: text of a program, and words of which one
 * part is not a valid rank or status. The last two words differ from a valid
 * one only in the reporter and in the mark. */
static const uint64_t words[] = {
    0x206d6172676f7270u, /* "program " */
    0xffffffffffffffffu, 0x00000000000000ffu, 1,
    0xa500000100000000u, /* status 0 */
    0xa500000102000040u, /* status -64 */
    0xa500000104000006u, /* lost: rank 2^18 - 1 */
    0xa504000000000206u, /* reporter: rank 2^18 - 1 */
    0xa500000000000206u, /* no reporter */
    0x0000000100000206u, /* no mark */
};

/* args: the index of the abort word */
static int abort_word(const struct rank *self)
{
    const uint64_t word = words[atoi(self->argv[0])];
    uint64_t *at = (uint64_t *)(void *)(self->comm->control.base +
                                        self->comm->control.layout.abort);
    const bool hit = self->rank == VICTIM;
    enum shunt_status st;

    if (hit) {
        __atomic_store_n(at, word, __ATOMIC_RELEASE);
        st = shunt_comm_async_status(self->comm);
        CHECK(st == SHUNT_ERR_MISMATCH, "%s", shunt_strerror(st));
    }
    st = call_on(self);
    CHECK_RUN(ended(self, st, SHUNT_ERR_MISMATCH,
                    hit ? "control window of this rank is damaged"
                        : "rank 0 ended the communicator because of rank 0"));
    return 0;
}

/* --- control messages -------------------------------------------------------------- */

/* The place in a control window of the control message from `writer` for
 * operation `seq`. */
static struct shunti_note *slot(const struct rank *self, unsigned char *control,
                                int writer, uint64_t seq)
{
    const struct shunti_layout *l = &self->comm->control.layout;

    return (struct shunti_note *)(void *)(control + l->inbox +
                                          (size_t)writer * l->inbox_stride +
                                          (size_t)(seq % SHUNTI_DEPTH) *
                                              l->slot_bytes);
}

/* The part of the message that is wrong. */
enum forgery {
    ALARM_RANK,
    ALARM_REPORTER,
    ALARM_STATUS,
    REFUSED_STATUS,
    UNKNOWN_WAY,
    NO_WINDOW,
    BEYOND_WINDOW,
    AGREED_STATUS,
    ZERO_COPY, /* a protocol that is wrong where memory is mapped */
    FORGERIES
};

static void forge(struct shunti_note *note, enum forgery what)
{
    const bool blames = what <= ALARM_STATUS;

    note->way = blames                   ? SHUNTI_WAY_ALARM
                : what == REFUSED_STATUS ? SHUNTI_WAY_REFUSED
                : what == AGREED_STATUS  ? SHUNTI_WAY_NONE
                : what == UNKNOWN_WAY    ? 13
                : what == ZERO_COPY      ? SHUNTI_WAY_ZCOPY
                                         : SHUNTI_WAY_WINDOW;
    memset(note->body, 0, sizeof(note->body));
    if (blames) {
        note->blame.status = SHUNT_ERR_INVALID;
        note->blame.signature = note->signature;
        if (what == ALARM_RANK)
            note->blame.rank = 7562609;
        else if (what == ALARM_REPORTER)
            note->blame.reporter = -7562609;
        else
            note->blame.status = 7562609;
    } else if (what == REFUSED_STATUS || what == AGREED_STATUS) {
        note->status = INT64_C(0x6d6172676f7270);
    } else if (what == NO_WINDOW) {
        note->window.window = UINT64_C(0x206d6172676f7270);
    } else if (what == BEYOND_WINDOW) {
        note->window.window = 1;
        note->window.offset = UINT64_C(1) << 40;
    }
}

/* The arguments of a call, which is made twice. */
struct calls {
    enum forgery what;
    void *window[2];
};

static enum shunt_status call(const struct rank *self, const struct calls *c,
                              int which)
{
    unsigned char send[2 * 5000], recv[2 * 5000];

    if (c->what == AGREED_STATUS)
        return shunt_mem_free(self->comm, c->window[which]);
    memset(send, 7, sizeof(send));
    return shunt_alltoall(self->comm, send, recv, 5000, SHUNT_U8);
}

/* Overwrites the control message of this rank's next call with a wrong one. It
 * is a copy of the victim's message for the previous call, with one wrong
 * part. */
static int write_message(const struct rank *self, enum forgery what)
{
    struct shunt_comm *comm = self->comm;
    const uint64_t seq = comm->operations.next_seq;
    struct shunti_note *to =
        slot(self, comm->peers[VICTIM].control, VANDAL, seq);
    struct shunti_note note = *slot(self, comm->control.base, VICTIM, seq - 1);

    CHECK(note.seq == seq - 1, "no message of the call before");
    forge(&note, what);
    memcpy((unsigned char *)to + 8, (unsigned char *)&note + 8,
           sizeof(note) - 8);
    __atomic_store_n(&to->seq, seq, __ATOMIC_RELEASE);
    while (!shunt_comm_async_status(comm))
        poll(NULL, 0, 1);
    return 0;
}

/* args: the part that is wrong */
static int message(const struct rank *self)
{
    struct calls c = {.what = (enum forgery)atoi(self->argv[0])};
    const bool forges = self->rank == VANDAL;

    for (int i = 0; i < 2; i++)
        CHECK_OK(self->comm, shunt_mem_alloc(self->comm, 4096, &c.window[i]));
    CHECK_OK(self->comm, call(self, &c, 0));
    if (forges)
        CHECK_RUN(write_message(self, c.what));
    return ended(self, call(self, &c, 1), SHUNT_ERR_MISMATCH,
                 forges ? "rank 0 ended the communicator because of rank 1"
                        : "rank 1");
}

/* --- zero copy ---------------------------------------------------------------------- */

/* In test_damage.c these ranks are threads whose memory is not mapped. Puts
 * arrive there without a call of the receiver. */

/* The description of a block's address, as src/op/zcopy.c writes it behind a
 * control message. */
struct place {
    uint64_t bytes;
    uint64_t key_bytes;
    unsigned char key[];
};

enum misplaced { NO_PLACE, NO_KEY, LONG_KEY, OTHER_BYTES, OTHER_KEY };

static void misplace(struct shunti_note *note, enum misplaced what)
{
    struct place *place = (struct place *)(void *)(note + 1);

    if (what == NO_PLACE)
        note->names = 0;
    else if (what == NO_KEY)
        place->key_bytes = 0;
    else if (what == LONG_KEY)
        place->key_bytes = SHUNT_TRANSPORT_KEY_MAX + 1;
    else if (what == OTHER_BYTES)
        place->bytes += 8;
    else
        memset(place->key, 'k', (size_t)place->key_bytes);
}

/* args: the part that is wrong in the description of the remote address to
 * which the victim shall put its block */
static int place(const struct rank *self)
{
    const enum misplaced what = (enum misplaced)atoi(self->argv[0]);
    const struct calls c = {.what = FORGERIES};
    const bool hit = self->rank == VICTIM;
    enum shunt_status st;

    CHECK_OK(self->comm, call(self, &c, 0));
    if (hit) {
        const uint64_t seq = self->comm->operations.next_seq;
        struct shunti_note *note =
            slot(self, self->comm->control.base, VANDAL, seq);

        while (__atomic_load_n(&note->seq, __ATOMIC_ACQUIRE) != seq)
            poll(NULL, 0, 1);
        misplace(note, what);
    }
    st = call(self, &c, 1);
    if (hit && what == OTHER_KEY)
        return ended(self, st, SHUNT_ERR_INVALID, "malformed memory key");
    return ended(self, st,
                 hit ? SHUNT_ERR_MISMATCH : shunt_comm_async_status(self->comm),
                 hit ? "rank 1 names"
                     : "rank 0 ended the communicator because of rank 1");
}

/* Overwrites the words that report how much of a block has arrived. Now they
 * report all of the next operation's blocks, and more parts than there are. */
static void say_arrived(const struct rank *self)
{
    const struct shunt_comm *comm = self->comm;
    const struct shunti_layout *l = &comm->control.layout;
    const uint64_t seq = comm->operations.next_seq;

    for (int writer = 0; writer < self->size; writer++)
        for (size_t which = 0; which < SHUNTI_ZCOPY_PAYLOADS; which++) {
            unsigned char *at =
                comm->control.base + l->landed +
                (size_t)writer * l->landed_stride +
                ((size_t)(seq % SHUNTI_DEPTH) * SHUNTI_ZCOPY_PAYLOADS + which) *
                    8;

            __atomic_store_n((uint64_t *)(void *)at,
                             UINT64_MAX << 40 | seq % (UINT64_C(1) << 40),
                             __ATOMIC_RELEASE);
        }
}

/* The library must not believe such reports: no byte may be passed on before it
 * has arrived. */
static int arrival(const struct rank *self)
{
    enum { BYTES = 100000 };

    unsigned char *send = malloc(BYTES);
    unsigned char *all = malloc((size_t)self->size * BYTES);

    CHECK(send && all, "memory");
    memset(send, 1 + self->rank, BYTES);
    memset(all, 0, (size_t)self->size * BYTES);
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    if (self->rank == VICTIM)
        say_arrived(self);
    CHECK_OK(self->comm,
             shunt_allgather(self->comm, send, all, BYTES, SHUNT_U8));
    for (int r = 0; r < self->size; r++)
        for (size_t i = 0; i < BYTES; i++)
            CHECK(all[(size_t)r * BYTES + i] == 1 + r, "byte %zu of rank %d", i,
                  r);
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    free(send);
    free(all);
    return 0;
}

/* --- wrong words about a plan --------------------------------------------- */

/* The word from rank 1 that is wrong. moe/plan/remote_offsets.c sends these
 * words: the number of rows of rank 1, a rank whose counts are wrong, and the
 * receiver's first row for each expert. */
enum lie { TOTAL, BAD_RANK, NEXT_RANK, FIRST_ROW };

static _Thread_local struct {
    bool armed;
    int calls;
    enum lie lie;
} liar;

enum shunt_status
__wrap_shunti_alltoallv(struct shunt_comm *comm,
                        const struct shunti_options *options, const void *send,
                        const size_t *send_counts, const size_t *send_displs,
                        void *recv, const size_t *recv_counts,
                        const size_t *recv_displs, enum shunt_dtype dtype);
enum shunt_status
__real_shunti_alltoallv(struct shunt_comm *comm,
                        const struct shunti_options *options, const void *send,
                        const size_t *send_counts, const size_t *send_displs,
                        void *recv, const size_t *recv_counts,
                        const size_t *recv_displs, enum shunt_dtype dtype);

/* The linker makes the library call this function instead of its own. In a
 * plan, the second such call receives the offsets. */
enum shunt_status
__wrap_shunti_alltoallv(struct shunt_comm *comm,
                        const struct shunti_options *options, const void *send,
                        const size_t *send_counts, const size_t *send_displs,
                        void *recv, const size_t *recv_counts,
                        const size_t *recv_displs, enum shunt_dtype dtype)
{
    const enum shunt_status st =
        __real_shunti_alltoallv(comm, options, send, send_counts, send_displs,
                                recv, recv_counts, recv_displs, dtype);
    uint64_t *said;

    if (st || !liar.armed || ++liar.calls < 2)
        return st;
    said = (uint64_t *)(void *)((unsigned char *)recv + recv_counts[VICTIM]);
    if (liar.lie == TOTAL)
        said[0] = words[0];
    else if (liar.lie == BAD_RANK)
        said[1] = words[0];
    else if (liar.lie == NEXT_RANK)
        said[1] = (uint64_t)shunt_comm_size(comm) + 1;
    else
        said[2] = words[0];
    return st;
}

/* args: the word that is wrong */
static int start(const struct rank *self)
{
    static const char *const said[] = {
        "rank 1 would get", "rank 1 names a rank that is none",
        "rank 1 names a rank that is none", "begin outside of its buffer"};
    const enum lie lie = (enum lie)atoi(self->argv[0]);
    const bool hit = self->rank == VICTIM;
    const int32_t expert[] = {0, 1, 2, 3};
    struct shunt_moe_config c = SHUNT_MOE_CONFIG_INIT;
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    enum shunt_status st;

    c.hidden = 8;
    c.experts = 4;
    c.topk = 1;
    c.max_tokens = 4;
    c.weights = SHUNT_MOE_PLAIN_SUM;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    liar.armed = hit;
    liar.lie = lie;
    st = shunt_moe_plan_create(moe, expert, NULL, 4, &plan);
    liar.armed = false;
    if (hit)
        CHECK_RUN(ended(self, st,
                        lie == TOTAL ? SHUNT_ERR_INVALID : SHUNT_ERR_MISMATCH,
                        said[lie]));
    (void)call_on(self); /* the rank that was not hit gets its error here */
    return names_ranks(self, shunt_last_error(self->comm));
}

static const struct rank_case cases[] = {
    {"place", place, .breaks_comm = true},
    {"arrival", arrival, .min_ranks = 4},
    {"start", start, .breaks_comm = true, .no_threads = true},
    {"abort_word", abort_word, .breaks_comm = true, .no_threads = true},
    {"message", message, .breaks_comm = true, .no_threads = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
