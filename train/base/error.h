// SPDX-License-Identifier: Apache-2.0
/* The text of the last error of this thread. */
#ifndef TRAIN_ERROR_H
#define TRAIN_ERROR_H

/* Sets the error text. Always returns -1, so that callers can `return
 * train_error(..)`. */
__attribute__((format(printf, 1, 2))) int train_error(const char *format, ...);

/* The text of this thread's last train_error(). Never NULL. */
const char *train_error_text(void);

/* Prints an error and aborts. Only for running out of memory where no caller
 * can handle an error. */
_Noreturn void train_out_of_memory(void);

#endif
