#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does every command in the documents exist, with every option that it is given?

commands.py SOURCE BUILD [FILE...]

Reads the code (blocks and `spans`) of CONTRIBUTING.md, docs/*.md, docs/design/*.md and
each README.md. Of each command it looks up the program, script, target of make or file.
Each long option must be in the output of the program's --help, or in the text of the
script. Each file of the tree and each variable SHUNT_... that is named must exist. Each
command of a program of Shunt is run with --help at its end, so that the program checks
the values as well. Prints TAP, one line for each document.
"""
import glob
import os
import re
import shlex
import subprocess
import sys

SOURCE, BUILD = (os.path.abspath(path) for path in sys.argv[1:3])
PROGRAMS = {"shunt-run": "tools", "shunt-info": "tools", "shunt-perf": "perf",
            "shunt-train": "train"}
# Placeholders, which a reader replaces by a name.
ANY = re.compile(r"[<>{}*?$…]|\.\.\.|%r|NAME|rank_program")
# Options of other programs, which a text may name without the program.
FOREIGN = set("""--host --hosts --nnodes --nproc-per-node --node-rank --master-addr
    --master-port --no-python --ntasks-per-node --cpus-per-task --mpi --repeat --wrap
    --suite --no-rebuild --privileged --cap-add --security-opt --shm-size --ulimit
    --bind-to --map-by --device --overlap --oversubscribe""".split())
COMMANDS = set(PROGRAMS) | {"make"}

# A document in which everything is wrong. The check must find all faults.
SAMPLE = """
    shunt-run -n 4 shunt-train --stepz 20 --seq 64      # --layerz is a comment
    SHUNT_TIMEOUTS=3 shunt-run --tagg x -n 2 ./my-program --its-own
    perf/shunt-perf alltoallv --begin 8 --ending 64m | grep --quiet x; make tets
    shunt-perf moe --mode flatt > moe.txt; shunt-perf moe --mode NAME
    tests/mutants/mutants --matches; scripts/tidi --analyze
    tests/hosts/hosts with 3 -- \\
        shunt-info --topologies

Take `--stepz`, `shunt-info --tarnsports`, `docs/nothing.md`, `make train`,
`src/base/env.c`, `--steps`, `SHUNT_OK`, `build/perf/shunt-pref`, `moe/<name>.c`.
"""
FAULTS = """--stepz; --tagg; SHUNT_TIMEOUTS; --ending; flatt; tets; --matches; scripts/tidi;
    --topologies; --stepz; --tarnsports; docs/nothing.md; build/perf/shunt-pref"""


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def program_help(name):
    path = os.path.join(BUILD, PROGRAMS[name], name)
    texts = []
    for ask in ["--help"], ["--help", "all"]:
        job = subprocess.run([path, *ask], capture_output=True, text=True, check=False)
        texts.append(job.stdout)
    return "\n".join(texts)


class Tree:
    """The names that a document may use: programs, options, files, targets, variables."""

    def __init__(self):
        self.options = {}  # program -> {option: takes a value}
        for name in PROGRAMS:
            self.options[name] = options = {}
            for line in program_help(name).splitlines():
                for short, option, value in re.findall(
                        r"^ {0,8}(?:(-\w), )?(--[a-z][-\w]*)(?:[ =]([A-Z]\S*))?", line):
                    options[option] = bool(value)
                    if short:
                        options[short] = bool(value)
            if len(options) < 5:
                sys.exit(f"commands.py: cannot read {name} --help")
        self.every = set().union(*self.options.values()) | FOREIGN
        self.targets = set(re.findall(r"^([a-z][-\w]*):", read(f"{SOURCE}/Makefile"),
                                      re.M))
        files = subprocess.run(["git", "-C", SOURCE, "ls-files"], capture_output=True,
                               text=True, check=False).stdout.splitlines()
        if not files:  # not a work tree of git, so take all files
            files = [os.path.relpath(os.path.join(folder, name), SOURCE)
                     for folder, _, names in os.walk(SOURCE) for name in names
                    if not re.search(r"/(\.git|build[-\w]*)(/|$)", folder)]
        # The names in the sample above must not count as existing.
        files = [name for name in files if not name.endswith("docs/commands.py")]
        self.files = set(files)
        self.texts = {}  # folder -> the text of its scripts and of meson.build
        for name in files:
            while name := os.path.dirname(name):
                self.files.add(name)
        self.tops = {name.split("/")[0] for name in files if "/" in name}
        self.scripts = {}  # path -> its text
        self.variables = self.read_variables(files)

    def read_variables(self, files):
        job = subprocess.run([f"{BUILD}/tools/shunt-info", "--env"],
                             capture_output=True, text=True, check=False)
        known = set(re.findall(r"^  (SHUNT_\w+)", job.stdout, re.M))
        # Constants of the headers, and variables that programs, tests and scripts read.
        for name in files:
            if name.startswith("include/") or re.search(
                    r"^(bindings|perf|train|tools|tests|scripts|transports|src|moe|"
                    r"collectives|\.ci)/.*(?<!\.md)$|^Makefile$|meson.build$|_options",
                    name):
                try:
                    known |= set(re.findall(r"\bSHUNT_\w+", read(f"{SOURCE}/{name}")))
                except (UnicodeDecodeError, FileNotFoundError):
                    pass
        return known

    def has_file(self, path):
        path = path.rstrip("/").removeprefix("./")
        if path in self.files:
            return True
        build = re.match(r"build[-\w]*(?:/|$)(.*)", path)
        inside = build[1] if build else path
        return (not inside or inside in self.files
                or os.path.exists(f"{BUILD}/{inside}") or self.is_made(inside))

    def is_made(self, inside):
        """True if the build or a script makes this file on demand."""
        folder, name = os.path.split(inside)
        if folder not in self.texts:
            self.texts[folder] = "".join(
                read(f"{SOURCE}/{file}") for file in self.files
                if os.path.dirname(file) == folder and (
                    file.endswith("meson.build") or self.is_script(file)))
        return bool(re.search(rf"\b{re.escape(name)}\b", self.texts[folder]))

    def is_script(self, path):
        full = f"{SOURCE}/{path}"
        if not os.path.isfile(full) or path not in self.files:
            return False
        with open(full, "rb") as file:
            return file.read(2) == b"#!"

    def script_text(self, path):
        if path not in self.scripts:
            text = read(f"{SOURCE}/{path}")
            # Add the scripts beside it that it starts or imports.
            for other in re.findall(r"\b[\w/.-]+\.(?:py|sh)\b", text):
                beside = os.path.join(SOURCE, os.path.dirname(path), other)
                if os.path.isfile(beside):
                    text += read(beside)
            self.scripts[path] = text
        return self.scripts[path]


def code(text):
    """Returns [(line number, code, True for a span)] of a document."""
    out, prose, lines = [], [], text.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        if re.match(r"\s*```", line):
            first, number = number + 1, number + 1
            block = []
            while number < len(lines) and not re.match(r"\s*```", lines[number]):
                block.append(lines[number])
                number += 1
            out.append((first + 1, "\n".join(block), False))
            prose.append("")
            number += 1
            prose += [""] * (number - len(prose))
            continue
        if re.match(r" {4}\S", line) and (not number or not lines[number - 1].strip()):
            first, block = number, []
            while number < len(lines) and (re.match(r" {4}", lines[number])
                                           or not lines[number].strip()):
                block.append(lines[number][4:])
                number += 1
            out.append((first + 1, "\n".join(block), False))
            prose += [""] * (number - len(prose))
            continue
        prose.append(line)
        number += 1
    flat = "\n".join(prose)
    for match in re.finditer(r"(?<!`)`([^`]+)`(?!`)", flat):
        out.append((flat.count("\n", 0, match.start()) + 1,
                    " ".join(match[1].split()), True))
    return out


def statements(block):
    """The commands of a block, each as a list of words."""
    block = re.sub(r"\\\n", " ", block)
    block = re.sub(r"<[a-z][-\w ]*>", "*", block)
    for line in block.split("\n"):
        line = re.sub(r"^\s*\$ ", "", line)
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&()<>")
            lexer.whitespace_split = True
            words = list(lexer)
        except ValueError:  # an output with a single quote
            continue
        command = []
        for word in words:
            if re.fullmatch(r"[;|&()<>]+", word):
                yield command
                command = []
            else:
                # A quoted word may be a command inside of another one, as of sh -c.
                if " " in word:
                    yield from statements(word)
                command.append(word)
        yield command


class Check:
    def __init__(self, tree):
        self.tree = tree
        self.wrong = []
        self.started = 0

    def path(self, word, where):
        word = word.rstrip(".,:;)")
        top = word.removeprefix("./").split("/")[0]
        if "/" in word and not ANY.search(word) and (
                top in self.tree.tops or re.fullmatch(r"build[-\w]*", top)):
            if not self.tree.has_file(word.split("#")[0]):
                self.wrong.append(f"{where}: there is no file {word}")
            return True
        return False

    def option(self, program, word, where):
        name = word.split("=")[0]
        if ANY.search(name):
            return
        if program in self.tree.options:
            if name not in self.tree.options[program]:
                self.wrong.append(f"{where}: {program} has no option {name}")
        elif program and name not in self.tree.script_text(program):
            self.wrong.append(f"{where}: {program} has no option {name}")

    def values(self, program, words, where):
        """Check that the program accepts its arguments. It parses those before --help."""
        options, own, is_value = self.tree.options[program], [], False
        for word in words:
            if word == "--" or (program == "shunt-run" and not is_value
                                and not word.startswith("-")):
                break
            if ANY.search(word) or re.fullmatch(r"(?:\w+=)?[A-Z][A-Z_]*", word):
                return  # a placeholder
            if re.match("-", word) and word.split("=")[0] not in options:
                return  # reported elsewhere
            own.append(word)
            is_value = not is_value and options.get(word, False)
        job = subprocess.run([os.path.join(BUILD, PROGRAMS[program], program), *own,
                              "--help"], capture_output=True, text=True, check=False)
        self.started += 1
        if job.returncode:
            self.wrong.append(f"{where}: {job.stderr.strip()}: {' '.join(own)}")

    def command(self, words, where):
        program, skip, started = None, False, False
        for number, word in enumerate(words):
            # "make" may also be a word of a sentence.
            if word == "make" and any("=" not in before for before in words[:number]):
                continue
            if skip:
                skip = False
                continue
            base = os.path.basename(word)
            if program == "make":
                if re.fullmatch(r"[a-z][-\w]*", word) and word not in self.tree.targets:
                    self.wrong.append(f"{where}: make has no target {word}")
                continue
            if word.startswith("-") and len(word) > 1 and word != "--":
                if word.startswith("--"):
                    self.option(program, word, where)
                options = self.tree.options.get(program, {})
                skip = options.get(word, False)
                continue
            if base in COMMANDS and not word.endswith("=" + base):
                # Behind another program, a file or word of this name is no command.
                if program is None or started or program == "shunt-run":
                    program, started = base, False
                    if base in PROGRAMS:
                        self.values(base, words[number + 1:], where)
                    continue
            plain = word.removeprefix("./")
            if self.path(word, where):
                program = plain if self.tree.is_script(plain) else None
            elif program == "shunt-run":
                program = None  # a command that is not of Shunt
            elif word in ("mpirun", "mpiexec", "srun", "torchrun", "env", "timeout"):
                started = True

    def document(self, name, document):
        self.wrong = []
        for line, text, is_span in code(document):
            where = f"{name}:{line}"
            for variable in re.findall(r"\bSHUNT_[A-Z0-9_]+\b(?!\*|<|\.\.\.|_)", text):
                if variable not in self.tree.variables and not variable.endswith("_"):
                    self.wrong.append(f"{where}: there is no variable or constant "
                                      f"{variable}")
            if is_span and re.fullmatch(r"--[a-z][-\w]*(?:[ =].*)?", text):
                option = re.match(r"--[-\w]*", text)[0]
                if option not in self.tree.every and not self.in_a_script(option):
                    self.wrong.append(f"{where}: no program has an option {option}")
                continue
            for words in statements(text):
                self.command(words, where)
        return self.wrong

    def in_a_script(self, option):
        return any(option in self.tree.script_text(file) for file in self.tree.files
                   if self.tree.is_script(file))


def main():
    documents = sys.argv[3:] or [f"{SOURCE}/CONTRIBUTING.md", *sorted(
        path for pattern in ("README.md", "[!b]*/**/README.md", "bindings/**/README.md",
                             "docs/**/*.md")
        for path in glob.glob(f"{SOURCE}/{pattern}", recursive=True))]
    check = Check(Tree())
    found = [line.split()[-1] for line in check.document("sample", SAMPLE)]
    if sorted(found) != sorted(re.split(r";\s+", FAULTS)):
        sys.exit(f"commands.py finds other faults in its sample: {found}")
    print(f"1..{len(documents)}")
    for number, path in enumerate(documents, 1):
        name = os.path.relpath(path, SOURCE)
        wrong = check.document(name, read(path))
        print(f"{'not ok' if wrong else 'ok'} {number} - {name}")
        for line in wrong:
            print(f"# {line}")
    print(f"# {check.started} commands were started with --help")


main()
