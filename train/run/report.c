// SPDX-License-Identifier: Apache-2.0
/*
 * The report: figures, plots (inline SVG), the settings, and the sample.
 *
 * The report is written here and not by tools/report/pages.py, so that --report
 * does not need Python on the machine where shunt-train runs. A run of hours
 * must not fail at its end because Python is missing. The style sheet is the
 * same: tools/report/style.css.
 */
#include "train/run/report.h"

#include "train/base/error.h"
#include "train/base/files.h"
#include "train/report_style.h"
#include "train/step/trainer.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Plots are drawn in these units, with room for labels left and below. */
enum { WIDTH = 720, HEIGHT = 260, LEFT = 46, BELOW = 24, TOP = 10, MOST = 240 };

/* --- text ----------------------------------------------------------------- */

/* Write text so that a browser shows it as it is. All but printable ASCII is
 * written as \xNN, since a sample of bytes may not be valid UTF-8. */
static void escape(FILE *f, const uint8_t *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t c = s[i];
        if (c == '<')
            fputs("&lt;", f);
        else if (c == '>')
            fputs("&gt;", f);
        else if (c == '&')
            fputs("&amp;", f);
        else if (c == '\n' || c == '\t' || (c >= 32 && c < 127))
            fputc(c, f);
        else
            fprintf(f, "\\x%02x", c);
    }
}

static void escape_text(FILE *f, const char *s)
{
    escape(f, (const uint8_t *)s, strlen(s));
}

static const char *const colours[] = {"var(--a)", "var(--b)", "var(--c)",
                                      "var(--d)", "var(--e)"};

static void key(FILE *f, int colour, const char *text)
{
    fprintf(f, "<span class=\"key\"><i style=\"background:%s\"></i>%s</span>",
            colours[colour], text);
}

/* --- plots ---------------------------------------------------------------- */

struct plot {
    FILE *f;
    double x0, x1, y0, y1;
};

static double px(const struct plot *p, double x)
{
    double part = p->x1 > p->x0 ? (x - p->x0) / (p->x1 - p->x0) : 0.5;

    return LEFT + part * (WIDTH - LEFT - 10);
}

static double py(const struct plot *p, double y)
{
    double part = p->y1 > p->y0 ? (y - p->y0) / (p->y1 - p->y0) : 0.5;

    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return TOP + (1 - part) * (HEIGHT - TOP - BELOW);
}

/* Return a round distance between marks, for about five marks. */
static double tick(double range)
{
    double unit = pow(10, floor(log10(range / 5)));
    double n = range / 5 / unit;

    return unit * (n > 5 ? 10 : n > 2 ? 5 : n > 1 ? 2 : 1);
}

static void axes(const struct plot *p, bool x_marks)
{
    double dy = tick(p->y1 - p->y0), dx = tick(p->x1 - p->x0);

    fprintf(p->f, "<svg viewBox=\"0 0 %d %d\" role=\"img\">", WIDTH, HEIGHT);
    for (double y = ceil(p->y0 / dy) * dy; y <= p->y1 + dy / 1e6; y += dy)
        fprintf(p->f,
                "<path d=\"M%d %.1fH%d\" stroke=\"var(--line)\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>",
                LEFT, py(p, y), WIDTH - 10, LEFT - 6, py(p, y) + 4,
                fabs(y) < dy / 1e6 ? 0 : y);
    for (double x = ceil(p->x0 / dx) * dx; x_marks && x <= p->x1; x += dx)
        fprintf(p->f,
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>",
                px(p, x), HEIGHT - 6, x);
}

/* Steps are averaged in buckets, so that a plot does not have more points than
 * it can show. */
static size_t bucket(const struct metrics *m)
{
    return (m->count + MOST - 1) / MOST;
}

static double mean_of(const struct metrics *m, size_t from, size_t field)
{
    size_t n = bucket(m);
    double sum = 0;

    n = from + n > m->count ? m->count - from : n;
    for (size_t i = from; i < from + n; i++)
        sum += *(const double *)((const char *)&m->steps[i] + field);
    return sum / (double)n;
}

