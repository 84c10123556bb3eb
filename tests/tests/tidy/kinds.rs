//! Only one module compares kinds of entries, besides encoders and decoders.

use super::{code, has_word, is_test, sources};

/// Module that defines the meaning of kinds.
const RESOLVE: &str = "engine/src/resolve/";

/// Files that name kinds of entries, with the reason.
const ALLOWED: [(&str, &str); 14] = [
    ("engine/src/batch.rs", "encodes the writes of a batch"),
    ("engine/src/changes/batch.rs", "names the kinds of a change stream"),
    ("engine/src/commit/write.rs", "inserts the entries of a batch"),
    ("engine/src/commit/write_encoder.rs", "encodes the writes of a batch"),
    ("engine/src/compaction/operands.rs", "encodes the results of merge operands"),
    ("engine/src/keyspace/writes.rs", "encodes single writes"),
    ("engine/src/store/stats.rs", "reports the number of merge operands"),
    ("engine/src/wal/batch.rs", "encodes and decodes the writes of a log"),
    ("engine/src/wal/dump.rs", "names the kinds of a log"),
    ("memtable/src/memtable.rs", "notes whether an entry expires"),
    ("sstable/src/block/layout.rs", "decodes entries, and refuses ranges among points"),
    ("sstable/src/properties.rs", "counts the entries of a table by kind"),
    ("sstable/src/verify.rs", "counts them again"),
    ("sstable/src/writer.rs", "encodes entries and counts them"),
];

/// Crates that a user compiles.
const CRATES: [&str; 8] = [
    "cli/src/",
    "engine/src/",
    "filter/src/",
    "format/src/",
    "memtable/src/",
    "migrate/src/",
    "sstable/src/",
    "typed/src/",
];

const KINDS: [&str; 6] =
    ["Put", "Tombstone", "Merge", "BlobReference", "PutWithExpiry", "RangeTombstone"];

/// Returns the lines outside of tests that name a kind of entries, or take its number.
fn kind_lines(text: &str) -> Vec<usize> {
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let names_kind = |line: &str| {
        let code = code(line);
        let mut names = code.match_indices("Kind::").filter(|(at, _)| {
            // Not the kind of another type.
            !code[..*at].ends_with(|before: char| before.is_alphanumeric() || before == '_')
        });
        let is_kind = |rest: &str| {
            rest.starts_with(['*', '{']) || {
                let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
                KINDS.contains(&&rest[..end])
            }
        };
        names.any(|(at, name)| is_kind(&code[at + name.len()..]))
            || has_word(&code, "trailer") && code.contains(".kind() as ")
    };
    text.lines().enumerate().filter(|(_, line)| names_kind(line)).map(|(at, _)| at + 1).collect()
}

#[test]
fn only_resolve_compares_kinds_of_entries() {
    let mut unused: Vec<_> = ALLOWED.iter().map(|(path, _)| *path).collect();
    let mut faults = Vec::new();
    for (path, text) in sources() {
        let name = path.to_str().expect("paths of sources are text");
        if !CRATES.iter().any(|of| name.starts_with(of)) || is_test(&path) {
            continue;
        }
        let lines = kind_lines(&text);
        if lines.is_empty() || name.starts_with(RESOLVE) {
            continue;
        }
        if let Some(at) = unused.iter().position(|allowed| *allowed == name) {
            unused.swap_remove(at);
        } else if !ALLOWED.iter().any(|(allowed, _)| *allowed == name) {
            faults.push(format!("{name}:{lines:?}"));
        }
    }
    assert!(faults.is_empty(), "use `resolve` instead of comparing kinds: {faults:#?}");
    assert!(unused.is_empty(), "not needed in the list of exceptions: {unused:?}");
}

#[test]
fn compared_kind_is_reported() {
    let cases: [(&str, &str, &[usize]); 9] = [
        ("compared", "\nif kind == Kind::Put {}", &[2]),
        ("by path", "sievedb_format::Kind::Tombstone => {}", &[1]),
        ("imported", "use sievedb_format::Kind::{Put, Merge};\nuse Kind::*;", &[1, 2]),
        ("as a number", "trailer.kind() as u8 == 2", &[1]),
        ("copied", "Trailer::new(0, key.trailer.kind())", &[]),
        ("all", "for kind in Kind::ALL {}", &[]),
        ("of something else", "SavedKind::Put; Kind::Update; Kind::PutAside", &[]),
        ("in a comment", "let a; // Kind::Put\n/// Kind::Put", &[]),
        ("in a test", "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    Kind::Put\n}", &[]),
    ];
    for (name, text, want) in cases {
        assert_eq!(kind_lines(text), want, "{name}");
    }
}
