//! Reads stores that RocksDB wrote by `sievedb-migrate`, and compares them with RocksDB's iterator.
//!
//! `cargo run --release --example migrate`, in `benches/compare`. Prints a line for each
//! combination of options: entries by RocksDB and by `sievedb-migrate`, digest, pass or fail. Exits
//! with 1 if one fails. An argument names a directory that keeps the stores.
//!
//! Then exports entries as tables, lets RocksDB ingest them, and compares its iterator.

#![expect(clippy::print_stdout, reason = "prints its result")]
#![expect(clippy::disallowed_methods, reason = "makes a directory for stores of RocksDB")]

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, ChecksumType, ColumnFamilyDescriptor, DB,
    DBCompactionStyle, DBCompressionType, DataBlockIndexType, IngestExternalFileOptions,
    IteratorMode, MergeOperands, Options, SliceTransform, SstFileWriter, WriteBatch,
};
use sievedb_workload::random::Random;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

const FAMILIES: [&str; 3] = ["default", "one", "two"];

/// Numbers of writes in each of the rounds, and of different keys.
const WRITES: u64 = 6000;
const KEYS: u64 = 3000;

/// A combination of options and writes.
struct Case {
    name: &'static str,
    set: fn(&mut Options, &mut BlockBasedOptions),
    writes: Writes,
}

/// Kinds of writes of a case besides puts and deletions.
#[derive(Clone, Copy, Default)]
struct Writes {
    families: bool,
    singles: bool,
    merges: bool,
    ranges: bool,
    ingests: bool,
    snapshots: bool,
    compacts: bool,
    /// Flushes at the end: the log is empty.
    flushes: bool,
}

const NONE: Writes = Writes {
    families: false,
    singles: false,
    merges: false,
    ranges: false,
    ingests: false,
    snapshots: false,
    compacts: false,
    flushes: false,
};
const FLUSHED: Writes = Writes { flushes: true, ..NONE };
const COMPACTED: Writes = Writes { compacts: true, singles: true, ..NONE };
const ALL: Writes = Writes {
    families: true,
    singles: false,
    merges: true,
    ranges: true,
    ingests: true,
    snapshots: true,
    compacts: true,
    flushes: false,
};

