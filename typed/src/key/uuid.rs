//! UUIDs as keys, in the order of their bytes.

use uuid::Uuid;

use super::{EncodeAs, Key, KeyError, Place, take};

impl EncodeAs<Uuid> for Uuid {
    fn encode(&self, out: &mut Vec<u8>, _place: Place) {
        out.extend_from_slice(self.as_bytes());
    }
}

impl Key for Uuid {
    fn decode(input: &mut &[u8], _place: Place) -> Result<Self, KeyError> {
        take(input, "uuid").map(Self::from_bytes)
    }
}
