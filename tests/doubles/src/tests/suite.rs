//! Requirements of the fs traits, tested on every implementation.

use std::{
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use sievedb::fs::{AppendFile, Fs, ReadFile, RealFs};

use crate::{FaultFs, MemoryFs};

/// Runs `test` with each implementation, in an empty directory.
fn each_fs(test: impl Fn(&str, &Arc<dyn Fs>, PathBuf)) {
    let dir = tempfile::tempdir().unwrap();
    let real: Arc<dyn Fs> = Arc::new(RealFs);
    let memory: Arc<dyn Fs> = Arc::new(MemoryFs::new());
    let kept: Arc<dyn Fs> = Arc::new(MemoryFs::kept_in(&dir.path().join("disk")).unwrap());
    let fault: Arc<dyn Fs> = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
    let cases = [
        ("real", real, dir.path().join("db")),
        ("memory", memory, PathBuf::from("db")),
        ("kept", kept, PathBuf::from("db")),
        ("fault", fault, PathBuf::from("db")),
    ];
    for (name, fs, dir) in cases {
        fs.create_dir(&dir).unwrap();
        test(name, &fs, dir);
    }
}

fn write(fs: &dyn Fs, path: &Path, bytes: &[u8]) -> Arc<dyn AppendFile> {
    let file = fs.create(path).unwrap();
    file.append(bytes).unwrap();
    file
}

fn read(fs: &dyn Fs, path: &Path) -> Vec<u8> {
    read_all(&*fs.open(path).unwrap())
}

fn read_all(file: &dyn ReadFile) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn kind<T>(result: io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn reopened_file_appends_at_its_end() {
    each_fs(|name, fs, dir| {
        let path = dir.join("a");
        assert_eq!(kind(fs.open_append(&path)), Some(ErrorKind::NotFound), "{name}");
        drop(write(&**fs, &path, b"one"));
        let file = fs.open_append(&path).unwrap();
        assert_eq!(read(&**fs, &path), b"one", "{name}");
        file.append(b"two").unwrap();
        file.sync_data().unwrap();
        assert_eq!(read(&**fs, &path), b"onetwo", "{name}");
    });
}

#[test]
fn appended_bytes_are_read_back() {
    each_fs(|name, fs, dir| {
        let path = dir.join("a");
        let file = write(&**fs, &path, b"one");
        let reader = fs.open(&path).unwrap();
        reader.reads_are_scattered();
        reader.advise_read(1..1 << 40);
        assert_eq!(reader.map().unwrap(), "one", "{name}");
        file.append(b"").unwrap();
        file.append(b"two").unwrap();
        file.sync_data().unwrap();
        fs.sync_dir(&dir).unwrap();
        file.append(b"three").unwrap();
        assert_eq!(reader.len().unwrap(), 11, "{name}: an open reader sees the file grow");
        assert_eq!(read(&**fs, &path), b"onetwothree", "{name}");

        let cases: [(u64, &[u8]); 7] = [
            (0, b"one"),
            (1, b"netwo"),
            (3, b"two"),
            (7, b"hree"),
            (10, b"e"),
            (11, b""),
            (12, b""),
        ];
        for (offset, want) in cases {
            let mut buf = vec![0; want.len()];
            reader.read_at(&mut buf, offset).unwrap();
            assert_eq!(buf, want, "{name} at {offset}");
        }
        for (offset, bytes) in [(0, 12), (10, 2), (11, 1), (12, 1), (i64::MAX as u64, 1)] {
            let found = kind(reader.read_at(&mut vec![0; bytes], offset));
            let want = [ErrorKind::UnexpectedEof, ErrorKind::InvalidInput];
            assert!(
                found.is_some_and(|kind| want.contains(&kind)),
                "{name} at {offset}: {found:?}"
            );
        }
        assert_eq!(reader.map().unwrap(), "onetwothree", "{name}");
    });
}

#[test]
fn direct_reads_equal_buffered_reads_or_are_refused() {
    each_fs(|name, fs, dir| {
        let path = dir.join("a");
        write(&**fs, &path, b"onetwothree");
        match fs.open_direct(&path) {
            Ok(reader) => {
                assert_eq!(read_all(&*reader), b"onetwothree", "{name}");
                assert_eq!(kind(reader.read_at(&mut [0; 2], 10)), Some(ErrorKind::UnexpectedEof));
                assert_eq!(reader.map().unwrap(), "onetwothree", "{name}");
            }
            // The temporary directory may be on tmpfs.
            Err(error) => assert_eq!((name, error.kind()), ("real", ErrorKind::Unsupported)),
        }
        assert_eq!(kind(fs.open_direct(&dir.join("b"))), Some(ErrorKind::NotFound), "{name}");
    });
}

#[test]
fn reserved_bytes_are_zero_until_appended() {
    each_fs(|name, fs, dir| {
        let path = dir.join("a");
        let file = write(&**fs, &path, b"one");
        let reader = fs.open(&path).unwrap();
        file.reserve(2).unwrap();
        assert_eq!(read(&**fs, &path), b"one", "{name}: never shorter");
        file.reserve(8).unwrap();
        assert_eq!(read_all(&*reader), b"one\0\0\0\0\0", "{name}");
        file.append(b"two").unwrap();
        assert_eq!(read(&**fs, &path), b"onetwo\0\0", "{name}: in their place");
        file.sync_data().unwrap();
        file.append(b"three").unwrap();
        assert_eq!(read(&**fs, &path), b"onetwothree", "{name}: beyond them");
        let mut part = [9; 7];
        file.reserve(16).unwrap();
        reader.read_at(&mut part, 8).unwrap();
        assert_eq!(&part, b"ree\0\0\0\0", "{name}");
        assert_eq!(kind(reader.read_at(&mut part, 10)), Some(ErrorKind::UnexpectedEof), "{name}");
    });
}

#[test]
fn empty_file_reads_as_empty() {
    each_fs(|name, fs, dir| {
        let path = dir.join("a");
        fs.create(&path).unwrap();
        let reader = fs.open(&path).unwrap();
        assert!(reader.is_empty().unwrap(), "{name}");
        assert_eq!(reader.map().unwrap(), "", "{name}");
    });
}

#[test]
fn renames_and_removals_follow_posix() {
    each_fs(|name, fs, dir| {
        let [a, b, c] = ["a", "b", "c"].map(|name| dir.join(name));
        write(&**fs, &b, b"old");
        write(&**fs, &a, b"new");
        let old = fs.open(&b).unwrap();
        fs.rename(&a, &b).unwrap();
        assert_eq!(read(&**fs, &b), b"new", "{name}: rename replaces");
        assert!(!fs.exists(&a).unwrap(), "{name}");
        assert_eq!(read_all(&*old), b"old", "{name}: the replaced file stays readable");

        fs.link(&b, &c).unwrap();
        fs.rename(&b, &c).unwrap();
        assert_eq!(fs.list(&dir).unwrap(), ["b", "c"], "{name}: two names of one file stay");
        let open = fs.open(&b).unwrap();
        fs.unlink(&b).unwrap();
        assert_eq!(read(&**fs, &c), b"new", "{name}: the other name stays");
        fs.unlink(&c).unwrap();
        assert_eq!(read_all(&*open), b"new", "{name}: an unlinked file stays readable");
        assert!(fs.list(&dir).unwrap().is_empty(), "{name}");
    });
}

#[test]
fn list_names_files_in_order() {
    each_fs(|name, fs, dir| {
        for file in ["b", "a.log", "B"] {
            fs.create(&dir.join(file)).unwrap();
        }
        fs.create_dir(&dir.join("x/y")).unwrap();
        fs.create_dir(&dir.join("x")).unwrap();
        fs.create(&dir.join("x/inner")).unwrap();
        assert_eq!(fs.list(&dir).unwrap(), ["B", "a.log", "b"], "{name}");
        assert_eq!(fs.list(&dir.join("x")).unwrap(), ["inner"], "{name}");
        for (path, want) in [("b", true), ("x", true), ("x/y", true), ("y", false)] {
            assert_eq!(fs.exists(&dir.join(path)).unwrap(), want, "{name} {path}");
        }
    });
}

#[test]
fn refused_calls_report_the_reason() {
    each_fs(|name, fs, dir| {
        let at = |path: &str| dir.join(path);
        fs.create_dir(&at("x")).unwrap();
        fs.create(&at("a")).unwrap();
        fs.create(&at("b")).unwrap();
        let cases = [
            ("create taken", kind(fs.create(&at("a"))), ErrorKind::AlreadyExists),
            ("create over a directory", kind(fs.create(&at("x"))), ErrorKind::AlreadyExists),
            ("create nowhere", kind(fs.create(&at("y/a"))), ErrorKind::NotFound),
            ("create in a file", kind(fs.create(&at("a/b"))), ErrorKind::NotADirectory),
            ("open missing", kind(fs.open(&at("c"))), ErrorKind::NotFound),
            ("open a directory", kind(fs.open(&at("x"))), ErrorKind::IsADirectory),
            ("list missing", kind(fs.list(&at("y"))), ErrorKind::NotFound),
            ("list a file", kind(fs.list(&at("a"))), ErrorKind::NotADirectory),
            ("rename missing", kind(fs.rename(&at("c"), &at("a"))), ErrorKind::NotFound),
            ("rename to a directory", kind(fs.rename(&at("a"), &at("x"))), ErrorKind::IsADirectory),
            ("rename across", kind(fs.rename(&at("a"), &at("x/a"))), ErrorKind::InvalidInput),
            ("unlink missing", kind(fs.unlink(&at("c"))), ErrorKind::NotFound),
            ("unlink a directory", kind(fs.unlink(&at("x"))), ErrorKind::IsADirectory),
            ("link to taken", kind(fs.link(&at("a"), &at("b"))), ErrorKind::AlreadyExists),
            ("link from missing", kind(fs.link(&at("c"), &at("d"))), ErrorKind::NotFound),
            ("sync missing", kind(fs.sync_dir(&at("y"))), ErrorKind::NotFound),
            ("directory over a file", kind(fs.create_dir(&at("a"))), ErrorKind::AlreadyExists),
            ("lock nowhere", kind(fs.lock(&at("y/l"))), ErrorKind::NotFound),
        ];
        for (case, found, want) in cases {
            assert_eq!(found, Some(want), "{name}: {case}");
        }
        assert_eq!(fs.list(&dir).unwrap(), ["a", "b"], "{name}: nothing changed");
    });
}

#[test]
fn exclusive_lock_excludes_until_dropped() {
    each_fs(|name, fs, dir| {
        let path = dir.join("LOCK");
        let held = fs.lock(&path).unwrap();
        for attempt in ["first", "second"] {
            // A refused lock must not release the holder's.
            let refused = Some(ErrorKind::WouldBlock);
            assert_eq!(kind(fs.lock(&path)), refused, "{name}: {attempt}");
        }
        assert_eq!(kind(fs.lock_shared(&path)), Some(ErrorKind::WouldBlock), "{name}");
        drop(held);
        fs.lock(&path).unwrap();
        // The file has the id of the last process, on systems with processes.
        let process = read(&**fs, &path);
        let own = format!("{}\n", std::process::id());
        assert!(process.is_empty() || process == own.as_bytes(), "{name}: {process:?}");
        assert_eq!(process.is_empty(), name != "real", "{name}");
    });
}

#[test]
fn shared_lock_excludes_exclusive_locks_only() {
    each_fs(|name, fs, dir| {
        let path = dir.join("LOCK");
        assert_eq!(kind(fs.lock_shared(&path)), Some(ErrorKind::NotFound), "{name}: none is made");
        drop(fs.lock(&path).unwrap());
        let mut held = vec![fs.lock_shared(&path).unwrap(), fs.lock_shared(&path).unwrap()];
        while let Some(last) = held.pop() {
            assert_eq!(kind(fs.lock(&path)), Some(ErrorKind::WouldBlock), "{name}");
            // A refused lock must not release any holder's.
            assert_eq!(kind(fs.lock(&path)), Some(ErrorKind::WouldBlock), "{name}: again");
            drop(last);
        }
        drop(fs.lock(&path).unwrap());
        drop(fs.lock_shared(&path).unwrap());
    });
}

#[test]
fn calls_are_thread_safe() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 25;
    each_fs(|name, fs, dir| {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let dir = &dir;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let path = dir.join(format!("{thread}-{round}"));
                        let file = write(&**fs, &path, &[1; 100]);
                        file.sync_data().unwrap();
                        fs.sync_dir(dir).unwrap();
                        assert_eq!(read(&**fs, &path), [1; 100]);
                    }
                });
            }
        });
        assert_eq!(fs.list(&dir).unwrap().len(), THREADS * ROUNDS, "{name}");
    });
}

#[test]
fn empty_path_is_the_current_directory() {
    for fs in [&RealFs as &dyn Fs, &MemoryFs::new()] {
        for path in ["", "."] {
            fs.sync_dir(Path::new(path)).unwrap();
            fs.list(Path::new(path)).unwrap();
            assert!(fs.exists(Path::new(path)).unwrap(), "{fs:?}");
        }
    }
}
