//! Values for tests: every field of every message, filled so that no two neighbours are equal.

use bytes::{Bytes, BytesMut};

use super::{Nullable, Records, Text};
use crate::types::Uuid;

/// What samples are made from.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) next: u16,
    /// Whether to choose null wherever a value may be.
    pub(super) nulls: bool,
}

impl Source {
    fn number(&mut self) -> u16 {
        self.next += 1;
        self.next
    }
}

/// A type that can be filled.
pub(super) trait Sample {
    fn sample(source: &mut Source) -> Self;
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Sample for $type {
            fn sample(source: &mut Source) -> Self {
                let number = source.number();
                // Spread over all bytes of the type, with both signs.
                number.wrapping_mul(0x0107) as $type ^ ((number as $type) << (Self::BITS - 8))
            }
        }
    )*};
}

numbers! { i16 i32 i64 }

impl Sample for i8 {
    fn sample(source: &mut Source) -> Self {
        let [_, low] = source.number().to_be_bytes();
        Self::from_be_bytes([low])
    }
}

impl Sample for bool {
    fn sample(source: &mut Source) -> Self {
        source.number();
        true
    }
}

impl Sample for Uuid {
    fn sample(source: &mut Source) -> Self {
        Self(std::array::from_fn(|_| source.number().to_be_bytes()[1]))
    }
}

impl Sample for Text {
    fn sample(source: &mut Source) -> Self {
        let number = source.number();
        // One byte, two, three and four in UTF-8, and long enough now and then for a second length byte.
        let text = format!("t{number}é€🪵");
        Text::from(if number.is_multiple_of(7) { text.repeat(20) } else { text })
    }
}

impl Sample for Bytes {
    fn sample(source: &mut Source) -> Self {
        (0..source.number() % 300).map(|byte| b'a' + (byte % 26) as u8).collect()
    }
}

impl Sample for Records {
    fn sample(source: &mut Source) -> Self {
        if source.nulls { Self::Null } else { Self::Bytes(BytesMut::from(Bytes::sample(source))) }
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(source: &mut Source) -> Self {
        if source.nulls { None } else { Some(T::sample(source)) }
    }
}

impl<T: Sample> Sample for Nullable<T> {
    fn sample(source: &mut Source) -> Self {
        Self(Option::sample(source))
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(source: &mut Source) -> Self {
        (0..source.number() % 3 + 1).map(|_| T::sample(source)).collect()
    }
}
