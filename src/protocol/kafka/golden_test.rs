//! Every message against the `kafka-protocol` crate as an oracle.
