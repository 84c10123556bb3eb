//! Points in time and durations as keys.

use std::time::{Duration, SystemTime};

use super::{EncodeAs, Key, KeyError, Place, take};

const NANOS_PER_SECOND: u32 = 1_000_000_000;

/// Decodes nanoseconds within a second, of a value of type `what`.
fn decode_nanos(input: &mut &[u8], what: &'static str) -> Result<u32, KeyError> {
    let nanos = u32::from_be_bytes(take(input, what)?);
    if nanos < NANOS_PER_SECOND { Ok(nanos) } else { Err(KeyError::Invalid { what }) }
}

impl EncodeAs<Duration> for Duration {
    fn encode(&self, out: &mut Vec<u8>, place: Place) {
        (self.as_secs(), self.subsec_nanos()).encode(out, place);
    }
}

impl Key for Duration {
    fn decode(input: &mut &[u8], _place: Place) -> Result<Self, KeyError> {
        let seconds = u64::from_be_bytes(take(input, "duration")?);
        Ok(Self::new(seconds, decode_nanos(input, "duration")?))
    }
}

impl EncodeAs<SystemTime> for SystemTime {
    /// Saturates beyond 2^63 seconds from 1970, which no platform represents.
    fn encode(&self, out: &mut Vec<u8>, place: Place) {
        let (seconds, nanos) = match self.duration_since(Self::UNIX_EPOCH) {
            Ok(after) => (0_i64.saturating_add_unsigned(after.as_secs()), after.subsec_nanos()),
            Err(error) => {
                let before = error.duration();
                let seconds = 0_i64.saturating_sub_unsigned(before.as_secs());
                match before.subsec_nanos() {
                    0 => (seconds, 0),
                    nanos => (seconds.saturating_sub(1), NANOS_PER_SECOND - nanos),
                }
            }
        };
        (seconds, nanos).encode(out, place);
    }
}

impl Key for SystemTime {
    fn decode(input: &mut &[u8], place: Place) -> Result<Self, KeyError> {
        let what = "system time";
        let seconds = i64::decode(input, place).map_err(|_| KeyError::Truncated { what })?;
        let nanos = Duration::from_nanos(decode_nanos(input, what)?.into());
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let time = match seconds {
            0.. => Self::UNIX_EPOCH.checked_add(whole),
            _ => Self::UNIX_EPOCH.checked_sub(whole),
        };
        time.and_then(|time| time.checked_add(nanos)).ok_or(KeyError::Invalid { what })
    }
}
