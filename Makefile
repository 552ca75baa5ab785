# SPDX-License-Identifier: Apache-2.0
#
# The front door: every target here installs what it needs (scripts/deps),
# configures, builds and runs. Meson does the building; whoever knows it can do
# without this file.

# A rank for each core, of four: more would only wait for one another.
RANKS := $(shell n=$$(nproc 2>/dev/null || echo 1); echo $$((n < 4 ? n : 4)))
ARGS =
SETTINGS = plain
PREFIX = /usr/local
INSTALL_BUILD = build-install
INSTALL_OPTIONS =

# What is trained and measured with is optimized as what is installed is. `build`
# is the developer's: it has the tests, and links fast (whole_library).
RELEASE_BUILD = build-release
RELEASE_OPTIONS = -Dtrain=enabled -Dtests=disabled -Dexamples=disabled \
    -Ddocs=disabled

help:
	@echo 'make train    train a small mixture-of-experts model on $(RANKS) ranks'
	@echo '              (RANKS=N; ARGS="..." goes to shunt-train)'
	@echo 'make test     build, and run the tests, briefly: each case, in few settings'
	@echo '              (SETTINGS="plain asan tsan": also under the sanitizers,'
	@echo '              as CI does)'
	@echo 'make check    the same with more programs, all settings and more seeds'
	@echo 'make quick    build, and run in a minute what a change breaks first'
	@echo 'make build    build everything into build/, to work on it: fast to link'
	@echo 'make release  build the library and its programs into build-release/,'
	@echo '              optimized as they are when they are installed'
	@echo 'make check-long'
	@echo '              run them all, under the sanitizers as well (hours)'
	@echo 'make check-sanitize'
	@echo '              run them, briefly, under the address, undefined behaviour'
	@echo '              and thread sanitizers'
	@echo 'make public-suites'
	@echo '              run the test suite of MPICH under the drop-in (an hour)'
	@echo 'make test-mpi4py'
	@echo '              run the test suite of mpi4py under the drop-in (an hour;'
	@echo '              ARGS="--mpi openmpi --ranks 2,3": a part)'
	@echo 'make mutants  change the sources in many small ways: do the tests notice?'
	@echo '              (less than an hour; ARGS="--part 1/4", ARGS="--sample 20")'
	@echo 'make moe-stress'
	@echo '              10000 calls of dispatch, combine and their gradients in'
	@echo '              random interleavings between hosts (ARGS=N: N calls)'
	@echo 'make test-bursts'
	@echo '              is memory of 10000 steps with bursts constant? (ARGS=N: N'
	@echo '              bursts, of five steps each; 2000)'
	@echo 'make test-kills'
	@echo '              training of which a rank is killed, 25 times each in a move'
	@echo '              of experts, a refresh of copies, a reduction and a wave: all'
	@echo '              name it, and resume with the same bits (ARGS=N: N times)'
	@echo 'make test-pairs'
	@echo '              training with options that must not change a bit, in random'
	@echo '              company (ARGS=N: N pairs of runs; 1000)'
	@echo 'make test-rdma'
	@echo '              run transports on RDMA devices in software, in a virtual'
	@echo '              machine (a quarter of an hour; ARGS=--short: a minute)'
	@echo 'make test-slurm'
	@echo '              jobs of a real Slurm on two hosts in namespaces, also two at'
	@echo '              once, under srun, mpirun and mpiexec (two minutes; root)'
	@echo 'make cross-arm64'
	@echo '              compile for ARM64 and compare bits under qemu-user'
	@echo '              (ARGS=--full: also unit tests and cases of ranks)'
	@echo 'make stress   random programs, and many ranks killed and stopped,'
	@echo '              strangers at every port, every allocation that fails (an hour)'
	@echo 'make perf     time dispatch and combine next to MPI and memcpy'
	@echo 'make docs     write the manual to build/docs/html: guides, examples,'
	@echo '              programs, variables, and the API reference'
	@echo 'make install  build what is to be installed, and install it into PREFIX'
	@echo '              ($(PREFIX)); root is not needed if you may write there.'
	@echo '              DEBUG=yes keeps what a debugger reads'
	@echo '              (INSTALL_OPTIONS="-Dmpi=disabled ...": options of the build)'
	@echo 'make uninstall'
	@echo '              remove it from PREFIX again'
	@echo 'make format, make format-check'
	@echo '              lay out the sources by .clang-format, or see if they are'
	@echo 'make clean    remove the build folders'

train:
	scripts/deps --train
	[ -f $(RELEASE_BUILD)/build.ninja ] || \
	    meson setup $(RELEASE_BUILD) $(RELEASE_OPTIONS)
	ninja -C $(RELEASE_BUILD) training
	mkdir -p build
	$(RELEASE_BUILD)/tools/shunt-run -n $(RANKS) --live \
	    $(RELEASE_BUILD)/train/shunt-train --log build/train.jsonl \
	    --report build/train.html $(ARGS)

release:
	scripts/deps
	scripts/configure $(RELEASE_BUILD) $(RELEASE_OPTIONS)
	ninja -C $(RELEASE_BUILD)

