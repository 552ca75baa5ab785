#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_again.py SOURCE-ROOT

Scripts/test runs a program again that failed while a processor stood still, and
no other one; TAP. Each case has a suite of one or two shell scripts. A processor that
stands still is a watcher of scripts/stalls that is stopped for 1.2 s."""

import os
import shutil
import subprocess
import sys
import tempfile

STALL = r"""
watchers=$(grep -lz "^$ROOT/scripts/stalls" /proc/[0-9]*/cmdline 2>/dev/null |
    sed 's,/proc/,,; s,/cmdline,,')
if [ -n "$watchers" ]; then # nobody watches what is run again
    kill -STOP $watchers
    sleep 1.2 # it has to last that long
    kill -CONT $watchers
fi
"""
# A test that fails at first, and one that always does.
ONCE = '[ -e "$ROOT/been.${1%% *}" ] && exit 0; touch "$ROOT/been.${1%% *}"\n'
MESON = """project('small', meson_version: '>= 1.0')
foreach name : get_option('names').split(',')
  test(name, find_program(name + '.sh'), args: name, suite: 'suite_' + name,
    protocol: name.endswith('tap') ? 'tap' : 'exitcode')
endforeach
"""
OPTIONS = "".join(
    f"option('{name}', type: 'string', value: '')\n"
    for name in ("tests", "train", "whole_library"))

CASES = [
    # name, {test: script}, exit status, what is said, what is not
    ("passes the second time",
     {"fine": "", "shaken": ONCE + STALL + "exit 1\n"}, 0,
     ["shaken: FAIL, but processor", "stood still for",
      "run again: small:suite_shaken / shaken: 1 passed, 0 failed",
      "2 passed, 0 failed"], []),
    ("cases are counted once",
     {"fine": "",
      "shaken tap": ONCE.replace("exit 0", "{ echo ok 1; echo ok 2; echo 1..2; "
                                 "exit 0; }")
                    + STALL + "echo ok 1; echo not ok 2; echo 1..2\n"}, 0,
     ["run again: small:suite_shaken tap / shaken tap: 2 passed, 0 failed",
      "3 passed, 0 failed"], []),
    ("fails twice",
     {"fine": "", "shaken": STALL + "exit 1\n"}, 1,
     ["run again: small:suite_shaken / shaken: 0 passed, 1 failed",
      "1 passed, 1 failed"], []),
    ("no processor stood still",
     {"fine": "", "wrong": ONCE + "exit 1\n"}, 1,
     ["1 passed, 1 failed"], ["again:", "stood still"]),
    ("one that failed before is not run again",
     {"shaken": ONCE + "while [ ! -e $ROOT/been.wrong ]; do sleep 0.1; done\n"
                # Until then Meson has its result; a watcher looks 1 s back.
                "sleep 2\n" + STALL + "exit 1\n",
      "wrong": ONCE + "exit 1\n"}, 1,
     ["shaken: FAIL, but", "1 passed, 1 failed"], ["wrong: FAIL, but"]),
]


def run(root, tests):
    for name, script in tests.items():
        path = os.path.join(root, name + ".sh")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + script)
        os.chmod(path, 0o755)
    with open(os.path.join(root, "meson.build"), "w", encoding="utf-8") as file:
        file.write(MESON)
    with open(os.path.join(root, "meson_options.txt"), "w",
              encoding="utf-8") as file:
        file.write(OPTIONS + "option('names', type: 'string', value: "
                   f"'{','.join(tests)}')\n")
    env = dict(os.environ, ROOT=root)
    env.pop("MESON_OPTIONS", None)
    done = subprocess.run([os.path.join(root, "scripts", "test"), "plain"],
                          env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def main(source):
    for number, (name, tests, status, told, not_told) in enumerate(CASES, 1):
        with tempfile.TemporaryDirectory() as root:
            os.mkdir(os.path.join(root, "scripts"))
            for script in ("test", "stalls", "configure"):
                shutil.copy(os.path.join(source, "scripts", script),
                            os.path.join(root, "scripts"))
            got, output = run(root, tests)
        wrong = [f"exit status {got}, not {status}"] if got != status else []
        wrong += [f'not said: "{t}"' for t in told if t not in output]
        wrong += [f'said: "{t}"' for t in not_told if t in output]
        print("not ok" if wrong else "ok", number, "-", name)
        for line in wrong + (output.splitlines() if wrong else []):
            print("#", line)
    print(f"1..{len(CASES)}")


if __name__ == "__main__":
    main(sys.argv[1])
