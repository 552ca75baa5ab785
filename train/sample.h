// SPDX-License-Identifier: Apache-2.0
/* Text from the model. */
#ifndef TRAIN_SAMPLE_H
#define TRAIN_SAMPLE_H

#include "train/trainer.h"

#include <signal.h>
#include <stdbool.h>

/* Bytes of any value, '\0' included. */
struct sample {
    uint8_t *bytes; /* the prompt, and what the model writes after it */
    size_t prompt;  /* bytes of the former */
    size_t length;  /* of both */
    int stopped;    /* the signal that asked a rank to stop before all were
                       written; 0: none did */
};

/* Generates `count` bytes after a prompt, or fewer if *stop is set on a rank
 * meanwhile. Rank 0 has them, the others lend their experts: all take part in
 * every byte's exchange. Collective. 0, or -1 with train_error_text();
 * sample->bytes is to be freed, and NULL on other ranks. */
int sample_text(struct trainer *t, const uint8_t *prompt, size_t prompt_bytes,
                size_t count, double temperature,
                const volatile sig_atomic_t *stop, struct sample *sample);

/* Bytes as a text to be read: those that are neither printable ASCII nor the
 * end of a line as \xNN. Freed by the caller; NULL: train_error_text(). */
char *sample_show(const uint8_t *bytes, size_t count);

#endif
