//! A store of a later release for every reserved number is refused by name, or the number is
//! skipped.

use std::{ops::Range, sync::Arc};

use sievedb::{Error, OlderValues, Options, ReadMode, VerifyProblem, VerifyProblemKind};
use sievedb_doubles::{Call, Fault, FaultFs, Times};
use sievedb_format::{Decoder, Kind};

use super::{
    forge::{Part, footer_part, log_parts, table_parts},
    next_release::{check_refused, field, forged, required, table, with_edit, with_record},
    reading::read_all,
    repair::NEW,
    sample::{Files, STORE_DIR, Sample, disk, open},
    script::{End, sample},
};

/// Expected result of opening a forged store.
enum Outcome {
    /// Refused with `Error::NewerRelease`, which names this feature.
    Refused(String),
    /// Opened, and all entries of the sample are read.
    Skipped,
    /// Opened; a read of the table fails with [`Error::Corrupt`] or ignores the forged part.
    FoundByReads,
}

use Outcome::{FoundByReads, Refused, Skipped};

fn refused(needs: impl Into<String>) -> Outcome {
    Refused(needs.into())
}

/// Kinds of entries of a later release.
fn reserved_kinds() -> impl Iterator<Item = u8> {
    let newest = Kind::ALL.into_iter().map(|kind| kind as u8).max().unwrap();
    [newest + 1, newest + 2].into_iter()
}

/// Returns the places of the tag of a property and of its value.
fn property(bytes: &[u8], number: u64) -> (Part, usize, Range<usize>) {
    let part = footer_part(bytes, 2).unwrap();
    let place = part.place();
    let content = &bytes[place.start..place.end - 5];
    let mut decoder = Decoder::new(content);
    loop {
        let tag_at = place.start + decoder.offset();
        let tag = decoder.varint("tag").unwrap();
        let length = decoder.prefixed("value").unwrap().len();
        let end = place.start + decoder.offset();
        if tag >> 1 == number {
            return (part, tag_at, end - length..end);
        }
    }
}

/// Returns the store with a changed byte in the properties of its newest table.
fn with_property(sample: &Sample, place: impl Fn(&[u8]) -> (Part, usize), byte: u8) -> Files {
    let name = sample.names("", ".sst").pop().unwrap();
    let (part, at) = place(&sample.files[&name]);
    forged(sample, &name, &part, at, byte)
}

/// Returns the place of the tag of the last property.
fn last_tag(bytes: &[u8]) -> (Part, usize) {
    let (part, tag_at, _) = property(bytes, 28);
    (part, tag_at)
}

/// Returns the store with an unknown optional property in its newest table.
pub(super) fn with_optional_property(sample: &Sample) -> Files {
    with_property(sample, last_tag, 126)
}

/// Returns the newest log with `more` after the fields of its start record.
fn with_start(sample: &Sample, more: &[u8]) -> Files {
    let name = sample.names("", ".log").pop().unwrap();
    let mut bytes = sample.files[&name].to_vec();
    let Part::Record { file_id, secret, place } = log_parts_of(&bytes).swap_remove(1) else {
        panic!("a log begins with a start record")
    };
    assert!(place.end % 8 > 0 && place.end % 8 + more.len() <= 8, "no padding for the field");
    bytes[place.end..place.end + more.len()].copy_from_slice(more);
    let place = place.start..place.end + more.len();
    let payload_bytes = (place.len() - 40) as u32;
    bytes[place.start + 8..place.start + 12].copy_from_slice(&payload_bytes.to_le_bytes());
    Part::Record { file_id, secret, place }.seal(&mut bytes);
    sample.with(&name, bytes)
}

/// Returns the parts of a log, without the reserved zeros.
fn log_parts_of(bytes: &[u8]) -> Vec<Part> {
    log_parts(&bytes[..super::log_record::records_end(bytes)])
}

/// Returns `CURRENT` or `CLOSED` with a changed byte in its header.
fn with_pointer(sample: &Sample, name: &str, at: usize, byte: u8) -> Files {
    let mut bytes = sample.files[name].to_vec();
    bytes[at] = byte;
    Part::Header.seal(&mut bytes);
    let checksum = sievedb_format::checksum::crc32(&[&bytes[..72]]);
    bytes[72..76].copy_from_slice(&checksum.to_le_bytes());
    sample.with(name, bytes)
}

