// SPDX-License-Identifier: Apache-2.0
//
// Text from the model.
#ifndef TRAIN_SAMPLE_H
#define TRAIN_SAMPLE_H

#include "trainer.h"

// Generates `count` bytes after `prompt`. Rank 0 has the text, the others lend
// their experts: all take part in every byte's exchange. text: on rank 0,
// prompt and sample, with '\0', to be freed; NULL on the others.
// Collective. 0, or -1 with train_error_text().
int sample_text(struct trainer *t, const char *prompt, size_t count,
                double temperature, char **text);

#endif
