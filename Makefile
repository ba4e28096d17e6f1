# Every target sets up what it needs. `make help` lists them.
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
.DEFAULT_GOAL := help
.PHONY: help build demo test lint bench peers asan tsan clang fuzz install clean

help:  ## This list
	@grep -E '^[a-z ]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build:  ## The program, at build/bin/blockscale
	@scripts/setup.sh build
	@cmake --preset release -DBLOCKSCALE_BUILD_TESTS=OFF >/dev/null
	@cmake --build build -j $(JOBS) --target blockscale_program

demo: build  ## A small checkpoint: inspect, dry run, convert, verify, report
	@scripts/demo.sh $(CURDIR)/build/bin/blockscale $(CURDIR)/demo

test:  ## Build and run every test
	@scripts/setup.sh test
	@cmake --preset release -DBLOCKSCALE_BUILD_TESTS=ON >/dev/null
	@cmake --build build -j $(JOBS)
	@ctest --test-dir build --output-on-failure --no-label-summary -j $(JOBS)

lint:  ## Style, rooms, length budgets
	@scripts/setup.sh test
	@git ls-files -co --exclude-standard '*.h' '*.cc' | xargs -r clang-format --dry-run --Werror
	@python3 scripts/check_layers.py

bench:  ## Speed, as ratios to copies made in the same run
	@scripts/setup.sh test
	@cmake --preset bench >/dev/null
	@cmake --build build/bench -j $(JOBS)
	@bench/run.sh build/bench

peers: build  ## compressed-tensors' own reading of our files against ours (installs 6 GB)
	@scripts/setup.sh test
	@scripts/setup.sh venv build/peers-venv tests/python/peers-requirements.txt
	@scripts/fetch_real_weights.sh build/real-weights build/peers-venv/bin/python
	@build/peers-venv/bin/python tests/python/peers_test.py --program build/bin/blockscale \
	  --weights build/real-weights

# What is freed is held back for a while; 256 MiB, the default, would drown the tests of peak memory.
asan: export ASAN_OPTIONS ?= quarantine_size_mb=32
asan clang:  ## The tests under AddressSanitizer+UBSan (with clang), or as clang's release
	@scripts/setup.sh test
	@cmake --preset $@ >/dev/null
	@cmake --build build/$@ -j $(JOBS)
	@ctest --test-dir build/$@ --output-on-failure --no-label-summary -j $(JOBS)

# The rooms that start threads; what a browser does with their pages says nothing about races.
tsan:  ## The tests of the parallel rooms under ThreadSanitizer
	@scripts/setup.sh test
	@cmake --preset tsan >/dev/null
	@cmake --build build/tsan -j $(JOBS) --target convert_tests model_tests verify_tests
	@ctest --test-dir build/tsan --output-on-failure --no-label-summary -j $(JOBS) \
	  -R '^(convert|model|verify)[.]' -LE browser

fuzz:  ## Each fuzzer for FUZZ_SECONDS (30)
	@scripts/setup.sh test
	@cmake --preset fuzz >/dev/null
	@cmake --build build/fuzz -j $(JOBS) --target fuzzers
	@tests/fuzz/run.sh build/fuzz $${FUZZ_SECONDS:-30}

install: build  ## Program, library, headers and CMake package to PREFIX
	@cmake --install build --prefix $(PREFIX)

clean:  ## Remove what was built
	@rm -rf build demo