static const char *held_colour(int kind)
{
    return colours[kind == HELD_FILES ? 3 : 1];
}

static void plot_loss(FILE *f, const struct report *r)
{
    const struct metrics *m = r->metrics;
    double bigrams = r->bars->loss[BAR_BIGRAMS][HELD_BLOCKS];
    struct plot p = {f, (double)m->steps[0].step,
                     (double)m->steps[m->count - 1].step, INFINITY, 0};

    for (size_t i = 0; i < m->count; i++) {
        double l = m->steps[i].loss;
        p.y0 = fmin(p.y0, l);
        p.y1 = fmax(p.y1, l);
    }
    for (int kind = 0; kind < HELD; kind++)
        p.y0 = fmin(p.y0, r->val[kind]); /* fmin() ignores a NaN */
    p.y0 = floor(p.y0 * 2) / 2;
    p.y1 = ceil(p.y1 * 2) / 2;
    if (p.y1 <= p.y0)
        p.y1 = p.y0 + 0.5;
    axes(&p, true);
    fputs("<polyline fill=\"none\" stroke=\"var(--a)\" stroke-width=\"1.6\" "
          "points=\"",
          f);
    for (size_t i = 0; i < m->count; i += bucket(m))
        fprintf(f, "%.1f,%.1f ", px(&p, (double)m->steps[i].step),
                py(&p, mean_of(m, i, offsetof(struct step_metrics, loss))));
    fputs("\"/>", f);
    if (isfinite(bigrams))
        fprintf(f,
                "<path d=\"M%d %.1fH%d\" stroke=\"var(--c)\" "
                "stroke-dasharray=\"6 4\" stroke-width=\"1.6\"/>",
                LEFT, py(&p, bigrams), WIDTH - 10);
    for (size_t i = 0; i < m->count; i++)
        for (int kind = 0; kind < HELD; kind++)
            if (isfinite(m->steps[i].val[kind]))
                fprintf(f,
                        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" "
                        "fill=\"%s\"/>",
                        px(&p, (double)m->steps[i].step),
                        py(&p, m->steps[i].val[kind]), held_colour(kind));
    fputs("</svg><p>", f);
    key(f, 0, "training");
    key(f, 1, "unseen blocks");
    if (r->windows[HELD_FILES])
        key(f, 3, "unseen files");
    key(f, 2, "bigrams, unseen blocks");
    fputs("</p>", f);
}

static void plot_times(FILE *f, const struct report *r)
{
    /* Waiting is a part of both kinds of communication, so it is drawn as a
     * separate line. */
    static const size_t parts[] = {
        offsetof(struct step_metrics, compute_s),
        offsetof(struct step_metrics, exchange_s),
        offsetof(struct step_metrics, reduce_s),
    };
    const struct metrics *m = r->metrics;
    size_t n = bucket(m);
    struct plot p = {f, (double)m->steps[0].step,
                     (double)m->steps[m->count - 1].step, 0, 0};

    for (size_t i = 0; i < m->count; i += n)
        p.y1 = fmax(
            p.y1, 1000 * mean_of(m, i, offsetof(struct step_metrics, step_s)));
    p.y1 = p.y1 > 0 ? p.y1 * 1.05 : 1;
    axes(&p, true);
    for (int part = 2; part >= 0; part--) {
        fprintf(f, "<path fill=\"%s\" fill-opacity=\".8\" d=\"M%.1f %.1f",
                colours[part], px(&p, p.x0), py(&p, 0));
        double last = p.x0;
        for (size_t i = 0; i < m->count; i += n) {
            double sum = 0;
            for (int j = 0; j <= part; j++)
                sum += 1000 * mean_of(m, i, parts[j]);
            last = (double)m->steps[i].step;
            fprintf(f, "L%.1f %.1f", px(&p, last), py(&p, sum));
        }
        fprintf(f, "L%.1f %.1fZ\"/>", px(&p, last), py(&p, 0));
    }
    fputs("<polyline fill=\"none\" stroke=\"var(--ink)\" "
          "stroke-dasharray=\"2 3\" points=\"",
          f);
    for (size_t i = 0; i < m->count; i += n)
        fprintf(f, "%.1f,%.1f ", px(&p, (double)m->steps[i].step),
                py(&p, 1000 * mean_of(m, i,
                                      offsetof(struct step_metrics, wait_s))));
    fputs("\"/></svg><p>", f);
    key(f, 0, "computing");
    key(f, 1, "exchange of rows");
    key(f, 2, "gradients and parameters");
    fputs("dotted: waiting for other ranks, in either of the latter</p>", f);
}

