// SPDX-License-Identifier: Apache-2.0
#include "train/options/switches.h"

#include <stdio.h>
#include <string.h>

static const struct train_switch {
    const char *name;
    struct {
        const char *name, *value; /* as on the command line, without "--" */
    } option[SWITCH_OPTIONS];     /* the last name is NULL */
} switches[SWITCHES] = {
    {"save-memory",
     {{"memory", "layer=recompute"}, {"recompute-above", "1.5"}}},
    {"overlap", {{"overlap", "yes"}, {"micro-batches", "2"}}},
    {"balanced",
     {{"bias-rate", "1e-3"},
      {"balance", "microbatch"},
      {"recompute-above", "1.5"}}},
};

const char *switches_name(int i)
{
    return switches[i].name;
}

/* Turn on a switch. Its options count as given, like those of a preset. */
static bool turn_on(const struct cli_program *program, struct options *o,
                    const struct train_switch *s, char *stood_for,
                    struct cli_line *line)
{
    for (size_t i = 0; i < SWITCH_OPTIONS && s->option[i].name; i++) {
        const char *name = s->option[i].name, *value = s->option[i].value;
        const cli_set bit = cli_bit(program, name);
        const bool itself = strcmp(name, s->name) == 0;
        const size_t at = strlen(stood_for);

        if (!itself && line->given & bit)
            continue;
        if (!cli_read(cli_row_of(program, name), o, value, line))
            return false;
        o->of_presets |= bit;
        snprintf(stood_for + at, sizeof(o->switched[0]) - at, "%s--%s%s%s",
                 at ? " " : "", name, itself ? "=" : " ", value);
    }
    return true;
}

bool switches_turn(const struct cli_program *program, struct options *o,
                   struct cli_line *line)
{
    const bool on[SWITCHES] = {
        o->save_memory, o->overlap_given && o->overlap_asked == OVERLAP_SWITCH,
        o->balanced};

    for (size_t i = 0; i < SWITCHES; i++)
        if (on[i] && !turn_on(program, o, &switches[i], o->switched[i], line))
            return false;
    if (o->overlap_given)
        o->overlap = o->overlap_asked == OVERLAP_YES;
    return true;
}

bool switches_is_value(const char *operand, struct cli_line *line)
{
    return (strcmp(operand, "no") == 0 || strcmp(operand, "yes") == 0) &&
           !cli_wrong(line,
                      "is \"%s\" a text? Give ./%s if so, and --overlap=%s if "
                      "not",
                      operand, operand, operand);
}
