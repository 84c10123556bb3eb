//! Upper bound of the decompressed length of a zstd frame, from the headers of its blocks.
//!
//! A frame of 128 KiB may decompress to 4 GiB of one repeated byte. The blocks of the frame limit
//! allocations, instead of the worst case for its length.
//!
//! | part                  | bytes       | meaning                                                            |
//! |-----------------------|-------------|--------------------------------------------------------------------|
//! | magic                 | 4           | 0xFD2FB528                                                         |
//! | descriptor            | 1           | presence and lengths of the next parts                             |
//! | window, number of the dictionary, content length | 0 to 13 | ignored                                     |
//! | blocks                | 3 and more each | bit 0: the last one; 2 bits: type; 21 bits: length             |
//! | checksum              | 0 or 4      | of the content; ignored                                            |
//!
//! Source: RFC 8878, "Zstandard Compression and the 'application/zstd' Media Type", 2021, section
//! 3.1.

/// Magic number of a frame.
const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// Maximum decompressed length of a block of a frame, in bytes.
const BLOCK_CONTENT_BYTES_MAX: u64 = 128 << 10;

/// Returns an upper bound of the decompressed length of the first frame in `bytes`; 0 if it is
/// invalid or truncated. Reads only the block headers.
pub(super) fn content_bytes_max_of(bytes: &[u8]) -> u64 {
    blocks(bytes).and_then(content_bytes_max).unwrap_or(0)
}

/// Returns the bytes after the frame header.
fn blocks(bytes: &[u8]) -> Option<&[u8]> {
    let (&descriptor, rest) = bytes.strip_prefix(&MAGIC)?.split_first()?;
    let has_window = descriptor & 0x20 == 0;
    let dictionary_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let length_bytes = match descriptor >> 6 {
        0 => usize::from(!has_window),
        bits => 1 << bits,
    };
    rest.get(usize::from(has_window) + dictionary_bytes + length_bytes..)
}

fn content_bytes_max(mut blocks: &[u8]) -> Option<u64> {
    let mut sum = 0;
    loop {
        let (header, rest) = blocks.split_first_chunk::<3>()?;
        let header = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        let length = (header >> 3) as usize;
        let (stored_bytes, content_bytes) = match header >> 1 & 3 {
            0 => (length, length as u64),
            // One repeated byte.
            1 => (1, length as u64),
            2 => (length, BLOCK_CONTENT_BYTES_MAX),
            _ => return None,
        };
        if content_bytes > BLOCK_CONTENT_BYTES_MAX {
            return None;
        }
        sum += content_bytes;
        blocks = rest.get(stored_bytes..)?;
        if header & 1 == 1 {
            return Some(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(is_last: bool, block_type: u32, length: u32, content: &[u8]) -> Vec<u8> {
        let header = u32::from(is_last) | block_type << 1 | length << 3;
        [&header.to_le_bytes()[..3], content].concat()
    }

    fn frame(header: &[u8], blocks: &[Vec<u8>]) -> Vec<u8> {
        [&MAGIC, header, &blocks.concat()].concat()
    }

    #[test]
    fn the_bound_is_the_sum_over_blocks() {
        let most = BLOCK_CONTENT_BYTES_MAX as u32;
        let raw = || block(true, 0, 2, b"ab");
        let repeated = |is_last| block(is_last, 1, most, b"a");
        let packed = |is_last| block(is_last, 2, 3, b"abc");
        let cases = [
            ("one raw", frame(&[0, 0x58], &[raw()]), 2),
            ("one repeated byte", frame(&[0, 0x58], &[repeated(true)]), most.into()),
            ("one compressed", frame(&[0, 0x58], &[packed(true)]), most.into()),
            (
                "three",
                frame(&[0, 0x58], &[packed(false), repeated(false), raw()]),
                2 * u64::from(most) + 2,
            ),
            ("a second frame", frame(&[0, 0x58], &[raw(), repeated(true)]), 2),
            ("no window, a length of a byte", frame(&[0x20, 2], &[raw()]), 2),
            ("a window and a length of 2 bytes", frame(&[0x40, 0x58, 2, 0], &[raw()]), 2),
            ("no window, a length of 8 bytes", frame(&[0xe0, 2, 0, 0, 0, 0, 0, 0, 0], &[raw()]), 2),
            ("a dictionary with a number of 4 bytes", frame(&[3, 0x58, 1, 2, 3, 4], &[raw()]), 2),
            ("empty", Vec::new(), 0),
            ("another magic", b"abcdefghijklm".to_vec(), 0),
            ("no blocks", frame(&[0, 0x58], &[]), 0),
            ("no last block", frame(&[0, 0x58], &[packed(false)]), 0),
            ("a truncated block", frame(&[0, 0x58], &[block(true, 0, 3, b"ab")]), 0),
            ("a block that is too long", frame(&[0, 0x58], &[block(true, 1, most + 1, b"a")]), 0),
            ("an unknown block type", frame(&[0, 0x58], &[block(true, 3, 1, b"a")]), 0),
            ("a truncated header", frame(&[0xe0, 2, 0], &[]), 0),
        ];
        for (name, bytes, want) in cases {
            assert_eq!(content_bytes_max_of(&bytes), want, "{name}");
        }
        // The worst case for this length is 4 GiB.
        let garbage = frame(&[0, 0x58], &[block(true, 2, 100_000, &[7; 100_000])]);
        assert_eq!(content_bytes_max_of(&garbage), most.into());
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn frames_of_zstd_are_within_the_bound() {
        let contents = [vec![], vec![7; 1 << 20], (0..=255).cycle().take(300_000).collect(), {
            let mut state = 1_u64;
            let mut random = || {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                (state >> 56) as u8
            };
            (0..200_000).map(|_| random()).collect::<Vec<_>>()
        }];
        for content in contents {
            for level in [1, 3, 19] {
                let frame = zstd::bulk::compress(&content, level).expect("there is memory");
                let bound = content_bytes_max_of(&frame);
                assert!(bound >= content.len() as u64, "{}: {bound}", content.len());
            }
        }
    }
}
