//! The payload of a binary fuse filter's block, and the trailer numbers needed to read it.
//!
//! The payload is the slots in order: bytes or little-endian 16-bit integers.
//!
//! | number         | meaning                                                               |
//! |----------------|-----------------------------------------------------------------------|
//! | `print_bits`   | bits of a slot, 8 or 16                                               |
//! | `segment_log2` | binary logarithm of the slots of a segment, 0 to 18                   |
//! | `segments`     | segments in which a key may begin, at least 1; there are two more     |
//! | `attempt`      | number of the seed, 0 to 63; 64: no seed works, every key matches     |

use super::BinaryFuse;
use super::place::SATURATED;
use super::print::Print;
use super::shape::Shape;
use crate::arena::Slice;
use crate::decode_error::DecodeError;
use crate::page_vec::{PageVec, SystemPages};

/// The numbers needed to read the payload, except for the key count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    print_bits: u32,
    shape: Shape,
    attempt: u8,
}

impl Header {
    /// Returns the numbers of the trailer.
    pub(crate) fn numbers(&self) -> [u64; 4] {
        let Shape { segment_log2, segments } = self.shape;
        [self.print_bits.into(), segment_log2.into(), segments, self.attempt.into()]
    }

    /// Checks and converts the numbers of the trailer.
    pub(crate) fn from_numbers(numbers: [u64; 4]) -> Result<Self, DecodeError> {
        let [print_bits, segment_log2, segments, attempt] = numbers;
        let out_of_range = |what, value| Err(DecodeError::OutOfRange { what, value });
        if ![8, 16].contains(&print_bits) {
            return out_of_range("bits of a fingerprint", print_bits);
        }
        if attempt > SATURATED.into() {
            return out_of_range("attempt of the filter", attempt);
        }
        let shape = Shape::from_numbers(segment_log2, segments)?;
        Ok(Self { print_bits: print_bits as u32, shape, attempt: attempt as u8 })
    }

    /// Returns the bits of a slot.
    pub(crate) fn print_bits(&self) -> u32 {
        self.print_bits
    }

    /// Returns the bytes of the slots.
    pub(crate) fn payload_bytes(&self) -> u64 {
        self.shape.slots() * u64::from(self.print_bits / 8)
    }
}

impl<P: Print> BinaryFuse<P> {
    pub(crate) fn header(&self) -> Header {
        Header { print_bits: P::BITS, shape: self.shape, attempt: self.attempt }
    }

    pub(crate) fn to_payload(&self) -> PageVec<u8> {
        let mut bytes = PageVec::with_capacity_in(self.memory_bytes(), SystemPages);
        P::put_all(&self.slots, &mut bytes);
        bytes
    }

    /// Creates the filter from its slots, as many as the header gives. Probes do not check them
    /// again.
    pub(crate) fn from_stored(header: &Header, slots: Slice<P>, key_count: u64) -> Self {
        debug_assert_eq!(P::BITS, header.print_bits);
        Self::from_parts(header.shape, header.attempt, slots, key_count)
    }
}
