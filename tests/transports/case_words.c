// SPDX-License-Identifier: Apache-2.0
/* Conformance: memory that its owner reads while a put writes it. */
#include "tests/transports/cases.h"

/* Each put writes the same value to all words of a record. The next rank reads
 * the record meanwhile, word by word, as records with a checksum are read
 * (src/wire/loss.h). It finds values that were put, and never older ones than
 * before. */
void case_words(struct rank *r)
{
    enum { N = 3000, WORDS = 15 };
    const int to = (r->rank + 1) % r->nranks;
    uint64_t record[WORDS], seen[WORDS] = {0};
    double deadline = world_now() + world_patience;
    struct window w;
    uint64_t sent = 0;

    window_create(r, &w, (WORDS + 1) * 8);
    while (sent < N || seen[WORDS - 1] < N) {
        if (sent < N) {
            struct shunt_transport_put put = {
                .local = record,
                .remote = w.remote[to],
                .offset = 8,
                .bytes = sizeof(record),
                .signal = w.remote[to],
                .signal_offset = 0,
                .signal_value = sent + 1,
                .channel = 5,
            };

            sent++;
            for (int i = 0; i < WORDS; i++)
                record[i] = sent;
            world_put(r, to, &put);
        }
        for (int i = 0; i < WORDS; i++) {
            uint64_t word = word_load(window_word(&w, 8 + 8 * (size_t)i));

            CHECK(r, word >= seen[i] && word <= N,
                  "word %d went from %llu to %llu", i,
                  (unsigned long long)seen[i], (unsigned long long)word);
            seen[i] = word;
        }
        if (world_now() > deadline)
            FAIL(r, "stuck at %llu sent, %llu seen", (unsigned long long)sent,
                 (unsigned long long)seen[WORDS - 1]);
        world_relax(r);
    }
    world_barrier(r);
    window_destroy(r, &w);
}
