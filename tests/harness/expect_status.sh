#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# expect_status.sh STATUS COMMAND...: does COMMAND end with STATUS?

want=$1
shift
"$@"
got=$?
[ "$got" -eq "$want" ] || echo "exit status $got, expected $want: $*" >&2
[ "$got" -eq "$want" ]
