//! Writes of a cluster on SieveDB beside those of the same cluster on openraft's RocksDB example.
//!
//! Both have the same nodes, network, clients and options of openraft; only log and state machine
//! differ. Each write is on the disks of a majority before it is acknowledged. No snapshot is
//! built: those of the example grow with the state.

#![expect(clippy::print_stdout, reason = "a command line")]

mod rocks;

use std::{env, process::ExitCode, time::Duration};

use clap::{Parser, Subcommand};
use sievedb_cluster::{
    Result, describe,
    measure::Writes,
    node::{self, Settings},
    storage::Sieve,
};

/// Nodes of the clusters.
const NODES: u64 = 3;

/// Arguments of all nodes: no snapshots, and no elections because of other work of the machine.
const ARGUMENTS: [&str; 4] = ["--snapshot-entries", "1000000000", "--election-timeout", "5000"];

/// Measures writes of a cluster on SieveDB and on openraft's RocksDB example.
#[derive(Parser)]
#[command(name = "sieve-raft-compare", version)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Runs one node
    Node {
        /// Store log and state machine as openraft's RocksDB example does
        #[arg(long)]
        rocksdb: bool,
        #[command(flatten)]
        settings: Settings,
    },
    /// Measures both in turns. The order changes with each round
    Measure {
        /// Numbers of concurrent clients
        #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
        clients: Vec<u64>,
        /// Seconds of each measurement
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// Measurements of each store, of which the median counts
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Action::Node { rocksdb: true, settings } => node::serve::<rocks::Rocks>(settings).await,
        Action::Node { rocksdb: false, settings } => node::serve::<Sieve>(settings).await,
        Action::Measure { clients, seconds, rounds } => {
            measure(&clients, Duration::from_secs(seconds), rounds).await
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sieve-raft-compare: {}", describe(&*error));
            ExitCode::from(2)
        }
    }
}

async fn measure(clients: &[u64], duration: Duration, rounds: usize) -> Result<()> {
    let program = env::current_exe()?;
    let with_rocksdb = [&ARGUMENTS[..], &["--rocksdb"]].concat();
    for &clients in clients {
        let stores: [&[&str]; 2] = [&ARGUMENTS, &with_rocksdb];
        let mut rates = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            for turn in 0..stores.len() {
                let store = (round + turn) % stores.len();
                let arguments = stores[store];
                let writes = Writes { program: &program, arguments, nodes: NODES, clients };
                rates[store].push(writes.per_second(duration).await?);
            }
        }
        let [sieve, rocks] = rates.map(median);
        println!("writes of {clients} clients to SieveDB: {sieve:.0}/s");
        println!("writes of {clients} clients to openraft's RocksDB example: {rocks:.0}/s");
        println!("writes of {clients} clients over those of the example: {:.2}", sieve / rocks);
    }
    Ok(())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    let middle = rates.len() / 2;
    match rates.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => rates[middle],
        _ => rates[middle - 1].midpoint(rates[middle]),
    }
}
