//! Encodings of values.

use std::{any, error, mem};

use serde::{Serialize, de::DeserializeOwned};
use sievedb::Bytes;

/// The reason why a codec or a migration failed. Errors and strings convert to it by `?` or `into`.
pub type CodecError = Box<dyn error::Error + Send + Sync>;

/// An encoding of values of type `V`.
///
/// A codec of the application can read a zero-copy format: [`decode`](Self::decode) receives the
/// stored bytes, and may keep them as part of the value.
///
/// ```
/// use sievedb_typed::{Codec, CodecError, sievedb::Bytes};
///
/// /// Coordinates in 16 bytes, read without a copy.
/// struct Point(Bytes);
///
/// impl Point {
///     fn x(&self) -> f64 {
///         f64::from_le_bytes(self.0[..8].try_into().expect("checked when decoded"))
///     }
/// }
///
/// struct PointCodec;
///
/// impl Codec<Point> for PointCodec {
///     fn encode(value: &Point, out: &mut Vec<u8>) -> Result<(), CodecError> {
///         out.extend_from_slice(&value.0);
///         Ok(())
///     }
///
///     fn decode(bytes: Bytes) -> Result<Point, CodecError> {
///         if bytes.len() == 16 { Ok(Point(bytes)) } else { Err("a point has 16 bytes".into()) }
///     }
/// }
/// # let bytes = [1.5_f64.to_le_bytes(), 0.0_f64.to_le_bytes()].concat();
/// # assert_eq!(PointCodec::decode(bytes.into()).unwrap().x(), 1.5);
/// ```
pub trait Codec<V> {
    /// Appends the encoding of `value` to `out`.
    ///
    /// # Errors
    ///
    /// The reason why the value has no encoding.
    fn encode(value: &V, out: &mut Vec<u8>) -> Result<(), CodecError>;

    /// Decodes all of `bytes`. A value that keeps `bytes` may keep a whole data block in memory.
    ///
    /// Must not panic: `bytes` may be of another type.
    ///
    /// # Errors
    ///
    /// The reason why `bytes` are not an encoding.
    fn decode(bytes: Bytes) -> Result<V, CodecError>;
}

/// The default codec: [postcard](https://postcard.jamesmunns.com/wire-format), a compact binary
/// format for serde.
///
/// Field names are not stored, so a change of the type needs a new
/// [version of the schema](crate::Schema). Bytes after the value are an error.
///
/// Some types of serde are encoded, but cannot be decoded or decode to other values:
/// `#[serde(untagged)]`, internally tagged enums, `#[serde(skip_serializing_if)]`,
/// `serde_json::Value`. So [`encode`](Codec::encode) decodes the encoded value and encodes the
/// result again. It returns an error if the second encoding has other bytes. It ignores the order
/// of the bytes, because a hash map has no order. So it cannot detect values whose encodings have
/// the same bytes. For a small struct the check takes 0.1 µs.
///
/// The depth of a recursive type is not limited. Bytes that are not of this codec may overflow the
/// stack.
#[derive(Debug, Clone, Copy)]
pub enum Postcard {}

impl<V: Serialize + DeserializeOwned> Codec<V> for Postcard {
    fn encode(value: &V, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let start = out.len();
        *out = postcard::to_extend(value, mem::take(out))?;
        let encoded = &out[start..];
        let refused = |reason: CodecError| -> CodecError {
            let of = any::type_name::<V>();
            format!("Postcard cannot decode its encoding of {of}: {reason}; use another codec")
                .into()
        };
        let decoded: V = from_slice(encoded).map_err(refused)?;
        let again = postcard::to_extend(&decoded, Vec::with_capacity(encoded.len()))?;
        if again != encoded && !has_same_bytes(&again, encoded) {
            return Err(refused("it decodes to another value".into()));
        }
        Ok(())
    }

    fn decode(bytes: Bytes) -> Result<V, CodecError> {
        from_slice(&bytes)
    }
}

fn from_slice<V: DeserializeOwned>(bytes: &[u8]) -> Result<V, CodecError> {
    match postcard::take_from_bytes(bytes)? {
        (value, []) => Ok(value),
        (_, rest) => Err(format!("{} bytes follow the value", rest.len()).into()),
    }
}

/// Returns `true` if `a` and `b` have the same bytes, in any order. The encodings of two hash maps
/// with the same entries do.
fn has_same_bytes(a: &[u8], b: &[u8]) -> bool {
    let counts = |bytes: &[u8]| {
        let mut counts = [0_usize; 256];
        bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        counts
    };
    a.len() == b.len() && counts(a) == counts(b)
}

/// A codec that stores byte strings unchanged: [`Bytes`], which are returned without a copy, or
/// `Vec<u8>`.
#[derive(Debug, Clone, Copy)]
pub enum Raw {}

impl Codec<Bytes> for Raw {
    fn encode(value: &Bytes, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(value);
        Ok(())
    }

    fn decode(bytes: Bytes) -> Result<Bytes, CodecError> {
        Ok(bytes)
    }
}

