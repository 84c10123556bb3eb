//! Values written and read piece by piece.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    io::{self, Read, Seek, SeekFrom},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use sievedb::{Db, Error, Options, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::settings::STORE_DIR;

use super::{blob_files, keyspace, open, options, value};
use crate::corruption::allocation::{largest_bytes, reset_largest};

const PIECE: usize = 128 << 10;

fn read(reader: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    bytes
}

fn read_all(db: &Db, key: &str) -> Option<Vec<u8>> {
    db.get_reader(key).unwrap().map(|mut reader| {
        let bytes = read(&mut reader);
        assert_eq!(reader.len(), bytes.len() as u64);
        bytes
    })
}

#[test]
fn values_of_every_length_are_streamed_in_and_out() {
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk);
    let lengths = [0, 1, 5000, PIECE, PIECE + 1, 2 * PIECE, 5 * PIECE + 77];
    let values: Vec<_> = lengths.into_iter().map(|bytes| value(bytes as u32, 0, bytes)).collect();
    let before = db.snapshot();
    for (number, value) in values.iter().enumerate() {
        db.insert_reader(number.to_string(), &value[..], value.len() as u64).unwrap();
    }
    assert_eq!(blob_files(&disk, STORE_DIR).len(), 4, "of three streams, and of one flush");
    let check = |db: &Db| {
        for (number, value) in values.iter().enumerate() {
            let key = number.to_string();
            assert_eq!(db.get(&key).unwrap().as_deref(), Some(&**value), "{key}");
            assert_eq!(read_all(db, &key).as_deref(), Some(&**value), "{key}");
        }
        assert!(db.get_reader("absent").unwrap().is_none());
        assert!(db.verify().unwrap().is_good());
    };
    check(&db);
    assert!(before.get_reader("5").unwrap().is_none() && before.get("5").unwrap().is_none());
    db.flush().unwrap();
    db.compact().unwrap();
    check(&db);
    drop((db, before));
    let db = open(&disk);
    check(&db);
    db.insert("6", "newer").unwrap();
    assert_eq!(read_all(&db, "6").as_deref(), Some(&b"newer"[..]));
    db.insert_reader("6", &values[5][..], values[5].len() as u64).unwrap();
    assert_eq!(read_all(&db, "6").as_deref(), Some(&*values[5]));
    db.remove("6").unwrap();
    assert_eq!(read_all(&db, "6"), None);
}

#[test]
fn a_reader_seeks() {
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk);
    let bytes = value(1, 0, 3 * PIECE + 10);
    db.insert_reader("long", &bytes[..], bytes.len() as u64).unwrap();
    db.insert("short", &bytes[..500]).unwrap();
    for (key, bytes) in [("long", &bytes[..]), ("short", &bytes[..500])] {
        let mut reader = db.get_reader(key).unwrap().unwrap();
        let length = bytes.len();
        for at in [length, 0, length / 2, length - 1, PIECE.min(length), 1] {
            assert_eq!(reader.seek(SeekFrom::Start(at as u64)).unwrap(), at as u64);
            assert_eq!(read(&mut reader), &bytes[at..], "{key} from {at}");
        }
        assert_eq!(reader.seek(SeekFrom::End(-7)).unwrap(), length as u64 - 7);
        assert_eq!(reader.seek(SeekFrom::Current(3)).unwrap(), length as u64 - 4);
        assert_eq!(read(&mut reader), &bytes[length - 4..]);
        assert_eq!(reader.seek(SeekFrom::End(9)).unwrap(), length as u64 + 9);
        assert_eq!(read(&mut reader), []);
        let before = reader.seek(SeekFrom::Current(-1_000_000));
        assert_eq!(before.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

/// One compaction removes the last reference, and the store is not closed while a reader reads.
#[test]
fn a_reader_keeps_its_file() {
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk);
    let bytes = value(1, 0, 4 * PIECE);
    db.insert_reader("long", &bytes[..], bytes.len() as u64).unwrap();
    let mut reader = db.get_reader("long").unwrap().unwrap();
    let mut start = vec![0; PIECE / 2];
    reader.read_exact(&mut start).unwrap();
    db.remove("long").unwrap();
    db.compact().unwrap();
    assert_eq!(blob_files(&disk, STORE_DIR).len(), 1, "kept by the reader");
    let open_handles = match db.close() {
        Err(error) => {
            let text = error.error().to_string();
            drop(error);
            text
        }
        Ok(()) => panic!("a reader keeps the store open"),
    };
    assert!(open_handles.contains("1 iterator"), "{open_handles}");
    start.extend(read(&mut reader));
    assert!(start == bytes);
    drop(reader);
    let db = open(&disk);
    assert_eq!(blob_files(&disk, STORE_DIR), Vec::<String>::new());
    assert_eq!(read_all(&db, "long"), None);
}

/// Fails behind so many bytes.
struct Failing(usize);

impl Read for Failing {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = to.len().min(self.0);
        if count == 0 {
            return Err(io::Error::other("the network is down"));
        }
        to[..count].fill(7);
        self.0 -= count;
        Ok(count)
    }
}