fn cases() -> Vec<Case> {
    fn case(
        name: &'static str,
        writes: Writes,
        set: fn(&mut Options, &mut BlockBasedOptions),
    ) -> Case {
        Case { name, set, writes }
    }
    vec![
        case("defaults", COMPACTED, |_, _| {}),
        case("log only", NONE, |options, _| options.set_write_buffer_size(256 << 20)),
        case(
            "log only, all writes",
            Writes { ingests: false, compacts: false, ..ALL },
            |options, _| {
                options.set_write_buffer_size(256 << 20);
            },
        ),
        case("format 2, CRC-32C", FLUSHED, |_, table| {
            table.set_format_version(2);
            table.set_checksum_type(ChecksumType::CRC32c);
        }),
        case("format 3, xxHash, LZ4", COMPACTED, |options, table| {
            options.set_compression_type(DBCompressionType::Lz4);
            table.set_format_version(3);
            table.set_checksum_type(ChecksumType::XXHash);
        }),
        case("format 4, xxHash64, LZ4HC", COMPACTED, |options, table| {
            options.set_compression_type(DBCompressionType::Lz4hc);
            table.set_format_version(4);
            table.set_checksum_type(ChecksumType::XXHash64);
            table.set_index_block_restart_interval(4);
        }),
        case("format 5, XXH3", COMPACTED, |_, table| {
            table.set_format_version(5);
            table.set_checksum_type(ChecksumType::XXH3);
        }),
        case("format 6, LZ4", COMPACTED, |options, table| {
            options.set_compression_type(DBCompressionType::Lz4);
            table.set_format_version(6);
        }),
        case("format 6, CRC-32C, hash in blocks", COMPACTED, |_, table| {
            table.set_format_version(6);
            table.set_checksum_type(ChecksumType::CRC32c);
            table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        }),
        case("format 7, LZ4", COMPACTED, |options, table| {
            options.set_compression_type(DBCompressionType::Lz4);
            table.set_format_version(7);
        }),
        case("format 7, xxHash64, no compression", ALL, |_, table| {
            table.set_format_version(7);
            table.set_checksum_type(ChecksumType::XXHash64);
        }),
        case("no checksums", FLUSHED, |_, table| {
            table.set_checksum_type(ChecksumType::NoChecksum);
        }),
        case("LZ4 with dictionaries", COMPACTED, |options, table| {
            options.set_compression_type(DBCompressionType::Lz4);
            options.set_compression_options(-14, 32767, 0, 4096);
            table.set_format_version(6);
            table.set_block_size(1024);
        }),
        case("LZ4 with dictionaries, format 7", COMPACTED, |options, table| {
            options.set_compression_type(DBCompressionType::Lz4);
            options.set_compression_options(-14, 32767, 0, 4096);
            table.set_format_version(7);
            table.set_block_size(1024);
        }),
        case("hash index", COMPACTED, |options, table| {
            options.set_prefix_extractor(SliceTransform::create_fixed_prefix(5));
            table.set_index_type(BlockBasedIndexType::HashSearch);
        }),
        case("partitioned index and filters", COMPACTED, partitioned),
        case("partitioned, format 7, LZ4, all writes", ALL, |options, table| {
            partitioned(options, table);
            options.set_compression_type(DBCompressionType::Lz4);
            table.set_format_version(7);
        }),
        case("column families", Writes { families: true, ..COMPACTED }, |_, _| {}),
        case("range deletions", Writes { ranges: true, singles: true, ..NONE }, |_, _| {}),
        case(
            "range deletions, snapshots, compactions",
            Writes { ranges: true, snapshots: true, ..COMPACTED },
            |_, _| {},
        ),
        case("merges", Writes { merges: true, ..FLUSHED }, |_, _| {}),
        case(
            "merges, snapshots, unflushed",
            Writes { merges: true, snapshots: true, ..NONE },
            |_, _| {},
        ),
        case("blobs", COMPACTED, blobs),
        case("blobs, LZ4, merges, families", ALL, |options, table| {
            blobs(options, table);
            options.set_blob_compression_type(DBCompressionType::Lz4);
        }),
        case("ingested tables", Writes { ingests: true, ranges: true, ..NONE }, |_, _| {}),
        case("universal compaction", Writes { ranges: true, ..COMPACTED }, |options, _| {
            options.set_compaction_style(DBCompactionStyle::Universal);
        }),
        case("recycled logs, tracked", FLUSHED, |options, _| {
            options.set_recycle_log_file_num(3);
            options.set_track_and_verify_wals_in_manifest(true);
        }),
        case("recycled logs, unflushed", NONE, |options, _| options.set_recycle_log_file_num(3)),
        case("all writes", ALL, |_, _| {}),
    ]
}

fn partitioned(_: &mut Options, table: &mut BlockBasedOptions) {
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_bloom_filter(10.0, false);
    table.set_metadata_block_size(512);
    table.set_block_size(512);
}

fn blobs(options: &mut Options, _: &mut BlockBasedOptions) {
    options.set_enable_blob_files(true);
    options.set_min_blob_size(64);
    options.set_blob_file_size(64 << 10);
    options.set_enable_blob_gc(true);
}

/// Concatenates, as `StringAppend` with an empty delimiter.
fn concatenate(_: &[u8], value: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut merged = value.unwrap_or_default().to_vec();
    operands.iter().for_each(|operand| merged.extend_from_slice(operand));
    Some(merged)
}

fn options(case: &Case) -> Options {
    let (mut options, mut table) = (Options::default(), BlockBasedOptions::default());
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_compression_type(DBCompressionType::None);
    options.set_write_buffer_size(128 << 10);
    options.set_target_file_size_base(64 << 10);
    options.set_max_bytes_for_level_base(256 << 10);
    options.set_merge_operator_associative("app.concatenate", concatenate);
    (case.set)(&mut options, &mut table);
    options.set_block_based_table_factory(&table);
    options
}