fn cases(cut: &Sample, closed: &Sample) -> Vec<(String, Files, Outcome)> {
    let mut cases: Vec<(String, Files, Outcome)> = Vec::new();
    let mut case = |name: &str, files: Files, outcome: Outcome| {
        cases.push((name.to_owned(), files, outcome));
    };
    let log = cut.names("", ".log").pop().unwrap();
    let table_name = cut.names("", ".sst").pop().unwrap();
    let manifest = cut.names("MANIFEST", "").pop().unwrap();
    let record = |head, sequence, payload: &[u8]| {
        let end = super::log_record::records_end(&cut.files[&log]);
        cut.with(&log, with_record(&cut.files[&log][..end], head, sequence, payload))
    };

    for kind in reserved_kinds() {
        let needs = format!("kind of an entry {kind}");
        let counted = |bytes: &[u8]| {
            // The last counted kind: kinds ascend.
            let (part, _, value) = property(bytes, 4);
            let mut decoder = Decoder::new(&bytes[value.clone()]);
            let mut at = value.start;
            while !decoder.is_empty() {
                at = value.start + decoder.offset();
                decoder.u8("kind").unwrap();
                decoder.varint("count").unwrap();
            }
            (part, at)
        };
        case(
            &format!("property: kind {kind}"),
            with_property(cut, counted, kind),
            refused(&*needs),
        );
        let entry = table(&field(required(17), &[kind]));
        case(&format!("manifest: kind {kind}"), with_edit(cut, &entry), refused(&*needs));
        case(&format!("op {kind}"), record([1, 0], 1 << 40, &[1, kind, 1, 0]), refused(&*needs));
    }
    case("op: ignorable", record([1, 0], 1 << 40, &[1, 0x45, 1, 2, 8, 9]), Skipped);
    for transform in [2, 4, 255] {
        let needs = format!("transform of a log record {transform}");
        case(
            &format!("transform {transform}"),
            record([1, transform], 1 << 40, b""),
            refused(needs),
        );
    }
    case("record type", record([9, 0], 1 << 40, b""), refused("type of a log record 9"));
    case("record type: ignorable", record([0x90, 0], 0, b"next"), Skipped);

    case("property: required", with_property(cut, last_tag, 127), refused("property 63"));
    case("property: optional", with_optional_property(cut), Skipped);
    for compression in [3, 255] {
        let value = |bytes: &[u8]| {
            let (part, _, value) = property(bytes, 18);
            (part, value.start)
        };
        let needs = format!("compression {compression}");
        let files = with_property(cut, value, compression);
        case(&format!("property: compression {compression}"), files, refused(needs));
    }
    let comparator = |bytes: &[u8]| {
        let (part, _, value) = property(bytes, 1);
        (part, value.start)
    };
    case("property: comparator", with_property(cut, comparator, 2), refused("comparator 2"));
    // Applies even if no log must be replayed.
    case("closed: comparator", with_property(closed, comparator, 2), refused("comparator 2"));

    let start_required = with_start(cut, &[127, 0]);
    case("start record: required", start_required, refused("field of a start record 63"));
    case("start record: optional", with_start(cut, &[126, 0]), Skipped);

    for (name, file) in [("log", &log), ("table", &table_name), ("manifest", &manifest)] {
        for (what, at, byte, needs) in [
            ("version", 8, 2, "format version 2"),
            ("envelope", 10, 2, "envelope 2"),
            ("reserved byte", 13, 1, "reserved byte of a file header 1"),
            ("last reserved byte", 59, 1, "reserved byte of a file header 1"),
        ] {
            let files = forged(cut, file, &Part::Header, at, byte);
            case(&format!("{name}: {what}"), files, refused(needs));
        }
    }
    let current = with_pointer(cut, "CURRENT", 8, 2);
    case("CURRENT: version", current, refused("format version 2"));
    case("CURRENT: envelope", with_pointer(cut, "CURRENT", 10, 2), refused("envelope 2"));
    // Such a file marks nothing as synced, and is not required.
    case("CLOSED: version", with_pointer(closed, "CLOSED", 8, 2), Skipped);

    let entry = table(&field(required(900), &[1]));
    case("table: required", with_edit(cut, &entry), refused("field of a table 900"));
    let edit = with_edit(cut, &field(required(900), b""));
    case("edit: required", edit, refused("field of a version edit 900"));
    case("edit: optional", with_edit(cut, &field(1800, b"")), Skipped);

    let footer = |kind: u8, flags: u8| {
        let mut bytes = cut.files[&table_name].to_vec();
        let part = table_parts(&bytes).swap_remove(1);
        let entry = part.place().end - 64 - 18;
        (bytes[entry], bytes[entry + 1]) = (kind, flags);
        part.seal(&mut bytes);
        cut.with(&table_name, bytes)
    };
    // The last entry of the sample's footer is a filter, which is optional.
    case("block: blob references", footer(8, 1), refused("required block of kind 8"));
    case("block: required", footer(200, 1), refused("required block of kind 200"));
    case("block: optional", footer(200, 0), Skipped);

    let mut bytes = cut.files[&table_name].to_vec();
    let part = table_parts(&bytes).pop().unwrap();
    let type_at = part.place().end - 5;
    bytes[type_at] = 4;
    part.seal(&mut bytes);
    case("type of a block", cut.with(&table_name, bytes), FoundByReads);
    let filters = super::forge::filter_place(&cut.files[&table_name]).unwrap();
    for (what, behind) in [("kind", 1), ("version", 2)] {
        let mut bytes = cut.files[&table_name].to_vec();
        bytes[filters.end - 5 - behind] = 99;
        case(&format!("filter: {what}"), cut.with(&table_name, bytes), FoundByReads);
    }
    cases
}

