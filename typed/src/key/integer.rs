//! Integers, booleans and characters as keys.

use super::{EncodeAs, Key, KeyError, Place, take};

/// Implements keys of an integer type: big-endian after `^ flip`.
macro_rules! integers {
    ($($integer:ty, $flip:expr);+ $(;)?) => {$(
        impl EncodeAs<$integer> for $integer {
            fn encode(&self, out: &mut Vec<u8>, _place: Place) {
                out.extend_from_slice(&(self ^ $flip).to_be_bytes());
            }
        }

        impl Key for $integer {
            fn decode(input: &mut &[u8], _place: Place) -> Result<Self, KeyError> {
                Ok(Self::from_be_bytes(take(input, stringify!($integer))?) ^ $flip)
            }
        }
    )+};
}

// The sign bit of a signed integer is flipped: negative numbers sort first.
integers! {
    u8, 0;
    u16, 0;
    u32, 0;
    u64, 0;
    u128, 0;
    i8, i8::MIN;
    i16, i16::MIN;
    i32, i32::MIN;
    i64, i64::MIN;
    i128, i128::MIN;
}

impl EncodeAs<bool> for bool {
    fn encode(&self, out: &mut Vec<u8>, _place: Place) {
        out.push(u8::from(*self));
    }
}

impl Key for bool {
    fn decode(input: &mut &[u8], _place: Place) -> Result<Self, KeyError> {
        match take(input, "bool")? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(KeyError::Invalid { what: "bool" }),
        }
    }
}

impl EncodeAs<char> for char {
    fn encode(&self, out: &mut Vec<u8>, place: Place) {
        u32::from(*self).encode(out, place);
    }
}

impl Key for char {
    fn decode(input: &mut &[u8], _place: Place) -> Result<Self, KeyError> {
        let code = u32::from_be_bytes(take(input, "char")?);
        Self::from_u32(code).ok_or(KeyError::Invalid { what: "char" })
    }
}
