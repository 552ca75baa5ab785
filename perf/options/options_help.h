// SPDX-License-Identifier: Apache-2.0
/* Texts of --help before the options and after them. */
#ifndef SHUNT_PERF_OPTIONS_HELP_H
#define SHUNT_PERF_OPTIONS_HELP_H

extern const char perf_usage[], perf_about[];
extern const char perf_brief_usage[], perf_brief_end[];

#endif
