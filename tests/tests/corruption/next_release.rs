//! Stores of a later release. This release refuses required features by name and writes nothing. It
//! skips optional features.

use sievedb::{Error, Options, ReadMode, VerifyProblemKind::Unreadable, fs::Fs as _};
use sievedb_doubles::MemoryFs;
use sievedb_format::Encode;

use super::{
    forge::{Part, log_parts, table_parts},
    reading::read_all,
    sample::{Files, STORE_DIR, Sample, disk, open},
    script::{End, sample},
};

/// Returns the tag of a field that a reader must understand.
pub(super) fn required(number: u64) -> u64 {
    number * 2 + 1
}

pub(super) fn field(tag: u64, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_varint(tag);
    bytes.put_prefixed(value);
    bytes
}

/// Adds a record with this type, transform, sequence number and payload to a file of records.
pub(super) fn with_record(file: &[u8], head: [u8; 2], sequence: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = file.to_vec();
    let secret = u64::from_le_bytes(file[40..48].try_into().unwrap());
    let file_id = u64::from_le_bytes(file[32..40].try_into().unwrap());
    let start = bytes.len();
    bytes.put_u32(0);
    bytes.put(&[head[0], head[1], 0, 0]);
    bytes.put_u32(payload.len() as u32);
    bytes.put_u32(0);
    bytes.put_u64(sequence);
    bytes.put(&[0; 16]);
    bytes.put(payload);
    Part::Record { file_id, secret, place: start..bytes.len() }.seal(&mut bytes);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Returns the manifest with one more edit with the fields `payload`.
pub(super) fn with_edit(sample: &Sample, payload: &[u8]) -> Files {
    let name = sample.names("MANIFEST", "").pop().unwrap();
    let manifest = &sample.files[&name];
    // All records except the start record are edits.
    let edits = log_parts(manifest).len() as u64 - 2;
    sample.with(&name, with_record(manifest, [1, 0], edits + 1, payload))
}

/// Returns a table entry of keyspace 1 in level 6, with an additional field.
pub(super) fn table(more: &[u8]) -> Vec<u8> {
    let mut value = vec![1];
    value.extend(field(required(1), &[1]));
    value.extend(field(required(2), &[6, 0]));
    value.extend(field(required(3), &[64]));
    value.extend(field(required(4), &[0; 8]));
    value.extend(field(required(5), &[0; 8]));
    value.extend(field(required(8), b"zzzz"));
    value.extend(field(required(9), b"zzzz"));
    value.extend(field(required(10), &[1, 0]));
    value.extend(field(required(11), &[1, 1]));
    value.extend(more);
    field(required(11), &value)
}

/// Returns the file with other bytes at `at` in a part, with a valid checksum.
pub(super) fn forged(sample: &Sample, name: &str, part: &Part, at: usize, byte: u8) -> Files {
    let mut bytes = sample.files[name].to_vec();
    bytes[at] = byte;
    part.seal(&mut bytes);
    sample.with(name, bytes)
}

fn contents(fs: &MemoryFs) -> Files {
    let mut files = super::sample::files(fs);
    files.remove("LOCK");
    files
}

#[test]
fn formats_store_of_a_later_release_is_refused_and_unchanged() {
    let sample = sample(End::PowerCut);
    let log = sample.names("", ".log").pop().unwrap();
    let manifest = sample.names("MANIFEST", "").pop().unwrap();
    let table_name = sample.names("", ".sst").pop().unwrap();
    let footer = table_parts(&sample.files[&table_name]).swap_remove(1);
    let footer_kind = footer.place().end - 64 - 18;
    let options = field(required(901), b"");
    let mut changed = vec![1];
    changed.put_prefixed(&options);
    let log_record = |head, payload: &[u8]| {
        let end = super::log_record::records_end(&sample.files[&log]);
        sample.with(&log, with_record(&sample.files[&log][..end], head, 1 << 40, payload))
    };
    let cases: [(&str, Files, &str); 9] = [
        (
            "field of an edit",
            with_edit(&sample, &field(required(900), b"")),
            "field of a version edit 900",
        ),
        (
            "keyspace option",
            with_edit(&sample, &field(required(17), &changed)),
            "keyspace option 901",
        ),
        (
            "kind in a table",
            with_edit(&sample, &table(&field(required(17), &[3]))),
            "kind of an entry 3",
        ),
        ("bounds", with_edit(&sample, &table(&field(required(16), &[4]))), "exclusive bounds 4"),
        (
            "field of a table",
            with_edit(&sample, &table(&field(required(900), b""))),
            "field of a table 900",
        ),
        ("transform", log_record([1, 2], b"next"), "transform of a log record 2"),
        ("record type", log_record([9, 0], b"next"), "type of a log record 9"),
        ("operation", log_record([1, 0], &[1, 4, 1, 0]), "kind of an entry 4"),
        ("envelope", forged(&sample, &manifest, &Part::Header, 10, 2), "envelope 2"),
    ];
    let header = forged(&sample, &manifest, &Part::Header, 12, 1);
    let required_block = {
        let mut bytes = sample.files[&table_name].to_vec();
        (bytes[footer_kind], bytes[footer_kind + 1]) = (200, 1);
        footer.seal(&mut bytes);
        sample.with(&table_name, bytes)
    };
    let more = [
        ("reserved byte", header, "reserved byte of a file header 1"),
        ("block of a table", required_block, "required block of kind 200"),
    ];
    let wrong: Vec<String> = cases
        .into_iter()
        .chain(more)
        .filter_map(|(name, files, want)| check_refused(name, &files, want).err())
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Unsupported data is not damage.
#[test]
fn n16_data_of_a_later_release_is_not_reported_as_damage() {
    let sample = sample(End::PowerCut);
    let verify = |files: &Files| Options::new().fs(disk(files)).verify(STORE_DIR, |_| ());
    let manifest = verify(&with_edit(&sample, &field(required(900), b"")));
    assert!(matches!(manifest, Err(Error::NewerRelease { .. })), "{manifest:?}");

    let log = sample.names("", ".log").pop().unwrap();
    let end = super::log_record::records_end(&sample.files[&log]);
    let record = with_record(&sample.files[&log][..end], [9, 0], 1 << 40, b"next");
    let report = verify(&sample.with(&log, record)).unwrap();
    let [problem] = &report.problems[..] else { panic!("{report}") };
    assert_eq!(problem.kind, Unreadable, "{report}");
    let needs = "written by a newer release: needs type of a log record 9";
    assert_eq!(problem.message, needs);
}

/// Returns an error text if the store is not refused because of `want`, or was written to.
pub(super) fn check_refused(name: &str, files: &Files, want: &str) -> Result<(), String> {
    let fs = disk(files);
    let before = contents(&fs);
    match open(fs.clone(), ReadMode::Pread) {
        Err(error @ Error::NewerRelease { .. }) => {
            let text = error.to_string();
            let expected = format!("was written by a newer release: needs {want}; open the store");
            if !text.contains(&expected) {
                return Err(format!("{name}: {text}"));
            }
        }
        other => return Err(format!("{name}: {other:?}")),
    }
    if contents(&fs) != before {
        return Err(format!("{name}: the store was written to"));
    }
    Ok(())
}

#[test]
fn formats_optional_fields_of_a_later_release_are_skipped() {
    let sample = sample(End::PowerCut);
    let mut changed = vec![1];
    changed.put_prefixed(&field(900 * 2, b"next"));
    let log = sample.names("", ".log").pop().unwrap();
    let log_record = |head, sequence, payload: &[u8]| {
        let end = super::log_record::records_end(&sample.files[&log]);
        sample.with(&log, with_record(&sample.files[&log][..end], head, sequence, payload))
    };
    for (name, files) in [
        ("record type", log_record([0x90, 0], 0, b"next")),
        ("operation", log_record([1, 0], 1 << 40, &[1, 0x45, 1, 2, 8, 9])),
        ("edit", with_edit(&sample, &field(900 * 2, b"next"))),
        ("options", with_edit(&sample, &field(required(17), &changed))),
    ] {
        let db = open(disk(&files), ReadMode::Pread).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        read_all(&sample, &db).unwrap_or_else(|e| panic!("{name}: {e:?}"));
    }
}

/// Two copies of a store are written to separately, and assign the same id to different segments.
#[test]
fn formats_log_segment_of_a_copied_store_is_refused() {
    let start = sample(End::Closed);
    let go_on = |value: &str, drawn: u64| {
        let fs = disk(&start.files);
        // The copies draw different random numbers.
        (0..drawn).for_each(|_| drop(fs.random_u64()));
        let db = open(fs.clone(), ReadMode::Pread).unwrap();
        for key in 0..20_u32 {
            db.insert(key.to_be_bytes(), value).unwrap();
        }
        drop(db);
        super::sample::files(&fs)
    };
    let (one, mut other) = (go_on("of one copy", 1), go_on("of the other", 2));
    let newest = one.keys().rfind(|name| name.ends_with(".log")).unwrap();
    assert!(other.contains_key(newest), "{:?}", other.keys());
    other.insert(newest.clone(), one[newest].clone());
    let error = open(disk(&other), ReadMode::Pread).unwrap_err();
    let is_named = matches!(&error, Error::Corrupt { path, .. } if path.ends_with(newest));
    assert!(is_named, "{error:?}");
}
