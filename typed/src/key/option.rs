//! Options as keys: `None` sorts first.

use super::{EncodeAs, Key, KeyError, Place, take};

impl<K, Q: EncodeAs<K>> EncodeAs<Option<K>> for Option<Q> {
    fn encode(&self, out: &mut Vec<u8>, place: Place) {
        out.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.encode(out, place);
        }
    }
}

impl<K: Key> Key for Option<K> {
    fn decode(input: &mut &[u8], place: Place) -> Result<Self, KeyError> {
        match take(input, "option")? {
            [0] => Ok(None),
            [1] => K::decode(input, place).map(Some),
            _ => Err(KeyError::Invalid { what: "option" }),
        }
    }
}