build:
	scripts/deps
	scripts/configure build -Dtests=enabled -Dtrain=enabled \
	    -Dwhole_library=false
	ninja -C build

test:
	scripts/deps
	scripts/test $(SETTINGS)

check:
	scripts/deps
	scripts/test --thorough $(SETTINGS)

# Ranks as threads, units, the contract of two transports, random programs.
quick: build
	meson test -C build --no-rebuild --suite quick --print-errorlogs
	SHUNT_TEST_BUILD=build tests/random/programs --configurations 10 \
	    --per-world 5 --worlds shm,threads

check-long:
	scripts/deps
	scripts/test --long plain asan tsan

check-sanitize:
	scripts/deps
	scripts/test asan tsan

public-suites: build
	tests/bindings/mpi/public-suites $(ARGS)

test-mpi4py: build
	scripts/deps --mpi4py
	tests/bindings/mpi/mpi4py $(ARGS)

mutants: build
	tests/mutants/mutants $(ARGS)

moe-stress: build
	SHUNT_TEST_BUILD=build tests/random/programs --configurations 5000 \
	    --worlds shm,threads,fault,virtual
	SHUNT_TEST_BUILD=build tests/random/programs --configurations 500 \
	    --worlds hosts
	tests/moe/on_hosts stress $(ARGS)

test-bursts: build
	SHUNT_TEST_ROUNDS=$(or $(ARGS),2000) build/tools/shunt-run -n 4 \
	    build/tests/rank_moe memory_of_bursts

test-kills: build
	tests/train/kills --times $(or $(ARGS),25)

test-pairs: build
	build/tools/shunt-run -n 4 build/tests/rank_pairs pairs 0 $(or $(ARGS),1000)

test-rdma: build
	scripts/deps --rdma
	tests/rdma-vm/selfcheck
	tests/rdma-vm/check $(ARGS)

test-slurm: build
	scripts/deps --slurm
	SHUNT_TEST_BUILD=build tests/slurm/check

cross-arm64:
	scripts/deps
	scripts/cross-arm64 $(ARGS)

stress: build
	SHUNT_TEST_BUILD=build tests/faults/survive --blow kill --blows 500
	SHUNT_TEST_BUILD=build tests/faults/survive --blow double --blows 100
	SHUNT_TEST_BUILD=build tests/faults/survive --blow stop --blows 100 \
	    --timeout 4
	SHUNT_TEST_BUILD=build tests/faults/survive --hosts --blow kill \
	    --blows 500 --timeout 10
	SHUNT_TEST_BUILD=build tests/faults/survive --hosts --blow double \
	    --blows 100 --timeout 10
	SHUNT_TEST_BUILD=build tests/faults/survive --hosts --blow stop \
	    --blows 100 --timeout 4
	SHUNT_TEST_BUILD=build tests/faults/storm --moments 100
	for victim in 0 1 2 3 4 anybody; do \
	    SHUNT_TIMEOUT=2 SHUNT_LOG=off build/tests/rank_memory --threads 5 \
	        births $$victim || exit 1; \
	done
	for call in split moe_plan; do \
	    SHUNT_TIMEOUT=8 SHUNT_LOG=off build/tools/shunt-run -n 4 \
	        build/tests/rank_memory $$call 1 || exit 1; \
	done
	SHUNT_TEST_BUILD=build tests/faults/strangers --strangers 60
	SHUNT_TEST_BUILD=build tests/faults/strangers --strangers 60 --hosts 3 \
	    --jobs hosts

perf: release
	$(RELEASE_BUILD)/perf/shunt-perf dispatch --ranks 2 --peer memcpy $(ARGS)
	$(RELEASE_BUILD)/perf/shunt-perf moe --ranks 2 --peer mpi $(ARGS)

docs:
	scripts/deps
	scripts/configure build -Dtests=enabled -Dtrain=enabled \
	    -Dwhole_library=false
	ninja -C build docs/html
	@echo build/docs/html/index.html

# In a folder of its own, without tests and manual.
install:
	scripts/install --check '$(PREFIX)'
	scripts/deps --install
	scripts/configure $(INSTALL_BUILD) '-Dprefix=$(PREFIX)' -Dlibdir=lib \
	    -Dtests=disabled -Dexamples=disabled -Ddocs=disabled $(INSTALL_OPTIONS)
	ninja -C $(INSTALL_BUILD)
	scripts/install $(INSTALL_BUILD) '$(PREFIX)'

uninstall:
	scripts/install --remove '$(PREFIX)'

format:
	scripts/format

format-check:
	scripts/format --check

clean:
	rm -rf build build-asan build-tsan build-suites build-arm64 build-ci \
	    build-clang build-min build-mutants \
	    $(RELEASE_BUILD) $(INSTALL_BUILD)

.PHONY: help train build release quick test check check-long check-sanitize public-suites \
        test-mpi4py mutants moe-stress test-bursts test-kills test-pairs test-rdma \
        test-slurm cross-arm64 stress perf docs \
        install uninstall format format-check clean
