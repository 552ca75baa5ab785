// SPDX-License-Identifier: Apache-2.0
/* Lines of JSON, written and read through one table of fields. */
#include "train/step/metrics.h"

#include "tools/cli/cli.h"
#include "train/base/error.h"
#include "train/base/files.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct field {
    const char *name;
    size_t offset;
} fields[] = {
    {"loss", offsetof(struct step_metrics, loss)},
    {"balance", offsetof(struct step_metrics, balance)},
    {"zloss", offsetof(struct step_metrics, zloss)},
    {"lr", offsetof(struct step_metrics, lr)},
    {"grad_norm", offsetof(struct step_metrics, grad_norm)},
    {"tokens_per_s", offsetof(struct step_metrics, tokens_per_s)},
    {"step_s", offsetof(struct step_metrics, step_s)},
    {"compute_s", offsetof(struct step_metrics, compute_s)},
    {"exchange_s", offsetof(struct step_metrics, exchange_s)},
    {"reduce_s", offsetof(struct step_metrics, reduce_s)},
    {"tensor_s", offsetof(struct step_metrics, tensor_s)},
    {"wait_s", offsetof(struct step_metrics, wait_s)},
    {"compute_most_s", offsetof(struct step_metrics, compute_most_s)},
    {"compute_mean_s", offsetof(struct step_metrics, compute_mean_s)},
    {"cpu_s", offsetof(struct step_metrics, cpu_s)},
    {"compute_cpu_s", offsetof(struct step_metrics, compute_cpu_s)},
    {"cores", offsetof(struct step_metrics, cores)},
    {"wire_bytes", offsetof(struct step_metrics, wire_bytes)},
    {"wire_rows", offsetof(struct step_metrics, wire_rows)},
    {"plain_rows", offsetof(struct step_metrics, plain_rows)},
    {"mpi_rows", offsetof(struct step_metrics, mpi_rows)},
    {"fused_calls", offsetof(struct step_metrics, fused_calls)},
    {"gflops", offsetof(struct step_metrics, gflops)},
    {"compute_bits", offsetof(struct step_metrics, compute_bits)},
    {"imbalance", offsetof(struct step_metrics, imbalance)},
    {"rank_imbalance", offsetof(struct step_metrics, rank_imbalance)},
    {"rank_imbalance_off", offsetof(struct step_metrics, rank_imbalance_off)},
    {"replicas", offsetof(struct step_metrics, replicas)},
    {"moved", offsetof(struct step_metrics, moved)},
    {"moved_bytes", offsetof(struct step_metrics, moved_bytes)},
    {"copy_bytes", offsetof(struct step_metrics, copy_bytes)},
    {"balance_s", offsetof(struct step_metrics, balance_s)},
    {"planner_s", offsetof(struct step_metrics, planner_s)},
    {"saved_s", offsetof(struct step_metrics, saved_s)},
    {"dropped", offsetof(struct step_metrics, dropped)},
    {"dropped_part", offsetof(struct step_metrics, dropped_part)},
    {"dispatch_s", offsetof(struct step_metrics, exposed_s[0])},
    {"combine_s", offsetof(struct step_metrics, exposed_s[1])},
    {"combine_backward_s", offsetof(struct step_metrics, exposed_s[2])},
    {"dispatch_backward_s", offsetof(struct step_metrics, exposed_s[3])},
    {"gradients_s", offsetof(struct step_metrics, exposed_s[4])},
    {"dispatch_hidden", offsetof(struct step_metrics, hidden[0])},
    {"combine_hidden", offsetof(struct step_metrics, hidden[1])},
    {"combine_backward_hidden", offsetof(struct step_metrics, hidden[2])},
    {"dispatch_backward_hidden", offsetof(struct step_metrics, hidden[3])},
    {"gradients_hidden", offsetof(struct step_metrics, hidden[4])},
    {"activation_bytes", offsetof(struct step_metrics, activation_bytes)},
    {"expert_bytes", offsetof(struct step_metrics, expert_bytes)},
    {"offload_bytes", offsetof(struct step_metrics, offload_bytes)},
    {"recomputed", offsetof(struct step_metrics, recomputed)},
    {"waves", offsetof(struct step_metrics, waves)},
    {"time_s", offsetof(struct step_metrics, time_s)},
    {"val_files", offsetof(struct step_metrics, val[HELD_FILES])},
    {"val_blocks", offsetof(struct step_metrics, val[HELD_BLOCKS])},
};
_Static_assert(EXCHANGE_DISPATCH == 0 && EXCHANGE_COMBINE == 1 &&
                   EXCHANGE_COMBINE_BACKWARD == 2 &&
                   EXCHANGE_DISPATCH_BACKWARD == 3 && TRAVELS_GRADIENTS == 4,
               "the order of the names above and below");
