// SPDX-License-Identifier: Apache-2.0
/* Options that go together, under one name. */
#ifndef TRAIN_PRESETS_H
#define TRAIN_PRESETS_H

enum { PRESET_OPTIONS = 24 };

struct preset {
    const char *name;
    const char *what;
    struct {
        const char *name, *value; /* of an option; NULL ends */
    } option[PRESET_OPTIONS];
};

extern const struct preset presets[]; /* ends with a name that is NULL */

#endif
