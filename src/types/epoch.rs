//! The three epochs of a cluster. They never mix: each is a type of its own.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! epoch {
    ($(#[$doc:meta])* $name:ident, $repr:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $repr);

        impl $name {
            /// "Unknown" on the wire.
            pub const NONE: Self = Self(-1);
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

epoch!(
    /// One registration of a broker: the metadata index of its `RegisterBroker` entry. Monotone per broker.
    BrokerEpoch,
    i64
);
epoch!(
    /// One leadership of a partition. Grows with every change of leader, also to and from "none".
    LeaderEpoch,
    i32
);
epoch!(
    /// One state of a partition in the metadata. Grows with every change of leader, ISR or replicas.
    PartitionEpoch,
    i32
);

impl LeaderEpoch {
    /// The epoch after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl PartitionEpoch {
    /// The epoch after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
