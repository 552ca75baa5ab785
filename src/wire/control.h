// SPDX-License-Identifier: Apache-2.0
/*
 * Control windows: memory of each rank that its peers write to, with the
 * control messages, acks, stream chunks and words of the protocol.
 *
 * All ranks compute the same layout (init_control.c). Words and slots of
 * different ranks are at least a SHUNT_TRANSPORT_LINE apart.
 */
#ifndef SHUNTI_CONTROL_H
#define SHUNTI_CONTROL_H

#include <stddef.h>

struct shunti_segment;

/* Offsets in a control window. "Per src" means an array with one element for
 * each rank, which that rank writes. The next element is a stride further
 * on. */
struct shunti_layout {
    size_t completed; /* word: operations finished by the owner */
    size_t abort;     /* word: why the communicator ended, 0 while it lives */
    size_t doorbell;  /* word: changes with each liveness probe: probe.h */
    size_t inbox, slot_bytes, inbox_stride; /* per src: its notes: note.h */
    size_t acks, ack_stride;                /* per src: its acks: note.h */
    /* per src: words that say which zero-copy payload has arrived: zcopy.h */
    size_t landed, landed_stride;
    size_t words, word_stride; /* per src: a line for each SHUNTI_WORD_... */
    size_t loss, loss_stride;  /* per src: its loss record: loss.h */
    size_t ring, ring_stride;  /* per src: its stream chunks: stream.h */
    size_t bytes;              /* size of the whole control window */
    /* payload bytes that fit behind a note's header: shunti_eager() */
    size_t eager;
    size_t chunk;    /* bytes of a stream chunk */
    unsigned chunks; /* chunks in a ring */
};

/* Lines of layout.words. */
enum {
    SHUNTI_WORD_CREDIT,
    SHUNTI_WORD_ARRIVED,
    SHUNTI_WORD_CONSUMED,
    SHUNTI_WORD_PROBE,
    SHUNTI_WORD_PROBE_REPLY,
    SHUNTI_WORD_LINK,
    SHUNTI_WORD_WAYS,
    SHUNTI_WORD_EXIT,
    SHUNTI_WORDS
};

/* The control window of this rank. init_control.c makes it, and nothing
 * changes it after init. */
struct shunti_control {
    unsigned char *base;
    struct shunti_segment *segment;
    /* offsets in this rank's window, and in those of all peers */
    struct shunti_layout layout;
};

#endif
