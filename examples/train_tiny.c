// SPDX-License-Identifier: Apache-2.0
/*
 * A mixture-of-experts language model that learns, in one file: bytes in, the
 * next byte out. It trains on a text, by default on its own source:
 *
 *     cc -O3 train_tiny.c $(pkg-config --cflags --libs shunt) -lm -o train_tiny
 *     ./train_tiny                    # 200 steps on one rank
 *     shunt-run -n 4 ./train_tiny     # on four: the same losses, bit by bit
 *     shunt-run -n 2 ./train_tiny 500 book.txt
 *
 * Each rank has a share of every batch (data parallel) and a share of the
 * experts (expert parallel). All else is on every rank. The library is called
 * in the MoE layer, for the sums of gradients and of losses, and to send the
 * text to all ranks.
 *
 * The bits do not depend on the number of ranks. A batch has four slices, which
 * ranks take in turn. The exchange adds up a token's experts in one order
 * (tree_ranks). An expert's rows are in the order of the slices, and so is the
 * sum of its gradient. All other gradients are added slice by slice.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/shunt.h>

/* -- sizes ---------------------------------------------------------------- */

enum {
    V = 256,            /* values of a byte */
    T = 64,             /* bytes of a sequence */
    D = 64,             /* floats of a token */
    H = 4,              /* heads of attention */
    HD = D / H,         /* floats of a head */
    E = 8,              /* experts of a layer */
    F = 128,            /* floats inside of an expert */
    K = 2,              /* experts of a token */
    L = 2,              /* layers */
    N = 2 * T,          /* tokens of a slice: two sequences */
    SLICES = 4,         /* slices of a batch */
    BATCH = SLICES * N, /* tokens of a batch */
    LEAST = 16 * BATCH, /* fewest bytes of a text */
};

static struct shunt_comm *comm;
static struct shunt_moe *moe;
static int rank, ranks;
static int here; /* the first of this rank's E / ranks experts */