enum { FIELDS = sizeof(fields) / sizeof(fields[0]) };

const char *travels_name(int what)
{
    static const char *const names[TRAVELS] = {
        "dispatch", "combine", "combine's gradient", "dispatch's gradient",
        "sums of gradients"};

    return names[what];
}

static double *at(struct step_metrics *s, size_t field)
{
    return (double *)((char *)s + fields[field].offset);
}

static int keep(struct metrics *m, const struct step_metrics *s)
{
    if (m->count == m->room) {
        size_t room = m->room ? 2 * m->room : 256;
        struct step_metrics *grown = realloc(m->steps, room * sizeof(*grown));
        if (!grown)
            return train_error("out of memory");
        m->steps = grown;
        m->room = room;
    }
    m->steps[m->count++] = *s;
    return 0;
}

static void write_line(FILE *f, const struct step_metrics *s)
{
    struct step_metrics copy = *s;

    fprintf(f, "{\"step\": %zu", s->step);
    for (size_t i = 0; i < FIELDS; i++)
        if (isfinite(*at(&copy, i)))
            fprintf(f, ", \"%s\": %.17g", fields[i].name, *at(&copy, i));
    fputs("}\n", f);
}

/* Parse a line of the log. Returns false if `line` is not a line of the log. */
static bool read_line(const char *line, struct step_metrics *s)
{
    cJSON *json = cJSON_Parse(line);
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(json, "step");
    bool good = cJSON_IsNumber(step) && step->valuedouble >= 1;

    if (good)
        s->step = (size_t)step->valuedouble;
    for (size_t i = 0; good && i < FIELDS; i++) {
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(json, fields[i].name);
        *at(s, i) = cJSON_IsNumber(v) ? v->valuedouble : (double)NAN;
    }
    cJSON_Delete(json);
    return good;
}