/// A compressed stream whose checksum is missing.
struct Cut;

impl Read for Cut {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

#[test]
fn readers_that_fail_or_have_another_length_leave_nothing() {
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk);
    db.insert("key", "old").unwrap();
    db.flush().unwrap();
    let before = disk.list(STORE_DIR.as_ref()).unwrap().len();
    let lengths = [3, PIECE, 3 * PIECE, 3 * PIECE + 5];
    for length in lengths {
        let cut = io::repeat(1).take(length as u64).chain(Cut);
        let readers: [(&str, Box<dyn Read>); 5] = [
            ("cut behind the end", Box::new(cut)),
            ("short", Box::new(io::repeat(1).take(length as u64 - 1))),
            ("long", Box::new(io::repeat(1).take(length as u64 + 1))),
            ("failing", Box::new(Failing(length - 1))),
            ("failing at the end", Box::new(Failing(length))),
        ];
        for (name, reader) in readers {
            let failed = db.insert_reader("key", reader, length as u64);
            let Err(Error::ReaderFailed { key, source }) = &failed else { panic!("{failed:?}") };
            assert_eq!(&**key, b"key");
            assert_eq!(source.to_string() == "the network is down", name.starts_with("failing"));
            assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"old"[..]), "{name}");
        }
    }
    db.flush().unwrap();
    assert_eq!(disk.list(STORE_DIR.as_ref()).unwrap().len(), before, "no file is left");
    let too_long = db.insert_reader("key", io::empty(), sievedb::VALUE_BYTES_MAX as u64 + 1);
    assert!(matches!(too_long, Err(Error::ValueTooLong { .. })), "{too_long:?}");
    db.insert_reader("key", io::repeat(1).take(PIECE as u64 + 9), PIECE as u64 + 9).unwrap();
    assert!(db.verify().unwrap().is_good());
}

#[test]
fn a_full_disk_leaves_nothing_of_a_stream() {
    let mut failed = 0;
    for after in 0.. {
        let disk = Arc::new(MemoryFs::new());
        let fs = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
        let db = options(&disk).fs(Arc::clone(&fs) as Arc<dyn Fs>).open(STORE_DIR).unwrap();
        db.insert("key", "old").unwrap();
        fs.inject(Fault::new(28, Times::Once).calls(&Call::GROWING).after(after));
        let bytes = value(after as u32, 0, 2 * PIECE + 1);
        let written = db.insert_reader("key", &bytes[..], bytes.len() as u64);
        fs.heal();
        let is_failed = written.is_err();
        assert!(written.is_ok() || written.unwrap_err().is_no_space());
        let want: &[u8] = if is_failed { b"old" } else { &bytes };
        assert_eq!(db.get("key").unwrap().as_deref(), Some(want), "{after}");
        db.insert("other", "1").unwrap();
        db.flush().unwrap();
        assert!(db.verify().unwrap().is_good(), "{after}");
        drop(db);
        let db = options(&disk).open(STORE_DIR).unwrap();
        let found = db.get("key").unwrap();
        // After an error of the manifest the value may be found.
        assert!(found.as_deref() == Some(want) || is_failed && found.as_deref() == Some(&*bytes));
        assert!(blob_files(&disk, STORE_DIR).len() <= 1, "{after}");
        if !is_failed {
            break;
        }
        failed += 1;
    }
    assert!(failed >= 4, "{failed} calls failed");
}

/// A value 64 times as long as a piece takes the memory of a few pieces, however it is moved.
#[test]
fn streams_take_the_memory_of_pieces() {
    let disk = Arc::new(MemoryFs::new());
    // Garbage of half a value is too much.
    let keyspace = keyspace().blob_garbage_ratio(0.1).table_bytes(64 << 20);
    let db = options(&disk).keyspace(keyspace).open(STORE_DIR).unwrap();
    let long = 64 * PIECE as u64;
    // Blocks of the file system's own memory are not those of the store.
    let largest = |what: &str, run: &dyn Fn()| {
        reset_largest();
        run();
        let bytes = largest_bytes();
        assert!(bytes <= 3 * PIECE, "{what}: {bytes} bytes at once");
    };
    let mut sink = vec![0; 4096];
    db.insert_reader("zeros", io::repeat(0).take(long), long).unwrap();
    largest("insert_reader", &|| {
        db.insert_reader("zeros", io::repeat(0).take(long), long).unwrap();
    });
    let mut reader = db.get_reader("zeros").unwrap().unwrap();
    reset_largest();
    let mut count = 0;
    loop {
        match reader.read(&mut sink).unwrap() {
            0 => break,
            read => count += read as u64,
        }
    }
    assert_eq!(count, long);
    assert!(largest_bytes() <= 2 * PIECE, "get_reader: {} bytes at once", largest_bytes());
    drop(reader);
    largest("compact", &|| db.compact().unwrap());
    assert_eq!(db.stats().keyspaces[0].blob_garbage_bytes, 0);
}

