//! Tests of written, misplaced and damaged values.

use super::*;

const IDENTITY: BlobIdentity = BlobIdentity { store_id: 1 << 64, file_id: 9, salt: 3 };

fn file(values: &[&[u8]], compression: Compression) -> (Bytes, Vec<BlobReference>, BlobUse) {
    let mut writer = BlobWriter::new(Vec::new(), IDENTITY, compression, 1 << 10)
        .expect("a vector does not fail");
    let references =
        values.iter().map(|value| writer.add(value).expect("a vector does not fail")).collect();
    let (bytes, file) = writer.finish().expect("a vector does not fail");
    assert_eq!(file.bytes, bytes.len() as u64);
    (bytes.into(), references, file)
}

#[test]
fn values_round_trip() {
    let (short, long, repeated) = ([7; 3], [8; 5000], b"abc".repeat(9000));
    let values: [&[u8]; 4] = [b"", &short, &long, &repeated];
    for compression in [Compression::None, Compression::Lz4] {
        let (bytes, references, used) = file(&values, compression);
        assert!(check_blob_file(&bytes, IDENTITY, used.bytes).is_ok());
        assert!(check_blob_header(&bytes, IDENTITY).is_ok());
        for (reference, value) in references.iter().zip(values) {
            let mut stored = Vec::new();
            reference.encode(&mut stored);
            assert_eq!(BlobReference::decode(&stored), Ok(*reference));
            assert_eq!(reference.read(&bytes, IDENTITY.salt).unwrap(), value);
        }
        assert_eq!(bytes.len() < 5000, compression == Compression::Lz4);
    }
}

/// No reader accepts a reference to a longer one.
#[test]
fn a_value_above_the_limit_is_refused() {
    let mut writer = BlobWriter::new(Vec::new(), IDENTITY, Compression::None, 1 << 10)
        .expect("a vector does not fail");
    let bytes = writer.bytes();
    let too_long = VALUE_BYTES_MAX + 1;
    let refused = writer.add(&vec![0; too_long]).expect_err("it is too long");
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    let fill = |_: &mut [u8]| panic!("nothing is read");
    let refused = writer.add_from(too_long as u64, fill, |error| error).expect_err("too long");
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(writer.bytes(), bytes, "the file is unchanged");
}

/// A reader allocates the stored bytes before it checks them.
#[test]
fn a_block_longer_than_its_value_is_refused() {
    for (bytes, is_good) in [(15, true), (16, false), (1 << 40, false)] {
        let reference =
            BlobReference { file_id: 9, offset: 64, bytes, value_bytes: 10, index_bytes: 0 };
        let mut stored = Vec::new();
        reference.encode(&mut stored);
        assert_eq!(BlobReference::decode(&stored).is_ok(), is_good, "{bytes} bytes");
    }
}

#[test]
fn damage_is_detected() {
    let (good, references, used) = file(&[&[5; 40], &[6; 50]], Compression::None);
    for at in 0..good.len() {
        let mut bytes = good.to_vec();
        bytes[at] ^= 1 << (at % 8);
        let bytes = Bytes::from(bytes);
        let found = check_blob_file(&bytes, IDENTITY, used.bytes)
            .and_then(|()| check_blob_header(&bytes, IDENTITY))
            .is_err();
        let read = |at: usize| references[at].read(&bytes, IDENTITY.salt).is_err();
        assert!(found || read(0) || read(1), "flipped at {at}");
        let cut = good.slice(..at);
        assert!(check_blob_file(&cut, IDENTITY, used.bytes).is_err(), "truncated at {at}");
        for reference in &references {
            // The value may be complete; otherwise this must be an error and no panic.
            let _ = reference.read(&cut, IDENTITY.salt);
        }
    }
}

#[test]
fn a_reference_to_another_place_file_or_length_is_refused() {
    let (bytes, references, used) = file(&[&[5; 40], &[5; 40]], Compression::None);
    let first = references[0];
    let cases = [
        BlobReference { offset: first.offset + 1, ..first },
        BlobReference { offset: references[1].offset, bytes: first.bytes - 1, ..first },
        BlobReference { value_bytes: 39, ..first },
        BlobReference { value_bytes: 41, ..first },
        BlobReference { offset: 0, ..first },
        BlobReference { offset: used.bytes - 10, ..first },
        BlobReference { bytes: u64::MAX - first.offset, ..first },
    ];
    for reference in cases {
        assert!(reference.read(&bytes, IDENTITY.salt).is_err(), "{reference:?}");
    }
    assert!(first.read(&bytes, 4).is_err(), "another salt");
    let others = [
        BlobIdentity { store_id: 1, ..IDENTITY },
        BlobIdentity { file_id: 8, ..IDENTITY },
        BlobIdentity { salt: 4, ..IDENTITY },
    ];
    for other in others {
        assert!(check_blob_file(&bytes, other, used.bytes).is_err(), "{other:?}");
    }
}

