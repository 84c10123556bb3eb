//! `sieve-cluster`: a replicated store of three nodes over HTTP on loopback, for a trial.

use std::{
    env,
    fmt::Display,
    io::{self, Write as _},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    pin::pin,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use clap::{Parser, Subcommand, ValueEnum, value_parser};
use sievedb_cluster::{
    Result,
    check::Run,
    describe,
    faults::Faults,
    identity::Removed,
    measure::{self, Writes},
    node,
    node::Settings,
    places::Places,
    processes::Processes,
    report,
    storage::Sieve,
};

/// Concurrent clients whose writes are measured.
const CLIENTS: u64 = 16;

/// Interval of polls for nodes that have ended.
const ENDS_POLL: Duration = Duration::from_millis(200);

/// A replicated store over HTTP on loopback, for a trial. It has no authentication.
#[derive(Parser)]
#[command(name = "sieve-cluster", version)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Starts the nodes of a cluster, and creates the cluster if DIR has no node
    ///
    /// Reports nodes that end. Ctrl-C stops the nodes.
    Start {
        /// Directory of the stores
        dir: PathBuf,
        /// Port of the first node; the others have the next ports
        #[arg(long, default_value_t = 7001, value_parser = value_parser!(u16).range(1..))]
        port: u16,
        /// Number of nodes
        #[arg(long, default_value_t = 3, value_parser = value_parser!(u16).range(1..))]
        nodes: u16,
    },
    /// Runs one node
    ///
    /// Exits with 3 if its cluster has removed it.
    Node(Settings),
    /// Checks linearizability while nodes are killed, paused and isolated
    ///
    /// Exits with 1 if it is violated, a node ends by itself, the cluster does not recover, or a
    /// run has too few operations.
    Check {
        /// Number of runs
        #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..))]
        runs: u64,
        /// Seconds of a run
        #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(1..))]
        seconds: u64,
        /// Seed of the first run
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Method of isolating nodes
        #[arg(long, value_enum, default_value_t = Partitions::Auto)]
        partitions: Partitions,
        /// Set in the process that is root of a network namespace
        #[arg(long, hide = true)]
        in_namespace: bool,
        #[command(flatten)]
        planted: Planted,
    },
    /// Measures writes of one and three nodes, and the recovery of a node by snapshot
    Measure {
        /// Seconds of each measurement of writes
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// MiB of the snapshot
        #[arg(long, default_value_t = 1024)]
        snapshot_mib: u64,
    },
}

/// Arguments of checks of planted bugs.
#[derive(clap::Args)]
struct Planted {
    #[arg(long, hide = true)]
    planted_bug: Option<String>,
    /// Faults to inject
    #[arg(long, value_enum)]
    faults: Option<Faults>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Partitions {
    /// Network namespaces if the system permits them, else requests
    Auto,
    /// Links of network namespaces are taken down
    Namespaces,
    /// Nodes drop requests
    Requests,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse().command).await {
        Ok(code) => code,
        Err(error) => {
            report(format_args!("sieve-cluster: {}", describe(&*error)));
            ExitCode::from(if error.is::<Removed>() { Removed::STATUS } else { 2 })
        }
    }
}

