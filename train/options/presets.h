// SPDX-License-Identifier: Apache-2.0
/* Named sets of options. */
#ifndef TRAIN_PRESETS_H
#define TRAIN_PRESETS_H

enum { PRESET_OPTIONS = 24 };

struct preset {
    const char *name;
    const char *what;
    struct {
        const char *name, *value; /* an option and its value; the last name is
                                     NULL */
    } option[PRESET_OPTIONS];
};

extern const struct preset presets[]; /* the last preset's name is NULL */

#endif