#define CHECK(call)                                                         \
    do {                                                                    \
        enum shunt_status status_ = (call);                                 \
        if (status_ != SHUNT_OK) {                                          \
            fprintf(stderr, "%s: %s: %s\n", #call, shunt_strerror(status_), \
                    shunt_last_error(comm));                                \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

/* -- parameters ----------------------------------------------------------- */

/* Parameters that all ranks have. Such a struct is an array of floats. */
struct dense {
    float byte[V][D];     /* embedding of a byte, and the head */
    float position[T][D]; /* embedding of a place in the sequence */
    struct {
        float qkv[D][3 * D]; /* queries, keys, values */
        float proj[D][D];    /* matrix after attention */
        float router[D][E];
    } layer[L];
};

/* Parameters that only the rank of the expert has. */
struct expert {
    float w1[D][F], w2[F][D];
};

enum {
    DENSE = sizeof(struct dense) / sizeof(float),
    EXPERT = sizeof(struct expert) / sizeof(float),
};

/* Parameters, gradients, and AdamW's moments. A rank uses only its own experts
 * here; pages that are never used take no memory. */
static struct dense dense, dense_grad, dense_m, dense_v;
static struct expert expert[L][E], expert_grad[L][E], expert_m[L][E],
    expert_v[L][E];
static struct slice {
    struct dense grad;
    float loss;
} slice[SLICES]; /* the gradient and the loss of each slice of the batch */

/* A random number in [0, 1) that depends on the arguments alone: splitmix64. */
static float uniform(uint64_t stream, uint64_t index)
{
    uint64_t z = (stream << 32) + (index + 1) * 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (float)((z ^ (z >> 31)) >> 40) * 0x1p-24f;
}

/* Sets n parameters to random numbers with mean 0. */
static void fill(float *p, size_t n, float deviation, uint64_t stream)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (2 * uniform(stream, i) - 1) * deviation * sqrtf(3);
}

/* -- matrices, norm, softmax ---------------------------------------------- */

/* <a, b> as 8 sums, because a compiler may not change the order of a single
 * sum. n must be a multiple of 8. */
static float dot(const float *a, const float *b, int n)
{
    float s[8] = {0};

    for (int i = 0; i < n; i += 8)
        for (int j = 0; j < 8; j++)
            s[j] += a[i + j] * b[i + j];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* y += a x */
static void add(float *restrict y, float a, const float *restrict x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] += a * x[i];
}

/* y (n, out) = x (n, in) w (in, out) */
static void matmul(float *y, const float *x, const float *w, size_t n, int in,
                   int out)
{
    memset(y, 0, n * (size_t)out * sizeof(float));
    for (size_t t = 0; t < n; t++, x += in, y += out)
        for (int i = 0; i < in; i++)
            add(y, x[i], w + i * out, out);
}

/* dx (n, in) = dy (n, out) w', and dw (in, out) += x' dy, row by row. */
static void matmul_backward(float *dx, float *dw, const float *dy,
                            const float *x, const float *w, size_t n, int in,
                            int out)
{
    for (size_t t = 0; t < n; t++, x += in, dx += in, dy += out)
        for (int i = 0; i < in; i++) {
            dx[i] = dot(dy, w + i * out, out);
            add(dw + i * out, x[i], dy, out);
        }
}

/* y (N, D) = x / rms(x), row by row. */
static void norm(float (*y)[D], float (*x)[D])
{
    for (int t = 0; t < N; t++) {
        float scale = 1 / sqrtf(dot(x[t], x[t], D) / D + 1e-5f);

        for (int i = 0; i < D; i++)
            y[t][i] = scale * x[t][i];
    }
}

/* dx (N, D) += gradient of norm() */
static void norm_backward(float (*dx)[D], float (*dy)[D], float (*x)[D])
{
    for (int t = 0; t < N; t++) {
        float scale = 1 / sqrtf(dot(x[t], x[t], D) / D + 1e-5f);

        add(dx[t], -dot(dy[t], x[t], D) * scale * scale * scale / D, x[t], D);
        add(dx[t], scale, dy[t], D);
    }
}

static void softmax(float *p, int n)
{
    float most = p[0], sum = 0;

    for (int i = 1; i < n; i++)
        most = fmaxf(most, p[i]);
    for (int i = 0; i < n; i++)
        sum += p[i] = expf(p[i] - most);
    for (int i = 0; i < n; i++)
        p[i] /= sum;
}

/* Results of forward that backward needs, for each layer. */
static struct kept {
    float x[N][D];               /* the layer's input */
    float xn[N][D];              /* norm(x) */
    float qkv[N][3 * D];         /* queries, keys, values */
    float p[N][H][T];            /* weight of each token for each other */
    float mix[N][D];             /* values, mixed by p */
    float mid[N][D];             /* x + mix proj */
    float midn[N][D];            /* norm(mid): the experts' input */
    int32_t idx[N][K];           /* the experts of a token */
    float weight[N][K];          /* the weights of idx */
    float inside[BATCH * K][F];  /* first half of the experts' rows on this
                                    rank */
    struct shunt_moe_plan *plan; /* the routing of all ranks */
    struct shunt_moe_rows in;    /* rows of each expert on this rank */
    float *rows, *out;           /* input and output of these rows */
} kept[L];
static float last[N][D], lastn[N][D]; /* output of the last layer; its norm */
static float probability[N][V];       /* of the next byte */

/* -- attention ------------------------------------------------------------ */

/* mid = x + mix(norm(x) qkv) proj. In each head, the mix of token t is the mean
 * of the values of its sequence up to t, weighted by p. */
static void attention_forward(int l)
{
    struct kept *a = &kept[l];

    norm(a->xn, a->x);
    matmul(*a->qkv, *a->xn, *dense.layer[l].qkv, N, D, 3 * D);
    memset(a->mix, 0, sizeof(a->mix));
    for (int t = 0; t < N; t++)
        for (int q = 0; q < D; q += HD) {
            float(*seq)[3 * D] = &a->qkv[t - t % T], *p = a->p[t][q / HD];

            for (int s = 0; s <= t % T; s++)
                p[s] = dot(&a->qkv[t][q], &seq[s][D + q], HD) / sqrtf(HD);
            softmax(p, t % T + 1);
            for (int s = 0; s <= t % T; s++)
                add(&a->mix[t][q], p[s], &seq[s][2 * D + q], HD);
        }
    matmul(*a->mid, *a->mix, *dense.layer[l].proj, N, D, D);
    add(*a->mid, 1, *a->x, N * D);
}

/* dx: on entry the gradient of mid, on return that of x. */
static void attention_backward(int l, float (*dx)[D], struct dense *grad)
{
    static float dmix[N][D], dqkv[N][3 * D], dxn[N][D];
    struct kept *a = &kept[l];

    matmul_backward(*dmix, *grad->layer[l].proj, *dx, *a->mix,
                    *dense.layer[l].proj, N, D, D);
    memset(dqkv, 0, sizeof(dqkv));
    for (int t = 0; t < N; t++)
        for (int q = 0; q < D; q += HD) {
            float(*seq)[3 * D] = &a->qkv[t - t % T], *p = a->p[t][q / HD];
            float(*dseq)[3 * D] = &dqkv[t - t % T], dp[T], sum = 0;

            for (int s = 0; s <= t % T; s++) {
                dp[s] = dot(&dmix[t][q], &seq[s][2 * D + q], HD);
                sum += p[s] * dp[s];
            }
            for (int s = 0; s <= t % T; s++) {
                float dscore = p[s] * (dp[s] - sum) / sqrtf(HD);

                add(&dqkv[t][q], dscore, &seq[s][D + q], HD);
                add(&dseq[s][D + q], dscore, &a->qkv[t][q], HD);
                add(&dseq[s][2 * D + q], p[s], &dmix[t][q], HD);
            }
        }
    matmul_backward(*dxn, *grad->layer[l].qkv, *dqkv, *a->xn,
                    *dense.layer[l].qkv, N, D, 3 * D);
    norm_backward(dx, dxn, a->x);
}

/* -- experts: here rows travel -------------------------------------------- */

/* The router chooses the K experts with the largest logits. Their weights are
 * the softmax of these. */
static void router_forward(int l)
{
    static float logits[N][E];
    struct kept *a = &kept[l];

    norm(a->midn, a->mid);
    matmul(*logits, *a->midn, *dense.layer[l].router, N, D, E);
    for (int t = 0; t < N; t++) {
        for (int k = 0; k < K; k++) {
            int best = 0;

            for (int e = 1; e < E; e++)
                if (logits[t][e] > logits[t][best])
                    best = e;
            a->idx[t][k] = best;
            a->weight[t][k] = logits[t][best];
            logits[t][best] = -INFINITY;
        }
        softmax(a->weight[t], K);
    }
}

/* dmid += gradients through the weights and, from dmidn, through the experts */
static void router_backward(int l, float (*dmid)[D], float (*dmidn)[D],
                            float (*dweight)[K], struct dense *grad)
{
    static float dlogits[N][E], d[N][D];
    struct kept *a = &kept[l];

    memset(dlogits, 0, sizeof(dlogits));
    for (int t = 0; t < N; t++) {
        float sum = 0;

        for (int k = 0; k < K; k++)
            sum += a->weight[t][k] * dweight[t][k];
        for (int k = 0; k < K; k++)
            dlogits[t][a->idx[t][k]] = a->weight[t][k] * (dweight[t][k] - sum);
    }
    matmul_backward(*d, *grad->layer[l].router, *dlogits, *a->midn,
                    *dense.layer[l].router, N, D, E);
    add(*dmidn, 1, *d, N * D);
    norm_backward(dmid, dmidn, a->mid);
}

/* For the rows of one expert: inside = max(in w1, 0), out = inside^2 w2. */
static void expert_forward(const struct expert *w, const float *in,
                           float (*inside)[F], float *out, size_t rows)
{
    float square[F];

    matmul(*inside, in, *w->w1, rows, D, F);
    for (size_t r = 0; r < rows; r++) {
        for (int f = 0; f < F; f++) {
            inside[r][f] = fmaxf(inside[r][f], 0);
            square[f] = inside[r][f] * inside[r][f];
        }
        matmul(out + r * D, square, *w->w2, 1, F, D);
    }
}

static void expert_backward(const struct expert *w, struct expert *grad,
                            const float *in, float (*inside)[F],
                            const float *dout, float *din, size_t rows)
{
    float square[F], d[F];

    for (size_t r = 0; r < rows; r++) {
        for (int f = 0; f < F; f++)
            square[f] = inside[r][f] * inside[r][f];
        matmul_backward(d, *grad->w2, dout + r * D, square, *w->w2, 1, F, D);
        for (int f = 0; f < F; f++)
            d[f] *= 2 * inside[r][f];
        matmul_backward(din + r * D, *grad->w1, d, in + r * D, *w->w1, 1, D, F);
    }
}

/* next = mid + experts(norm(mid)). A plan knows where each row goes. dispatch
 * gets the rows of this rank's experts from all ranks, expert by expert.
 * combine returns the experts' output, weighted and added to mid. */
static void moe_forward(int l, float (*next)[D])
{
    struct kept *a = &kept[l];

    router_forward(l);
    CHECK(shunt_moe_plan_create(moe, *a->idx, *a->weight, N, &a->plan));
    shunt_moe_plan_rows(a->plan, &a->in, sizeof(a->in));
    a->rows = shunt_moe_buffer(a->plan, SHUNT_MOE_ROWS);
    a->out = shunt_moe_buffer(a->plan, SHUNT_MOE_OUT);
    CHECK(shunt_moe_dispatch(a->plan, a->midn, a->rows, a->in.total));
    for (int i = 0; i < a->in.local_experts; i++) {
        size_t first = a->in.offset[i];

        expert_forward(&expert[l][a->in.expert[i]], a->rows + first * D,
                       a->inside + first, a->out + first * D, a->in.count[i]);
    }
    CHECK(shunt_moe_combine(a->plan, a->out, a->mid, next));
}

/* dx: on entry the gradient of next, on return that of mid. Gradients of rows
 * are sent between the same ranks as the rows in moe_forward(). An expert gets
 * the rows of all ranks, so its gradient is complete. */
static void moe_backward(int l, float (*dx)[D], struct dense *grad)
{
    static float dmidn[N][D], dweight[N][K];
    struct kept *a = &kept[l];
    float *dout = shunt_moe_buffer(a->plan, SHUNT_MOE_DOUT);
    float *drows = shunt_moe_buffer(a->plan, SHUNT_MOE_DROWS);

    CHECK(shunt_moe_combine_backward(a->plan, dx, a->out, dout, a->in.total,
                                     *dweight));
    for (int i = 0; i < a->in.local_experts; i++) {
        size_t first = a->in.offset[i];
        int e = a->in.expert[i];

        expert_backward(&expert[l][e], &expert_grad[l][e], a->rows + first * D,
                        a->inside + first, dout + first * D, drows + first * D,
                        a->in.count[i]);
    }
    CHECK(shunt_moe_dispatch_backward(a->plan, drows, dmidn));
    router_backward(l, dx, dmidn, dweight, grad);
    shunt_moe_plan_destroy(a->plan);
}

/* -- the model ------------------------------------------------------------ */

/* The loss of the bytes that follow those of `in`: their part of the mean over
 * the batch. */
static float forward(const unsigned char *in, const unsigned char *want)
{
    float loss = 0;

    for (int t = 0; t < N; t++)
        for (int i = 0; i < D; i++)
            kept[0].x[t][i] = dense.byte[in[t]][i] + dense.position[t % T][i];
    for (int l = 0; l < L; l++) {
        attention_forward(l);
        moe_forward(l, l + 1 < L ? kept[l + 1].x : last);
    }
    norm(lastn, last);
    for (int t = 0; t < N; t++) {
        for (int v = 0; v < V; v++)
            probability[t][v] = dot(lastn[t], dense.byte[v], D);
        softmax(probability[t], V);
        loss -= logf(probability[t][want[t]]) / BATCH;
    }
    return loss;
}

static void backward(const unsigned char *in, const unsigned char *want,
                     struct dense *grad)
{
    static float dx[N][D], dlastn[N][D];

    memset(grad, 0, sizeof(*grad));
    memset(dx, 0, sizeof(dx));
    memset(dlastn, 0, sizeof(dlastn));
    for (int t = 0; t < N; t++)
        for (int v = 0; v < V; v++) {
            float d = (probability[t][v] - (float)(v == want[t])) / BATCH;

            add(dlastn[t], d, dense.byte[v], D);
            add(grad->byte[v], d, lastn[t], D);
        }
    norm_backward(dx, dlastn, last);
    for (int l = L - 1; l >= 0; l--) {
        moe_backward(l, dx, grad);
        attention_backward(l, dx, grad);
    }
    for (int t = 0; t < N; t++) {
        add(grad->byte[in[t]], 1, dx[t], D);
        add(grad->position[t % T], 1, dx[t], D);
    }
}

/* -- the text ------------------------------------------------------------- */

static unsigned char text[1 << 24]; /* the text, or its first bytes */
static size_t length, train_length; /* the last eighth is for the test */

/* Rank 0 reads the file, and sends it to the other ranks. */
static void read_text(const char *path)
{
    FILE *file = rank == 0 ? fopen(path, "rb") : NULL;

    if (file) {
        length = fread(text, 1, sizeof(text), file);
        fclose(file);
    }
    CHECK(shunt_broadcast(comm, &length, sizeof(length), SHUNT_U8, 0));
    if (length < LEAST) {
        if (rank == 0)
            fprintf(stderr, "%s: cannot be read, or has less than %d bytes\n",
                    path, LEAST);
        exit(1);
    }
    CHECK(shunt_broadcast(comm, text, length, SHUNT_U8, 0));
    train_length = length / 8 * 7;
}

/* Slice s of a step: sequences from random places in the text. */
static void draw(int step, int s, unsigned char *in, unsigned char *want)
{
    for (int t = 0; t < N; t += T) {
        uint64_t number = (uint64_t)((step * SLICES + s) * N + t);
        float at = uniform(1000, number) * (float)(train_length - T);

        memcpy(in + t, text + (size_t)at, T);
        memcpy(want + t, text + (size_t)at + 1, T);
    }
}

/* -- the step ------------------------------------------------------------- */

/* AdamW (1711.05101) for n parameters. The first step is 1. */
static void adamw(void *param, void *grad, void *mean, void *square, size_t n,
                  float rate, int step)
{
    const float b1 = 0.9f, b2 = 0.95f, decay = 0.01f;
    const float c1 = 1 - powf(b1, (float)step), c2 = 1 - powf(b2, (float)step);
    float *p = param, *g = grad, *m = mean, *v = square;

    for (size_t i = 0; i < n; i++) {
        m[i] = b1 * m[i] + (1 - b1) * g[i];
        v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
        p[i] -= rate * (m[i] / c1 / (sqrtf(v[i] / c2) + 1e-8f) + decay * p[i]);
        g[i] = 0;
    }
}

/* One step. Returns the loss of its batch. */
static float train_step(int step, int steps)
{
    static unsigned char in[N], want[N];
    float left = (float)(steps - step + 1) / (float)steps, loss = 0;
    float rate = 8e-3f * fminf((float)step / 10, left); /* rises, then falls */

    /* In each turn each rank computes one slice. Then all ranks get the results
     * of all these slices. */
    for (int turn = 0; turn < SLICES; turn += ranks) {
        struct slice *mine = &slice[turn + rank];

        draw(step, turn + rank, in, want);
        mine->loss = forward(in, want);
        backward(in, want, &mine->grad);
        CHECK(shunt_allgather(comm, SHUNT_IN_PLACE, &slice[turn], DENSE + 1,
                              SHUNT_F32));
    }
    for (int s = 0; s < SLICES; s++) {
        add((float *)&dense_grad, 1, (float *)&slice[s].grad, DENSE);
        loss += slice[s].loss;
    }

    /* All ranks update the dense parameters, and each rank its experts. */
    adamw(&dense, &dense_grad, &dense_m, &dense_v, DENSE, rate, step);
    for (int l = 0; l < L; l++)
        adamw(&expert[l][here], &expert_grad[l][here], &expert_m[l][here],
              &expert_v[l][here], (size_t)(E / ranks) * EXPERT, rate, step);
    return loss;
}

/* The loss on the text that was kept for the test, and the entropy of that
 * text's bytes. No model without context can have a lower loss than this
 * entropy. In nats a byte. */
static void test(float *loss, float *entropy)
{
    const size_t batches = (length - train_length - 1) / BATCH;
    const unsigned char *at = text + train_length;
    const float all = (float)(batches * BATCH);
    float part[SLICES], count[V] = {0};

    *loss = *entropy = 0;
    for (size_t s = 0; s < batches * SLICES; s += (size_t)ranks) {
        const unsigned char *in = at + (s + (size_t)rank) * N;

        part[rank] = forward(in, in + 1);
        CHECK(shunt_allgather(comm, SHUNT_IN_PLACE, part, 1, SHUNT_F32));
        for (int r = 0; r < ranks; r++)
            *loss += part[r] / (float)batches;
        for (int l = 0; l < L; l++)
            shunt_moe_plan_destroy(kept[l].plan);
    }
    for (size_t i = 1; i <= batches * BATCH; i++)
        count[at[i]]++;
    for (int v = 0; v < V; v++)
        if (count[v] > 0)
            *entropy -= count[v] / all * logf(count[v] / all);
}

/* -- main ----------------------------------------------------------------- */

int main(int argc, char **argv)
{
    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;
    const char *path = argc > 2 ? argv[2] : __FILE__;
    int steps = argc > 1 ? atoi(argv[1]) : 200;
    float loss, entropy;

    CHECK(shunt_comm_create_env(NULL, &comm));
    rank = shunt_comm_rank(comm);
    ranks = shunt_comm_size(comm);
    here = rank * E / ranks;
    if (SLICES % ranks) {
        if (rank == 0)
            fprintf(stderr, "%d ranks: take 1, 2 or 4\n", ranks);
        return 1;
    }
    config.hidden = D;
    config.dtype = SHUNT_F32;
    config.experts = E;
    config.topk = K;
    config.max_tokens = N;
    config.weights = SHUNT_MOE_APPLY_WEIGHTS;
    config.tree_ranks = E; /* sum as if on E ranks of one node */
    config.tree_nodes = 1;
    CHECK(shunt_moe_create(comm, &config, &moe));

    read_text(path);
    fill((float *)&dense, DENSE, 0.05f, L * E);
    fill(*dense.byte, V * D, 0.2f, L * E + 1);
    for (int l = 0; l < L; l++)
        for (int e = here; e < here + E / ranks; e++)
            fill((float *)&expert[l][e], EXPERT, 0.1f, (uint64_t)(l * E + e));
    if (rank == 0)
        printf("%d parameters, %zu bytes of %s\n", DENSE + L * E * EXPERT,
               length, path);

    for (int step = 1; step <= steps; step++) {
        loss = train_step(step, steps);
        if (rank == 0 && (step == 1 || step % 10 == 0))
            printf("step %4d  loss %.6f\n", step, loss);
    }
    test(&loss, &entropy);
    if (rank == 0)
        printf("on text not seen  loss %.6f; without context at least %.6f\n",
               loss, entropy);
    CHECK(shunt_comm_finish(comm));
    shunt_comm_destroy(comm); /* destroys the exchange, too */
    return 0;
}