async fn run(action: Action) -> Result<ExitCode> {
    match action {
        Action::Start { dir, port, nodes } => start(dir, port, nodes).await?,
        Action::Node(settings) => node::serve::<Sieve>(settings).await?,
        Action::Check { runs, seconds, seed, partitions, in_namespace, planted } => {
            if !in_namespace && partitions != Partitions::Requests {
                let possible = namespaces();
                if possible {
                    return in_new_namespace();
                }
                if partitions == Partitions::Namespaces {
                    return Err("the system does not permit network namespaces".into());
                }
            }
            return check(runs, seconds, seed, in_namespace, planted).await;
        }
        Action::Measure { seconds, snapshot_mib } => measure(seconds, snapshot_mib).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a line on standard output, unless its reader has closed the pipe.
fn print(line: impl Display) -> io::Result<()> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

async fn start(dir: PathBuf, port: u16, nodes: u16) -> Result<()> {
    let address = |node| Some((Ipv4Addr::LOCALHOST, port.checked_add(node)?).into());
    let addresses: Option<Vec<_>> = (0..nodes).map(address).collect();
    let places = Places::Loopback(addresses.ok_or("the ports end at 65535")?);
    // Commands for another terminal contain it.
    let dir = std::path::absolute(dir)?;
    let mut cluster = Processes::new(&env::current_exe()?, &dir, places, &[]);
    let leader = cluster.start_cluster(nodes.into()).await?;
    let summary = cluster.summary(nodes.into(), leader).await?;
    // The cluster serves also without a terminal.
    let _ = print(format_args!("{summary}Ctrl-C stops these nodes"));
    let mut stopped = pin!(tokio::signal::ctrl_c());
    while cluster.running().next().is_some() {
        tokio::select! {
            stopped = &mut stopped => return Ok(stopped?),
            () = tokio::time::sleep(ENDS_POLL) => {}
        }
        for (node, end) in cluster.take_ended() {
            if cluster.is_removed(node) {
                let _ = print(format_args!("{end}; {}", cluster.removal(node)));
                continue;
            }
            let (address, dir) = (cluster.peer_address(node), cluster.dir(node));
            let restart = format!("sieve-cluster node --id {node} --listen {address} --dir");
            let dir = quoted(&dir);
            let _ = print(format_args!("{end}; to restart it:\n  {restart} {dir}"));
        }
    }
    Err("all nodes that were started here have ended".into())
}

/// Returns a path as an argument for a shell.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if path.chars().all(is_plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

/// Returns `true` if this process may create network namespaces.
fn namespaces() -> bool {
    let script = "ip link add peers type bridge && ip link delete peers && command -v nsenter";
    let tried = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "sh", "-c", script])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

/// Runs this command again, as root of a new network namespace.
fn in_new_namespace() -> Result<ExitCode> {
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net"])
        .arg(env::current_exe()?)
        .args(env::args_os().skip(1))
        .arg("--in-namespace")
        .status()?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2)))
}

async fn check(
    runs: u64,
    seconds: u64,
    seed: u64,
    namespaces: bool,
    Planted { planted_bug, faults }: Planted,
) -> Result<ExitCode> {
    let (mut done, mut operations, mut violations, mut failures, mut idle) = (0, 0, 0, 0, 0);
    for number in 0..runs {
        let (duration, seed) = (Duration::from_secs(seconds), seed.wrapping_add(number));
        let (program, planted_bug) = (env::current_exe()?, planted_bug.clone());
        let faults = faults.unwrap_or(match planted_bug.as_deref() {
            Some("stale-read") => Faults::Isolations,
            Some("lost-vote") => Faults::Votes,
            Some("unsynced-log" | "kept-leadership") => Faults::PowerCuts,
            _ => Faults::All,
        });
        let run = Run { program, duration, seed, planted_bug, namespaces, faults };
        let outcome = run.run().await?;
        print(format_args!("linearizability: run {}, seed {seed}: {outcome}", number + 1))?;
        done += 1;
        operations += outcome.operations;
        violations += outcome.violations.len();
        failures += usize::from(outcome.failure.is_some());
        if (outcome.operations as u64) < run.operations_min() {
            let least = run.operations_min();
            print(format_args!("linearizability: fewer than {least} operations"))?;
            idle += 1;
        }
        // The first run that finds a planted bug is enough.
        if run.planted_bug.is_some() && violations > 0 {
            break;
        }
    }
    let partitions = if namespaces { "network namespaces" } else { "dropped requests" };
    print(format_args!(
        "linearizability: {done} runs, {operations} operations, partitions by {partitions}, \
         {violations} violations, {failures} failures"
    ))?;
    Ok(if violations + failures + idle == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

async fn measure(seconds: u64, snapshot_mib: u64) -> Result<()> {
    let (program, duration) = (env::current_exe()?, Duration::from_secs(seconds));
    let writes = |nodes| Writes { program: &program, arguments: &[], nodes, clients: CLIENTS };
    let one = writes(1).per_second(duration).await?;
    let three = writes(3).per_second(duration).await?;
    print(format_args!("writes of one node: {one:.0}/s"))?;
    print(format_args!("writes of three nodes: {three:.0}/s"))?;
    print(format_args!("writes of three nodes over one: {:.0} %", 100.0 * three / one))?;
    let recovery = measure::recovery(&program, snapshot_mib << 20).await?;
    let (mib, seconds) = (recovery.bytes >> 20, recovery.seconds);
    Ok(print(format_args!("recovery by snapshot: {mib} MiB in {seconds:.1} s"))?)
}
