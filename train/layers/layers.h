// SPDX-License-Identifier: Apache-2.0
/*
 * The parts of the model, each a forward and a backward function on plain
 * arrays. The letters, here and in all shapes of train/:
 *
 *     B  sequences on this rank           D  width of the model
 *     T  positions of a sequence          H  attention heads, KV of k and v
 *     R  rows, B * T                      W  width of a head, mostly D / H
 *     V  vocabulary: the 256 bytes        E  experts (all ranks)
 *     L  layers                           K  experts that a token chooses
 *     M  layers with experts              F  hidden width of an expert
 *     G  shares of the batch on this      N  rows of one expert
 *        rank
 *
 * In the comments "=" writes a result, "+=" adds to it, and "[+]=" does what
 * `beta` says. Gradients of inputs are written or added as each function says.
 * Gradients of parameters are always added, share by share: rows g R/G to (g+1)
 * R/G of the batch go to the g-th gradient vector. So sums do not depend on
 * which ranks have which shares.
 */
#ifndef TRAIN_LAYERS_H
#define TRAIN_LAYERS_H

#include <stddef.h>
#include <stdint.h>

#include "src/kernels/gemm/gemm.h"
#include "train/layers/gate.h"

enum { VOCABULARY = 256 };

/* A parameter's gradients: that of share g is at data + g * stride. */
struct grad {
    float *data;
    size_t stride;
    size_t shares; /* G */
};

/* --- linear.c: y = x w ---------------------------------------------------- */

/* x (R, n), w (n, m) -> y (R, m) [+]= */
void linear(struct shunti_gemm *gemm, size_t R, size_t n, size_t m,
            const float *x, const float *w, enum shunti_gemm_beta beta,
            float *y);
/* dy (R, m), x, w -> dx (R, n) [+]=, dw += . dx may be NULL. */
void linear_backward(struct shunti_gemm *gemm, size_t R, size_t n, size_t m,
                     const float *dy, const float *x, const float *w,
                     enum shunti_gemm_beta beta, float *dx, struct grad dw);
/* The two halves of linear_backward(): dx, which the preceding layer waits for,
 * and dw. */
void linear_backward_input(struct shunti_gemm *gemm, size_t R, size_t n,
                           size_t m, const float *dy, const float *w,
                           enum shunti_gemm_beta beta, float *dx);
void linear_backward_weight(struct shunti_gemm *gemm, size_t R, size_t n,
                            size_t m, const float *dy, const float *x,
                            struct grad dw);

/* --- embedding.c ---------------------------------------------------------- */

/* bytes (R), table (V, D) -> x (R, D) */
void embedding(size_t R, size_t D, const uint8_t *bytes, const float *table,
               float *x);
/* dx (R, D), bytes -> dtable += */
void embedding_backward(size_t R, size_t D, const float *dx,
                        const uint8_t *bytes, struct grad dtable);

/* --- rmsnorm.c ------------------------------------------------------------ */

/* x (R, D), gain (D) -> y (R, D), inverse (R) */
void rmsnorm(size_t R, size_t D, const float *x, const float *gain, float *y,
             float *inverse);
/* dy (R, D), x, gain, inverse -> dx (R, D) +=, dgain += */
void rmsnorm_backward(size_t R, size_t D, const float *dy, const float *x,
                      const float *gain, const float *inverse, float *dx,
                      struct grad dgain);

/* --- attention.c ---------------------------------------------------------- */

struct rope {
    float *cosine; /* (T, W/2) */
    float *sine;   /* (T, W/2) */
};

int rope_create(struct rope *rope, size_t T, size_t W, double theta);
void rope_destroy(struct rope *rope);

struct attention_shape {
    size_t B, T;
    size_t H;  /* heads of q */
    size_t KV; /* heads of k and v; H / KV consecutive heads of q share one */
    size_t W;
};

