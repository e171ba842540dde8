//! What the first four bytes of a connection say about who is calling.

use crate::protocol::native::CLIENT_PREFACE;

/// Who is calling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// The preface of a native client.
    Native,
    /// What can be the length of a Kafka frame.
    Kafka,
    Http,
    Tls,
    /// Neither of these; the length of a frame that is over the limit, if it is Kafka's protocol at all.
    Other,
}

/// Beginnings of HTTP requests, HTTP/2 included.
const HTTP_METHODS: &[&[u8; 4]] =
    &[b"GET ", b"PUT ", b"POST", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI "];

/// Records of TLS begin with their type (22: handshake) and major version (3).
const TLS_HANDSHAKE: [u8; 2] = [22, 3];

impl Opening {
    pub(super) fn of(first: [u8; 4], request_size_max: usize) -> Self {
        let size = i64::from(i32::from_be_bytes(first));
        if first == CLIENT_PREFACE {
            Self::Native
        } else if usize::try_from(size).is_ok_and(|size| size <= request_size_max) {
            Self::Kafka
        } else if HTTP_METHODS.contains(&&first) {
            Self::Http
        } else if first.starts_with(&TLS_HANDSHAKE) {
            Self::Tls
        } else {
            Self::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_told_apart() {
        for (first, opening) in [
            (CLIENT_PREFACE, Opening::Native),
            ([0, 0, 0, 20], Opening::Kafka),
            ([0, 0x10, 0, 0], Opening::Kafka),
            (*b"GET ", Opening::Http),
            (*b"PRI ", Opening::Http),
            ([22, 3, 1, 2], Opening::Tls),
            ([0x7f, 0, 0, 0], Opening::Other),
            (*b"SSH-", Opening::Other),
            ([0xff, 0xff, 0xff, 0xff], Opening::Other),
        ] {
            assert_eq!(Opening::of(first, 1 << 20), opening, "{first:?}");
        }
    }
}
