//! Optional fields of a later release in a store that this release writes to: which fields are
//! kept. No entry is lost in any case.

use std::sync::Arc;

use sievedb::{Db, ReadMode};
use sievedb_doubles::MemoryFs;
use sievedb_format::{Decoder, Encode};

use super::{
    forge::{Part, log_parts},
    next_release::{field, required, with_edit},
    reading::read_all,
    reserved::with_optional_property,
    sample::{Files, Sample, disk, file_id, files, open},
    script::{End, sample},
};

const FIELD: &[u8] = b"a field of a later release";

fn optional_field() -> Vec<u8> {
    field(900 * 2, FIELD)
}

/// Returns the table entries of the manifest: keyspace, then fields.
fn tables_added(manifest: &[u8]) -> Vec<Vec<u8>> {
    let mut tables = Vec::new();
    for part in log_parts(manifest).into_iter().skip(2) {
        let Part::Record { place, .. } = part else { panic!("a manifest consists of records") };
        let mut decoder = Decoder::new(&manifest[place.start + 40..place.end]);
        while !decoder.is_empty() {
            let tag = decoder.varint("tag").unwrap();
            let value = decoder.prefixed("value").unwrap();
            if tag == required(11) {
                tables.push(value.to_vec());
            }
        }
    }
    tables
}

/// Returns keyspace and id of a table entry. The id is its first field.
fn table_of(entry: &[u8]) -> (u64, u64) {
    let mut decoder = Decoder::new(entry);
    let keyspace = decoder.varint("keyspace").unwrap();
    assert_eq!(decoder.varint("tag").unwrap(), required(1));
    (keyspace, Decoder::new(decoder.prefixed("id").unwrap()).varint("id").unwrap())
}

/// Returns the sample with one more edit, which adds a field to the entry of its newest table.
fn with_table_field(sample: &Sample) -> Files {
    let manifest = sample.names("MANIFEST", "").pop().unwrap();
    let newest = file_id(&sample.names("", ".sst").pop().unwrap());
    let mut added = tables_added(&sample.files[&manifest]);
    let mut entry = added.swap_remove(
        added.iter().rposition(|entry| table_of(entry).1 == newest).expect("the table is named"),
    );
    let (keyspace, id) = table_of(&entry);
    let mut removed = Vec::new();
    removed.put_varint(keyspace);
    removed.put_varint(id);
    entry.extend(optional_field());
    with_edit(sample, &[field(required(12), &removed), field(required(11), &entry)].concat())
}

/// Returns the number of manifests that have the field.
fn manifests_with_field(fs: &MemoryFs) -> usize {
    let manifests = files(fs).into_iter().filter(|(name, _)| name.starts_with("MANIFEST"));
    manifests.filter(|(_, bytes)| bytes.windows(FIELD.len()).any(|part| part == FIELD)).count()
}

/// Opens the store, calls `write`, closes the store, and checks that no entry of the sample is
/// lost.
fn live(sample: &Sample, fs: &Arc<MemoryFs>, name: &str, write: impl FnOnce(&Db)) {
    let db = open(fs.clone(), ReadMode::Pread).unwrap_or_else(|e| panic!("{name}: {e:?}"));
    let other = db.keyspace("of this release").unwrap();
    other.insert("key", "value").unwrap();
    other.flush().unwrap();
    write(&db);
    read_all(sample, &db).unwrap_or_else(|e| panic!("{name}: {e:?}"));
}

#[test]
fn formats_manifest_rewrite_drops_unknown_optional_fields() {
    let sample = sample(End::PowerCut);
    for (name, files) in [
        ("field of an edit", with_edit(&sample, &optional_field())),
        ("field of a table", with_table_field(&sample)),
    ] {
        let fs = disk(&files);
        assert_eq!(manifests_with_field(&fs), 1, "{name}");
        live(&sample, &fs, name, |_| ());
        assert_eq!(manifests_with_field(&fs), 0, "{name}: the opening writes a new manifest");
        live(&sample, &fs, name, |_| ());
    }
}

/// Returns the sample with a field of a later release in the options of keyspace `id`.
fn with_options(sample: &Sample, id: u8) -> Files {
    let mut changed = vec![id];
    changed.put_prefixed(&optional_field());
    with_edit(sample, &field(required(17), &changed))
}

#[test]
fn formats_unknown_option_fields_are_kept_until_options_change() {
    let sample = sample(End::PowerCut);
    let fs = disk(&with_options(&sample, 1));
    live(&sample, &fs, "default keyspace", |_| ());
    assert_eq!(manifests_with_field(&fs), 0, "`Options::keyspace` replaces them");

    let fs = disk(&with_options(&sample, 2));
    for _ in 0..2 {
        live(&sample, &fs, "users", |_| ());
        assert_eq!(manifests_with_field(&fs), 1);
    }
    live(&sample, &fs, "changed options", |db| {
        let users = db.keyspace("users").unwrap();
        users.set_options(users.options().block_bytes(3 << 10)).unwrap();
    });
    // Without `CLOSED` the next open rewrites the manifest with both options.
    let mut rewritten = files(&fs);
    rewritten.remove("CLOSED");
    let fs = disk(&rewritten);
    live(&sample, &fs, "rewritten", |_| ());
    assert_eq!(manifests_with_field(&fs), 0);
    live(&sample, &fs, "reopened", |_| ());
}

#[test]
fn formats_unknown_properties_are_kept_until_the_table_is_merged() {
    let sample = sample(End::PowerCut);
    let name = sample.names("", ".sst").pop().unwrap();
    let forged = with_optional_property(&sample);
    let fs = disk(&forged);
    live(&sample, &fs, "property", |_| ());
    assert_eq!(files(&fs).get(&name), Some(&forged[&name]), "the table is kept as it is");
    live(&sample, &fs, "merged", |db| db.compact().unwrap());
    assert_eq!(files(&fs).get(&name), None, "the table is merged");
    live(&sample, &fs, "reopened", |_| ());
}