#[test]
fn formats_reserved_numbers_are_refused_by_name_or_skipped() {
    let (cut, closed) = (sample(End::PowerCut), sample(End::Closed));
    let mut wrong = Vec::new();
    for (name, files, outcome) in cases(&cut, &closed) {
        let sample = if name.starts_with("CLOSED") { &closed } else { &cut };
        let found = match &outcome {
            Refused(needs) => check_refused(&name, &files, needs),
            Skipped => open(disk(&files), ReadMode::Pread)
                .map_err(|error| format!("{name}: {error:?}"))
                .and_then(|db| {
                    read_all(sample, &db).map(drop).map_err(|e| format!("{name}: {e:?}"))
                }),
            FoundByReads => match open(disk(&files), ReadMode::Pread) {
                Ok(db) => match read_all(sample, &db) {
                    Ok(_) | Err(Error::Corrupt { .. }) => Ok(()),
                    Err(error) => Err(format!("{name}: {error:?}")),
                },
                Err(error) => Err(format!("{name}: {error:?}")),
            },
        };
        wrong.extend(found.err());
        if let Refused(needs) = outcome {
            wrong.extend(check_verified(&name, &files, &needs).err());
            // A repair must not treat data of a later release as damage.
            let fs = disk(&files);
            let options = super::repair::options(&Arc::clone(&fs));
            match options.repair(STORE_DIR, NEW, OlderValues::LeaveOut) {
                Err(Error::NewerRelease { .. }) => {}
                other => wrong.push(format!("repair: {name}: {needs}: {other:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns an error text if a verification reports damage, or does not name the feature `needs`.
fn check_verified(name: &str, files: &Files, needs: &str) -> Result<(), String> {
    let report = match Options::new().fs(disk(files)).verify(STORE_DIR, |_| ()) {
        Err(Error::NewerRelease { needs: found, .. }) if found == needs => return Ok(()),
        other => other.map_err(|error| format!("verify: {name}: {needs}: {error:?}"))?,
    };
    let message = format!("written by a newer release: needs {needs}");
    let is_named = |problem: &VerifyProblem| problem.message == message;
    let is_good = report.problems.iter().any(is_named)
        && report.problems.iter().all(|problem| problem.kind == VerifyProblemKind::Unreadable);
    if is_good { Ok(()) } else { Err(format!("verify: {name}: {needs}: {report}")) }
}

/// A recovery after a crash replaces the log; it opens the table before that.
#[test]
fn formats_table_of_a_later_release_is_refused_before_the_log_is_rewritten() {
    let cut = sample(End::PowerCut);
    let compression = |bytes: &[u8]| {
        let (part, _, value) = property(bytes, 18);
        (part, value.start)
    };
    let disk = disk(&with_property(&cut, compression, 3));
    let fs = Arc::new(FaultFs::new(disk.clone()));
    let full = Fault::new(28, Times::ForGood).calls(&[Call::Create, Call::Append, Call::Unlink]);
    fs.inject(full.suffix(".log"));
    let error = super::repair::options(&disk).fs(fs.clone()).open(STORE_DIR).unwrap_err();
    assert!(matches!(error, Error::NewerRelease { .. }), "{error:?}");
    assert_eq!(fs.failures(), 0, "{:?}", fs.failed_calls());
}
