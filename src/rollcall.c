// SPDX-License-Identifier: Apache-2.0
/*
 * Roll call; see rollcall.h. A question is a number in a word that the asker
 * has at each peer; the answer is the same number in a word that the peer has
 * here. As nobody can look at as many words as there are ranks all the time,
 * every question also changes one that all share, the bell.
 */
#include "src/rollcall.h"

#include <string.h>

#include "src/comm.h"
#include "src/put.h"
#include "src/request.h"

static uint64_t load_word(const struct shunt_comm *comm, size_t at)
{
    return __atomic_load_n((const uint64_t *)(const void *)(comm->control + at),
                           __ATOMIC_ACQUIRE);
}

static void store_word(unsigned char *control, size_t at, uint64_t value)
{
    __atomic_store_n((uint64_t *)(void *)(control + at), value,
                     __ATOMIC_RELEASE);
}

/* In a control window: a word that `writer` writes. */
static size_t place_of(const struct shunt_comm *comm, int writer, int line)
{
    return comm->layout.words + (size_t)writer * comm->layout.word_stride +
           (size_t)line * 64;
}

static void ask(struct shunt_comm *comm, int peer)
{
    struct shunti_peer *p = &comm->peers[peer];
    size_t at = place_of(comm, comm->rank, SHUNTI_WORD_QUESTION);
    /* Unlike any before it, whoever rang. */
    uint64_t bell =
        (uint64_t)(comm->rank + 1) << 32 | (comm->roll.number & UINT32_MAX);

    p->asked = comm->roll.number;
    comm->roll.asked++;
    if (p->control) {
        store_word(p->control, at, comm->roll.number);
        store_word(p->control, comm->layout.bell, bell);
        p->transport->wake(p->ep);
    } else {
        shunti_control_put(comm, peer, at, &comm->roll.number,
                           sizeof(comm->roll.number), comm->layout.bell, bell);
    }
}

static void answer(struct shunt_comm *comm, int peer, uint64_t number)
{
    struct shunti_peer *p = &comm->peers[peer];
    size_t at = place_of(comm, comm->rank, SHUNTI_WORD_ANSWER);

    p->answered = number;
    if (p->control) {
        store_word(p->control, at, number);
        p->transport->wake(p->ep);
    } else {
        shunti_control_put(comm, peer, 0, NULL, 0, at, number);
    }
}

bool shunti_roll_call_more(const struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;
    bool any = false;

    for (int r = 0; r < comm->nranks; r++) {
        if (r == comm->rank || comm->peers[r].lost ||
            comm->peers[r].asked == comm->roll.number ||
            !request->class->awaits(request, r))
            continue;
        ask(comm, r);
        any = true;
    }
    return any;
}

void shunti_roll_call(const struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;

    comm->roll.number++;
    comm->roll.asked = comm->roll.heard = 0;
    comm->roll.open = true;
    shunti_roll_call_more(request);
}

bool shunti_roll_answered(const struct shunt_comm *comm, int peer)
{
    return load_word(comm, place_of(comm, peer, SHUNTI_WORD_ANSWER)) ==
           comm->roll.number;
}

/* Answers to our latest question that we have not seen yet? */
static bool hear_answers(struct shunt_comm *comm)
{
    int heard = 0;

    if (comm->roll.heard == comm->roll.asked)
        return false;
    for (int r = 0; r < comm->nranks; r++)
        heard += r != comm->rank && shunti_roll_answered(comm, r);
    if (heard == comm->roll.heard)
        return false;
    comm->roll.heard = heard;
    return true;
}

bool shunti_roll_look(struct shunt_comm *comm)
{
    uint64_t bell = load_word(comm, comm->layout.bell);
    bool answers = hear_answers(comm);

    if (bell == comm->roll.bell)
        return answers;
    comm->roll.bell = bell;
    for (int r = 0; r < comm->nranks; r++) {
        uint64_t number;

        if (r == comm->rank)
            continue;
        number = load_word(comm, place_of(comm, r, SHUNTI_WORD_QUESTION));
        if (number != comm->peers[r].answered && !comm->peers[r].lost)
            answer(comm, r, number);
    }
    return true;
}
