# Needs Rust (see rust-version in Cargo.toml) and a C compiler, nothing else. ARGS goes to the command that a target runs.

.PHONY: run test test-disk power-loss check fix raft-test cluster chaos bench bench-storage bench-compaction fuzz doc clean crash start-time

# Three nodes on localhost, in the foreground. Ctrl-C stops them. `make run ARGS="--ephemeral"`.
run:
	cargo run --release --locked -- dev $(ARGS)

# Every test: units, properties, tidy, raft-tests, the cluster of real processes, examples and doc tests.
test:
	cargo test --locked --no-fail-fast $(ARGS)

# Disks that fail under three real processes: power loss, errors, full, read-only, hanging. Needs root, loop devices and
# e2fsprogs; fails where this machine cannot do that.
test-disk:
	cargo test --locked --test disk -- --test-threads 2 $(ARGS)

# Power loss of all three nodes at once, under load, ROUNDS times, on the release build.
ROUNDS ?= 50
power-loss:
	KONTIKI_POWER_ROUNDS=$(ROUNDS) cargo test --release --locked --test disk power_loss -- --nocapture $(ARGS)

# All that must hold before a change lands. Writes nothing but the build.
check:
	cargo fmt --all --check
	cargo clippy --locked --all-targets -- -D warnings
	cargo clippy --locked --test disk -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps
	cargo test --locked --no-fail-fast
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --locked check; \
	else echo "make check: cargo-deny is not installed, licences and advisories were NOT checked (cargo install cargo-deny)"; fi

# What a machine can mend by itself.
fix:
	cargo clippy --fix --allow-dirty --allow-staged --all-targets
	cargo fmt --all

# The metadata quorum: openraft's storage suite on our store, elections, membership, snapshots, restarts, invariants.
raft-test:
	cargo test --locked --test raft-tests $(ARGS)

# Three real processes, real sockets, real kills. `make cluster ARGS=rolling_restart` runs one scenario.
cluster:
	cargo test --locked --test cluster $(ARGS)

# Crashes at the boundaries between operations on a disk that a tape recorded: CASES random histories.
CASES ?= 60
crash:
	CRASH_CASES=$(CASES) cargo test --locked --features long-tests --lib storage::crash_test $(ARGS)

# How long a log directory takes to open: 10,000 partitions, and 3 GiB in one.
start-time:
	cargo test --release --locked --features long-tests --lib storage::start_time -- --nocapture --test-threads 1

# Random faults under load for DURATION, on the release build, and the verdict of the checker. SEED draws them again.
DURATION ?= 5m
chaos:
	cargo run --release --locked -- chaos --duration $(DURATION) $(if $(SEED),--seed $(SEED)) $(ARGS)

# Damaged batches, indexes, snapshots and segments, for SECONDS each. A failure prints its seed; SEED begins with it.
SECONDS ?= 60
fuzz:
	KONTIKI_FUZZ_SECONDS=$(SECONDS) KONTIKI_FUZZ_SEED=$(SEED) cargo test --release --locked --lib fuzz_ -- --nocapture $(ARGS)

# What storage costs beside the least that could do its work. `make bench-storage ARGS=append` runs one part.
bench-storage:
	cargo bench --locked --bench storage -- $(ARGS)

# Throughput, latency and failover of a three-node cluster on this machine, by our own client.
bench:
	cargo bench --locked --bench cluster $(ARGS)

# Compaction of 1 GB with ten million keys: rate beside a plain copy, and memory.
bench-compaction:
	cargo bench --locked --bench compaction

doc:
	cargo doc --locked --no-deps

clean:
	cargo clean