static bool knows_hidden(const struct metrics *m)
{
    for (size_t i = 0; i < m->count; i++)
        if (isfinite(m->steps[i].hidden[0]))
            return true;
    return false;
}

/* The mean over those steps of a bucket in which `hidden` was measured. */
static double hidden_of(const struct metrics *m, size_t from, int what)
{
    double sum = 0, n = 0;

    for (size_t i = from; i < from + bucket(m) && i < m->count; i++)
        if (isfinite(m->steps[i].hidden[what])) {
            sum += m->steps[i].hidden[what];
            n++;
        }
    return n > 0 ? sum / n : (double)NAN;
}

static void plot_hidden(FILE *f, const struct report *r)
{
    const struct metrics *m = r->metrics;
    struct plot p = {f, (double)m->steps[0].step,
                     (double)m->steps[m->count - 1].step, 0, 100};

    for (size_t i = 0; i < m->count; i += bucket(m))
        for (int what = 0; what < TRAVELS; what++)
            p.y0 = fmin(p.y0, 100 * hidden_of(m, i, what));
    p.y0 = fmax(-100, floor(p.y0 / 20) * 20);
    axes(&p, true);
    for (int what = 0; what < TRAVELS; what++) {
        fprintf(f,
                "<polyline fill=\"none\" stroke=\"%s\" "
                "stroke-width=\"1.6\" points=\"",
                colours[what]);
        for (size_t i = 0; i < m->count; i += bucket(m)) {
            double hidden = hidden_of(m, i, what);
            if (isfinite(hidden))
                fprintf(f, "%.1f,%.1f ", px(&p, (double)m->steps[i].step),
                        py(&p, 100 * hidden));
        }
        fputs("\"/>", f);
    }
    fputs("</svg><p>", f);
    for (int what = 0; what < TRAVELS; what++)
        key(f, what, travels_name(what));
    fprintf(f,
            "100: its calls took no time; 0: as much as in steps %d and %d, "
            "which waited for each at once. Mean of the ranks</p>",
            AT_ONCE_FIRST, AT_ONCE_LAST);
}

static void plot_balance(FILE *f, const struct report *r)
{
    static const char *const names[] = {"as it was", "without --balance"};
    const struct metrics *m = r->metrics;
    struct plot p = {f, (double)m->steps[0].step,
                     (double)m->steps[m->count - 1].step, 1, 1.2};

    for (size_t i = 0; i < m->count; i++)
        p.y1 = fmax(p.y1, fmax(m->steps[i].rank_imbalance,
                               m->steps[i].rank_imbalance_off));
    axes(&p, true);
    for (int off = 1; off >= 0; off--) {
        fprintf(f,
                "<polyline fill=\"none\" stroke=\"%s\" "
                "stroke-width=\"1.6\" points=\"",
                colours[off]);
        for (size_t i = 0; i < m->count; i += bucket(m)) {
            const double y = off ? m->steps[i].rank_imbalance_off
                                 : m->steps[i].rank_imbalance;
            if (isfinite(y))
                fprintf(f, "%.1f,%.1f ", px(&p, (double)m->steps[i].step),
                        py(&p, y));
        }
        fputs("\"/>", f);
    }
    fputs("</svg><p>", f);
    for (int off = 0; off < 2; off++)
        key(f, off, names[off]);
    fputs(
        "Rows of the fullest rank over the mean of all, mean of the layers</p>",
        f);
}

