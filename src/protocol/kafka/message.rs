//! `message!`: a struct of the protocol as a table, one field a line.
//!
//! ```text
//! message! {
//!     /// Doc of the struct.
//!     pub struct Example {
//!         [0..] always: i32,
//!         [3..=5] sometimes: i16 = -1,
//!         [4..] optional: Option<Text> => tag 0,
//!     }
//! }
//! ```
//! In brackets are the versions that have the field; others read its default, which is the type's unless one is
//! given. `=> tag N` makes it a tagged field, written only when it differs from its default. Fields are in wire order,
//! tagged ones in the order of their tags. Whether a version is flexible is a fact of the API (`api.rs`), not of a
//! struct.

macro_rules! message {
    ($(
        $(#[$doc:meta])*
        pub struct $name:ident {
            $(
                $(#[$field_doc:meta])*
                [$($versions:tt)+] $field:ident: $type:ty $(= $default:expr)? $(=> tag $tag:literal)?
            ),* $(,)?
        }
    )+) => {$(
        #[cfg(test)]
        impl $crate::protocol::kafka::sample::Sample for $name {
            fn sample(source: &mut $crate::protocol::kafka::sample::Source) -> Self {
                Self { $($field: $crate::protocol::kafka::sample::Sample::sample(source),)* }
            }
        }

        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: message!(@default $type $(= $default)?),)* }
            }
        }

        impl $crate::protocol::kafka::Wire for $name {
            fn read(
                reader: &mut $crate::protocol::kafka::Reader,
            ) -> Result<Self, $crate::protocol::kafka::Error> {
                let mut message = Self::default();
                let version = reader.version;
                $(if ($($versions)+).contains(&version) {
                    message!(@read message reader $field $(tag $tag)?);
                })*
                if reader.flexible {
                    reader.tagged_fields(|tag, reader| {
                        $(message!(@read_tagged message reader version tag ($($versions)+) $field $(tag $tag)?);)*
                        let _ = (tag, reader);
                        Ok(false)
                    })?;
                }
                Ok(message)
            }

            fn write(&self, writer: &mut $crate::protocol::kafka::Writer) {
                let version = writer.version;
                $(if ($($versions)+).contains(&version) {
                    message!(@write self writer $field $(tag $tag)?);
                })*
                if writer.flexible {
                    #[allow(unused_mut)]
                    let mut count = 0;
                    $(message!(@count self count version ($($versions)+) $field: $type $(= $default)? $(=> tag $tag)?);)*
                    writer.varint(count);
                    $(message!(@write_tagged self writer version ($($versions)+) $field: $type $(= $default)? $(=> tag $tag)?);)*
                }
            }
        }
    )+};

    (@default $type:ty = $default:expr) => { $default };
    (@default $type:ty) => { <$type>::default() };

    (@read $message:ident $reader:ident $field:ident) => {
        $message.$field = $crate::protocol::kafka::Wire::read($reader)?;
    };
    (@read $message:ident $reader:ident $field:ident tag $tag:literal) => {};

    (@read_tagged $message:ident $reader:ident $version:ident $found:ident $versions:tt $field:ident) => {};
    (@read_tagged $message:ident $reader:ident $version:ident $found:ident $versions:tt $field:ident tag $tag:literal) => {
        if $found == $tag && $versions.contains(&$version) {
            $message.$field = $crate::protocol::kafka::Wire::read($reader)?;
            return Ok(true);
        }
    };

    (@write $message:ident $writer:ident $field:ident) => {
        $crate::protocol::kafka::Wire::write(&$message.$field, $writer);
    };
    (@write $message:ident $writer:ident $field:ident tag $tag:literal) => {};

    (@count $message:ident $count:ident $version:ident $versions:tt $field:ident: $type:ty $(= $default:expr)?) => {};
    (@count $message:ident $count:ident $version:ident $versions:tt $field:ident: $type:ty $(= $default:expr)? => tag $tag:literal) => {
        if $versions.contains(&$version) && $message.$field != message!(@default $type $(= $default)?) {
            $count += 1;
        }
    };

    (@write_tagged $message:ident $writer:ident $version:ident $versions:tt $field:ident: $type:ty $(= $default:expr)?) => {};
    (@write_tagged $message:ident $writer:ident $version:ident $versions:tt $field:ident: $type:ty $(= $default:expr)? => tag $tag:literal) => {
        if $versions.contains(&$version) && $message.$field != message!(@default $type $(= $default)?) {
            $writer.tagged_field($tag, |writer| $crate::protocol::kafka::Wire::write(&$message.$field, writer));
        }
    };
}

pub(super) use message;