/// Values in pieces are moved out of files with garbage, and back into tables without blob files.
#[test]
fn values_in_pieces_are_moved() {
    let disk = Arc::new(MemoryFs::new());
    let large = || keyspace().memtable_bytes(8 << 20).table_bytes(8 << 20);
    let of = |options: Options| options.keyspace(large().blob_garbage_ratio(0.1));
    let db = of(options(&disk)).open(STORE_DIR).unwrap();
    let values: Vec<_> = (0..4_u32).map(|n| value(n, 0, (n as usize + 1) * PIECE + 5)).collect();
    for (number, value) in values.iter().enumerate() {
        db.insert(number.to_string(), value).unwrap();
    }
    db.flush().unwrap();
    let first = blob_files(&disk, STORE_DIR);
    assert_eq!(first.len(), 1, "one file for all");
    let check = |db: &Db| {
        for (number, value) in values.iter().enumerate().skip(1) {
            let key = number.to_string();
            assert_eq!(read_all(db, &key).as_deref(), Some(&**value), "{key}");
            assert_eq!(db.get(&key).unwrap().as_deref(), Some(&**value), "{key}");
        }
        assert!(db.verify().unwrap().is_good());
    };
    check(&db);
    db.remove("0").unwrap();
    db.compact().unwrap();
    check(&db);
    let moved = blob_files(&disk, STORE_DIR);
    assert!(!moved.contains(&first[0]) && moved.len() == 1, "{moved:?}");
    drop(db);
    disk.settle();

    // Damage of one piece.
    let path = format!("{STORE_DIR}/{}", moved[0]);
    let good = disk.read(&path).unwrap();
    let mut bytes = good.to_vec();
    bytes[64 + PIECE + 100] ^= 1;
    disk.replace(&path, bytes).unwrap();
    let db = of(options(&disk)).open(STORE_DIR).unwrap();
    let mut reader = db.get_reader("1").unwrap().unwrap();
    let mut piece = vec![0; PIECE];
    reader.read_exact(&mut piece).unwrap();
    assert!(piece == values[1][..PIECE]);
    let error = reader.read_exact(&mut piece).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let source = error.get_ref().and_then(|it| it.downcast_ref::<Error>());
    assert!(matches!(source, Some(Error::Corrupt { .. })), "{source:?}");
    reader.seek(SeekFrom::Start(2 * PIECE as u64)).unwrap();
    assert!(read(&mut reader) == values[1][2 * PIECE..], "other pieces are readable");
    assert!(matches!(db.get("1"), Err(Error::Corrupt { .. })));
    drop((reader, db));
    disk.replace(&path, good.to_vec()).unwrap();

    let without = large().blob_value_bytes(None).blob_garbage_ratio(0.05);
    let db = options(&disk).keyspace(without).open(STORE_DIR).unwrap();
    db.remove("3").unwrap();
    db.compact().unwrap();
    for (number, value) in values.iter().enumerate().take(3).skip(1) {
        assert_eq!(read_all(&db, &number.to_string()).as_deref(), Some(&**value));
    }
    assert_eq!(blob_files(&disk, STORE_DIR), Vec::<String>::new());
}

/// A default TTL keeps values beside their keys.
#[test]
fn streamed_values_expire_by_default() {
    let disk = Arc::new(MemoryFs::new());
    let ttl = Duration::from_secs(3600);
    let keyspace = keyspace().memtable_bytes(8 << 20).default_ttl(ttl);
    let db = options(&disk).keyspace(keyspace).open(STORE_DIR).unwrap();
    let bytes = value(1, 0, 2 * PIECE);
    db.insert_reader("key", &bytes[..], bytes.len() as u64).unwrap();
    assert!(matches!(db.ttl("key").unwrap(), Some(sievedb::TimeToLive::Remaining(_))));
    db.flush().unwrap();
    assert_eq!(read_all(&db, "key"), Some(bytes));
}

/// Calls the store while its value is read.
struct Calling<'a> {
    db: &'a Db,
    left: usize,
    calls: u64,
}

impl Read for Calling<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let bytes = to.len().min(self.left);
        if bytes > 0 && self.calls < 3 {
            self.calls += 1;
            // Longer than the share of a worker.
            self.db.insert(format!("inline {}", self.calls), vec![3; 600 << 10]).unwrap();
            self.db.flush().unwrap();
            let long = 3 * PIECE as u64;
            let key = format!("nested {}", self.calls);
            self.db.insert_reader(key, io::repeat(4).take(long), long).unwrap();
        }
        to[..bytes].fill(7);
        self.left -= bytes;
        Ok(bytes)
    }
}