static void plot_experts(FILE *f, const struct report *r)
{
    const struct model_config *c = &r->options->model;
    size_t L = model_moe_layers(c), E = c->experts;
    struct plot p = {f, 0, (double)L, 0, 0};
    double width = (double)(WIDTH - LEFT - 10) / (double)L;

    for (size_t l = 0; l < L; l++) {
        double sum = 0;
        for (size_t e = 0; e < E; e++)
            sum += r->expert_rows[l * E + e];
        for (size_t e = 0; e < E && sum > 0; e++)
            p.y1 = fmax(p.y1, r->expert_rows[l * E + e] / sum * (double)E);
    }
    p.y1 = fmax(1.2, p.y1 * 1.05);
    axes(&p, false);
    for (size_t l = 0; l < L; l++) {
        double sum = 0, bar = width * 0.9 / (double)E;
        for (size_t e = 0; e < E; e++)
            sum += r->expert_rows[l * E + e];
        for (size_t e = 0; e < E && sum > 0; e++) {
            double y = r->expert_rows[l * E + e] / sum * (double)E;
            fprintf(f,
                    "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                    "height=\"%.1f\" fill=\"%s\"><title>layer %zu, expert %zu: "
                    "%.2f times the mean</title></rect>",
                    px(&p, (double)l) + bar * (double)e, py(&p, y), bar * 0.85,
                    py(&p, 0) - py(&p, y), colours[l % 4],
                    model_moe_layer(c, l), e, y);
        }
        fprintf(f,
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">layer %zu"
                "</text>",
                px(&p, (double)l) + width * 0.45, HEIGHT - 6,
                model_moe_layer(c, l));
    }
    fputs("</svg>", f);
}

/* --- the page ------------------------------------------------------------- */

/* A row for the model and each bar, and a column for each kind of text. */
static void losses(FILE *f, const struct report *r)
{
    fputs("<table><tr><td>bits (nats) a byte", f);
    for (int kind = 0; kind < HELD; kind++)
        if (isfinite(r->val[kind]))
            fprintf(f, "<td>%s, %zu windows of %zu bytes", held_name(kind),
                    r->windows[kind], r->options->model.seq);
    for (int bar = -1; bar < BARS; bar++) {
        const double *loss = bar < 0 ? r->val : r->bars->loss[bar];
        fprintf(f, "<tr><td>%s", bar < 0 ? "this model" : bar_name(bar));
        for (int kind = 0; kind < HELD; kind++)
            if (!isfinite(loss[kind]) && isfinite(r->val[kind]))
                fputs("<td>not measured", f);
            else if (isfinite(r->val[kind]))
                fprintf(f, "<td>%.3f (%.4f)%s", bits_of(loss[kind]), loss[kind],
                        bar < 0                     ? ""
                        : r->val[kind] < loss[kind] ? ", beaten"
                                                    : ", not beaten");
    }
    fputs("</table>", f);
}

static void figures_hidden(FILE *f, const struct metrics_means *mean)
{
    char share[64];

    if (!isfinite(mean->hidden[0]))
        return;
    fputs("<tr><td>hidden behind computing<td>", f);
    for (int what = 0; what < TRAVELS; what++)
        fprintf(f, "%s%s %s", what ? ", " : "", travels_name(what),
                metrics_share(mean->hidden[what], share, sizeof(share)));
    fputs(" (second half)", f);
}

static void figures_balance(FILE *f, const struct report *r,
                            const struct metrics_means *mean)
{
    if (r->ranks == 1)
        return;
    fprintf(f, "<tr><td>rows of ranks<td>the fullest has %.3f times the mean",
            mean->rank_imbalance);
    if (!r->options->balance.how)
        return;
    fprintf(f, ", and %.3f without --balance %s", mean->rank_imbalance_off,
            options_balance(r->options));
    fprintf(f,
            "<tr><td>balance<td>%.1f copies of experts, %.3f MB a step for "
            "them; %.2f experts moved a step, %.3f MB. It took %.3f ms of a "
            "step, of it decisions %.3f ms, and the rank with most rows "
            "computes its experts %.3f ms less",
            mean->replicas, mean->copy_bytes / 1e6, mean->moved,
            mean->moved_bytes / 1e6, 1e3 * mean->balance_s,
            1e3 * mean->planner_s, 1e3 * mean->saved_s);
}

