// SPDX-License-Identifier: Apache-2.0
/*
 * How ranks find each other in a dispatch or combine, in both directions: each
 * tells its peers where its memory is, and hears the same of them.
 *
 * In two levels a rank exchanges control messages with its local peers and its
 * rail peers only. It tells the rail peers once it has heard all local peers.
 * So each rank hears, in one hop, of every rank of the communicator: a bad call
 * of a local peer goes to the rail peers as an alarm in place of the message,
 * and nothing else is exchanged with other nodes then.
 */
#ifndef SHUNTI_MEETING_H
#define SHUNTI_MEETING_H

#include <stdbool.h>

#include "moe/plan.h"
#include "moe/plan/moe_call.h"
#include "src/op/note.h"

struct shunti_met {
    bool direct; /* its memory is mapped, and rows are written or read there;
                    else rows go through rail peers */
    bool told, heard;
    bool stranger; /* it hears of us only if our call fails */
    bool answered; /* its ack has come, or none will */
};

struct shunti_meeting {
    const struct shunti_moe_call *call;
    struct shunti_plan *plan;
    struct shunti_cut cut;
    struct shunti_remote rows, out; /* our memory, as peers are told */
    bool local_heard;               /* all local peers have been heard */
    bool alarmed;                   /* one of them made another or a bad call */
    struct shunti_blame blame;      /* which */
    struct shunti_met *met;         /* (nranks) */
};

/* met: (nranks) zeroed. two_level: ranks of other nodes are not `direct`. This
 * rank has met itself. */
void shunti_meeting_init(struct shunti_meeting *meeting, struct shunti_met *met,
                         bool two_level);

/* Tell `rank`, unless it has been told, there is no room for the message, or it
 * is not its turn. */
void shunti_meeting_tell(struct shunt_request *request,
                         struct shunti_meeting *meeting, int rank);

enum shunti_heard {
    SHUNTI_HEARD_NOTHING, /* new */
    SHUNTI_HEARD_CALL,    /* of the same call */
    SHUNTI_HEARD_BAD,     /* of another or a bad call: an error is recorded */
};

/* What has come from `rank` since; *note is its message. */
enum shunti_heard shunti_meeting_hear(struct shunt_request *request,
                                      struct shunti_meeting *meeting, int rank,
                                      const struct shunti_note **note);

/*
 * A rank of another node with which this one exchanges no rows needs no message.
 * But if the other direction of the exchange has a route of more operations, it
 * may be in a call of that one, which waits for a message of every rank. So it
 * gets one if any peer turns out to make another call.
 */
void shunti_meeting_skip(struct shunti_meeting *meeting, int rank);

/* Have all local peers been heard? */
bool shunti_meeting_locals_heard(const struct shunti_meeting *meeting);

#endif