/// In the smallest budget, where a long value exceeds the share of a worker.
#[test]
fn a_reader_may_write_to_its_store() {
    let disk = Arc::new(MemoryFs::new());
    let options = Options::new()
        .fs(Arc::clone(&disk) as Arc<dyn Fs>)
        .memory_budget(8 << 20)
        .worker_threads(2);
    let db = options.open(STORE_DIR).unwrap();
    let bytes = 9 * PIECE;
    db.insert_reader("outer", Calling { db: &db, left: bytes, calls: 0 }, bytes as u64).unwrap();
    assert_eq!(read_all(&db, "outer"), Some(vec![7; bytes]));
    for number in 1..4 {
        assert_eq!(read_all(&db, &format!("nested {number}")), Some(vec![4; 3 * PIECE]));
        assert_eq!(db.get(format!("inline {number}")).unwrap().map(|it| it.len()), Some(600 << 10));
    }
}

/// Counts the readers that are read at the same time, and writes another stream meanwhile.
struct Counting<'a> {
    db: &'a Db,
    key: u32,
    left: usize,
    begun: bool,
    /// Now, and at most so far.
    counts: &'a (AtomicUsize, AtomicUsize),
}

impl Read for Counting<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let (now, most) = self.counts;
        if !self.begun {
            self.begun = true;
            most.fetch_max(1 + now.fetch_add(1, SeqCst), SeqCst);
            thread::sleep(Duration::from_millis(20));
            let long = 2 * PIECE as u64;
            self.db
                .insert_reader(format!("in {}", self.key), io::repeat(4).take(long), long)
                .unwrap();
        }
        if self.left == 0 {
            now.fetch_sub(1, SeqCst);
        }
        let bytes = to.len().min(self.left);
        to[..bytes].fill(7);
        self.left -= bytes;
        Ok(bytes)
    }
}

/// Further streams wait, but not one that the thread of a stream writes.
#[test]
fn streams_at_the_same_time_are_bounded() {
    const THREADS: u32 = 12;
    let disk = Arc::new(MemoryFs::new());
    let options = Options::new()
        .fs(Arc::clone(&disk) as Arc<dyn Fs>)
        .memory_budget(8 << 20)
        .worker_threads(2);
    let db = options.open(STORE_DIR).unwrap();
    let counts = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for key in 0..THREADS {
            let reader = Counting { db: &db, key, left: 3 * PIECE, begun: false, counts: &counts };
            let db = &db;
            scope.spawn(move || {
                db.insert_reader(format!("out {key}"), reader, 3 * PIECE as u64).unwrap();
            });
        }
    });
    assert_eq!(counts.1.load(SeqCst), 2, "streams at a time");
    for key in 0..THREADS {
        assert_eq!(read_all(&db, &format!("out {key}")), Some(vec![7; 3 * PIECE]));
        assert_eq!(read_all(&db, &format!("in {key}")), Some(vec![4; 2 * PIECE]));
    }
}

/// Each stream is an ingest of one entry, and its table joins others.
#[test]
fn tables_of_many_streams_are_merged() {
    const STREAMS: u32 = 300;
    let disk = Arc::new(MemoryFs::new());
    let keyspace = keyspace().base_level_bytes(128 << 20).table_bytes(64 << 20);
    let db = options(&disk).keyspace(keyspace).open(STORE_DIR).unwrap();
    let long = PIECE as u64 + 1;
    for number in 0..STREAMS {
        // Ascending, then in between.
        let key = number.wrapping_mul(if number % 2 == 0 { 1 } else { 7919 }).to_be_bytes();
        db.insert_reader(key, io::repeat(1).take(long), long).unwrap();
    }
    let tables = db.stats().keyspaces[0].tables;
    assert!(tables < 40, "{tables} tables of {STREAMS} streams");
    assert_eq!(db.iter().keys().count(), STREAMS as usize);
}

/// A bound of the depth moves no value into memory as a whole.
#[test]
fn a_bound_of_the_depth_keeps_streamed_values_in_pieces() {
    let disk = Arc::new(MemoryFs::new());
    let keyspace = keyspace().blob_value_bytes(None).blob_depth_max(1);
    let db = options(&disk).keyspace(keyspace).open(STORE_DIR).unwrap();
    for key in ["a", "c", "b", "d"] {
        db.insert_reader(key, io::repeat(1).take(9 * PIECE as u64), 9 * PIECE as u64).unwrap();
    }
    reset_largest();
    db.compact().unwrap();
    assert!(largest_bytes() < 3 * PIECE, "{} bytes at once", largest_bytes());
    assert_eq!(blob_files(&disk, STORE_DIR).len(), 4);
}
