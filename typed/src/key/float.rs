//! Floats as keys, in the order of `total_cmp`.

use super::{EncodeAs, Key, KeyError, Place, take};

/// Implements keys of a float type, whose bits are an integer of type `bits`.
macro_rules! floats {
    ($($float:ty, $bits:ty);+ $(;)?) => {$(
        impl EncodeAs<$float> for $float {
            fn encode(&self, out: &mut Vec<u8>, place: Place) {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let bits = self.to_bits();
                // The bits of negative numbers are inverted: a larger magnitude sorts first.
                let ordered = if bits & SIGN == 0 { bits | SIGN } else { !bits };
                ordered.encode(out, place);
            }
        }

        impl Key for $float {
            fn decode(input: &mut &[u8], _place: Place) -> Result<Self, KeyError> {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let ordered = <$bits>::from_be_bytes(take(input, stringify!($float))?);
                let bits = if ordered & SIGN == 0 { !ordered } else { ordered ^ SIGN };
                Ok(Self::from_bits(bits))
            }
        }
    )+};
}

floats! {
    f32, u32;
    f64, u64;
}
