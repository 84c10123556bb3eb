//! The output of `start`.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::TcpListener,
    path::Path,
    process::{self, Child, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering::Relaxed},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use sievedb_cluster::{Result, client::Client};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sieve-cluster");
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a free port. It is below those that the system gives to connections, which might take it
/// before a node listens.
fn free_port() -> u16 {
    static TAKEN: AtomicU16 = AtomicU16::new(0);

    let first = u16::try_from(process::id() % 20_000).unwrap_or_default();
    let next = || 10_000 + (first + TAKEN.fetch_add(1, Relaxed)) % 20_000;
    std::iter::repeat_with(next)
        .find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        .unwrap_or_default()
}

/// Starts a cluster of one node. Returns its URL, and its output after the summary.
fn start(dir: &Path) -> Result<(Child, String, BufReader<ChildStdout>)> {
    let port = free_port();
    let mut start = Command::new(PROGRAM);
    start.arg("start").arg(dir).args(["--nodes", "1", "--port", &port.to_string()]);
    let mut start = start.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut lines = BufReader::new(start.stdout.take().ok_or("no output")?);
    let mut output = String::new();
    while !output.contains("Ctrl-C") {
        assert!(lines.read_line(&mut output)? > 0, "{output}");
    }
    Ok((start, format!("http://127.0.0.1:{port}"), lines))
}

/// Kills the node at `url`.
async fn kill(url: &str) -> Result<()> {
    let status = Client::new(url, PATIENCE)?.call("GET", "/status", "").await?;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    let pid = status["process_id"].as_i64().ok_or("no process id")?;
    let pid = Pid::from_raw(i32::try_from(pid)?).ok_or("no process id")?;
    Ok(kill_process(pid, Signal::KILL)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_serves_after_its_output_is_closed() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (mut start, url, lines) = start(dir.path())?;
    drop(lines);
    Client::new(&url, PATIENCE)?.put("name", "anna").await?;
    // It prints that the node has ended, and ends because no node runs.
    kill(&url).await?;
    assert_eq!(start.wait()?.code(), Some(2));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_of_a_restart_is_quoted_for_a_shell() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (mut start, url, mut lines) = start(&dir.path().join("Anna's cluster"))?;
    kill(&url).await?;
    let mut output = String::new();
    lines.read_to_string(&mut output)?;
    let expected = format!("--dir '{}/Anna'\\''s cluster/node1'\n", dir.path().display());
    assert!(output.contains(&expected), "{output}");
    start.wait()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_at_other_ports_names_the_port() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (mut first, url, _lines) = start(dir.path())?;
    kill(&url).await?;
    first.wait()?;
    let other = free_port().to_string();
    let mut second = Command::new(PROGRAM);
    let output = second.arg("start").arg(dir.path()).args(["--port", &other]).output()?;
    let message = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2), "{message}");
    let port = url.rsplit(':').next().unwrap_or_default();
    let expected = format!("node 1 is a member at 127.0.0.1:{port}; pass --port {port}, or");
    assert!(message.contains(&expected), "{message}");
    Ok(())
}

#[test]
fn a_file_is_no_directory_of_a_cluster() -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    for arguments in [&["start"][..], &["node", "--new", "--id", "1", "--dir"]] {
        let output = Command::new(PROGRAM).args(arguments).arg(file.path()).output()?;
        let message = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(2), "{message}");
        let named = message.contains(&file.path().display().to_string());
        assert!(named && message.contains("; pass a directory that this user may"), "{message}");
    }
    Ok(())
}

#[test]
fn arguments_out_of_range_are_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let node = dir.path().join("node1");
    for arguments in [
        &["node", "--new", "--id", "1", "--election-timeout", "50", "--dir"][..],
        &["node", "--new", "--id", "1", "--election-timeout", "18446744073709551615", "--dir"],
        &["node", "--new", "--id", "1", "--listen", "127.0.0.1:0", "--dir"],
        &["check", "--runs", "0"],
        &["check", "--seconds", "0"],
    ] {
        let mut command = Command::new(PROGRAM);
        command.args(arguments);
        if arguments[0] == "node" {
            command.arg(&node);
        }
        let output = command.output()?;
        let message = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("invalid value"), "{message}");
        assert!(!node.exists(), "a store is left behind");
    }
    Ok(())
}
