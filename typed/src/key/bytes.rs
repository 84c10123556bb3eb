//! Strings and byte strings as keys.

use sievedb::Bytes;

use super::{EncodeAs, Key, KeyError, Place};

/// Byte after a 0x00 of the string.
const ESCAPE: u8 = 0xff;
/// Ends a string that another element follows. Smaller than any byte and its escape.
const TERMINATOR: [u8; 2] = [0, 0];

/// Appends `bytes` with each 0x00 escaped.
fn encode_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    let mut parts = bytes.split(|byte| *byte == 0);
    out.extend_from_slice(parts.next().unwrap_or_default());
    for part in parts {
        out.extend_from_slice(&[0, ESCAPE]);
        out.extend_from_slice(part);
    }
}

fn encode_bytes(bytes: &[u8], out: &mut Vec<u8>, place: Place) {
    match place {
        Place::Last => out.extend_from_slice(bytes),
        Place::Inner => {
            encode_escaped(bytes, out);
            out.extend_from_slice(&TERMINATOR);
        }
    }
}

fn decode_bytes(input: &mut &[u8], place: Place, what: &'static str) -> Result<Vec<u8>, KeyError> {
    if place == Place::Last {
        return Ok(std::mem::take(input).to_vec());
    }
    let mut bytes = Vec::new();
    loop {
        let end = input.iter().position(|byte| *byte == 0).ok_or(KeyError::Truncated { what })?;
        bytes.extend_from_slice(&input[..end]);
        let second = *input.get(end + 1).ok_or(KeyError::Truncated { what })?;
        *input = &input[end + 2..];
        match second {
            ESCAPE => bytes.push(0),
            0 => return Ok(bytes),
            _ => return Err(KeyError::Invalid { what }),
        }
    }
}

/// Implements the encoding of types with the bytes of a string.
macro_rules! encode_as {
    ($($borrowed:ty as $owned:ty),+ $(,)?) => {$(
        impl EncodeAs<$owned> for $borrowed {
            fn encode(&self, out: &mut Vec<u8>, place: Place) {
                encode_bytes(self.as_ref(), out, place);
            }
        }
    )+};
}

encode_as!(String as String, str as String, Vec<u8> as Vec<u8>, [u8] as Vec<u8>, Bytes as Vec<u8>);

impl<const N: usize> EncodeAs<Vec<u8>> for [u8; N] {
    fn encode(&self, out: &mut Vec<u8>, place: Place) {
        encode_bytes(self, out, place);
    }
}

impl Key for Vec<u8> {
    fn decode(input: &mut &[u8], place: Place) -> Result<Self, KeyError> {
        decode_bytes(input, place, "byte string")
    }
}

impl Key for String {
    fn decode(input: &mut &[u8], place: Place) -> Result<Self, KeyError> {
        let bytes = decode_bytes(input, place, "string")?;
        Self::from_utf8(bytes).map_err(|_| KeyError::Invalid { what: "string" })
    }
}
