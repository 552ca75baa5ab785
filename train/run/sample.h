// SPDX-License-Identifier: Apache-2.0
/* Generating text with the model. */
#ifndef TRAIN_SAMPLE_H
#define TRAIN_SAMPLE_H

#include "train/step/trainer.h"

#include <signal.h>
#include <stdbool.h>

/* Generated text. Bytes may have any value, also '\0'. */
struct sample {
    uint8_t *bytes; /* the prompt, followed by what the model wrote */
    size_t prompt;  /* bytes of the prompt */
    size_t length;  /* bytes of both */
    int stopped;    /* signal that stopped the sampling early; 0: none */
};

/* Generates `count` bytes after a prompt, or fewer if *stop is set on any rank.
 * Rank 0 receives the text. The other ranks take part in each byte's exchange
 * with their experts; on these ranks sample->bytes is NULL. The caller frees
 * sample->bytes. Collective. 0, or -1 with train_error_text(). */
int sample_text(struct trainer *t, const uint8_t *prompt, size_t prompt_bytes,
                size_t count, double temperature,
                const volatile sig_atomic_t *stop, struct sample *sample);

/* Turns bytes into readable text: all but printable ASCII and line ends become
 * \xNN. The caller frees the text. Returns NULL on failure, with
 * train_error_text(). */
char *sample_show(const uint8_t *bytes, size_t count);

#endif