fn open(case: &Case, path: &Path) -> Result<DB> {
    let families = FAMILIES.map(|name| ColumnFamilyDescriptor::new(name, options(case)));
    Ok(DB::open_cf_descriptors(&options(case), path, families)?)
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn value(random: &mut Random, round: u64) -> Vec<u8> {
    let len = random.below(200);
    let bytes = (0..len).map(|at| if at % 3 == 0 { random.next() as u8 } else { b'a' });
    format!("{round}:").into_bytes().into_iter().chain(bytes).collect()
}

/// Writes a store, and leaves it without a flush unless the case flushes.
fn write(case: &Case, path: &Path) -> Result<()> {
    let db = open(case, path)?;
    let mut random = Random::new(7);
    let writes = case.writes;
    let families = if writes.families { FAMILIES.len() as u64 } else { 1 };
    let handle = |number: u64| {
        let name = FAMILIES[number as usize];
        db.cf_handle(name).ok_or("a column family is missing")
    };
    let mut snapshots = Vec::new();
    for round in 0..3 {
        for write in 0..WRITES {
            let family = handle(random.below(families))?;
            let number = random.below(KEYS);
            let key = key(number);
            match random.below(100) {
                0..10 => db.delete_cf(family, &key)?,
                10..20 if writes.merges => {
                    db.merge_cf(family, &key, value(&mut random, round))?;
                }
                20..24 if writes.singles => {
                    let key = format!("single{round}-{write}");
                    let mut batch = WriteBatch::default();
                    batch.put_cf(family, &key, "x");
                    db.write(batch)?;
                    let mut batch = WriteBatch::default();
                    if write % 3 > 0 {
                        batch.single_delete_cf(family, &key);
                    }
                    db.write(batch)?;
                }
                24..26 if writes.ranges => {
                    let end = self::key(number + random.below(KEYS / 50));
                    db.delete_range_cf(family, &key, &end)?;
                }
                26..40 => {
                    let mut batch = WriteBatch::default();
                    for _ in 0..3 {
                        let family = handle(random.below(families))?;
                        batch.put_cf(
                            family,
                            self::key(random.below(KEYS)),
                            value(&mut random, round),
                        );
                    }
                    db.write(batch)?;
                }
                _ => db.put_cf(family, &key, value(&mut random, round))?,
            }
            if writes.snapshots && write == WRITES / 2 {
                snapshots.push(db.snapshot());
            }
        }
        if writes.ingests {
            ingest(&db, case, path, &mut random)?;
        }
        if writes.compacts && round == 1 {
            for family in 0..families {
                db.compact_range_cf(handle(family)?, None::<&[u8]>, None::<&[u8]>);
            }
        }
    }
    if writes.flushes {
        db.flush()?;
    }
    Ok(())
}

fn ingest(db: &DB, case: &Case, path: &Path, random: &mut Random) -> Result<()> {
    let file = path.with_extension("ingest.sst");
    let options = options(case);
    let mut writer = SstFileWriter::create(&options);
    writer.open(&file)?;
    let first = random.below(KEYS);
    for number in first..first + 50 {
        writer.put(key(number), value(random, 9))?;
    }
    writer.delete_range(key(first + 60), key(first + 70))?;
    writer.finish()?;
    let mut options = IngestExternalFileOptions::default();
    options.set_move_files(true);
    db.ingest_external_file_opts(&options, vec![file.as_path()])?;
    Ok(())
}

/// Number of entries, and a digest of keys and values in order.
#[derive(Default, PartialEq, Eq)]
struct Digest {
    entries: u64,
    hash: u64,
}

impl Digest {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.entries += 1;
        let lengths = [(key.len() as u64).to_le_bytes(), (value.len() as u64).to_le_bytes()];
        for byte in lengths.concat().iter().chain(key).chain(value) {
            // FNV-1a.
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

fn by_rocksdb(case: &Case, path: &Path) -> Result<Digest> {
    let families = FAMILIES.map(|name| ColumnFamilyDescriptor::new(name, options(case)));
    let db = DB::open_cf_descriptors_read_only(&options(case), path, families, false)?;
    let mut digest = Digest::default();
    for name in FAMILIES {
        let family = db.cf_handle(name).ok_or("a column family is missing")?;
        for entry in db.iterator_cf(family, IteratorMode::Start) {
            let (key, value) = entry?;
            digest.add(&key, &value);
        }
    }
    Ok(digest)
}

fn by_migrate(path: &Path) -> Result<Digest> {
    let operator = std::sync::Arc::new(sievedb_migrate::StringAppend::new(""));
    let options = FAMILIES.iter().fold(sievedb_migrate::Options::new(), |options, name| {
        options.merge_operator(*name, operator.clone())
    });
    let db = options.open(path)?;
    let mut digest = Digest::default();
    for name in FAMILIES {
        for entry in db.entries(name)? {
            let (key, value) = entry?;
            digest.add(&key, &value);
        }
    }
    Ok(digest)
}

/// Exports entries as tables, ingests them twice, the second time over other entries, and returns
/// whether RocksDB has what was exported.
fn exported(path: &Path, compress: bool) -> Result<bool> {
    let mut random = Random::new(9);
    let tables = path.join("tables");
    let options = sievedb_migrate::export::ExportOptions::new().file_bytes(1 << 20);
    let mut export = options.compress(compress).create(&tables)?;
    export.column_family(FAMILIES[0])?;
    let mut want = Digest::default();
    for number in 0..8 * KEYS {
        let mut value = value(&mut random, 0);
        match number % 1000 {
            1 => value.clear(),
            2 => value.resize(64 << 10, b'v'),
            _ => {}
        }
        export.add(&key(number), &value)?;
        want.add(&key(number), &value);
    }
    let family = &export.finish()?[0];
    let names = (1..=family.tables).map(|number| format!("{number:06}.sst"));
    let files: Vec<_> = names.map(|name| tables.join(&family.directory).join(name)).collect();
    let mut options = Options::default();
    options.create_if_missing(true);
    let mut passed = files.len() > 1;
    for is_replaced in [false, true] {
        let db = DB::open(&options, path.join(format!("db-{is_replaced}")))?;
        if is_replaced {
            // Ingestion then assigns a sequence number.
            db.put(key(5), "replaced")?;
            db.flush()?;
        }
        db.ingest_external_file(files.clone())?;
        let mut found = Digest::default();
        for entry in db.iterator(IteratorMode::Start) {
            let (key, value) = entry?;
            found.add(&key, &value);
        }
        // By the index.
        passed &= found == want && db.get(key(5))?.is_some_and(|value| value != b"replaced");
        db.compact_range(None::<&[u8]>, None::<&[u8]>);
        passed &= db.get(key(8 * KEYS - 1))?.is_some() && db.get(key(8 * KEYS))?.is_none();
    }
    println!("exported tables: {}, compressed: {compress}, {}", files.len(), verdict(passed));
    Ok(passed)
}

fn verdict(passed: bool) -> &'static str {
    if passed { "pass" } else { "FAIL" }
}

fn run() -> Result<bool> {
    let temporary = tempfile::tempdir()?;
    let directory = std::env::args().nth(1).map_or(temporary.path().to_owned(), PathBuf::from);
    fs::create_dir_all(&directory)?;
    let cases = cases();
    let mut failed = 0;
    println!("{:42} {:>8} {:>8} {:>16}", "options", "RocksDB", "migrate", "digest");
    for (number, case) in cases.iter().enumerate() {
        let path = directory.join(format!("{number:02}"));
        write(case, &path)?;
        // First without C++: RocksDB might change the directory.
        let found = by_migrate(&path);
        let want = by_rocksdb(case, &path)?;
        match found {
            Ok(found) => {
                let passed = found == want && want.entries > KEYS / 2;
                failed += u32::from(!passed);
                let verdict = verdict(passed);
                let (count, entries) = (want.entries, found.entries);
                println!("{:42} {count:8} {entries:8} {:016x} {verdict}", case.name, found.hash);
            }
            Err(error) => {
                failed += 1;
                println!("{:42} {:8} FAIL: {error}", case.name, want.entries);
            }
        }
    }
    println!("{} of {} combinations pass", cases.len() as u32 - failed, cases.len());
    for compress in [false, true] {
        let path = directory.join(format!("export-{compress}"));
        fs::create_dir_all(&path)?;
        failed += u32::from(!exported(&path, compress)?);
    }
    Ok(failed == 0)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error}");
            ExitCode::from(2)
        }
    }
}
