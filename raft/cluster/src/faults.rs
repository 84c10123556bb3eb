//! Faults of random histories.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use clap::ValueEnum;
use fastrand::Rng;

use crate::{
    Result,
    check::{NODES, Outcome, Shared, pause},
    processes::Processes,
};

/// Timeout of a client right after a restart of all nodes.
const READ_TIMEOUT: Duration = Duration::from_millis(100);

/// Reads right after a restart of all nodes, until one returns.
const READS_MAX: usize = 300;

/// Faults of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Faults {
    /// Kills, pauses and isolations
    All,
    /// Kills that lose what is not synced, also of all nodes at once, pauses and isolations
    PowerCuts,
    /// Isolated leaders, which show stale reads
    Isolations,
    /// Elections that only durable votes decide, which show lost votes. Ignores `--seconds`
    Votes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A node is killed.
    Kill,
    /// All nodes are killed at once.
    KillAll,
    Pause,
    Isolation,
    /// The other nodes elect a leader while the old one is paused.
    Election,
}

impl Faults {
    fn choose(self, rng: &mut Rng) -> Fault {
        use Fault::{Election, Isolation, Kill, KillAll, Pause};
        match (self, rng.u8(0..10)) {
            (Self::PowerCuts, 0..6) => KillAll,
            (Self::PowerCuts, 6) | (Self::All, 0..2) => Kill,
            (Self::PowerCuts, 7) | (Self::All, 2..4) => Pause,
            (Self::PowerCuts, 8) | (Self::All, 4..7) => Isolation,
            (Self::Isolations | Self::Votes, _) => Isolation,
            (Self::PowerCuts | Self::All, _) => Election,
        }
    }
}

/// Injects faults into the cluster of a run.
pub(crate) struct Injector<'a> {
    pub(crate) faults: Faults,
    pub(crate) nodes: &'a mut Processes,
    pub(crate) shared: &'a Shared,
    pub(crate) rng: &'a mut Rng,
    pub(crate) outcome: &'a mut Outcome,
}

impl Injector<'_> {
    /// Injects a random fault and ends it.
    pub(crate) async fn inject(&mut self) -> Result<()> {
        let fault = self.faults.choose(self.rng);
        let mut node = self.rng.u64(1..=NODES);
        // Faults of the leader show more.
        let is_of_leader = matches!(fault, Fault::KillAll | Fault::Election)
            || self.faults == Faults::Isolations
            || self.rng.bool();
        if is_of_leader
            && let Some(leader) =
                self.nodes.status(node).await.unwrap_or_default()["current_leader"].as_u64()
        {
            node = leader;
        }
        match fault {
            Fault::Kill => {
                self.kill(node);
                pause(self.rng, 50, 1200).await;
                self.nodes.start(node)
            }
            Fault::KillAll => self.kill_all(node).await,
            Fault::Pause => {
                self.outcome.pauses += 1;
                self.nodes.pause(node, true)?;
                pause(self.rng, 200, 1800).await;
                self.nodes.pause(node, false)
            }
            Fault::Isolation => {
                self.outcome.partitions += 1;
                self.nodes.isolate(node, true).await?;
                pause(self.rng, 300, 2500).await;
                self.nodes.isolate(node, false).await
            }
            Fault::Election => self.elect_others(node).await,
        }
    }

    fn kill(&mut self, node: u64) {
        self.nodes.kill(node);
        match self.faults {
            Faults::PowerCuts => self.outcome.power_cuts += 1,
            _ => self.outcome.kills += 1,
        }
    }

    /// Kills all nodes right after a write, and reads its key as soon as a node answers.
    ///
    /// Clients may wait meanwhile. Then no sync follows the write, and what it has left unsynced is
    /// lost by a power cut.
    async fn kill_all(&mut self, leader: u64) -> Result<()> {
        let key = format!("cut-{}", self.outcome.power_cuts);
        self.shared.hold.store(self.rng.bool(), Relaxed);
        pause(self.rng, 10, 50).await;
        // Without a leader there is no last write.
        let client = self.nodes.client(leader, READ_TIMEOUT)?;
        let _ = self.shared.write(&client, &key, "last").await;
        for node in 1..=NODES {
            self.kill(node);
        }
        // The former leader often answers before the others have elected another one.
        self.nodes.start(leader)?;
        pause(self.rng, 1, 200).await;
        for node in (1..=NODES).filter(|&node| node != leader) {
            self.nodes.start(node)?;
        }
        for read in 0..READS_MAX {
            let client = self.nodes.client(1 + read as u64 % NODES, READ_TIMEOUT)?;
            if self.shared.read(&client, &key).await.is_ok() {
                break;
            }
            pause(self.rng, 1, 8).await;
        }
        self.shared.hold.store(false, Relaxed);
        Ok(())
    }

    /// Pauses the leader while the others elect another one, and restarts one of them when the
    /// leader continues. Only the vote of that node separates the two leaders.
    async fn elect_others(&mut self, leader: u64) -> Result<()> {
        self.outcome.pauses += 1;
        self.nodes.pause(leader, true)?;
        pause(self.rng, 1200, 2000).await;
        let others: Vec<_> = (1..=NODES).filter(|&other| other != leader).collect();
        for &other in &others {
            self.kill(other);
        }
        let first = self.rng.usize(..others.len());
        self.nodes.start(others[first])?;
        self.nodes.pause(leader, false)?;
        pause(self.rng, 1500, 2500).await;
        self.nodes.start(others[1 - first])
    }
}