static int read_back(struct metrics *m, const char *path, size_t last)
{
    int missing;
    char *text = read_text(path, NULL, &missing), *rest = NULL;

    if (!text)
        return missing ? 0 : -1;
    for (char *line = strtok_r(text, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        struct step_metrics s;
        if (read_line(line, &s) && s.step <= last && keep(m, &s)) {
            free(text);
            return -1;
        }
    }
    free(text);
    return 0;
}

int metrics_open(struct metrics *m, const char *path, size_t resume_step)
{
    memset(m, 0, sizeof(*m));
    if (!path)
        return 0;
    if (resume_step && is_plain_file(path) && read_back(m, path, resume_step)) {
        metrics_close(m);
        return -1;
    }
    /* Write the kept lines to a new file that replaces the old one. So a step
     * that is repeated is not in the file twice. */
    struct new_file f;
    int st = new_file_open(&f, path);
    if (st == 0) {
        for (size_t i = 0; i < m->count; i++)
            write_line(f.stream, &m->steps[i]);
        st = new_file_commit(&f);
    }
    if (st == 0) {
        m->file = fopen(path, "ab");
        if (!m->file)
            st = train_error("cannot write %s: %s", path, strerror(errno));
    }
    if (st != 0)
        metrics_close(m);
    return st;
}

int metrics_add(struct metrics *m, const struct step_metrics *s)
{
    if (m->file) {
        write_line(m->file, s);
        const char *why = cli_lost(m->file);
        if (why)
            return train_error("cannot write --log: %s", why);
    }
    return keep(m, s);
}

/* Skip NaN: the value of a field that an older log does not have. */
static void add(double *sum, double value, size_t n)
{
    if (isfinite(value))
        *sum += value / (double)n;
}

/* The mean over those steps in which `hidden` was measured. */
static double mean_hidden(const struct metrics *m, size_t first, int what)
{
    double sum = 0, n = 0;

    for (size_t i = first; i < m->count; i++)
        if (isfinite(m->steps[i].hidden[what])) {
            sum += m->steps[i].hidden[what];
            n++;
        }
    return n > 0 ? sum / n : (double)NAN;
}

struct metrics_means metrics_means(const struct metrics *m)
{
    struct metrics_means mean = {0};
    size_t first = m->count / 2, n = m->count - first;
    double tokens = 0, gflop = 0;

    for (size_t i = first; i < m->count; i++) {
        const struct step_metrics *s = &m->steps[i];
        add(&mean.step_s, s->step_s, n);
        add(&mean.exchange_s, s->exchange_s, n);
        add(&mean.reduce_s, s->reduce_s, n);
        add(&mean.tensor_s, s->tensor_s, n);
        add(&mean.fused_calls, s->fused_calls, n);
        add(&mean.wait_s, s->wait_s, n);
        add(&mean.compute_most_s, s->compute_most_s, n);
        add(&mean.compute_mean_s, s->compute_mean_s, n);
        add(&mean.cpu_s, s->cpu_s, n);
        add(&mean.compute_cpu_s, s->compute_cpu_s, n);
        add(&mean.cores_s, s->cores * s->step_s, n);
        add(&mean.wire_bytes, s->wire_bytes, n);
        add(&mean.wire_rows, s->wire_rows, n);
        add(&mean.plain_rows, s->plain_rows, n);
        add(&mean.mpi_rows, s->mpi_rows, n);
        add(&mean.rank_imbalance, s->rank_imbalance, n);
        add(&mean.rank_imbalance_off, s->rank_imbalance_off, n);
        add(&mean.replicas, s->replicas, n);
        add(&mean.moved, s->moved, n);
        add(&mean.moved_bytes, s->moved_bytes, n);
        add(&mean.copy_bytes, s->copy_bytes, n);
        add(&mean.balance_s, s->balance_s, n);
        add(&mean.planner_s, s->planner_s, n);
        add(&mean.saved_s, s->saved_s, n);
        add(&mean.dropped, s->dropped, n);
        add(&mean.dropped_part, s->dropped_part, n);
        add(&mean.offload_bytes, s->offload_bytes, n);
        add(&mean.recomputed, s->recomputed, n);
        add(&tokens, s->tokens_per_s * s->step_s, n);
        add(&gflop, s->gflops * s->step_s, n);
    }
    for (size_t i = 0; i < m->count; i++) {
        const struct step_metrics *s = &m->steps[i];
        mean.activation_bytes =
            fmax(mean.activation_bytes, s->activation_bytes);
        mean.expert_bytes = fmax(mean.expert_bytes, s->expert_bytes);
    }
    for (int what = 0; what < TRAVELS; what++)
        mean.hidden[what] = mean_hidden(m, first, what);
    mean.gflops = mean.step_s > 0 ? gflop / mean.step_s : 0;
    mean.tokens_per_s = mean.step_s > 0 ? tokens / mean.step_s : 0;
    return mean;
}

void metrics_close(struct metrics *m)
{
    if (m->file)
        fclose(m->file);
    free(m->steps);
    memset(m, 0, sizeof(*m));
}

const char *metrics_share(double hidden, char *text, size_t size)
{
    if (hidden < 0)
        snprintf(text, size, "none (%.2f times as long as alone)", 1 - hidden);
    else
        snprintf(text, size, "%.0f%%", 100 * hidden);
    return text;
}
