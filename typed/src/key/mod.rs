//! Order-preserving encodings of keys.
//!
//! Encoded keys compare bytewise as the keys themselves do, so ranges of keys are ranges of bytes.
//! Each value has exactly one encoding, and each encoding belongs to at most one value.
//!
//! | type                    | encoding                                                          |
//! |-------------------------|-------------------------------------------------------------------|
//! | `bool`                  | 0 or 1                                                            |
//! | `u8` to `u128`          | big-endian                                                        |
//! | `i8` to `i128`          | big-endian, sign bit flipped                                      |
//! | `f32`, `f64`            | big-endian; sign bit flipped, or all bits of a negative number    |
//! | `char`                  | as `u32`                                                          |
//! | `String`, `Vec<u8>`     | last element: the bytes; else escaped and terminated              |
//! | `Option<T>`             | `None`: 0; `Some`: 1, then `T`                                    |
//! | tuples up to 6, `[T; N]`| the elements                                                      |
//! | `Duration`              | seconds as `u64`, nanoseconds as `u32`                            |
//! | `SystemTime`            | seconds since 1970 as `i64`, rounded down, nanoseconds as `u32`   |
//! | `Uuid` (feature `uuid`) | its 16 bytes                                                      |
//!
//! Floats have the order of [`f64::total_cmp`]. A string that another element follows is escaped:
//! 0x00 becomes 0x00 0xff, and 0x00 0x00 terminates it. The escape is that of the tuple layer of
//! FoundationDB, "Tuple Layer Typecodes" in its `design/tuple.md`. The terminator has a second
//! byte, because a following element may begin with 0xff: elements have no type codes.

mod array;
mod bytes;
mod float;
mod integer;
mod option;
mod prefix;
mod time;
mod tuple;
#[cfg(feature = "uuid")]
mod uuid;

use std::{cell::Cell, error, fmt};

pub use self::prefix::PrefixOf;
pub(crate) use self::prefix::{KeyBounds, key_bounds, prefix_bounds};

/// Place of an element in a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Another element follows, so the encoding must show its own end.
    Inner,
    /// The element ends the key.
    Last,
}

/// A value that encodes to the bytes of a key of type `K`: `K` itself, a reference to it, or a
/// borrowed form such as `str` for `String`.
///
/// Tuples, arrays and options encode element by element: `("anna", 7)` encodes as
/// `(String, u64)`.
pub trait EncodeAs<K> {
    /// Appends the encoding to `out`.
    ///
    /// In [`Place::Inner`], no encoding may be a prefix of another encoding.
    fn encode(&self, out: &mut Vec<u8>, place: Place);
}

/// A type of keys. The order of its encodings is the order of its values. An encoded key has at
/// most 64 KiB, or writes fail.
///
/// A type of the application delegates to a type of the [table](self), and so does its
/// [`EncodeAs`]:
///
/// ```
/// use sievedb_typed::{EncodeAs, Key, KeyError, Place};
///
/// #[derive(Debug, PartialEq, PartialOrd)]
/// struct UserId(u64);
///
/// impl EncodeAs<UserId> for UserId {
///     fn encode(&self, out: &mut Vec<u8>, place: Place) {
///         self.0.encode(out, place);
///     }
/// }
///
/// impl Key for UserId {
///     fn decode(input: &mut &[u8], place: Place) -> Result<Self, KeyError> {
///         u64::decode(input, place).map(Self)
///     }
/// }
///
/// let bytes = sievedb_typed::key::to_bytes::<UserId>(&UserId(7));
/// assert_eq!(sievedb_typed::key::from_bytes::<UserId>(&bytes)?, UserId(7));
/// # Ok::<(), KeyError>(())
/// ```
pub trait Key: EncodeAs<Self> + Sized {
    /// Decodes a value from the start of `input`, and removes its bytes from `input`. In
    /// [`Place::Last`] the value may take all bytes.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if `input` does not begin with an encoding. `input` is then unspecified.
    fn decode(input: &mut &[u8], place: Place) -> Result<Self, KeyError>;
}

/// The reason why bytes are not a key of the expected type.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's doc names its fields")]
pub enum KeyError {
    /// The bytes end within a value of type `what`.
    Truncated { what: &'static str },
    /// The bytes are not an encoding of type `what`.
    Invalid { what: &'static str },
    /// `bytes` bytes follow the key.
    TrailingBytes { bytes: usize },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { what } => write!(f, "the key ends within a {what}"),
            Self::Invalid { what } => write!(f, "the key has an invalid {what}"),
            Self::TrailingBytes { bytes } => write!(f, "{bytes} bytes follow the key"),
        }
    }
}

impl error::Error for KeyError {}

impl<K, Q: EncodeAs<K> + ?Sized> EncodeAs<K> for &Q {
    fn encode(&self, out: &mut Vec<u8>, place: Place) {
        (**self).encode(out, place);
    }
}

/// Returns the encoding of `key`.
pub fn to_bytes<K>(key: &(impl EncodeAs<K> + ?Sized)) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes, Place::Last);
    bytes
}

/// Decodes all of `bytes`.
///
/// # Errors
///
/// [`KeyError`] if `bytes` are not an encoding of `K`.
pub fn from_bytes<K: Key>(mut bytes: &[u8]) -> Result<K, KeyError> {
    let key = K::decode(&mut bytes, Place::Last)?;
    match bytes.len() {
        0 => Ok(key),
        bytes => Err(KeyError::TrailingBytes { bytes }),
    }
}

/// Longest buffer that a thread keeps, in bytes.
const KEPT_BYTES_MAX: usize = 4096;

/// Calls `use_bytes` with the bytes that `encode` appends. Reuses one buffer per thread.
pub(crate) fn with_buffer<T>(
    encode: impl FnOnce(&mut Vec<u8>),
    use_bytes: impl FnOnce(&[u8]) -> T,
) -> T {
    thread_local!(static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) });
    // Taken, not borrowed: `use_bytes` may call this function. Destructors of a thread may call it
    // after that of the buffer.
    let mut buffer = BUFFER.try_with(Cell::take).unwrap_or_default();
    buffer.clear();
    encode(&mut buffer);
    let result = use_bytes(&buffer);
    if buffer.capacity() <= KEPT_BYTES_MAX {
        let _ = BUFFER.try_with(|kept| kept.set(buffer));
    }
    result
}

/// Calls `use_bytes` with the encoding of `key`.
pub(crate) fn with_bytes<K, T>(
    key: &(impl EncodeAs<K> + ?Sized),
    use_bytes: impl FnOnce(&[u8]) -> T,
) -> T {
    with_buffer(|out| key.encode(out, Place::Last), use_bytes)
}

/// Removes the first `N` bytes, part of a value of type `what`.
fn take<const N: usize>(input: &mut &[u8], what: &'static str) -> Result<[u8; N], KeyError> {
    let (taken, rest) = input.split_first_chunk().ok_or(KeyError::Truncated { what })?;
    *input = rest;
    Ok(*taken)
}

#[cfg(test)]
mod tests;