#[test]
fn formats_of_references_and_uses_are_checked() {
    let used = BlobUse { file_id: 7, bytes: 900, checksum: 1, salt: 2, used_bytes: 900 };
    let mut bytes = Vec::new();
    used.encode(&mut bytes);
    let decode = |bytes: &[u8]| BlobUse::decode(&mut Decoder::new(bytes));
    assert_eq!(decode(&bytes), Ok(used));
    for end in 0..bytes.len() {
        assert!(decode(&bytes[..end]).is_err(), "{end} bytes");
    }
    let mut bytes = Vec::new();
    BlobUse { used_bytes: 901, ..used }.encode(&mut bytes);
    assert!(decode(&bytes).is_err(), "more than the file has");
    for stored in [&[][..], &[1, 2, 3], &[1, 64, 9, 3, 0], &[1, 64, 9, 3, 9], &[1, 64, 4, 0]] {
        assert!(BlobReference::decode(stored).is_err(), "{stored:?}");
    }
    let mut stored = Vec::new();
    let value_bytes = VALUE_BYTES_MAX as u64 + 1;
    BlobReference { file_id: 1, offset: 64, bytes: 9, value_bytes, index_bytes: 0 }
        .encode(&mut stored);
    assert!(BlobReference::decode(&stored).is_err(), "too long");
}

/// Values of one piece, of a part of a second, and of several.
fn long_values() -> Vec<Vec<u8>> {
    let noise = |bytes: usize| -> Vec<u8> {
        let number = |at: u64| xxhash_rust::xxh3::xxh3_64(&at.to_le_bytes()).to_le_bytes();
        (0..bytes.div_ceil(8) as u64).flat_map(number).take(bytes).collect()
    };
    let lengths = [PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 3 * PIECE_BYTES + 77];
    lengths.into_iter().map(noise).chain([vec![7; 2 * PIECE_BYTES + 5]]).collect()
}

/// Returns a `fill` that reads `value`.
fn filled_from(mut value: &[u8]) -> impl FnMut(&mut [u8]) -> io::Result<()> {
    move |piece| io::Read::read_exact(&mut value, piece)
}

#[test]
fn long_values_are_in_pieces_however_they_are_added() {
    let values = long_values();
    for compression in [Compression::None, Compression::Lz4] {
        let slices: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        let (bytes, references, _) = file(&slices, compression);
        let mut writer = BlobWriter::new(Vec::new(), IDENTITY, compression, 1 << 10).unwrap();
        for (value, reference) in values.iter().zip(&references) {
            let add = writer.add_from(value.len() as u64, filled_from(value), |error| error);
            assert_eq!(add.unwrap(), *reference, "the same bytes");
        }
        assert_eq!(&writer.finish().unwrap().0[..], &bytes[..]);
        for (value, reference) in values.iter().zip(&references) {
            let mut stored = Vec::new();
            reference.encode(&mut stored);
            assert_eq!(BlobReference::decode(&stored), Ok(*reference));
            assert_eq!(reference.read(&bytes, IDENTITY.salt).unwrap(), value);
            assert_eq!(reference.index_bytes > 0, value.len() > PIECE_BYTES);
            let pieces = reference.pieces(&bytes, IDENTITY.salt).unwrap();
            assert_eq!(pieces.len(), value.len().div_ceil(PIECE_BYTES));
            for (number, want) in value.chunks(PIECE_BYTES).enumerate().rev() {
                assert_eq!(pieces.read(&bytes, number).unwrap(), want, "piece {number}");
            }
        }
    }
}

#[test]
fn a_value_that_cannot_be_filled_leaves_a_usable_writer() {
    let values = long_values();
    let mut writer = BlobWriter::new(Vec::new(), IDENTITY, Compression::Lz4, 1 << 10).unwrap();
    let short = &values[2][..2 * PIECE_BYTES];
    let add = writer.add_from(values[2].len() as u64, filled_from(short), |error| error);
    assert_eq!(add.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    let reference = writer.add(&values[1]).unwrap();
    let (bytes, file) = writer.finish().unwrap();
    let bytes = Bytes::from(bytes);
    assert!(check_blob_file(&bytes, IDENTITY, file.bytes).is_ok());
    assert_eq!(reference.read(&bytes, IDENTITY.salt).unwrap(), values[1]);
}

#[test]
fn damaged_pieces_are_detected_and_others_are_readable() {
    let values = long_values();
    let (good, references, _) = file(&[&values[3]], Compression::None);
    let reference = references[0];
    let pieces = reference.pieces(&good, IDENTITY.salt).unwrap();
    let end = (reference.offset + reference.bytes) as usize;
    let index = end - reference.index_bytes as usize..end;
    let first = reference.offset as usize;
    for at in (first..end).step_by(997).chain(index.clone()) {
        let mut bytes = good.to_vec();
        bytes[at] ^= 1;
        let bytes = Bytes::from(bytes);
        assert!(reference.read(&bytes, IDENTITY.salt).is_err(), "flipped at {at}");
        if index.contains(&at) {
            assert!(reference.pieces(&bytes, IDENTITY.salt).is_err(), "flipped at {at}");
            continue;
        }
        let damaged = (at - first) / (PIECE_BYTES + 5);
        for number in 0..pieces.len() {
            let read = pieces.read(&bytes, number);
            assert_eq!(read.is_err(), number == damaged, "piece {number}, flipped at {at}");
        }
    }
    let cases = [
        BlobReference { value_bytes: reference.value_bytes - 1, ..reference },
        BlobReference { value_bytes: reference.value_bytes + PIECE_BYTES as u64, ..reference },
        BlobReference { value_bytes: 1, ..reference },
        BlobReference { index_bytes: reference.index_bytes - 1, ..reference },
        BlobReference { index_bytes: 0, ..reference },
        BlobReference { offset: reference.offset + PIECE_BYTES as u64 + 5, ..reference },
        BlobReference { bytes: reference.bytes - 1, ..reference },
    ];
    for reference in cases {
        assert!(reference.read(&good, IDENTITY.salt).is_err(), "{reference:?}");
    }
}
