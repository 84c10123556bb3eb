//! Histories with faults, and the planted bugs that they find.
//!
//! `SIEVE_SEED` chooses other histories. The program's command `check` runs more of them.

use std::{env, path::Path, time::Duration};

use sievedb_cluster::{Result, check::Run, faults::Faults};

fn run(planted_bug: Option<&str>, faults: Faults, seed: u64) -> Run {
    Run {
        program: Path::new(env!("CARGO_BIN_EXE_sieve-cluster")).to_owned(),
        duration: Duration::from_secs(4),
        seed,
        planted_bug: planted_bug.map(str::to_owned),
        namespaces: false,
        faults,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_with_faults_is_linearizable_and_stale_reads_are_found() -> Result<()> {
    let seed = env::var("SIEVE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let outcome = run(None, Faults::All, seed).run().await?;
    eprintln!("linearizability: SIEVE_SEED={seed}: {outcome}");
    assert!(outcome.violations.is_empty() && outcome.failure.is_none(), "{outcome}");
    assert!(outcome.operations as u64 >= run(None, Faults::All, seed).operations_min());
    for seed in 1..20 {
        if !run(Some("stale-read"), Faults::Isolations, seed).run().await?.violations.is_empty() {
            eprintln!("planted bug, stale read: found in run {seed}");
            return Ok(());
        }
    }
    Err("no run has found the stale read".into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_only_a_follower_has_lost_is_found() -> Result<()> {
    for seed in 1..20 {
        let outcome = run(Some("lost-entry"), Faults::All, seed).run().await?;
        if outcome.violations.iter().any(|violation| violation.contains("the nodes have")) {
            eprintln!("planted bug, lost entry: found in run {seed}");
            return Ok(());
        }
    }
    Err("no run has found the lost entry".into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_with_faults_shows_a_lost_vote() -> Result<()> {
    let outcome = run(None, Faults::Votes, 1).run().await?;
    assert!(outcome.violations.is_empty() && outcome.failure.is_none(), "{outcome}");
    assert!(outcome.operations >= 3, "{outcome}");
    let outcome = run(Some("lost-vote"), Faults::Votes, 1).run().await?;
    assert_eq!(outcome.violations.len(), 1, "{outcome}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_with_faults_of_power_shows_unsynced_state() -> Result<()> {
    let outcome = run(None, Faults::PowerCuts, 1).run().await?;
    assert!(outcome.violations.is_empty() && outcome.failure.is_none(), "{outcome}");
    assert!(outcome.operations as u64 >= run(None, Faults::PowerCuts, 1).operations_min());
    // A kill loses nothing that the process has written.
    let outcome = run(Some("unsynced-log"), Faults::All, 1).run().await?;
    assert!(outcome.violations.is_empty() && outcome.failure.is_none(), "{outcome}");
    for bug in ["unsynced-log", "kept-leadership"] {
        let mut seeds = 1..20;
        while run(Some(bug), Faults::PowerCuts, seeds.start).run().await?.violations.is_empty() {
            assert!(seeds.next().is_some(), "no run has found the bug {bug}");
        }
        eprintln!("planted bug, {bug}: found in run {}", seeds.start);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_ends_by_itself_is_reported() -> Result<()> {
    for seed in 1..=3 {
        let outcome = run(Some("stopped-node"), Faults::All, seed).run().await?;
        let failure = outcome.failure.as_deref().unwrap_or("none");
        assert!(failure.contains("node 1 has ended"), "seed {seed}: {outcome}");
    }
    Ok(())
}
