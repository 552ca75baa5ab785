// SPDX-License-Identifier: Apache-2.0
/* What --help says before the options, and behind them. */
#ifndef SHUNT_PERF_OPTIONS_HELP_H
#define SHUNT_PERF_OPTIONS_HELP_H

extern const char perf_usage[], perf_about[];

#endif
