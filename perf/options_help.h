// SPDX-License-Identifier: Apache-2.0
/* The texts of --help all before and behind the options, and those of --help. */
#ifndef SHUNT_PERF_OPTIONS_HELP_H
#define SHUNT_PERF_OPTIONS_HELP_H

extern const char perf_usage[], perf_about[];
extern const char perf_brief_usage[], perf_brief_end[];

#endif
