//! Strings of Kafka's protocol, without a copy where there need not be one.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

/// A string that is a slice of the frame it came in, or shared with the metadata image.
///
/// A slice keeps its frame alive. Whatever outlives its request must be shared or copied instead.
#[derive(Clone)]
pub struct Text(Repr);

#[derive(Clone)]
enum Repr {
    /// Checked to be UTF-8 when it was made.
    Slice(Bytes),
    Shared(Arc<str>),
}

impl Text {
    /// `None` when the bytes are not UTF-8.
    pub fn from_utf8(bytes: Bytes) -> Option<Self> {
        std::str::from_utf8(&bytes).ok()?;
        Some(Self(Repr::Slice(bytes)))
    }

    pub fn as_str(&self) -> &str {
        match &self.0 {
            Repr::Slice(bytes) => std::str::from_utf8(bytes).unwrap_or_default(),
            Repr::Shared(text) => text,
        }
    }

    /// A copy that does not keep the frame alive.
    pub fn detached(&self) -> Self {
        match &self.0 {
            Repr::Slice(_) => Self::from(Arc::from(self.as_str())),
            Repr::Shared(_) => self.clone(),
        }
    }
}

impl Default for Text {
    fn default() -> Self {
        Self::from("")
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Self {
        Self(Repr::Slice(Bytes::from_static(text.as_bytes())))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Repr::Slice(Bytes::from(text)))
    }
}

impl From<Arc<str>> for Text {
    fn from(text: Arc<str>) -> Self {
        Self(Repr::Shared(text))
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Text {}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}
