#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does the tiny language model learn, and does it print the same on 1, 2 and 4 ranks?

train_tiny.py SHUNT_RUN TRAIN_TINY TEXT

The entropy of a text's bytes is the least loss of a model that uses no earlier byte.
After 40 steps the loss must be below the entropy, on text that the model was not
trained on. Without a step the loss must be above it, or the bound would mean nothing.
"""
import os
import re
import subprocess
import sys

run, program, text = sys.argv[1:]
MARGIN = 0.2  # nats per byte


def lines(ranks, steps, **env):
    """Returns the lines that rank 0 prints."""
    job = subprocess.run(
        [run, "-n", str(ranks), "--timeout", "100", program, str(steps), text],
        env={**os.environ, **env}, capture_output=True, text=True, check=False)
    if job.returncode:
        sys.exit(f"{ranks} ranks, {steps} steps: {job.stdout}{job.stderr}")
    return [re.sub(r"^\[0\] ", "", line) for line in job.stdout.splitlines()]


def losses(printed):
    """Returns the loss and the entropy on text that the model was not trained on."""
    found = re.fullmatch(
        r"on text not seen  loss (\S+); without context at least (\S+)",
        printed[-1])
    if not found:
        sys.exit(f"not the last line of train_tiny: {printed[-1]}")
    return float(found[1]), float(found[2])


one = lines(1, 40)
loss, entropy = losses(one)
print("\n".join(one))
if loss > entropy - MARGIN:
    sys.exit(f"it has not learnt: {loss} is not {MARGIN} below {entropy}")
loss, entropy = losses(lines(1, 0))
if loss < entropy:
    sys.exit(f"without a step its loss is {loss}, already below {entropy}")
for ranks, env in (2, {}), (4, {}), (4, {"SHUNT_MOE_MODE": "flat"}):
    many = lines(ranks, 40, **env)
    if many != one:
        sys.exit(f"{ranks} ranks {env} print something else:\n" + "\n".join(many))
refused = subprocess.run([run, "-n", "3", program, "1", text],
                         capture_output=True, text=True, check=False)
if refused.returncode == 0 or "3 ranks: take 1, 2 or 4" not in refused.stderr:
    sys.exit(f"3 ranks are not refused: {refused.stderr}")
