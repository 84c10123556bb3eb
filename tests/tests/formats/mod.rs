//! Stores of each released format, as files in `testdata/formats`: this release opens them, reads
//! what was written, and writes to them.
//!
//! `REWRITE=1` writes the files of the present release again, until it is tagged. From then on the
//! directory of a release never changes, and the next release adds its own.

#![expect(clippy::disallowed_methods, reason = "the fixtures are files of the repository")]
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod script;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use sievedb::{Db, FORMAT_VERSION, Options, ReadMode};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::STORE_DIR;

use self::script::{Contents, contents, options, write};

/// The releases whose files are kept, the newest last. None is tagged yet.
const RELEASES: [&str; 1] = ["0.1.0"];

fn directory(release: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "testdata", "formats", release].iter().collect()
}

/// Returns a disk with the files of the release.
fn disk(release: &str) -> Arc<MemoryFs> {
    let disk = MemoryFs::new();
    sievedb::fs::Fs::create_dir(&disk, Path::new(STORE_DIR)).unwrap();
    for entry in fs::read_dir(directory(release)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        disk.replace(Path::new(STORE_DIR).join(name), fs::read(&path).unwrap()).unwrap();
    }
    Arc::new(disk)
}

/// Writes the files of this release, without the lock and without reserved bytes.
fn rewrite(release: &str) -> Contents {
    let disk = Arc::new(MemoryFs::with_seed(1));
    let expected = write(&disk);
    let directory = directory(release);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    for (path, bytes) in disk.contents() {
        let name = path.rsplit('/').next().unwrap();
        let end = match name.ends_with(".log") {
            true => bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1),
            false => bytes.len(),
        };
        if name != "LOCK" {
            fs::write(directory.join(name), &bytes[..end.next_multiple_of(8).min(bytes.len())])
                .unwrap();
        }
    }
    expected
}

/// Checks all that can be read, and that writes work.
fn check(db: &Db, expected: &Contents) {
    assert!(contents(db) == *expected, "the contents differ");
    let report = db.verify().unwrap();
    assert!(report.is_good(), "{report}");
}

#[test]
fn stores_of_every_release_are_read_and_written() {
    let newest = RELEASES[RELEASES.len() - 1];
    assert_eq!(newest, env!("CARGO_PKG_VERSION"), "a release needs files of its own");
    let expected = write(&Arc::new(MemoryFs::with_seed(1)));
    if std::env::var_os("REWRITE").is_some() {
        assert!(rewrite(newest) == expected, "the script is deterministic");
    }
    for release in RELEASES {
        let disk = disk(release);
        let report = Options::new().fs(disk.clone()).formats(STORE_DIR).unwrap();
        assert!(report.unreadable.is_empty(), "{release}: {report:?}");
        let files = report.readable.iter().map(|(writer, files)| (writer.to_string(), *files));
        let [(writer, files)] = &files.collect::<Vec<_>>()[..] else { panic!("{report:?}") };
        assert_eq!(writer, release);
        assert!(*files >= 8, "tables, filters, logs, manifest, CURRENT, CLOSED: {files}");

        for mode in [ReadMode::Pread, ReadMode::Map] {
            let reader = options(&disk).read_mode(mode).read_only(true).open(STORE_DIR).unwrap();
            check(&reader, &expected);
        }
        let db = options(&disk).open(STORE_DIR).unwrap();
        check(&db, &expected);
        let changes = db.changes(0).unwrap().map(|batch| batch.unwrap().changes().len());
        assert!(changes.sum::<usize>() > 50, "the changes are kept");
        db.insert("later", "1").unwrap();
        for name in db.keyspaces().unwrap() {
            db.keyspace(&name).unwrap().compact().unwrap();
        }
        db.remove("later").unwrap();
        check(&db, &expected);
        db.close().unwrap();
        check(&options(&disk).open(STORE_DIR).unwrap(), &expected);
    }
    assert_eq!(FORMAT_VERSION, 1, "keep the files of the version before, and extend the policy");
}

#[test]
fn formats_name_files_that_cannot_be_read() {
    let release = RELEASES[0];
    let good = disk(release);
    let names: Vec<_> = sievedb::fs::Fs::list(&*good, STORE_DIR.as_ref()).unwrap();
    for name in &names {
        let path = Path::new(STORE_DIR).join(name);
        for (at, want) in [(8, "newer release"), (20, "corrupt")] {
            let disk = disk(release);
            let mut bytes = disk.read(&path).unwrap().to_vec();
            bytes[at] += 1;
            if at == 8 {
                let checksum = sievedb_format::checksum::crc32(&[&bytes[..60]]);
                bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
            }
            disk.replace(&path, bytes).unwrap();
            let report = Options::new().fs(disk).formats(STORE_DIR).unwrap();
            let errors: Vec<_> = report.unreadable.iter().map(ToString::to_string).collect();
            let named = |error: &String| error.contains(want) && error.contains(name.as_str());
            assert!(errors.iter().any(named), "{name}, byte {at}: {errors:?}");
        }
        let disk = disk(release);
        disk.replace(&path, vec![0; 10]).unwrap();
        let report = Options::new().fs(disk).formats(STORE_DIR).unwrap();
        assert_eq!(report.unreadable.len(), 1, "{name} is short: {:?}", report.unreadable);
    }
}
