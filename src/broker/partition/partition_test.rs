//! Partitions on real logs.
