//! Snapshots that are read while others are built, and threads that do not wait for them.

#![expect(clippy::disallowed_methods, reason = "lists open files, and directories of snapshots")]

#[path = "support/node.rs"]
mod node;
mod support;

use std::{io::SeekFrom, path::Path, sync::mpsc, thread, time::Duration};

use openraft::{
    RaftSnapshotBuilder as _,
    storage::{RaftLogStorage as _, RaftStateMachine as _},
};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use node::{Node, Result, full_node, put, send, slots_in_use};

/// Time in which the steps of a test end, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the number of files below `dir` that this process has open, without that of its lock.
#[cfg(target_os = "linux")]
fn open_files(dir: &Path) -> Result<usize> {
    let targets = std::fs::read_dir("/proc/self/fd")?.filter_map(|file| {
        let target = std::fs::read_link(file.ok()?.path()).ok()?;
        (target.starts_with(dir) && target != dir.join("LOCK")).then_some(target)
    });
    Ok(targets.count())
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_stream_has_one_file_of_its_snapshot_open() -> Result<()> {
    const TABLES: u64 = 10;
    let dir = tempfile::tempdir()?;
    let snapshots = dir.path().canonicalize()?.join("snapshots");
    let mut node = Node::open(dir.path())?;
    for number in 0..TABLES {
        node.state_machine.apply([put(number, &format!("key {number}"), "value")]).await?;
        node.db.flush()?;
    }
    drop(node.state_machine.get_snapshot_builder().await.build_snapshot().await?);
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(node.state_machine.get_current_snapshot().await?.ok_or("none")?.snapshot);
    }
    assert_eq!(open_files(&snapshots)?, 0);
    let mut contents = Vec::new();
    for stream in &mut streams {
        let mut content = Vec::new();
        stream.read_to_end(&mut content).await?;
        contents.push(content);
    }
    assert_eq!(open_files(&snapshots)?, streams.len());
    // In any order, as after a part that was lost.
    for stream in &mut streams {
        for offset in [contents[0].len() as u64 / 2, 0] {
            stream.seek(SeekFrom::Start(offset)).await?;
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await?;
            assert!(rest == contents[0][offset as usize..]);
        }
    }
    drop(streams);
    assert_eq!(open_files(&snapshots)?, 0);
    Ok(())
}

#[tokio::test]
async fn a_stream_reads_its_snapshot_after_others_were_built() -> Result<()> {
    const SNAPSHOTS: u64 = 6;
    let (first, second) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let snapshots = first.path().join("snapshots");
    let mut node = full_node(first.path()).await?;
    let mut streams = Vec::new();
    for number in 0..SNAPSHOTS {
        node.state_machine.apply([put(2001 + number, "last", &number.to_string())]).await?;
        drop(node.state_machine.get_snapshot_builder().await.build_snapshot().await?);
        let mut current = node.state_machine.get_current_snapshot().await?.ok_or("none")?;
        // As a transfer that has begun.
        current.snapshot.read_exact(&mut [0; 10]).await?;
        streams.push(current);
    }
    assert_eq!(slots_in_use(&snapshots)?, SNAPSHOTS as usize);
    let mut to = Node::open(second.path())?;
    for (number, mut sent) in streams.into_iter().enumerate() {
        let mut received = to.state_machine.begin_receiving_snapshot().await?;
        sent.snapshot.seek(SeekFrom::Start(0)).await?;
        tokio::io::copy(&mut sent.snapshot, &mut received).await?;
        to.state_machine.install_snapshot(&sent.meta, received).await?;
        assert_eq!(to.get("last")?, Some(number.to_string()));
        assert_eq!(to.log.get_log_state().await?.last_purged_log_id, sent.meta.last_log_id);
        drop(sent);
        // The current one stays.
        let left = (SNAPSHOTS as usize - number - 1).max(1);
        assert_eq!(slots_in_use(&snapshots)?, left);
    }
    // An open removes what a crash has left, also beyond the first slots.
    drop(node);
    std::fs::write(snapshots.join("4/left"), "left")?;
    Node::open(first.path())?;
    assert_eq!(slots_in_use(&snapshots)?, 1);
    Ok(())
}

/// One thread runs all tasks: it must not wait for a lock that another task releases.
#[test]
fn snapshots_and_reads_do_not_block_a_thread_of_the_runtime() {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let ended = runtime.expect("a runtime").block_on(install_beside_a_read());
        sender.send(ended.map_err(|error| error.to_string())).expect("the test waits");
    });
    receiver.recv_timeout(PATIENCE).expect("no thread waits for itself").expect("no step fails");
}

async fn install_beside_a_read() -> Result<()> {
    let (first, second) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut from = full_node(first.path()).await?;
    let mut to = Node::open(second.path())?;
    to.state_machine.apply([put(0, "other", "1")]).await?;
    let (meta, received) = send(&mut from, &mut to, 1 << 20).await?;
    let (reads, map) = (to.state_machine.reads(), to.db.keyspace("map")?);
    let mut builder = to.state_machine.get_snapshot_builder().await;

    // A read of another thread that ends on a signal.
    let (begun, has_begun) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let read = reads.clone();
    let reader = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(read.read(|| {
            begun.send(()).expect("the test waits");
            released.recv().expect("the test lives");
        }))
    });
    has_begun.recv()?;
    let beside = async {
        // Until the installation waits for that read, and keeps others out.
        let short = Duration::from_millis(20);
        while tokio::time::timeout(short, reads.read(|| ())).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let releases = async {
            tokio::time::sleep(short).await;
            release.send(())
        };
        tokio::join!(builder.build_snapshot(), reads.read(|| map.len()), releases)
    };
    let (installed, (built, length, released)) =
        tokio::join!(to.state_machine.install_snapshot(&meta, received), beside);
    installed?;
    released?;
    // Both waited for the installation.
    assert_eq!(built?.meta.last_log_id, meta.last_log_id);
    assert_eq!(length??, 2001);
    reader.join().map_err(|_| "the reader panicked")??;
    Ok(())
}
