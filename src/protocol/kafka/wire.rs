//! How each type of Kafka's protocol looks on the wire.

use bytes::BytesMut;

use super::reader::{Error, Reader};
use super::text::Text;
use super::writer::Writer;
use crate::types::Uuid;

/// A value with one form per version. `message!` implements it for structs.
pub trait Wire: Sized {
    fn read(reader: &mut Reader) -> Result<Self, Error>;
    fn write(&self, writer: &mut Writer);
}

/// A record set: batches back to back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Records {
    #[default]
    Null,
    Bytes(BytesMut),
    /// As many bytes as this, which the owner of the frame inserts when it sends it.
    Gap(usize),
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Wire for $type {
            fn read(reader: &mut Reader) -> Result<Self, Error> {
                Ok(Self::from_be_bytes(reader.array()?))
            }

            fn write(&self, writer: &mut Writer) {
                writer.put(&self.to_be_bytes());
            }
        }
    )*};
}

numbers! { i8 i16 i32 i64 }

impl Wire for bool {
    fn read(reader: &mut Reader) -> Result<Self, Error> {
        Ok(i8::read(reader)? != 0)
    }

    fn write(&self, writer: &mut Writer) {
        i8::from(*self).write(writer);
    }
}

impl Wire for Uuid {
    fn read(reader: &mut Reader) -> Result<Self, Error> {
        Ok(Self(reader.array()?))
    }

    fn write(&self, writer: &mut Writer) {
        writer.put(&self.0);
    }
}

impl Wire for Text {
    fn read(reader: &mut Reader) -> Result<Self, Error> {
        Option::read(reader)?.ok_or(Error::Null)
    }

    fn write(&self, writer: &mut Writer) {
        writer.text(Some(self));
    }
}

impl Wire for Option<Text> {
    fn read(reader: &mut Reader) -> Result<Self, Error> {
        reader.string_length()?.map(|length| reader.text(length)).transpose()
    }

    fn write(&self, writer: &mut Writer) {
        writer.text(self.as_deref());
    }
}

impl Wire for Records {
    fn read(reader: &mut Reader) -> Result<Self, Error> {
        Ok(match reader.length()? {
            None => Self::Null,
            Some(length) => Self::Bytes(reader.take(length)?),
        })
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Null => writer.length(None),
            Self::Bytes(bytes) => {
                writer.length(Some(bytes.len()));
                writer.put(bytes);
            }
            Self::Gap(size) => {
                writer.length(Some(*size));
                writer.gap(*size);
            }
        }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn read(reader: &mut Reader) -> Result<Self, Error> {
        Option::read(reader)?.ok_or(Error::Null)
    }

    fn write(&self, writer: &mut Writer) {
        writer.length(Some(self.len()));
        for element in self {
            element.write(writer);
        }
    }
}

impl<T: Wire> Wire for Option<Vec<T>> {
    fn read(reader: &mut Reader) -> Result<Self, Error> {
        let Some(count) = reader.length()? else { return Ok(None) };
        reader.admit_elements(count)?;
        // Room for what the bytes left could hold if memory were as dense as the wire; more only as elements come.
        let mut elements =
            Vec::with_capacity(count.min(reader.remaining() / size_of::<T>().max(1)));
        for _ in 0..count {
            elements.push(T::read(reader)?);
        }
        Ok(Some(elements))
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            None => writer.length(None),
            Some(elements) => elements.write(writer),
        }
    }
}

/// A struct that may be null: one byte says which.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nullable<T>(pub Option<T>);

impl<T: Wire> Wire for Nullable<T> {
    fn read(reader: &mut Reader) -> Result<Self, Error> {
        Ok(Self(if i8::read(reader)? < 0 { None } else { Some(T::read(reader)?) }))
    }

    fn write(&self, writer: &mut Writer) {
        match &self.0 {
            None => (-1_i8).write(writer),
            Some(value) => {
                1_i8.write(writer);
                value.write(writer);
            }
        }
    }
}
