# SPDX-License-Identifier: Apache-2.0
"""What rdma-vm boots: a kernel of Debian and a small initramfs, kept in a folder.

The kernel's package is fetched and unpacked, never installed.
"""

import fcntl
import glob
import gzip
import hashlib
import lzma
import os
import re
import shutil
import struct
import subprocess
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))

PACKAGE = "linux-image-amd64"
FETCH_S = 300  # a mirror may be slow, but not slower

# What the guest loads, beside what these depend on: its disk and its output, the
# parts of networks that tests/hosts makes, and RDMA in software.
MODULES = """
    virtio_pci virtio_console 9pnet_virtio 9p overlay
    veth bridge sch_tbf sch_netem
    crc32_generic rdma_rxe rdma_ucm
""".split()


class Failed(Exception):
    """The text says what to do."""


def run(*command, **options):
    """The output of a command; Failed with what it said if it fails."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False, **options)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{' '.join(command)}: not ended after "
                     f"{late.timeout:.0f} s") from late
    if done.returncode:
        raise Failed(f"{' '.join(command)}: "
                     + done.stderr.decode(errors="replace").strip())
    return done.stdout


class Image:
    """The files `kernel` and `initramfs` in a folder, made when they are missing
    or were made of something else. At one time only one process makes them."""

    def __init__(self, folder, package_file, say):
        self.folder = folder
        self.kernel = os.path.join(folder, "kernel")
        self.initramfs = os.path.join(folder, "initramfs")
        self.package_file = package_file
        self.say = say

    def prepare(self):
        os.makedirs(self.folder, exist_ok=True)
        stamp = os.path.join(self.folder, "stamp")
        with open(os.path.join(self.folder, "lock"), "w",
                  encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if read(stamp) == self.made_of():
                return
            with tempfile.TemporaryDirectory(dir=self.folder) as work:
                self.make(work)
            with open(stamp, "w", encoding="ascii") as file:
                file.write(self.made_of())

    def made_of(self):
        """A digest of everything but the kernel, since an old one will do as well
        as a newer one."""
        digest = hashlib.sha256(" ".join(MODULES).encode())
        for name in (__file__, os.path.join(HERE, "init"), busybox()):
            with open(name, "rb") as file:
                digest.update(file.read())
        return digest.hexdigest()

    def make(self, work):
        package = self.package_file or self.fetch(work)
        self.say("unpacking the kernel and packing an initramfs")
        tree = os.path.join(work, "package")
        run("dpkg-deb", "-x", package, tree)
        lib = os.path.join(tree, "lib")
        if not os.path.exists(lib):  # in later releases than Debian 12
            os.symlink("usr/lib", lib)
        version, = os.listdir(os.path.join(lib, "modules"))
        run("depmod", "-b", tree, version)
        inside = os.path.join(work, "inside")
        self.fill(inside, tree, version)
        files = "\n".join(below(inside)).encode()
        packed = run("cpio", "-o", "-H", "newc", "-R", "0:0", "--quiet",
                     cwd=inside, input=files)
        with open(self.initramfs, "wb") as file:
            file.write(packed)
        with open(os.path.join(tree, "boot", "vmlinuz-" + version), "rb") as file:
            plain = uncompressed(file.read())
        with open(self.kernel, "wb") as file:
            file.write(plain)

    def fetch(self, work):
        """The path of the kernel's package, from the machine's mirror."""
        newest = newest_kernel()
        # What the lists name may be gone by now.
        for updated in (False, True):
            if updated:
                if os.geteuid() != 0:
                    break
                self.say("updating apt's lists")
                run("apt-get", "-qq", "update")
                newest = newest_kernel()
            if not newest:
                continue
            self.say(f"fetching {newest} (70 MB, once)")
            # Root's apt would download as a user who may not write here.
            sandbox = ["-o", "APT::Sandbox::User=root"] \
                if os.geteuid() == 0 else []
            try:
                run("apt-get", "-qq", *sandbox, "download", newest, cwd=work,
                    timeout=FETCH_S)
                return glob.glob(os.path.join(work, "*.deb"))[0]
            except Failed:
                if updated:
                    raise
        raise Failed(f"apt does not know a package that {PACKAGE} depends on, or "
                     "cannot fetch it: run apt-get update, or name the file of "
                     "one by --kernel")

    @staticmethod
    def fill(inside, tree, version):
        """The initramfs: busybox, `init`, the modules in an order in which each
        finds what it needs, and places to mount at."""
        for name in ("bin", "modules", "proc", "sys", "dev", "host", "scratch",
                     "root", "job"):
            os.makedirs(os.path.join(inside, name))
        program = os.path.join(inside, "bin", "busybox")
        shutil.copyfile(busybox(), program)
        shutil.copyfile(os.path.join(HERE, "init"),
                        os.path.join(inside, "init"))
        for name in (program, os.path.join(inside, "init")):
            os.chmod(name, 0o755)
        order = []
        for module in MODULES:
            lines = run("modprobe", "-d", tree, "-S", version,
                        "--show-depends", module).decode()
            for path in re.findall(r"^insmod (\S+)", lines, re.M):
                name = os.path.basename(path).split(".")[0]
                if name in order:
                    continue
                order.append(name)
                with open(path, "rb") as file:
                    plain = expand(file.read())
                with open(os.path.join(inside, "modules", name), "wb") as file:
                    file.write(plain)
        with open(os.path.join(inside, "modules", "order"), "w",
                  encoding="ascii") as file:
            file.write("\n".join(order) + "\n")


def read(path):
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except FileNotFoundError:
        return None


def busybox():
    return shutil.which("busybox") or ""


def newest_kernel():
    """What linux-image-amd64 stands for now; None if apt does not know."""
    text = run("apt-cache", "show", "--no-all-versions", PACKAGE).decode() \
        if run("apt-cache", "search", "--names-only", f"^{PACKAGE}$") else ""
    found = re.search(r"^Depends:.*?(linux-image-[^ ,]+)", text, re.M)
    return found and found.group(1)


def below(folder):
    for path, folders, files in os.walk(folder):
        for name in folders + files:
            yield os.path.relpath(os.path.join(path, name), folder)


def expand(data):
    """What was compressed in one of the ways that kernels and modules are."""
    if data.startswith(b"\xfd7zXZ"):
        return lzma.LZMADecompressor().decompress(data)
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress(data)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return run("zstd", "-dcq", input=data)
    return data


def uncompressed(image):
    """The plain kernel in a bzImage. To unpack itself at each start would take it
    seconds, since it is emulated. The header is described in the kernel's
    Documentation/x86/boot.rst."""
    sectors, = struct.unpack_from("<B", image, 0x1f1)
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (sectors + 1) * 512 + offset
    # The last four bytes are the size of what is packed.
    plain = expand(image[start:start + length - 4])
    if not plain.startswith(b"\x7fELF"):
        raise Failed("the kernel is compressed in a way that is not known here")
    return plain