static void figures(FILE *f, const struct report *r)
{
    const struct metrics *m = r->metrics;
    const struct step_metrics *last = &m->steps[m->count - 1];
    struct metrics_means mean = metrics_means(m);

    fputs("<table>", f);
    fprintf(f, "<tr><td>training loss<td>%.4f at step %zu", last->loss,
            last->step);
    fprintf(f,
            "<tr><td>speed<td>%.0f tokens/s, %.0f%% of the time waiting for "
            "other ranks (second half)",
            mean.tokens_per_s, 100 * mean.wait_s / mean.step_s);
    fprintf(f,
            "<tr><td>arithmetic<td>%.1f GF/s in matrix products, %.0f%% of "
            "the %.0f GF/s that the cores could do (measured: %s)",
            mean.gflops, 100e9 * mean.gflops / r->peak, r->peak / 1e9,
            r->peak_name);
    fprintf(
        f,
        "<tr><td>communication<td>%.0f%% of a step's time is not hidden behind "
        "computing: rows %.0f%%, gradients and parameters %.0f%%",
        100 * (mean.exchange_s + mean.reduce_s + mean.tensor_s) / mean.step_s,
        100 * mean.exchange_s / mean.step_s, 100 * mean.reduce_s / mean.step_s);
    if (mean.fused_calls > 0)
        fprintf(f,
                ", tensor-parallel groups %.0f%%<tr><td>fused products<td>%.0f "
                "a step, on all ranks together",
                100 * mean.tensor_s / mean.step_s, mean.fused_calls);
    if (mean.cores_s > 0)
        fprintf(f,
                "<tr><td>cores<td>of the time of %.0f, computing %.0f%%, "
                "communicating %.0f%%, unused %.0f%%",
                mean.cores_s / mean.step_s,
                100 * mean.compute_cpu_s / mean.cores_s,
                100 * (mean.cpu_s - mean.compute_cpu_s) / mean.cores_s,
                100 - 100 * mean.cpu_s / mean.cores_s);
    figures_hidden(f, &mean);
    if (mean.wire_bytes > 0)
        fprintf(f,
                "<tr><td>between nodes<td>%.2f MB a step; %.0f rows, and not "
                "the %.0f of one for each assignment",
                mean.wire_bytes / 1e6, mean.wire_rows, mean.plain_rows);
    figures_balance(f, r, &mean);
    fprintf(f,
            "<tr><td>dropped<td>%.2f%% of the assignments, %.0f a step; %.2f%% "
            "in the last validation",
            100 * mean.dropped_part, mean.dropped, 100 * r->val_dropped);
    fprintf(f, "<tr><td>time<td>%.0f s", r->seconds);
    fprintf(f,
            "<tr><td>model<td>%.2f million parameters, of which %.2f million "
            "take part in a token",
            (double)r->parameters / 1e6, (double)r->active / 1e6);
    fputs("<tr><td>text<td>", f);
    escape_text(f, r->text);
    fprintf(f, ", %zu bytes", r->text_bytes);
    fprintf(f, "<tr><td>ranks<td>%d, reached by ", r->ranks);
    escape_text(f, r->transport);
    fprintf(f, "<tr><td>groups<td>%s", r->groups);
    fprintf(f, "<tr><td>matrix products<td>%s, kernels %s", r->gemm,
            r->kernels);
    fputs("</table>", f);
}

