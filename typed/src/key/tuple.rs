//! Tuples as keys: element by element.

use super::{EncodeAs, Key, KeyError, Place};

impl EncodeAs<()> for () {
    fn encode(&self, _out: &mut Vec<u8>, _place: Place) {}
}

impl Key for () {
    fn decode(_input: &mut &[u8], _place: Place) -> Result<Self, KeyError> {
        Ok(())
    }
}

/// Implements keys of tuples: elements before the last one, then the last one.
macro_rules! tuples {
    ($(($($key:ident $query:ident $at:tt,)* / $last_key:ident $last_query:ident $last:tt))+) => {$(
        impl<$($key, $query: EncodeAs<$key>,)* $last_key, $last_query: EncodeAs<$last_key>>
            EncodeAs<($($key,)* $last_key,)> for ($($query,)* $last_query,)
        {
            fn encode(&self, out: &mut Vec<u8>, place: Place) {
                $(self.$at.encode(out, Place::Inner);)*
                self.$last.encode(out, place);
            }
        }

        impl<$($key: Key,)* $last_key: Key> Key for ($($key,)* $last_key,) {
            fn decode(input: &mut &[u8], place: Place) -> Result<Self, KeyError> {
                Ok((
                    $($key::decode(input, Place::Inner)?,)*
                    $last_key::decode(input, place)?,
                ))
            }
        }
    )+};
}

tuples! {
    (/ A Q 0)
    (A Q 0, / B R 1)
    (A Q 0, B R 1, / C S 2)
    (A Q 0, B R 1, C S 2, / D T 3)
    (A Q 0, B R 1, C S 2, D T 3, / E U 4)
    (A Q 0, B R 1, C S 2, D T 3, E U 4, / F V 5)
}