/* Elements of a row of q | k | v. */
static inline size_t attention_width(const struct attention_shape *a)
{
    return (a->H + 2 * a->KV) * a->W;
}

/* Floats of `work` in the two functions below. */
size_t attention_work(size_t W);

/* qkv (R, (H + 2 KV) W) = q | k | v -> lse (B, H, T): log2(sum(2^(q k))) of
 * each query; y (R, H W). q and k are rotated in place, and q is multiplied by
 * log2(e) / sqrt(W). */
void attention(struct shunti_gemm *gemm, const struct rope *rope,
               const struct attention_shape *a, float *qkv, float *lse,
               float *y, float *work);
/* dy (R, H W), and the results of attention() -> dqkv (R, (H + 2 KV) W) = */
void attention_backward(struct shunti_gemm *gemm, const struct rope *rope,
                        const struct attention_shape *a, const float *dy,
                        const float *qkv, const float *lse, const float *y,
                        float *dqkv, float *work);

/* --- router.c ------------------------------------------------------------- */

/* to->logits (R, width), the product with the router's matrix -> the other
 * fields of `to`, for R tokens. 0, or -1 with train_error_text(). */
int router(const struct router_config *c, const struct gate_input *in,
           const struct routed *to);
/* dweight (R, K), and the results of router() from the same input -> dlogits
 * (R, width) = . probs may be overwritten.
 * slope  from gate_loss(), for these tokens
 * scale  d(loss)/d(sum over rows), 1 / (rows of the whole batch) */
void router_backward(const struct router_config *c, const struct gate_input *in,
                     const struct routed *of, const float *dweight,
                     const float *slope, float scale, float *dlogits);

/* --- experts.c ------------------------------------------------------------ */

/* The first half of a SwiGLU feed-forward: y = (silu(x Wg) * (x Wu)) Wd, with
 * Wg | Wu stored as one matrix gate_up (D, 2 F), and down (F, D).
 * x (N, D) -> hidden (N, 2 F), act (N, F)
 * The second half is linear(): act -> y (N, D). */
void feed_forward_hidden(struct shunti_gemm *gemm, size_t N, size_t D, size_t F,
                         const float *x, const float *gate_up, float *hidden,
                         float *act);
/* One of several experts that share D and F, with its rows. Letters as
 * above. */
struct expert {
    size_t N;
    const float *x, *gate_up, *down;
    float *hidden, *act, *y;
};
/* The feed-forward of all experts: sets y of each. The bits are the same as for
 * an expert alone. items (count): scratch */
void feed_forward_grouped(struct shunti_gemm *gemm, size_t count, size_t D,
                          size_t F, const struct expert *experts,
                          struct shunti_gemm_item *items);
/* The gradients can be computed in this order. First the hidden rows: dy (N,
 * D), hidden -> dhidden (N, 2 F); dact (N, F): scratch. Then the input's
 * gradient, by linear_backward_input() of dhidden and gate_up. Then the
 * parameters' gradients: dgate_up +=, ddown += */
void feed_forward_backward_hidden(struct shunti_gemm *gemm, size_t N, size_t D,
                                  size_t F, const float *dy, const float *down,
                                  const float *hidden, float *dact,
                                  float *dhidden);
void feed_forward_backward_weights(struct shunti_gemm *gemm, size_t N, size_t D,
                                   size_t F, const float *dy, const float *x,
                                   const float *act, const float *dhidden,
                                   struct grad dgate_up, struct grad ddown);

/* --- loss.c --------------------------------------------------------------- */

/* logits (R, V), target (R) -> p (R, V), the softmax, in the place of the
 * logits; loss (R) = -log p(target) */
void cross_entropy(size_t R, float *logits, const uint8_t *target, float *loss);
/* p (R, V) -> dlogits, in the place of p: (p - one-hot(target)) * scale */
void cross_entropy_backward(size_t R, float *p, const uint8_t *target,
                            float scale);

#endif
