//! Codecs of record batches (kafka-protocol.md 3.3). How they are read is in `decode`, how they are written in `encode`.

/// A codec, by its number in the batch attributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compression {
    #[default]
    None = 0,
    Gzip = 1,
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

impl Compression {
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    pub fn from_codec(codec: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|compression| *compression as u8 == codec)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|compression| compression.name() == name)
    }

    /// What `compression.*.level` is where nobody set it, in Kafka's numbers.
    pub fn default_level(self) -> i32 {
        match self {
            Self::None | Self::Snappy => 0,
            Self::Gzip => -1,
            Self::Lz4 => 9,
            Self::Zstd => 3,
        }
    }
}