impl Codec<Vec<u8>> for Raw {
    fn encode(value: &Vec<u8>, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(value);
        Ok(())
    }

    fn decode(bytes: Bytes) -> Result<Vec<u8>, CodecError> {
        Ok(bytes.into())
    }
}

/// A codec that stores an integer big-endian, in its full width. Merge operators of the engine read
/// this form. An `i64` is a counter of [`fetch_add`](crate::TypedKeyspace::fetch_add) and
/// [`Counter`](sievedb::Counter). [`Max`](sievedb::Max) and [`Min`](sievedb::Min) order unsigned
/// integers.
#[derive(Debug, Clone, Copy)]
pub enum Integer {}

/// Implements [`Integer`] for integers of a fixed width.
macro_rules! integers {
    ($($integer:ty),+) => {$(
        impl Codec<$integer> for Integer {
            fn encode(value: &$integer, out: &mut Vec<u8>) -> Result<(), CodecError> {
                out.extend_from_slice(&value.to_be_bytes());
                Ok(())
            }

            fn decode(bytes: Bytes) -> Result<$integer, CodecError> {
                match bytes[..].try_into() {
                    Ok(bytes) => Ok(<$integer>::from_be_bytes(bytes)),
                    Err(_) => {
                        let want = size_of::<$integer>();
                        Err(format!("{} bytes, expected {want}", bytes.len()).into())
                    }
                }
            }
        }
    )+};
}

integers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde::Deserialize;

    use super::*;

    #[test]
    fn values_round_trip() {
        let mut bytes = vec![9];
        let value = (7_u32, "a".to_owned(), Some(1.5_f64));
        Postcard::encode(&value, &mut bytes).unwrap();
        assert_eq!(bytes[0], 9, "appended");
        let decoded: (u32, String, Option<f64>) =
            Postcard::decode(bytes.split_off(1).into()).unwrap();
        assert_eq!(decoded, value);

        let mut bytes = Vec::new();
        Raw::encode(&b"ab".to_vec(), &mut bytes).unwrap();
        Raw::encode(&Bytes::from_static(b"c"), &mut bytes).unwrap();
        let decoded: Vec<u8> = Raw::decode(bytes.into()).unwrap();
        assert_eq!(decoded, b"abc");

        let mut bytes = Vec::new();
        Integer::encode(&-2_i16, &mut bytes).unwrap();
        assert_eq!(bytes, [0xff, 0xfe]);
        let decoded: i16 = Integer::decode(bytes.into()).unwrap();
        assert_eq!(decoded, -2);
    }

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        Number(u32),
    }

    #[derive(Serialize, Deserialize)]
    struct Skipped {
        #[serde(skip_serializing_if = "Option::is_none")]
        first: Option<u8>,
        second: u8,
        third: Vec<u8>,
    }

    #[derive(Serialize, Deserialize)]
    struct Limited {
        #[serde(deserialize_with = "at_most_9")]
        number: u8,
    }

    fn at_most_9<'d, D: serde::Deserializer<'d>>(from: D) -> Result<u8, D::Error> {
        Ok(u8::deserialize(from)?.min(9))
    }

    #[test]
    fn values_that_are_not_read_back_are_refused() {
        let skipped = |first, second| Skipped { first, second, third: vec![1, 7] };
        let limited = |number| Limited { number };
        let encode = |skipped: Skipped| Postcard::encode(&skipped, &mut Vec::new());
        encode(skipped(Some(3), 4)).unwrap();
        encode(skipped(None, 4)).unwrap_err();
        // Decodes to another value: `second` gets the length of `third`.
        encode(skipped(None, 0)).unwrap_err();
        let error = Postcard::encode(&Untagged::Number(7), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("Untagged: "), "{error}");
        Postcard::encode(&limited(9), &mut Vec::new()).unwrap();
        let error = Postcard::encode(&limited(10), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains(": it decodes to another value; "), "{error}");
    }

    #[test]
    fn a_hash_map_is_not_refused_for_its_order() {
        let map: HashMap<u32, String> = (0..300).map(|n| (n, format!("{n}"))).collect();
        let mut bytes = Vec::new();
        Postcard::encode(&map, &mut bytes).unwrap();
        let decoded: HashMap<u32, String> = Postcard::decode(bytes.into()).unwrap();
        assert_eq!(decoded, map);
    }

    #[test]
    fn malformed_values_are_errors() {
        let cases: [(&str, &[u8]); 4] = [
            ("empty", &[]),
            ("a byte too much", &[1, b'a', 0]),
            ("cut off", &[2, b'a']),
            ("not UTF-8", &[1, 0xff]),
        ];
        for (name, bytes) in cases {
            let decoded: Result<String, _> = Postcard::decode(Bytes::copy_from_slice(bytes));
            assert!(decoded.is_err(), "{name}");
        }
        for bytes in [&[][..], &[0; 7], &[0; 9]] {
            let decoded: Result<i64, _> = Integer::decode(Bytes::copy_from_slice(bytes));
            decoded.unwrap_err();
        }
    }
}