static void settings(FILE *f, const struct options *o)
{
    const struct model_config *c = &o->model;

    fprintf(f, "<table><tr><td>model<td>%zu layers, width %zu, %zu heads",
            c->layers, c->dim, c->heads);
    if (c->head_width)
        fprintf(f, " of width %zu", c->head_width);
    if (c->kv_heads)
        fprintf(f, ", %zu of keys and values", c->kv_heads);
    fprintf(f, ", sequences of %zu", c->seq);
    fprintf(f, "<tr><td>experts<td>%zu of width %zu, top %zu of %s%s",
            c->experts, c->expert_hidden, c->topk, options_gate(o),
            c->renormalise ? ", renormalised" : "");
    if (c->shared_hidden)
        fprintf(f, "; a shared one of width %zu", c->shared_hidden);
    if (model_moe_layers(c) < c->layers)
        fprintf(f, "<tr><td>layers without experts<td>%zu, of width %zu",
                c->layers - model_moe_layers(c), c->dense_hidden);
    fprintf(f,
            "<tr><td>balance<td>loss weight %g over each %s, z-loss %g, bias "
            "rate %g",
            (double)c->balance, options_balance_over(o), (double)c->zloss,
            (double)c->bias_rate);
    if (o->capacity_factor > 0)
        fprintf(f, "<tr><td>capacity<td>factor %g, dropping by %s",
                o->capacity_factor, o->drop_by_weight ? "weight" : "position");
    if (o->max_rows)
        fprintf(f, "<tr><td>rows at once<td>%zu at most", o->max_rows);
    fprintf(f, "<tr><td>rows travel as<td>%s%s", o->bf16 ? "bf16" : "f32",
            o->fp8 ? ", dispatched as fp8" : "");
    fprintf(f, "<tr><td>products<td>of %s, summed in f32",
            o->compute_bf16 ? "bf16" : "f32");
    fprintf(f, "<tr><td>batch<td>%zu sequences in %zu shares", o->batch,
            o->shares);
    if (o->micro_batches > 1)
        fprintf(f, " and %zu micro-batches", o->micro_batches);
    fprintf(f,
            "<tr><td>AdamW<td>rate %g, to %g of it by a cosine, warm-up %zu "
            "steps, betas %g and %g, decay %g, clipped at %g",
            (double)o->optimizer.lr, (double)o->optimizer.lr_end,
            o->optimizer.warmup, (double)o->optimizer.beta1,
            (double)o->optimizer.beta2, (double)o->optimizer.decay,
            (double)o->optimizer.clip);
    fprintf(f, "<tr><td>seed<td>%llu</table>", (unsigned long long)o->seed);
}

int report_write(const struct report *r, const char *path)
{
    struct new_file file;

    if (r->metrics->count == 0)
        return train_error("there is nothing to report: no step was made, and "
                           "no --log has those of before");
    if (new_file_open(&file, path))
        return -1;
    FILE *f = file.stream;
    fprintf(f,
            "<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\">"
            "<meta name=\"viewport\" content=\"width=device-width\">"
            "<title>shunt-train</title><style>%s</style>"
            "<h1>A mixture of experts, trained on %d rank%s</h1>",
            REPORT_STYLE, r->ranks, r->ranks == 1 ? "" : "s");
    if (isfinite(r->val[HELD_BLOCKS]))
        losses(f, r);
    figures(f, r);
    fputs("<h2>Loss, nats a byte</h2>", f);
    plot_loss(f, r);
    fputs("<h2>Time of a step on rank 0, ms</h2>", f);
    plot_times(f, r);
    if (knows_hidden(r->metrics)) {
        fputs(
            "<h2>Time of each exchange that is hidden behind computing, %</h2>",
            f);
        plot_hidden(f, r);
    }
    if (r->ranks > 1) {
        fputs("<h2>Rows of the fullest rank, over the mean of all ranks</h2>",
              f);
        plot_balance(f, r);
    }
    fputs("<h2>Tokens of each expert, over the mean of all experts</h2>", f);
    plot_experts(f, r);
    if (r->sample->bytes) {
        const struct sample *s = r->sample;
        fputs("<h2>What it writes</h2><pre><span class=\"prompt\">", f);
        escape(f, s->bytes, s->prompt);
        fputs("</span>", f);
        escape(f, s->bytes + s->prompt, s->length - s->prompt);
        fputs("</pre>", f);
    }
    fputs("<h2>Settings</h2>", f);
    settings(f, r->options);
    fputs("</html>\n", f);
    return new_file_commit(&file);
}
